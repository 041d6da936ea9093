"""Requests for log ends and leader epochs go to the leader of each partition; each error is final or is retried."""

from __future__ import annotations

import pytest

from streamgroup.advice import Requester
from streamgroup.errors import AuthorizationError, BrokerError, ErrorCode
from streamgroup.kafka.cluster.requests import (
    EpochCheck,
    EpochEnd,
    ListedOffset,
    epoch_requests,
    offset_requests,
    read_epoch_ends,
    read_offsets,
)
from streamgroup.kafka.wire.messages.log import (
    CONSUMER_REPLICA_ID,
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from streamgroup.model import (
    EARLIEST,
    LATEST,
    NO_LEADER,
    Broker,
    ClusterSnapshot,
    PartitionInfo,
    TopicInfo,
    TopicPartition,
)
from streamgroup.options.types import Isolation

A0, A1, A2, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("b", 0)
SNAPSHOT = ClusterSnapshot(
    {1: Broker(1, "h1", 92), 2: Broker(2, "h2", 92)},
    {
        "a": TopicInfo("a", (PartitionInfo(0, 1, 5), PartitionInfo(1, 2, 6), PartitionInfo(2, 1, 7))),
        "b": TopicInfo("b", (PartitionInfo(0, 1, 8), PartitionInfo(1, NO_LEADER, 8), PartitionInfo(2, 9, 8))),
    },
)
ALICE = Requester("User:alice", "b:9092")
RETRIED = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_SERVER_ERROR, 9_999]
FINAL = [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_TOPIC_EXCEPTION]


# -- requests by leader ------------------------------------------------------------------------------------------------


def test_each_leader_gets_one_request_with_its_partitions_and_their_leader_epochs() -> None:
    wanted = {B0: LATEST, A2: 1_000, A1: LATEST, A0: EARLIEST}
    requests, causes = offset_requests(wanted, SNAPSHOT, Isolation.READ_COMMITTED)
    assert causes == []
    assert requests.keys() == {1, 2}
    assert requests[1].topics == (
        ListOffsetsTopic(
            name="a",
            partitions=(
                ListOffsetsPartition(partition_index=0, current_leader_epoch=5, timestamp=EARLIEST),
                ListOffsetsPartition(partition_index=2, current_leader_epoch=7, timestamp=1_000),
            ),
        ),
        ListOffsetsTopic(
            name="b", partitions=(ListOffsetsPartition(partition_index=0, current_leader_epoch=8, timestamp=LATEST),)
        ),
    )
    assert [p.partition_index for t in requests[2].topics for p in t.partitions] == [1]
    assert {r.isolation_level for r in requests.values()} == {Isolation.READ_COMMITTED.value}
    assert {r.replica_id for r in requests.values()} == {CONSUMER_REPLICA_ID}


@pytest.mark.parametrize(
    ("tp", "cause"),
    [
        (TopicPartition("a", 3), "a-3 does not exist"),
        (TopicPartition("c", 0), "c-0 does not exist"),
        (TopicPartition("b", 1), "b-1 has no leader"),
        (TopicPartition("b", 2), "b-2 has no leader"),
    ],
    ids=["no partition", "no topic", "election", "leader away"],
)
def test_a_partition_without_a_leader_to_ask_is_named_and_the_others_are_asked(tp: TopicPartition, cause: str) -> None:
    requests, causes = offset_requests({tp: LATEST, A1: LATEST}, SNAPSHOT, Isolation.READ_UNCOMMITTED)
    assert (requests.keys(), causes) == ({2}, [cause])
    checks, causes = epoch_requests({tp: EpochCheck(1, 2), A0: EpochCheck(1, 2)}, SNAPSHOT)
    assert (checks.keys(), causes) == ({1}, [cause])


