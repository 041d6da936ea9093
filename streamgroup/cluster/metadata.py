"""Metadata answers as snapshots, and the newest one kept until it is too old or proven wrong."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from streamgroup.errors import BrokerError, ErrorCode, error_of, may_succeed_later
from streamgroup.model import NO_TOPIC_ID, Broker, ClusterSnapshot, PartitionInfo, TopicInfo
from streamgroup.wire.messages.cluster import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

_NAMES_WITHOUT_CREATION = 4
"""The first version in which asking for a topic need not create it."""


def metadata_request(topics: Collection[str] | None, version: int) -> MetadataRequest:
    """Ask for `topics`, or for all of them with None. No topic is created by asking.

    An older broker would create a topic that is asked for by name and does not exist (auto.create.topics.enable), one
    that was just deleted, too. It is asked for all there are; `snapshot_of` takes what is wanted.
    """
    if version >= _NAMES_WITHOUT_CREATION:
        names = None if topics is None else tuple(MetadataRequestTopic(name=name) for name in sorted(topics))
        return MetadataRequest(topics=names, allow_auto_topic_creation=False)
    if version == 0:
        return MetadataRequest(topics=())  # which are all topics there; "none of them" cannot be asked
    return MetadataRequest(topics=None if topics is None or topics else ())


def snapshot_of(response: MetadataResponse, wanted: Collection[str] | None = None) -> tuple[ClusterSnapshot, list[str]]:
    """The cluster as `response` shows it, and what is not known for the moment and worth asking again.

    Of the topics only those `wanted`, with None all: an old broker tells of more than it was asked for. Topics that do
    not exist are absent; a partition without a leader has NO_LEADER. Raises BrokerError for a topic that may not be
    read, or whose name is none, and where the broker refuses the request as a whole (v13).
    """
    topics: dict[str, TopicInfo] = {}
    unsettled: list[str] = []
    if response.error_code:
        refusal = error_of(response.error_code)
        if not (may_succeed_later(response.error_code) or wants_rebootstrap(response)):
            raise BrokerError(refusal, "the metadata of the cluster")
        unsettled.append(refusal.name)
    for topic in response.topics:
        if wanted is not None and topic.name not in wanted:
            continue
        if topic.error_code == 0:
            topics[topic.name or ""] = _topic_of(topic)
            continue
        error = error_of(topic.error_code)
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        if not may_succeed_later(topic.error_code):
            raise BrokerError(error, f"topic {topic.name!r}")
        unsettled.append(f"topic {topic.name!r}: {error.name}")
    brokers = {b.node_id: Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
    if not brokers:
        unsettled.append("the broker knows of no brokers yet")
    return ClusterSnapshot(brokers, topics, response.cluster_id, response.controller_id), unsettled


def wants_rebootstrap(response: MetadataResponse) -> bool:
    """Return whether the client is to forget the brokers it knows, and begin at the bootstrap servers (KIP-1102)."""
    return response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED


def _topic_of(topic: MetadataResponseTopic) -> TopicInfo:
    partitions = sorted(
        (
            PartitionInfo(p.partition_index, p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes)
            for p in topic.partitions
        ),
        key=lambda info: info.partition,
    )
    return TopicInfo(topic.name or "", tuple(partitions), topic.topic_id or NO_TOPIC_ID, topic.is_internal)


class MetadataCache:
    """The newest snapshot and what was asked for it. `now` is in seconds on the owner's clock."""

    __slots__ = ("_asked", "_max_age", "_snapshot", "_taken", "expired")

    def __init__(self, max_age_ms: int) -> None:
        self._max_age = max_age_ms / 1000
        self._snapshot: ClusterSnapshot | None = None
        self._asked: frozenset[str] | None = frozenset()
        self._taken = 0.0
        self.expired = False

    @property
    def last(self) -> ClusterSnapshot | None:
        """The newest snapshot, however old: for the brokers' addresses."""
        return self._snapshot

    def forget(self) -> None:
        """Know no broker any more."""
        self._snapshot = None

    def put(self, snapshot: ClusterSnapshot, asked: frozenset[str] | None, now: float) -> None:
        """Keep `snapshot`, taken at `now`, of the topics `asked` (None: of all)."""
        self._snapshot, self._asked, self._taken = snapshot, asked, now
        self.expired = False

    def expire(self) -> None:
        """Something contradicts the snapshot: `get` gives none until the next `put`."""
        self.expired = True

    def get(self, topics: frozenset[str] | None, now: float) -> ClusterSnapshot | None:
        """The snapshot of `topics`, where it is fresh and knows of them all."""
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
