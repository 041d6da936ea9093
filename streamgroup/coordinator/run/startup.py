"""Starts a query: connects, resolves the subscription, lets the member join, and looks up its start offsets.

Connecting and joining are two steps. AvailableNow lists the log ends before Spark passes the checkpoint, and the member
needs the checkpoint's lineage (the id that all copies of one checkpoint share) to join (R28). Afterwards this module
keeps the resolved subscription up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from streamgroup.advice import OffsetLocation, how_to_reset
from streamgroup.coordinator.planning import loss
from streamgroup.coordinator.planning.starts import fallbacks, lookups, resolve
from streamgroup.coordinator.planning.subscription import (
    is_subscribed,
    lacking,
    subscribed_partitions,
    subscribed_topics,
    topics_to_ask,
)
from streamgroup.coordinator.run import interface
from streamgroup.coordinator.run.interface import RunConfig
from streamgroup.coordinator.run.run_events import LostRecords, RunEvents
from streamgroup.coordinator.run.steps import NOW, Steps, Until
from streamgroup.errors import DataLossError, TransportError
from streamgroup.group import events as ev
from streamgroup.group.member import Member, MemberAction, Resolve
from streamgroup.group.start_positions import Origin
from streamgroup.model import EARLIEST, ClusterSnapshot, Document, Position, TopicPartition, name_some

if TYPE_CHECKING:
    from streamgroup.kafka.cluster.requests import ListedOffset


class Metadata(Protocol):
    """Gives access to the newest metadata."""

    @property
    def snapshot(self) -> ClusterSnapshot: ...


class Startup:
    """Starts one query: connects, resolves its subscription and lets its member join.

    `perform(actions)` carries out the member's actions; `follow(topics)` sets the topics whose metadata is refreshed.
    """

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
        """Topics that are followed in addition to the subscribed ones: a leader follows the other members' topics."""
        self.there: frozenset[TopicPartition] = frozenset()
        """The subscribed partitions that existed when the query began."""
        self.has_joined = False
        """Whether the member was started."""

    def open(self) -> Steps[None]:
        """Connect and resolve the subscription.

        The first metadata response of a broker that has just started may lack topics, and a topic may just have been
        created. So a topic given by name is missing only if it is still absent after `BELIEVED_AFTER_S`. Raises
        ConfigError if topics, partitions or servers given by name do not exist, and TransportError if no broker
        answers.
        """
        began, snapshot = yield interface.Connect(topics_to_ask(self._subscription))
        now = began
        while lacking(self._subscription, snapshot) and now < began + loss.BELIEVED_AFTER_S:
            yield Until(lambda _: self._is_stopped(), loss.LOOK_EVERY_S)
            if self._is_stopped():
                break
            now, snapshot = yield interface.ReadTopics(topics_to_ask(self._subscription))
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
        while (gone := self.gone(checkpoint)) and now < began + loss.BELIEVED_AFTER_S:
            yield Until(lambda _: self._is_stopped(), loss.LOOK_EVERY_S)
            if self._is_stopped():
                return
            now, snapshot = yield interface.ReadTopics(topics_to_ask(self._subscription))
            back = gone.keys() & subscribed_partitions(self._subscription, snapshot)
            if back:
                self.there |= back
                self._topics |= subscribed_topics(self._subscription, snapshot)
                self._follow(self._topics)

    def gone(self, checkpoint: Document) -> dict[TopicPartition, Position]:
        """Return the positions of `checkpoint` whose partitions no longer existed when the query began.

        Empty for a group member: its checkpoint may have positions of partitions that another member owns now.
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

        Never in Kafka 0.7, whose partitions do not exist while their brokers are offline.
        """
        return not self.there and not self._metadata.snapshot.log_format.is_broker_bound

    # --- the resolved subscription ---------------------------------------------------------------------------------

    def follow(self, topics: Collection[str]) -> None:
        """Watch the metadata of `topics` in addition to the subscribed ones."""
        self._others = topics
        self._follow(self._topics.union(topics))

    def see(self, snapshot: ClusterSnapshot, asked: frozenset[str], now: float) -> None:
        """Pass new metadata to the member, and first the topics that its pattern now matches (R23)."""
        if self._subscription.pattern is not None:
            topics = subscribed_topics(self._subscription, snapshot)
            if topics != self._topics:
                self._topics = topics
                self._follow(topics.union(self._others))
                self._perform(self._member.step(ev.Subscribed(tuple(sorted(topics))), now))
        self._perform(self._member.step(ev.MetadataRefreshed(snapshot.topics, asked), now))


# --- starting offsets ------------------------------------------------------------------------------------------------

Listed = Mapping[TopicPartition, "ListedOffset"]


