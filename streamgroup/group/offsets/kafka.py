"""Fetches and commits offsets that brokers store: OffsetFetch and OffsetCommit, in the version of each connection.

From version 1 the group coordinator stores them in the topic `__consumer_offsets`. In version 0 any broker reads and
writes them in ZooKeeper (0.8 to 3.x). The store uses version 0 if there is no group coordinator (`NoCoordinator`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache

from streamgroup.errors import ErrorCode
from streamgroup.group import events as ev
from streamgroup.group.events import Lane, Send
from streamgroup.group.offsets.store import (
    COMMITTED,
    NOTHING,
    CommitOffsets,
    FetchOffsets,
    NoAnswer,
    OffsetsCommitted,
    OffsetsFetched,
    OffsetStore,
    Outcome,
    PartitionVerdict,
    Request,
    Verdict,
)
from streamgroup.group.reactions import Reaction, is_of_membership, reaction_to_commit, reaction_to_fetch
from streamgroup.kafka.wire.messages.cluster import MetadataRequest, MetadataResponse
from streamgroup.kafka.wire.messages.offsets import (
    ZOOKEEPER_VERSION,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    fetched_offsets,
    offset_fetch_request,
)
from streamgroup.model import CommittedOffset, TopicPartition

_VERDICTS = {
    Reaction.FIND: Verdict.MOVED,
    Reaction.METADATA: Verdict.STALE_METADATA,
    Reaction.UNEXPECTED: Verdict.FAILED,
    Reaction.SMALLER: Verdict.TOO_LARGE,
    Reaction.FATAL: Verdict.REFUSED,
}
_TOPICS_MISSING = PartitionVerdict(Verdict.RETRIABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""The broker knows fewer topics than other brokers: it has just started."""


@cache
def commit_verdict(code: int) -> PartitionVerdict:
    if code == ErrorCode.NONE:
        return COMMITTED
    verdict = Verdict.FENCED if is_of_membership(code) else _VERDICTS.get(reaction_to_commit(code), Verdict.RETRIABLE)
    return PartitionVerdict(verdict, code)


def commit_verdicts(response: OffsetCommitResponse) -> dict[TopicPartition, PartitionVerdict]:
    """Return the verdict on each partition in an OffsetCommit response."""
    return {
        TopicPartition(topic.name, p.partition_index): commit_verdict(p.error_code)
        for topic in response.topics
        for p in topic.partitions
    }


def commit_request(commit: CommitOffsets) -> Callable[[int], OffsetCommitRequest]:
    """Return a function that builds OffsetCommit in a given version."""
    by_topic: dict[str, list[tuple[int, CommittedOffset]]] = {}
    for tp, offset in commit.offsets.items():
        by_topic.setdefault(tp.topic, []).append((tp.partition, offset))

    def build(version: int) -> OffsetCommitRequest:
        return OffsetCommitRequest(
            group_id=commit.group,
            generation_id_or_member_epoch=commit.generation,
            member_id=commit.member_id,
            group_instance_id=commit.instance_id if version >= 7 else None,
            topics=tuple(
                OffsetCommitRequestTopic(name=topic, partitions=tuple(_row(*one, version) for one in partitions))
                for topic, partitions in by_topic.items()
            ),
        )

    return build


def _row(partition: int, offset: CommittedOffset, version: int) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch if version >= 6 else -1,
        committed_metadata=offset.metadata,
    )