@pytest.mark.parametrize(("current", "sent"), [(4, 5), (5, 5), (6, 6)])
def test_the_end_of_an_epoch_is_asked_of_a_leader_of_the_newest_known_epoch(current: int, sent: int) -> None:
    """KIP-320: a leader of an older epoch refuses. The metadata or a listed end may have the newest epoch."""
    requests, _ = epoch_requests({A0: EpochCheck(3, current)}, SNAPSHOT)
    row = OffsetForLeaderPartition(partition=0, current_leader_epoch=sent, leader_epoch=3)
    assert requests[1].topics == (OffsetForLeaderTopic(topic="a", partitions=(row,)),)
    assert requests[1].replica_id == CONSUMER_REPLICA_ID


# -- ListOffsets -------------------------------------------------------------------------------------------------------


def listed(*rows: ListOffsetsPartitionResponse) -> tuple[dict[TopicPartition, ListedOffset], list[str]]:
    found: dict[TopicPartition, ListedOffset] = {}
    causes: list[str] = []
    topic = ListOffsetsTopicResponse(name="a", partitions=rows)
    read_offsets(ListOffsetsResponse(topics=(topic,)), found, causes, ALICE)
    return found, causes


def test_offsets_come_with_their_timestamps_and_leader_epochs() -> None:
    row = ListOffsetsPartitionResponse(partition_index=1, offset=7, timestamp=1_000, leader_epoch=3)
    assert listed(row) == ({A1: ListedOffset(7, 1_000, 3)}, [])


def test_a_broker_before_0_10_1_lists_segments_of_which_the_newest_counts() -> None:
    found, _ = listed(ListOffsetsPartitionResponse(partition_index=0, old_style_offsets=(90, 50, 0)))
    assert (found[A0].offset, found[A0].coarse) == (90, True)
    found, _ = listed(ListOffsetsPartitionResponse(partition_index=0, offset=90))
    assert not found[A0].coarse


@pytest.mark.parametrize("code", RETRIED)
def test_an_error_that_may_pass_is_a_cause_and_the_other_partitions_are_read(code: int) -> None:
    rows = [ListOffsetsPartitionResponse(partition_index=n, error_code=code * (n == 0), offset=7) for n in (0, 1)]
    found, causes = listed(*rows)
    assert found == {A1: ListedOffset(7)}
    assert [cause.startswith("a-0: ") for cause in causes] == [True]


@pytest.mark.parametrize("code", FINAL)
def test_an_error_that_no_retry_resolves_names_the_partition(code: ErrorCode) -> None:
    with pytest.raises(BrokerError, match=rf"cannot list the offsets of a-0: {code.name}"):
        listed(ListOffsetsPartitionResponse(partition_index=0, error_code=code))


def test_a_refusal_names_the_user_the_topic_and_the_command() -> None:
    row = ListOffsetsPartitionResponse(partition_index=0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(AuthorizationError, match=r"offsets of a-0.*User:alice .*Describe on topic 'a'.*kafka-acls\.sh"):
        listed(row)


# -- OffsetForLeaderEpoch ----------------------------------------------------------------------------------------------


def ends(*rows: EpochEndOffset) -> tuple[dict[TopicPartition, EpochEnd], list[str]]:
    found: dict[TopicPartition, EpochEnd] = {}
    causes: list[str] = []
    topic = OffsetForLeaderTopicResult(topic="a", partitions=rows)
    read_epoch_ends(OffsetForLeaderEpochResponse(topics=(topic,)), found, causes, ALICE)
    return found, causes


@pytest.mark.parametrize("code", [*RETRIED, ErrorCode.FENCED_LEADER_EPOCH])
def test_an_end_that_is_not_told_yet_is_a_cause_with_the_partition(code: int) -> None:
    found, causes = ends(
        EpochEndOffset(partition=0, error_code=code), EpochEndOffset(partition=1, leader_epoch=3, end_offset=40)
    )
    assert found == {A1: EpochEnd(3, 40)}
    assert [cause.startswith("a-0: ") for cause in causes] == [True]


@pytest.mark.parametrize("code", [*FINAL, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_an_end_that_is_refused_for_good_is_an_error_with_the_partition(code: ErrorCode) -> None:
    with pytest.raises(BrokerError, match=rf"cannot read the end of a leader epoch of a-0: .*{code.name}"):
        ends(EpochEndOffset(partition=0, error_code=code))