class StartingOffsets:
    """Looks up the offsets from which newly assigned partitions without a committed offset are read.

    `is_new(partition)` returns whether a partition was created after the query began.
    """

    def __init__(
        self,
        config: RunConfig,
        member: Member,
        events: RunEvents,
        *,
        perform: Callable[[Iterable[MemberAction]], None],
        is_new: Callable[[TopicPartition], bool],
    ) -> None:
        self._config = config
        self._member = member
        self._events = events
        self._perform = perform
        self._is_new = is_new

    def find(self, wanted: Resolve) -> Steps[None]:
        """Look up the start offsets of `wanted` and pass them to the member.

        Retries transport errors `start_retries` times.

        Raises DataLossError if records below a start offset may be lost and failOnDataLoss is on, TransportError,
        BrokerError, and ConfigError if startingOffsets lacks a partition.
        """
        origins = {tp: self._origin(tp, origin) for tp, origin in wanted.partitions.items()}
        for attempt in range(self._config.start_retries + 1):
            try:
                offsets = yield from self.offsets(origins)
                break
            except TransportError as error:
                if attempt == self._config.start_retries:
                    raise
                who = f"group {self._config.group_id}" if self._config.group_id else "no group"
                text = (
                    f"{who}: cannot look up the starting offsets of {name_some(origins)}: {error}. Starting retry "
                    f"{attempt + 1} of {self._config.start_retries} in {self._config.start_retry_interval_s:g} s"
                )
                self._perform([ev.Note(ev.WARNING, text)])
                yield Until(lambda _: False, self._config.start_retry_interval_s)
        if wanted.generation != self._member.ledger.generation:
            return  # a newer assignment has its own lookup
        losses = losses_of(self._config.group_id, origins, offsets)
        is_failed = bool(losses) and self._config.fail_on_data_loss
        self._events.lost_records(losses, failed=is_failed)
        if is_failed:
            raise refuse(self._config.location, losses)
        now = yield NOW
        self._perform(self._member.resolved(wanted.generation, offsets, now))

    def _origin(self, tp: TopicPartition, origin: Origin) -> Origin:
        return Origin.EARLIEST if origin is Origin.STARTING and self._is_new(tp) else origin

    def offsets(self, origins: Mapping[TopicPartition, Origin]) -> Steps[dict[TopicPartition, int]]:
        """Return start offsets.

        A partition to which startingOffsets does not apply starts at the earliest offset (R7, R8).
        """
        now = yield NOW
        deadline = now + self._config.api_timeout_s
        configured = self._config.starting
        founding = [tp for tp, origin in origins.items() if origin is Origin.STARTING]
        rest = [tp for tp, origin in origins.items() if origin is not Origin.STARTING]
        offsets: dict[TopicPartition, int] = {}
        if founding:
            found = yield from _list(lookups(configured, founding), deadline)
            listed = {tp: (each.offset, each.timestamp) for tp, each in found.items()}
            found = yield from _list(fallbacks(configured, listed), deadline)
            listed |= {tp: (each.offset, each.timestamp) for tp, each in found.items()}
            offsets = resolve(configured, founding, listed)
        earliest = yield from _list(dict.fromkeys(rest, EARLIEST), deadline)
        return offsets | {tp: each.offset for tp, each in earliest.items()}


def _list(wanted: Mapping[TopicPartition, int], deadline: float) -> Steps[Listed]:
    if not wanted:
        return {}
    now = yield NOW
    _, listed = yield interface.ListOffsets(wanted, max(0.0, deadline - now))
    return listed  # type: ignore[no-any-return]


def losses_of(
    group: str, origins: Mapping[TopicPartition, Origin], offsets: Mapping[TopicPartition, int]
) -> list[LostRecords]:
    """Return the records below the start offsets that may be lost. The data-loss policy decides about them."""
    return [
        _loss(group, tp, origin, offsets[tp])
        for tp, origin in sorted(origins.items(), key=lambda item: item[0])
        if origin is Origin.RECREATED or (origin is not Origin.STARTING and offsets[tp] > 0)
    ]


def _loss(group: str, tp: TopicPartition, origin: Origin, offset: int) -> LostRecords:
    who = f"group {group!r}, {tp}" if group else str(tp)
    if origin is Origin.RECREATED:
        text = f"{who}: the topic was deleted and created again; this query reads the new topic from offset {offset}"
        return LostRecords(tp, text, "the topic was deleted and created again", to=offset)
    unknown = (
        "the group has no committed offset for it (a new partition, or the commit has expired)"
        if group
        else "the checkpoint has no offset for it (a new partition, or it was another member's)"
    )
    text = f"{who}: {unknown}, and its log starts at offset {offset}, so the query may have missed the records below"
    return LostRecords(tp, text, "no committed offset, and the log starts above 0", to=offset, count=offset)


def refuse(location: OffsetLocation, losses: Collection[LostRecords]) -> DataLossError:
    """Return the error that ends a query for `losses`. `location` is where an operator can reset its offsets."""
    other = f"; or {how_to_reset(location)}" if location.group else ""
    return DataLossError("\n".join(lost.text for lost in losses) + f"\nTo continue: set failOnDataLoss=false{other}")
