"""Converts Metadata responses to snapshots, and caches the newest one until it expires."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from streamgroup.advice import UNKNOWN, Operation, Requester, refusal
from streamgroup.errors import BrokerError, ErrorCode, error_of, may_succeed_later
from streamgroup.kafka.wire.messages.cluster import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from streamgroup.model import NO_TOPIC_ID, Broker, ClusterSnapshot, PartitionInfo, TopicInfo

_NAMES_WITHOUT_CREATION = 4
"""The first version with `allow_auto_topic_creation`."""


def metadata_request(topics: Collection[str] | None, version: int) -> MetadataRequest:
    """Return a Metadata request for `topics` (None: all topics) that creates no topic.

    A broker before the version with `allow_auto_topic_creation` creates a missing topic that is requested by name
    (auto.create.topics.enable), even one that was just deleted. The request to such a broker is for all topics, and
    `snapshot_of` filters them.
    """
    if version >= _NAMES_WITHOUT_CREATION:
        names = None if topics is None else tuple(MetadataRequestTopic(name=name) for name in sorted(topics))
        return MetadataRequest(topics=names, allow_auto_topic_creation=False)
    if version == 0:
        return MetadataRequest(topics=())  # requests all topics: v0 cannot request none
    return MetadataRequest(topics=None if topics is None or topics else ())


def snapshot_of(
    response: MetadataResponse, wanted: Collection[str] | None = None, requester: Requester = UNKNOWN
) -> tuple[ClusterSnapshot, list[str]]:
    """Return the cluster in `response`, and its transient errors: after these, another request may succeed.

    The snapshot has only the `wanted` topics (None: all), since an old broker lists more. Topics that do not exist are
    absent; a partition without a leader has NO_LEADER. Raises BrokerError for a topic that the user may not describe or
    that has an invalid name, and if the broker refuses the whole request (v13). `requester` is for authorization
    errors.
    """
    topics: dict[str, TopicInfo] = {}
    unsettled: list[str] = []
    if response.error_code:
        cause = error_of(response.error_code)
        if not (may_succeed_later(response.error_code) or wants_rebootstrap(response)):
            raise BrokerError(cause, "cannot read the metadata of the cluster")
        unsettled.append(cause.name)
    for topic in response.topics:
        if wanted is not None and topic.name not in wanted:
            continue
        if topic.error_code == 0:
            topics[topic.name or ""] = topic_of(topic)
            continue
        error = error_of(topic.error_code)
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        if not may_succeed_later(topic.error_code):
            context = f"cannot describe topic {topic.name!r}"
            if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise refusal(topic.error_code, context, Operation.DESCRIBE, topic.name or "", requester)
            raise BrokerError(error, context)
        unsettled.append(f"topic {topic.name!r}: {error.name}")
    brokers = {b.node_id: Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
    if not brokers:
        unsettled.append("the broker lists no broker yet")
    return ClusterSnapshot(brokers, topics, response.cluster_id, response.controller_id), unsettled


def wants_rebootstrap(response: MetadataResponse) -> bool:
    """Return whether the broker tells the client to forget all brokers and bootstrap again (KIP-1102)."""
    return response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED


def topic_of(topic: MetadataResponseTopic) -> TopicInfo:
    """Return the `TopicInfo` of a topic in a Metadata response. Its partitions are sorted."""
    partitions = sorted(
        (
            PartitionInfo(p.partition_index, p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes)
            for p in topic.partitions
        ),
        key=lambda info: info.partition,
    )
    return TopicInfo(topic.name or "", tuple(partitions), topic.topic_id or NO_TOPIC_ID, topic.is_internal)


class MetadataCache:
    """Keeps the newest snapshot, and which topics it contains. `now` is in seconds on the owner's clock."""

    __slots__ = ("_asked", "_max_age", "_snapshot", "_taken", "expired")

    def __init__(self, max_age_ms: int) -> None:
        self._max_age = max_age_ms / 1000
        self._snapshot: ClusterSnapshot | None = None
        self._asked: frozenset[str] | None = frozenset()
        self._taken = 0.0
        self.expired = False

    @property
    def last(self) -> ClusterSnapshot | None:
        """The newest snapshot, even if it has expired: the addresses of its brokers are still useful."""
        return self._snapshot

    def forget(self) -> None:
        self._snapshot = None

    def put(self, snapshot: ClusterSnapshot, asked: frozenset[str] | None, now: float) -> None:
        """Store `snapshot`, which was requested for the topics `asked` (None: all) and received at `now`."""
        self._snapshot, self._asked, self._taken = snapshot, asked, now
        self.expired = False

    def expire(self) -> None:
        """Expire the snapshot, because a broker contradicts it: `get` returns None until the next `put`."""
        self.expired = True

    def get(self, topics: frozenset[str] | None, now: float) -> ClusterSnapshot | None:
        """Return a snapshot of `topics`; None if it has expired or does not contain them all."""
        snapshot = self._snapshot
        if snapshot is None or self.expired or now - self._taken > self._max_age:
            return None
        if self._asked is None:
            return snapshot if topics is None else _only(snapshot, topics)
        if topics is None or not topics or not topics <= self._asked:
            return None
        return _only(snapshot, topics)


def _only(snapshot: ClusterSnapshot, topics: frozenset[str]) -> ClusterSnapshot:
    return replace(snapshot, topics={name: info for name, info in snapshot.topics.items() if name in topics})