class KafkaOffsetStore(OffsetStore):
    """The offset store of a Kafka group.

    Its requests use the lane of the group coordinator and the token of the member's request.
    """

    is_the_groups = True

    def __init__(self) -> None:
        self._pending: dict[int, Request] = {}
        """By token. Bounded: the driver answers or fails each Send."""
        self._ceiling: int | None = None
        """The highest version of OffsetFetch and OffsetCommit to use; None: no limit."""
        self._unknown_topic = UnknownTopicCheck()

    def fetch(self, request: FetchOffsets, now: float) -> Outcome:
        """Send OffsetFetch for all offsets of the group. A partial request, or one before v2, names the partitions."""
        wanted = request.partitions if request.is_partial else None

        def build(version: int) -> OffsetFetchRequest:
            return offset_fetch_request(version, request.group, wanted, known=request.partitions)

        self._pending[request.token] = request
        timeout_ms, ceiling = request.timeout_ms, self._ceiling
        return _sent(Send(request.token, Lane.COORDINATOR, OffsetFetchRequest, build, timeout_ms, ceiling=ceiling))

    def commit(self, request: CommitOffsets, now: float) -> Outcome:
        self._pending[request.token] = request
        build, timeout_ms, ceiling = commit_request(request), request.timeout_ms, self._ceiling
        return _sent(Send(request.token, Lane.COORDINATOR, OffsetCommitRequest, build, timeout_ms, ceiling=ceiling))

    def follow(self, action: object) -> Outcome:
        """Use v0 from now on if there is no group coordinator. Brokers themselves fence old generations."""
        if isinstance(action, ev.NoCoordinator):
            self._ceiling = ZOOKEEPER_VERSION
        return NOTHING

    def takes(self, event: object) -> bool:
        return isinstance(event, ev.RequestAnswered | ev.RequestFailed) and event.token in self._pending

    def hear(self, event: object, now: float) -> Outcome:
        match event:
            case ev.CoordinatorGone():
                self._unknown_topic.reset()
            case ev.RequestFailed() if self._pending.pop(event.token, None) is not None:
                self._unknown_topic.reset()
                return Outcome(answers=(NoAnswer(event.token, event.reason, is_elsewhere=event.moved),))
            case ev.RequestAnswered() if (request := self._pending.pop(event.token, None)) is not None:
                if isinstance(request, CommitOffsets):
                    return self._committed(event)
                if isinstance(event.response, MetadataResponse):
                    self._unknown_topic.learn(event.response)
                    return self.fetch(request, now)
                return self._fetched(request, event)
        return NOTHING

    def _committed(self, event: ev.RequestAnswered) -> Outcome:
        verdicts = commit_verdicts(event.response)
        if any(verdict.code for verdict in verdicts.values()):
            self._unknown_topic.reset()
        return Outcome(answers=(OffsetsCommitted(event.token, verdicts),))

    def _fetched(self, request: FetchOffsets, event: ev.RequestAnswered) -> Outcome:
        answer = fetched_offsets(event.response, event.version, request.group)
        codes = {tp.topic: p.error_code for tp, p in answer.partitions.items() if p.error_code}
        topic, code = ("", answer.error_code) if answer.error_code else next(iter(codes.items()), ("", 0))
        if code:
            return self._refused(request, _fetch_verdict(code, topic))
        unknown = {tp.topic for tp, p in answer.partitions.items() if p.committed is None}
        if event.version == ZOOKEEPER_VERSION and not self._unknown_topic.knows(unknown):
            if self._unknown_topic.has_topics:
                return self._refused(request, _TOPICS_MISSING)
            self._pending[request.token] = request
            return _sent(Send(request.token, Lane.COORDINATOR, MetadataRequest, all_topics, request.timeout_ms))
        offsets = {tp: p.committed for tp, p in answer.partitions.items() if p.committed is not None}
        return Outcome(answers=(OffsetsFetched(request.token, offsets),))

    def _refused(self, request: FetchOffsets, verdict: PartitionVerdict) -> Outcome:
        self._unknown_topic.reset()
        return Outcome(answers=(OffsetsFetched(request.token, refusal=verdict),))


def _fetch_verdict(code: int, topic: str) -> PartitionVerdict:
    return PartitionVerdict(_VERDICTS.get(reaction_to_fetch(code), Verdict.RETRIABLE), code, topic)


def _sent(send: Send) -> Outcome:
    return Outcome((send,))


def all_topics(version: int) -> MetadataRequest:
    """Build a Metadata request for all topics of the broker. It names no topic, so the broker creates none."""
    return MetadataRequest(topics=() if version == 0 else None)


class UnknownTopicCheck:
    """Tracks which topics the broker of one connection knows. Call `reset` when the connection is lost.

    Brokers of 0.8.2 and later return UNKNOWN_TOPIC_OR_PARTITION in OffsetFetch v0 for a partition without a commit in
    ZooKeeper. A broker that has just started returns the same for every topic that it does not know yet. If that
    counted as "no commit", a query would start at `startingOffsets` in a group that has commits (R7). The store
    therefore requests the broker's topics on the same connection, then the offsets again.
    """

    __slots__ = ("_topics",)

    def __init__(self) -> None:
        self._topics: frozenset[str] | None = None

    @property
    def has_topics(self) -> bool:
        return self._topics is not None

    def reset(self) -> None:
        self._topics = None

    def knows(self, topics: Collection[str]) -> bool:
        """Return whether the broker knows all of `topics`, so that "unknown" in a later response means "no commit"."""
        return not topics or (self._topics is not None and self._topics.issuperset(topics))

    def learn(self, response: MetadataResponse) -> None:
        self._topics = frozenset(t.name or "" for t in response.topics if t.error_code == ErrorCode.NONE)
