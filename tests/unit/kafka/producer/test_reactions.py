"""Every error code in an answer to Produce, beside what Java's producer does: one table, deviations with reasons.

Of Java's producer: `Sender.completeBatch`, `Sender.canRetry`, `TransactionManager.canRetry` and `handleFailedBatch` (of
Kafka 4.1), for a producer without transactional id.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from streamgroup import errors
from streamgroup.advice import RESOURCES, Requester
from streamgroup.errors import KAFKA_ERRORS, DeliveryTimeoutError, ErrorCode, ProduceError, UnknownTopicError, error_of
from streamgroup.kafka.producer import reactions
from streamgroup.kafka.producer.batch import ProducerBatch
from streamgroup.kafka.producer.config import ProducerConfig
from streamgroup.kafka.producer.reactions import Appended, ProduceReaction, reaction_to, reaction_to_metadata
from streamgroup.kafka.wire.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse
from streamgroup.model import PartitionInfo, TopicInfo
from tests.unit.kafka.producer.drivers import P0
from tests.unit.kafka.producer.world import Records

DOCS = Path(__file__).parents[4] / "docs" / "producer.md"
NEWER = 140
"""A code that only a newer broker knows."""
CODES = [code for code in KAFKA_ERRORS if code] + [NEWER]

JAVA: dict[int, str] = {
    10: "splits",
    45: "retries behind the missing batch, else bumps the epoch and retries",
    46: "succeeds",
    59: "bumps the epoch and retries",
}
"""Java's reaction, where it is neither to retry a retriable error nor to fail."""

DEVIATIONS: dict[int, str] = {
    -1: "a broker that failed for unknown reasons may succeed at the next attempt; ten attempts at most",
    8: "as -1",
    NEWER: "as -1",
    18: "a smaller batch fits into a segment",
    45: "the broker may have the batch, and have forgotten it: under another epoch it would be there twice",
    47: "the id is used by another producer: another id instead of failing",
    49: "as 47",
}


def javas(code: int) -> str:
    return JAVA.get(code) or ("retries" if error_of(code).retriable else "fails")


def ours(code: int) -> str:
    return {
        ProduceReaction.DELIVERED: "succeeds",
        ProduceReaction.RETRY: "retries",
        ProduceReaction.METADATA: "retries",
        ProduceReaction.UNEXPECTED: "retries",
        ProduceReaction.SPLIT: "splits",
        ProduceReaction.OUT_OF_ORDER: "retries behind the missing batch, else succeeds behind a later one or fails",
        ProduceReaction.NEW_EPOCH: "bumps the epoch and retries",
        ProduceReaction.NEW_ID: "takes another id and retries",
        ProduceReaction.FAIL: "fails",
        ProduceReaction.FATAL: "fails",
    }[reaction_to(code).reaction]


@pytest.mark.parametrize("code", CODES)
def test_the_producer_does_as_javas_but_where_a_reason_is_given(code: int) -> None:
    assert (ours(code) != javas(code)) == (code in DEVIATIONS), (code, ours(code), javas(code))


@pytest.mark.parametrize("code", [2, 10, 17, 18, 19, 21, 29, 31, 32, 43, 45, 47, 59, 76, 87, 100])
def test_these_codes_prove_that_the_leader_has_not_appended_the_batch(code: int) -> None:
    assert reaction_to(code).appended is Appended.NO


@pytest.mark.parametrize("code", [-1, 3, 5, 6, 7, 13, 20, 56, 74, NEWER])
def test_these_codes_leave_it_open(code: int) -> None:
    """The leader appends first and then waits for the other replicas."""
    assert reaction_to(code).appended is not Appended.NO


def test_the_table_in_the_docs_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| (-?\d+) \| `(\w+)` \| ([a-z ]+) \| (\w+) \|$", DOCS.read_text(), re.MULTILINE)
    assert [int(code) for code, *_ in rows] == sorted(reactions.PRODUCE)
    for code, name, reaction, appended in rows:
        row = reaction_to(int(code))
        assert (error_of(int(code)).name, row.reaction.value, row.appended.value) == (name, reaction, appended)


