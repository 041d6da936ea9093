"""Every error code in an answer to every request, beside what Java's consumer does: one table, deviations with reasons.

Of Java's consumer: `AbstractCoordinator`, `ConsumerCoordinator`, `OffsetFetcherUtils`, `OffsetsForLeaderEpochUtils`,
`TopicMetadataFetcher`, `FetchCollector` and `NetworkClient` (of Kafka 4.0). Java's reactions are written in our words.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from streamgroup.errors import (
    KAFKA_ERRORS,
    BrokerError,
    ErrorCode,
    KafkaError,
    Refresh,
    StreamGroupError,
    TransportError,
    error_of,
    is_unexpected,
)
from streamgroup.executor.read.cursor import Cursor
from streamgroup.executor.read.kafka import KafkaLookup
from streamgroup.executor.read.recovery import Recovery
from streamgroup.group.reactions import Reaction, reaction_to, reaction_to_commit, reaction_to_fetch
from streamgroup.group.requests import Purpose
from streamgroup.kafka.cluster.metadata import snapshot_of
from streamgroup.kafka.cluster.requests import NO_OFFSET, EpochEnd, ListedOffset, read_epoch_ends, read_offsets
from streamgroup.kafka.net.handshake import Handshake
from streamgroup.kafka.wire.messages.cluster import (
    ApiVersionsResponse,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from streamgroup.kafka.wire.messages.log import (
    EpochEndOffset,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from streamgroup.kafka.wire.schema import encode
from streamgroup.model import EARLIEST, ClusterSnapshot, FetchRange, OffsetRange, TopicPartition
from streamgroup.options.types import ClientOptions, FetchOptions

NEWER = 140
"""A code that only a newer broker knows."""
CODES = [code for code in KAFKA_ERRORS if code] + [NEWER]
RETRIABLE = frozenset(code for code in CODES if error_of(code).retriable)
UNEXPECTED = frozenset({-1, 8, NEWER})
P0 = TopicPartition("t", 0)

AGAIN, FAILS, FIND, REJOINS, REJOINS_ANEW, REJOINS_LATER = (
    "the same again",
    "fails",
    "finds the coordinator again",
    "joins again as the same member",
    "joins again as a new member",
    "joins again after the batch",
)
A_WHILE, SMALLER, BY_METADATA = "again, a few times", "in smaller parts", "again, by fresh metadata"
ABSENT, NO_METADATA, LOOKS, OLDEST = "absent", "cannot be told", "looks how far the log reaches", "asks in version 0"


# What streamgroup does, in those words.

_WORDS = {
    Reaction.RETRY: AGAIN,
    Reaction.FIND: FIND,
    Reaction.METADATA: BY_METADATA,
    Reaction.SMALLER: SMALLER,
    Reaction.UNEXPECTED: A_WHILE,
    Reaction.REJOIN: REJOINS_LATER,
    Reaction.STALE: REJOINS,
    Reaction.UNKNOWN: REJOINS_ANEW,
    Reaction.NAMED: "joins with the id given",
    Reaction.FATAL: FAILS,
}


def _of(purpose: Purpose) -> Callable[[int], str]:
    return lambda code: _WORDS[reaction_to(purpose, code)]


def _list_offsets(code: int) -> str:
    row = ListOffsetsPartitionResponse(partition_index=0, error_code=code)
    topic = ListOffsetsTopicResponse(name="t", partitions=(row,))
    listed: dict[TopicPartition, ListedOffset] = {}
    causes: list[str] = []
    try:
        read_offsets(ListOffsetsResponse(topics=(topic,)), listed, causes)
    except BrokerError as error:
        return FAILS if error.code == code else str(error)
    assert bool(causes) is not bool(listed)
    return AGAIN if causes else NO_METADATA if listed == {P0: ListedOffset(NO_OFFSET)} else "read"


def _epochs(code: int) -> str:
    topic = OffsetForLeaderTopicResult(topic="t", partitions=(EpochEndOffset(error_code=code, partition=0),))
    ends: dict[TopicPartition, EpochEnd] = {}
    causes: list[str] = []
    try:
        read_epoch_ends(OffsetForLeaderEpochResponse(topics=(topic,)), ends, causes)
    except BrokerError as error:
        return FAILS if error.code == code else str(error)
    assert bool(causes) is not bool(ends)
    return AGAIN if causes else NO_METADATA


_BROKERS = (MetadataResponseBroker(node_id=1, host="h", port=1),)


def _metadata(code: int) -> str:
    return _settled(
        MetadataResponse(brokers=_BROKERS, topics=(MetadataResponseTopic(name="t", error_code=code),)), code
    )


def _whole_metadata(code: int) -> str:
    return _settled(MetadataResponse(brokers=_BROKERS, error_code=code), code)


def _settled(response: MetadataResponse, code: int) -> str:
    try:
        snapshot, unsettled = snapshot_of(response)
    except BrokerError as error:
        return FAILS if error.code == code else str(error)
    assert not snapshot.topics
    return AGAIN if unsettled else ABSENT


class _Log:
    """A cluster that knows of no leader, and of a log that holds everything."""

    looked = False

    def snapshot(self, topics: Collection[str], deadline: float, refresh: bool) -> ClusterSnapshot:
        return ClusterSnapshot({}, {})

    def list_offsets(self, wanted: Mapping[TopicPartition, int], *_: Any) -> dict[TopicPartition, ListedOffset]:
        self.looked = True
        return {tp: ListedOffset(0 if at == EARLIEST else 10) for tp, at in wanted.items()}


def _fetch(code: int) -> str:
    """As `Recovery.mend` takes it: it looks for the leader before it asks again."""
    cursor = Cursor.of(FetchRange(OffsetRange(P0, 0, 10), None))
    cursor.mark_failed(error_of(code), 0.0)
    options = ClientOptions(bootstrap_servers=(), retry_backoff_ms=1, retry_backoff_max_ms=1)
    lookup, log = KafkaLookup(options, FetchOptions(), lambda: 0.0), _Log()
    lookup._cluster = cast("Any", log)
    recovery = Recovery(lookup, options, FetchOptions(), fail_on_data_loss=True, clock=lambda: 0.0)
    try:
        recovery.mend([cursor])
    except BrokerError as error:
        return FAILS if error.code == code else str(error)
    assert cursor.failure is None
    return LOOKS if log.looked else AGAIN


def _handshake(code: int) -> str:
    handshake = Handshake("b:9092")
    (question,) = handshake.first_requests()
    frame = b"\0\0\0\0" + encode(ApiVersionsResponse(error_code=code), 0)
    try:
        then = handshake.on_response(question, frame)
    except BrokerError as error:
        return FAILS if error.code == code else str(error)
    except TransportError:
        return AGAIN
    assert then is not None
    return OLDEST


# What Java's consumer does.

_GROUP_FAILS = {30: FAILS, 82: FAILS}
_OF_A_MEMBER = {**_GROUP_FAILS, 15: FIND, 16: FIND, 22: REJOINS, 25: REJOINS_ANEW, 27: REJOINS_LATER}


@dataclass(frozen=True)
class Api:
    """One request: what streamgroup does, what Java does (`others`: with the codes that it does not name), and why not
    the same. Deviations are by the codes, what we do, and the reason."""

    ours: Callable[[int], str]
    java: Mapping[int, str]
    others: str = FAILS
    retriable: str | None = None
    deviations: tuple[tuple[Collection[int], str, str], ...] = field(default=())

    def java_does(self, code: int) -> str:
        default = self.retriable if self.retriable is not None and code in RETRIABLE else self.others
        return self.java.get(code, default)


_BROKER_FAILED = (
    UNEXPECTED,
    A_WHILE,
    "a broker that fails once may be well a moment later; one that keeps failing ends the query after some seconds",
)
_NO_GROUP = ({69}, REJOINS_ANEW, "a coordinator that does not know the group does not know the member")
_KIP_848 = ({110, 113}, REJOINS, "the codes of KIP-848 for a generation that is over")


def _surprising(*but: int) -> tuple[Collection[int], str, str]:
    return RETRIABLE.difference(but), AGAIN, "the code says that the same request may succeed: Java ends the consumer"


APIS: dict[str, Api] = {
    "FindCoordinator": Api(
        _of(Purpose.FIND),
        {30: FAILS},
        retriable=AGAIN,
        deviations=(
            _BROKER_FAILED,
            ({22, 110, 113}, REJOINS, "no broker answers so; the table of all group requests applies"),
            ({25, 69}, REJOINS_ANEW, "no broker answers so; the table of all group requests applies"),
            ({27}, REJOINS_LATER, "no broker answers so; the table of all group requests applies"),
        ),
    ),
    "JoinGroup": Api(
        _of(Purpose.JOIN),
        {**_GROUP_FAILS, 14: AGAIN, 15: FIND, 16: FIND, 25: REJOINS_ANEW, 27: AGAIN, 79: "joins with the id given"},
        deviations=(
            _BROKER_FAILED,
            _NO_GROUP,
            _KIP_848,
            _surprising(14, 15, 16),
            ({22}, REJOINS, "a generation that is over is no reason to end"),
        ),
    ),
    "SyncGroup": Api(
        _of(Purpose.SYNC),
        _OF_A_MEMBER,
        deviations=(_BROKER_FAILED, _NO_GROUP, _KIP_848, _surprising(15, 16)),
    ),
    "Heartbeat": Api(
        _of(Purpose.HEARTBEAT),
        _OF_A_MEMBER,
        deviations=(
            (UNEXPECTED, AGAIN, "the next heartbeat asks again; the session timeout bounds how long they may fail"),
            _NO_GROUP,
            _KIP_848,
            _surprising(15, 16),
        ),
    ),
    "OffsetCommit": Api(
        lambda code: _WORDS[reaction_to_commit(code)],
        {**_OF_A_MEMBER, 3: AGAIN, 7: FIND, 14: AGAIN, 12: FAILS, 28: FAILS, 29: FAILS},
        deviations=(
            _BROKER_FAILED,
            _NO_GROUP,
            _KIP_848,
            ({28, 10, 18}, SMALLER, "a commit is as large as its member's share: it is sent in parts that fit"),
            ({7}, AGAIN, "a coordinator that has moved says so (16); one that was slow is still the coordinator"),
            ({3}, BY_METADATA, "the topic may be gone: then there is nothing to commit"),
            (
                {code for code in RETRIABLE if error_of(code).refresh.value == "metadata"} - {3, 7},
                BY_METADATA,
                "the code says that the same request may succeed: Java ends the consumer",
            ),
            (
                {code for code in RETRIABLE if error_of(code).refresh.value != "metadata"} - {7, 14, 15, 16},
                AGAIN,
                "the code says that the same request may succeed: Java ends the consumer",
            ),
        ),
    ),
    "OffsetFetch": Api(
        lambda code: _WORDS[reaction_to_fetch(code)],
        {30: FAILS, 15: FIND, 16: FIND},
        retriable=AGAIN,
        deviations=(
            _BROKER_FAILED,
            ({69}, A_WHILE, "a group without commits has an empty answer; a group that is being removed goes by"),
            (
                {code for code in RETRIABLE if error_of(code).refresh.value == "metadata"},
                BY_METADATA,
                "R8 compares commits with topic ids: fresh ones",
            ),
        ),
    ),
    "ListOffsets": Api(
        _list_offsets,
        {29: FAILS, 43: NO_METADATA},
        others=AGAIN,
        deviations=(
            ({17, 30, 31, 35, 42}, FAILS, "no time mends it: Java asks until the timeout, and hides the cause"),
        ),
    ),
    "OffsetForLeaderEpoch": Api(
        _epochs,
        {29: FAILS},
        others=AGAIN,
        deviations=(
            ({17, 30, 35, 42}, FAILS, "no time mends it"),
            ({31}, NO_METADATA, "brokers before 2.3 answer only other brokers: the position goes unchecked"),
        ),
    ),
    "Metadata, of a topic": Api(
        _metadata,
        {3: ABSENT, 17: FAILS, 29: FAILS},
        retriable=AGAIN,
        deviations=((UNEXPECTED, AGAIN, "a broker that fails once may be well a moment later"),),
    ),
    "Metadata, as a whole": Api(
        _whole_metadata,
        {129: AGAIN},
        others=ABSENT,
        deviations=(
            (RETRIABLE | UNEXPECTED, AGAIN, "Java takes the answer for one without brokers, and asks again later"),
            (
                set(CODES) - RETRIABLE - UNEXPECTED - {129},
                FAILS,
                "Java takes the answer for one without brokers, for ever, and says nothing",
            ),
        ),
    ),
    "Fetch": Api(
        _fetch,
        dict.fromkeys((-1, 3, 6, 9, 56, 74, 75, 78, 100, 103, NEWER), AGAIN) | {1: LOOKS, 29: FAILS},
        deviations=(
            ({8}, AGAIN, "as UNKNOWN_SERVER_ERROR: old brokers had no better code"),
            (
                RETRIABLE - {3, 6, 9, 56, 74, 75, 78, 100, 103},
                AGAIN,
                "the code says that the same request may succeed: Java ends the consumer; a damaged batch is "
                "told apart by its checksum in the task",
            ),
        ),
    ),
    "ApiVersions": Api(
        _handshake,
        {35: OLDEST},
        others=AGAIN,
        deviations=(
            (
                set(CODES) - RETRIABLE - UNEXPECTED - {35},
                FAILS,
                "Java connects anew for ever: a broker that refuses (SASL wanted, not authorized) is an error to show",
            ),
        ),
    ),
}


@pytest.mark.parametrize("name", APIS)
def test_every_code_is_treated_as_by_java_or_as_the_deviation_says(name: str) -> None:
    api = APIS[name]
    deviating = {code: does for codes, does, _ in api.deviations for code in codes}
    differing = {
        code: (ours, expected)
        for code in CODES
        if (ours := api.ours(code)) != (expected := deviating.get(code, api.java_does(code)))
    }
    assert differing == {}


@pytest.mark.parametrize("name", APIS)
def test_every_deviation_is_one_and_has_a_reason(name: str) -> None:
    api = APIS[name]
    for codes, does, reason in api.deviations:
        assert reason
        assert {code for code in codes if api.java_does(code) == does} == set(), reason
    counted = [code for codes, _, _ in api.deviations for code in codes]
    assert len(counted) == len(set(counted))


def test_a_code_of_a_newer_broker_is_an_unexpected_failure() -> None:
    assert {code for code in CODES if is_unexpected(code)} == UNEXPECTED


# The table of codes.


def test_the_table_has_every_code_of_kafka_4_3_once() -> None:
    assert sorted(KAFKA_ERRORS) == list(range(-1, 134))
    assert len({row.name for row in KAFKA_ERRORS.values()}) == len(KAFKA_ERRORS)
    assert all(row.code == code and row.text for code, row in KAFKA_ERRORS.items())
    assert all(row.retriable for row in KAFKA_ERRORS.values() if row.refresh is not Refresh.NONE)


@pytest.mark.parametrize("code", ErrorCode, ids=lambda code: code.name)
def test_a_code_that_code_names_has_its_row(code: ErrorCode) -> None:
    assert error_of(code).name == code.name


@pytest.mark.parametrize(
    ("code", "retriable", "refresh"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True, Refresh.METADATA),
        (ErrorCode.NOT_COORDINATOR, True, Refresh.COORDINATOR),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True, Refresh.NONE),
        (ErrorCode.ILLEGAL_GENERATION, False, Refresh.NONE),
        (ErrorCode.UNKNOWN_SERVER_ERROR, False, Refresh.NONE),
    ],
)
def test_what_is_to_be_done(code: int, retriable: bool, refresh: Refresh) -> None:
    row = error_of(code)
    assert (row.retriable, row.refresh) == (retriable, refresh)


@pytest.mark.parametrize("code", [-2, 134, 32767])
def test_a_code_of_a_newer_broker_is_named_and_final(code: int) -> None:
    row = error_of(code)
    assert (row.code, row.name, row.retriable, row.refresh) == (code, f"UNKNOWN_{code}", False, Refresh.NONE)


@pytest.mark.parametrize("error", [29, KAFKA_ERRORS[29]])
def test_a_broker_error_says_what_was_asked_and_what_came(error: int | KafkaError) -> None:
    raised = BrokerError(error, "fetching orders-3")
    assert isinstance(raised, StreamGroupError)
    assert str(raised) == "fetching orders-3: TOPIC_AUTHORIZATION_FAILED (29): no permission on the topic"
    assert (raised.code, raised.name, raised.retriable) == (29, "TOPIC_AUTHORIZATION_FAILED", False)
    assert raised.refresh is Refresh.NONE


def test_a_broker_error_crosses_processes() -> None:
    raised = pickle.loads(pickle.dumps(BrokerError(6, "fetching orders-3")))
    assert isinstance(raised, BrokerError)
    assert (raised.code, raised.context) == (6, "fetching orders-3")
