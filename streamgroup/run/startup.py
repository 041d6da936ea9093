"""Starts a run: first it connects and resolves the subscription, then the member joins.

These are two steps. AvailableNow asks for the ends of the logs before Spark passes the checkpoint, and the member needs
the checkpoint's lineage to join (R28). Afterwards the resolved subscription is kept current.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from streamgroup.group import events as ev
from streamgroup.group.member import Member, MemberAction
from streamgroup.model import ClusterSnapshot, Document, Position, TopicPartition
from streamgroup.planning import suspicions
from streamgroup.planning.subscription import (
    is_subscribed,
    lacking,
    subscribed_partitions,
    subscribed_topics,
    topics_to_ask,
)
from streamgroup.run import questions as ask
from streamgroup.run.config import RunConfig
from streamgroup.run.steps import NOW, Steps, Until


class Metadata(Protocol):
    """The newest metadata."""

    @property
    def snapshot(self) -> ClusterSnapshot: ...


class Startup:
    """Starts one run. `perform` takes the member's actions, `follow` the topics whose metadata is watched."""

    def __init__(
        self,
        config: RunConfig,
        member: Member,
        metadata: Metadata,
        *,
        perform: Callable[[Iterable[MemberAction]], None],
        follow: Callable[[frozenset[str]], None],
        is_stopped: Callable[[], bool],
    ) -> None:
        self._is_member = config.is_member
        self._subscription = config.subscription
        self._member = member
        self._metadata = metadata
        self._perform = perform
        self._follow = follow
        self._is_stopped = is_stopped
        self._topics: frozenset[str] = frozenset()
        self._others: Collection[str] = ()
        """Topics that are followed beside the subscribed ones: those of the other members, for a leader."""
        self.there: frozenset[TopicPartition] = frozenset()
        """The subscribed partitions that existed when the run began."""
        self.has_joined = False
        """Whether the member was started."""

    def open(self) -> Steps[None]:
        """Connect and resolve the subscription.

        A broker that has just started, or a topic that has just been created, may be missing in the first answer, so
        named topics count as missing only after `BELIEVED_AFTER_S`. Raises ConfigError if named topics, partitions or
        servers do not exist, TransportError.
        """
        began, snapshot = yield ask.Connect(topics_to_ask(self._subscription))
        now = began
        while lacking(self._subscription, snapshot) and now < began + suspicions.BELIEVED_AFTER_S:
            yield Until(lambda _: self._is_stopped(), suspicions.LOOK_EVERY_S)
            if self._is_stopped():
                break
            now, snapshot = yield ask.ReadMetadata(topics_to_ask(self._subscription))
        self.there = frozenset(subscribed_partitions(self._subscription, snapshot))
        self._topics = subscribed_topics(self._subscription, snapshot)
        self._follow(self._topics)

    def join(self, identity: bytes | None, now: float) -> None:
        """Start the member, once the ledger knows the checkpoint. `identity` is the user data of a member (R28)."""
        self.has_joined = True
        if identity is not None:
            self._perform(self._member.step(ev.UserDataChanged(identity), now))
        topics = self._metadata.snapshot.topics
        self._perform(self._member.step(ev.Start(tuple(sorted(self._topics))), now))
        self._perform(self._member.step(ev.MetadataRefreshed(topics, self._topics | topics.keys()), now))

    def look_again(self, checkpoint: Document) -> Steps[None]:
        """Read the metadata again if it lacked partitions of `checkpoint` when the run began.

        A broker that has just started may not know every topic yet, so partitions count as deleted only if they are
        still missing after `BELIEVED_AFTER_S` (R8). Raises TransportError, ConfigError.
        """
        if self._metadata.snapshot.log_format.is_broker_bound:  # a partition comes and goes with its broker
            return
        began = now = yield NOW
        while (gone := self.gone(checkpoint)) and now < began + suspicions.BELIEVED_AFTER_S:
            yield Until(lambda _: self._is_stopped(), suspicions.LOOK_EVERY_S)
            if self._is_stopped():
                return
            now, snapshot = yield ask.ReadMetadata(topics_to_ask(self._subscription))
            back = gone.keys() & subscribed_partitions(self._subscription, snapshot)
            if back:
                self.there |= back
                self._topics |= subscribed_topics(self._subscription, snapshot)
                self._follow(self._topics)

    def gone(self, checkpoint: Document) -> dict[TopicPartition, Position]:
        """Return the positions of `checkpoint` whose partitions did not exist any more when the run began.

        Empty for a member: its checkpoint may have positions of partitions that another member holds by now.
        """
        if self._is_member or self.has_joined:
            return {}
        return {
            tp: position
            for tp, position in checkpoint.positions.items()
            if tp not in self.there and is_subscribed(self._subscription, tp)
        }

    def is_new(self, tp: TopicPartition) -> bool:
        """Return whether a partition was created after the run began: `startingOffsets` does not apply to it (R7)."""
        return tp not in self.there

    @property
    def found_nothing(self) -> bool:
        """Whether the run began with a subscription of no partitions: all that appear later are new (R7).

        Never in Kafka 0.7, where partitions are away while their brokers are offline.
        """
        return not self.there and not self._metadata.snapshot.log_format.is_broker_bound

    # --- the resolved subscription ---------------------------------------------------------------------------------

    def follow(self, topics: Collection[str]) -> None:
        """Watch the metadata of `topics`, beside the subscribed ones."""
        self._others = topics
        self._follow(self._topics.union(topics))

    def see(self, snapshot: ClusterSnapshot, asked: frozenset[str], now: float) -> None:
        """Pass new metadata to the member, after the topics that its pattern now matches (R23)."""
        if self._subscription.pattern is not None:
            topics = subscribed_topics(self._subscription, snapshot)
            if topics != self._topics:
                self._topics = topics
                self._follow(topics.union(self._others))
                self._perform(self._member.step(ev.Subscribed(tuple(sorted(topics))), now))
        self._perform(self._member.step(ev.MetadataRefreshed(snapshot.topics, asked), now))