def test_a_code_that_fails_has_advice() -> None:
    kinds = ProduceReaction
    failing = {kinds.FAIL, kinds.FATAL, kinds.SPLIT, kinds.OUT_OF_ORDER, kinds.NEW_ID}
    for code in CODES:
        row = reaction_to(code)
        assert row.advice or row.reaction not in failing or code in RESOURCES, code


def test_a_topic_waits_unless_it_is_refused() -> None:
    found = {code: reaction_to_metadata(code).reaction for code in (29, 17, 3)}
    assert found == {29: ProduceReaction.FAIL, 17: ProduceReaction.FAIL, 3: ProduceReaction.RETRY}


@pytest.mark.parametrize("code", [13, 14, 15, 16, 51, -1, NEWER, 31, 35, 42])
def test_an_id_is_asked_for_again_unless_it_is_refused(code: int) -> None:
    expected = ProduceReaction.FATAL if code in (31, 35, 42) else ProduceReaction.RETRY
    assert reactions.reaction_to_producer_id(code).reaction is expected


# -- errors -----------------------------------------------------------------------------------------------------------

ALICE = Requester("User:alice", "b1:9092")
AGAIN = ". The broker may have the records: writing them again may duplicate them"
CONFIG = ProducerConfig(delivery_timeout_ms=40_000, max_block_ms=7_000)
TOO_LARGE, NO_VERSION = ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNSUPPORTED_VERSION
NO_ACKS, NO_TOPIC = ErrorCode.INVALID_REQUIRED_ACKS, ErrorCode.INVALID_TOPIC_EXCEPTION


def batch(count: int = 5, *, node: int = 2, code: int = 0, doubtful: bool = False, cause: str = "") -> ProducerBatch:
    made = ProducerBatch(P0, Records(tuple(range(count))), 0.0)
    made.node, made.code, made.doubtful, made.cause, made.attempts = node, code, doubtful, cause, 3
    return made


ERRORS: list[tuple[ProduceError, type[ProduceError], str, str]] = [
    (
        reactions.no_producer_id(
            NO_VERSION, "b1:9092 does not have it", reactions.reaction_to_producer_id(NO_VERSION), ALICE
        ),
        ProduceError,
        "could not get a producer id (b1:9092 does not have it): UNSUPPORTED_VERSION (35): ",
        "Idempotence needs brokers of Kafka 0.11 or later: leave kafka.enable.idempotence out",
    ),
    (
        reactions.producer_refused(2, NO_ACKS, reaction_to(NO_ACKS), ALICE),
        ProduceError,
        "broker 2 refuses this producer: INVALID_REQUIRED_ACKS (21): ",
        ". Set kafka.acks to 0, 1 or all",
    ),
    (
        reactions.topic_refused("a/b", NO_TOPIC, reaction_to_metadata(NO_TOPIC), ALICE),
        ProduceError,
        "cannot write topic a/b: INVALID_TOPIC_EXCEPTION (17): ",
        "Choose a valid topic name; clients may not write internal topics",
    ),
    (
        reactions.too_large(batch(1, node=-1), reaction_to(TOO_LARGE), 9),
        errors.RecordTooLargeError,
        "could not write 1 record (10 bytes) to t-0: the record is larger than max.request.size=9. Raise ",
        "kafka.max.request.size",
    ),
    (
        reactions.timed_out(batch(code=19, cause="NOT_ENOUGH_REPLICAS (19)"), CONFIG, "metadata"),
        DeliveryTimeoutError,
        "could not write 5 records (50 bytes) to t-0 at broker 2: not acknowledged within delivery.timeout.ms=40000 "
        "after 3 attempts; last: NOT_ENOUGH_REPLICAS (19). Check for brokers that are down, or lower ",
        "min.insync.replicas of the topic",
    ),
    (
        reactions.timed_out(batch(node=-1), CONFIG, "waits for the leader of t-0"),
        DeliveryTimeoutError,
        "could not write 5 records (50 bytes) to t-0: not acknowledged within delivery.timeout.ms=40000 after 3 "
        "attempts; last: waits for the leader of t-0. Check that the partition's leader runs",
        "or raise kafka.delivery.timeout.ms",
    ),
    (
        reactions.unknown_partition(batch(node=-1), CONFIG, TopicInfo("t", (PartitionInfo(1, 0),)), is_new=True),
        UnknownTopicError,
        "could not write 5 records (50 bytes) to t-0: topic t was deleted and created again with 1 partition, without "
        "partition 0. Correct the column 'partition', ",
        "or add partitions to the topic",
    ),
    (
        reactions.unknown_partition(batch(node=-1), CONFIG, None),
        UnknownTopicError,
        "could not write 5 records (50 bytes) to t-0: topic t did not appear in the metadata within max.block.ms=7000. "
        "Create it, or set",
        str(reactions.missing_topic("t", CONFIG, "")),
    ),
]


