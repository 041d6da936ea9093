"""Transactions: their epochs, the offsets they commit, and the outcome when requests and answers are lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import (
    BrokerAuthorizationError,
    BrokerError,
    ConfigError,
    ErrorCode,
    FencedError,
    TransactionAbortedError,
    TransportError,
)
from streamgroup.kafka.producer.batch import NO_IDENTITY
from streamgroup.kafka.producer.transaction import (
    AskCoordinator,
    Ended,
    GroupMember,
    GroupOffsets,
    Pause,
    Reply,
    Transaction,
    TransactionalId,
    TransactionalProducer,
    add_partitions,
)
from streamgroup.kafka.wire.messages import transactions as wire
from streamgroup.model import CommittedOffset, TopicPartition
from tests.fakes.transactions import MEMBER, Coordinator, converse, identity

ID = TransactionalId("copy", 60_000)
A, B = TopicPartition("t", 0), TopicPartition("u", 1)
VERSIONS = pytest.mark.parametrize("is_v2", [False, True], ids=["v1", "v2"])


def offsets(until: int) -> list[GroupOffsets]:
    return [GroupOffsets("g", {A: CommittedOffset(until), B: CommittedOffset(until)})]


def begin(producer: TransactionalProducer, coordinator: Coordinator, **others: Any) -> Transaction:
    return converse(producer.begin(is_v2=coordinator.is_v2), coordinator, **others)


def write(transaction: Transaction, coordinator: Coordinator) -> None:
    converse(add_partitions(transaction, [A]), coordinator)


@VERSIONS
def test_each_transaction_has_its_own_epoch(is_v2: bool) -> None:
    coordinator, producer = Coordinator(is_v2, markers=2), TransactionalProducer(ID)
    epochs = []
    for until in (10, 20, 30):
        epochs.append(begin(producer, coordinator).identity)
        assert converse(producer.commit(offsets(until)), coordinator) is Ended.COMMITTED
        assert coordinator.committed == {A: until, B: until}
    assert epochs == [identity(0), identity(1), identity(2)]
    assert coordinator.commits == [0, 1, 2]


@VERSIONS
def test_an_aborted_transaction_commits_nothing_and_its_tasks_are_refused(is_v2: bool) -> None:
    coordinator, producer = Coordinator(is_v2, markers=1), TransactionalProducer(ID)
    aborted = begin(producer, coordinator)
    write(aborted, coordinator)
    converse(producer.abort(), coordinator)
    with pytest.raises(FencedError, match="cannot add t-0 to the transaction: PRODUCER_FENCED"):
        write(aborted, coordinator)
    after = begin(producer, coordinator)
    assert after.identity.epoch > aborted.identity.epoch
    assert not coordinator.committed


@pytest.mark.parametrize("is_sent", [False, True], ids=["lost", "carried out"])
@VERSIONS
def test_an_abort_that_is_not_answered_in_time_does_not_fence_its_own_producer(is_v2: bool, is_sent: bool) -> None:
    """If it was carried out, no answer has shown the epoch. If not, the next transaction aborts it first."""
    coordinator, producer = Coordinator(is_v2), TransactionalProducer(ID)
    write(begin(producer, coordinator), coordinator)
    losses = [*[""] * (is_sent and not is_v2), "answer" if is_sent else "request", "request", "request"]
    with pytest.raises(TransportError, match="no answer"):
        converse(producer.abort(), coordinator, losses=losses, most=2)
    begin(producer, coordinator)
    assert converse(producer.commit(offsets(10)), coordinator) is Ended.COMMITTED


@VERSIONS
def test_a_run_that_begins_ends_the_transaction_of_the_run_before(is_v2: bool) -> None:
    coordinator = Coordinator(is_v2, markers=1)
    zombie, successor = TransactionalProducer(ID), TransactionalProducer(ID)
    write(begin(zombie, coordinator), coordinator)
    begin(successor, coordinator)
    for ending in (zombie.commit(offsets(10)), zombie.abort()):
        with pytest.raises(FencedError, match="Another run of this query"):
            converse(ending, coordinator)
    assert converse(successor.commit(offsets(10)), coordinator) is Ended.COMMITTED
    assert coordinator.commits == [coordinator.epoch - is_v2]


@VERSIONS
def test_a_run_that_has_been_replaced_leaves_the_transaction_of_its_successor_alone(is_v2: bool) -> None:
    """InitProducerId would abort an open transaction, whatever epoch it names."""
    coordinator = Coordinator(is_v2)
    zombie, successor = TransactionalProducer(ID), TransactionalProducer(ID)
    begin(zombie, coordinator)
    write(begin(successor, coordinator), coordinator)
    with pytest.raises(FencedError, match="cannot abort the transaction"):
        converse(zombie.abort(), coordinator)
    assert converse(successor.commit(offsets(10)), coordinator) is Ended.COMMITTED
    with pytest.raises(FencedError, match="cannot begin a transaction"):
        begin(zombie, coordinator)
    begin(successor, coordinator)


@VERSIONS
def test_a_lost_answer_to_the_end_is_found_out_by_asking_again(is_v2: bool) -> None:
    coordinator, producer = Coordinator(is_v2, markers=3), TransactionalProducer(ID)
    begin(producer, coordinator)
    losses = [*[""] * (1 if is_v2 else 2), "answer", "request", "answer"]
    assert converse(producer.commit(offsets(10)), coordinator, losses=losses) is Ended.COMMITTED
    assert coordinator.commits == [0]
    assert begin(producer, coordinator).identity == identity(1)


@VERSIONS
def test_an_end_that_is_refused_after_a_lost_answer_has_an_unknown_outcome(is_v2: bool) -> None:
    coordinator, producer = Coordinator(is_v2), TransactionalProducer(ID)
    begin(producer, coordinator)
    ending = producer.commit(offsets(10))
    answer: Any = None
    while True:
        step = ending.send(answer)
        if isinstance(step, AskCoordinator):
            version = step.ceiling or step.kind.VERSIONS[1]
            answer = Reply(version, coordinator.answer(step.make(version), version))
            if step.kind is wire.EndTxnRequest:
                break
        else:
            answer = MEMBER
    begin(TransactionalProducer(ID), coordinator)  # another run, after the commit
    assert isinstance(ending.send(None), Pause)
    assert isinstance(ending.send(None), AskCoordinator)
    with pytest.raises(StopIteration) as ended:
        ending.send(Reply(version, coordinator.answer(step.make(version), version)))
    assert ended.value.value is Ended.UNKNOWN
    assert coordinator.committed == {A: 10, B: 10}


@VERSIONS
def test_offsets_are_committed_for_the_generation_that_the_member_has_now(is_v2: bool) -> None:
    coordinator, producer = Coordinator(is_v2, member=GroupMember("m", 5)), TransactionalProducer(ID)
    begin(producer, coordinator)
    generations = iter([3, 4, 5])
    ended = converse(producer.commit(offsets(10)), coordinator, member=lambda: GroupMember("m", next(generations)))
    assert ended is Ended.COMMITTED


@VERSIONS
def test_a_member_that_has_lost_its_batch_commits_nothing(is_v2: bool) -> None:
    coordinator, producer = Coordinator(is_v2, member=GroupMember("m", 5)), TransactionalProducer(ID)
    begin(producer, coordinator)

    def lost() -> GroupMember:
        raise FencedError("lost")

    with pytest.raises(FencedError, match="lost"):
        converse(producer.commit(offsets(10)), coordinator, member=lost)
    assert not coordinator.committed


def test_a_cluster_that_switches_to_v2_gets_a_new_epoch() -> None:
    coordinator, producer = Coordinator(is_v2=True), TransactionalProducer(ID)
    first = begin(producer, coordinator).identity
    converse(producer.commit(offsets(10)), coordinator)
    assert converse(producer.begin(is_v2=False), coordinator).identity.epoch == first.epoch + 2


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (ErrorCode.INVALID_TXN_STATE, TransactionAbortedError, "INVALID_TXN_STATE"),
        (ErrorCode.TRANSACTION_ABORTABLE, TransactionAbortedError, "TRANSACTION_ABORTABLE"),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, FencedError, "have forgotten this id"),
        (
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            ConfigError,
            "kafka.transaction.timeout.ms=60000 is above transaction.max.timeout.ms",
        ),
        (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            BrokerAuthorizationError,
            "Write on transactional id 'copy'.*--transactional-id copy",
        ),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, BrokerAuthorizationError, "Read on topic 't'"),
        (ErrorCode.INVALID_REQUEST, BrokerError, "INVALID_REQUEST"),
    ],
)
def test_a_refusal_names_the_transactional_id_and_the_next_step(code: int, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=f"(?s)transactional id 'copy': cannot begin.*{words}"):
        raise ID.refused(code, "begin a transaction", "t")


def test_a_broker_that_does_not_check_members_is_refused() -> None:
    producer = TransactionalProducer(ID)
    step: Any = next(producer.begin(is_v2=False))
    with pytest.raises(ConfigError, match=r"older than Kafka 2\.5"):
        step.make(2)


def test_the_partition_that_is_refused_is_named() -> None:
    adding = add_partitions(Transaction(ID, NO_IDENTITY, is_v2=False), [A, B])
    next(adding)
    codes = {A: ErrorCode.OPERATION_NOT_ATTEMPTED, B: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    topics = tuple(
        wire.AddPartitionsToTxnTopicResult(
            name=tp.topic,
            results_by_partition=(
                wire.AddPartitionsToTxnPartitionResult(partition_index=tp.partition, partition_error_code=code),
            ),
        )
        for tp, code in codes.items()
    )
    with pytest.raises(BrokerAuthorizationError, match="topic 'u'"):
        adding.send(Reply(3, wire.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)))


LOSSES = st.lists(st.sampled_from(["", "", "", "request", "answer"]), max_size=12)


@given(
    is_v2=st.booleans(),
    markers=st.integers(0, 3),
    runs=st.lists(st.tuples(st.integers(0, 1), st.booleans(), st.booleans(), LOSSES, LOSSES), max_size=8),
)
def test_every_batch_is_committed_once_whatever_is_lost(
    is_v2: bool, markers: int, runs: list[tuple[int, bool, bool, list[str], list[str]]]
) -> None:
    """Two runs with one id write in turns. A batch counts as committed exactly if the group has its offset."""
    coordinator = Coordinator(is_v2, markers=markers)
    producers = [TransactionalProducer(ID), TransactionalProducer(ID)]
    for until, (which, writes, is_given_up, first, second) in enumerate(runs, 1):
        producer, before = producers[which], dict(coordinator.committed)
        try:
            transaction = begin(producer, coordinator, losses=first)
            if writes and not is_v2:
                write(transaction, coordinator)
            if is_given_up:
                converse(producer.abort(), coordinator, losses=second)
                assert coordinator.committed == before
                continue
            ended = converse(producer.commit(offsets(until)), coordinator, losses=second)
        except FencedError:
            producers[which] = TransactionalProducer(ID)  # the query is started again
            assert coordinator.committed == before
        except TransportError:
            producers[which] = TransactionalProducer(ID)
        else:
            assert ended is Ended.UNKNOWN or coordinator.committed == {A: until, B: until}
    assert len(coordinator.commits) == len(set(coordinator.commits))
