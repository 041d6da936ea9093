"""A batch: the records of one partition that are sent, acknowledged and failed together."""

from __future__ import annotations

from streamgroup.kafka.producer.batch import NO_IDENTITY, BatchState, ProducerBatch, ProducerIdentity
from tests.unit.kafka.producer.drivers import P0
from tests.unit.kafka.producer.world import Records

IDENTITY = ProducerIdentity(7, 3)


def batch(*counts: int, now: float = 10.0) -> ProducerBatch:
    made = ProducerBatch(P0, Records(tuple(range(counts[0]))), now)
    for count in counts[1:]:
        made.add(Records(tuple(range(count))))
    return made


def test_a_new_batch_has_its_payload_and_no_number_and_may_be_sent_at_once() -> None:
    new = batch(3, now=12.5)
    assert (new.count, new.size, new.created_at, new.retry_at) == (3, 30, 12.5, 12.5)
    assert (new.state, new.full, new.attempts) == (BatchState.QUEUED, False, 0)
    assert (new.identity, new.base_sequence) == (NO_IDENTITY, -1)
    assert (NO_IDENTITY.producer_id, NO_IDENTITY.epoch) == (-1, -1)


def test_a_batch_has_the_payloads_in_their_order_and_the_sum_of_their_records_and_bytes() -> None:
    made = batch(1, 0, 4)
    assert [payload.count for payload in made.payloads] == [1, 0, 4]
    assert (made.count, made.size) == (5, 50)


def test_a_part_has_the_age_the_attempts_and_the_doubts_of_its_batch() -> None:
    whole = batch(2, 2, now=3.0)
    whole.number(IDENTITY, 40)
    whole.state, whole.attempts, whole.node = BatchState.SPLITTING, 4, 1
    whole.doubtful, whole.followed, whole.code, whole.cause = True, True, 10, "MESSAGE_TOO_LARGE (10)"
    part = whole.part(Records((8, 9)))
    assert (part.partition, part.count, part.size, part.created_at) == (P0, 2, 20, 3.0)
    assert (part.attempts, part.node, part.code, part.cause) == (4, 1, 10, "MESSAGE_TOO_LARGE (10)")
    assert (part.doubtful, part.followed) == (True, True)


def test_a_part_is_full_and_queued_without_a_number() -> None:
    whole = batch(4)
    whole.number(IDENTITY, 40)
    whole.state = BatchState.SPLITTING
    part = whole.part(Records((0,)))
    assert (part.full, part.state) == (True, BatchState.QUEUED)
    assert (part.identity, part.base_sequence) == (NO_IDENTITY, -1)


def test_the_text_of_a_batch_names_the_partition_the_records_the_state_and_the_sequence() -> None:
    made = batch(2)
    made.number(IDENTITY, 40)
    assert repr(made) == "ProducerBatch(t-0, 2 records, queued, 40)"