@pytest.mark.parametrize(("error", "kind", "begin", "end"), ERRORS)
def test_an_error_names_the_object_the_cause_and_the_next_step(
    error: ProduceError, kind: type[ProduceError], begin: str, end: str
) -> None:
    assert type(error) is kind
    assert (str(error)[: len(begin)], str(error)[-len(end) :]) == (begin, end)
    assert not error.maybe_written


@pytest.mark.parametrize(
    ("shown", "more", "says"),
    [
        (0, 0, ". Give records"),
        (3, 0, "rejected. Give records"),
        (3, 1, "; and 1 more record. "),
        (3, 2, "; and 2 more "),
    ],
)
def test_the_brokers_own_words_name_three_records_and_count_the_others(shown: int, more: int, says: str) -> None:
    rows = [BatchIndexAndErrorMessage(batch_index=n) for n in range(1, shown + more)]
    if shown:
        rows.insert(0, BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="no key"))
    answer = PartitionProduceResponse(error_message="bad" if shown else None, record_errors=tuple(rows))
    code = ErrorCode.INVALID_RECORD
    text = str(reactions.refused(batch(code=code), code, reaction_to(code), answer, ALICE))
    assert says in text
    named = "; bad; record 0 of the batch: no key; record 1 of the batch: rejected; record 2 of the batch: rejected"
    assert (named in text) is bool(shown)
    assert "record 3" not in text


def test_a_topic_that_the_user_may_not_see_comes_with_the_right_to_create_it() -> None:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    error = reactions.topic_refused("orders", code, reaction_to_metadata(code), ALICE)
    assert isinstance(error, errors.ProduceAuthorizationError)
    assert str(error).startswith(f"cannot write topic orders: TOPIC_AUTHORIZATION_FAILED ({code.value}): User:alice ")
    assert "--operation Write --topic orders`. If the topic does not exist" in str(error)
    assert "--operation Create --topic orders` (brokers before 2.0 take --cluster" in str(error)


@pytest.mark.parametrize("doubtful", [False, True])
@pytest.mark.parametrize(
    ("error_of_batch", "why"),
    [
        (reactions.out_of_reach, "earlier records of the partition have failed"),
        (reactions.out_of_turn, "accepted records that follow them"),
    ],
)
def test_a_batch_behind_a_failed_one_or_overtaken_by_a_later_one_asks_to_write_all_again(
    error_of_batch: Callable[[ProducerBatch], ProduceError], why: str, doubtful: bool
) -> None:
    error = error_of_batch(batch(code=45, cause="OUT_OF_ORDER_SEQUENCE_NUMBER (45)", doubtful=doubtful))
    assert str(error).startswith("could not write 5 records (50 bytes) to t-0 at broker 2: ")
    assert why in str(error)
    assert "(OUT_OF_ORDER_SEQUENCE_NUMBER (45))" in str(error)
    assert str(error).lower().endswith("write all again")
    assert (error.code, error.maybe_written, AGAIN in str(error)) == (45, doubtful, doubtful)
