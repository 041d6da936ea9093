"""Starts a run: first it connects and resolves the subscription, then the member joins.

These are two steps. AvailableNow asks for the ends of the logs before Spark passes the checkpoint, and the member needs
the checkpoint's lineage to join (R28).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection

from streamgroup.driver.application.claims import Claim
from streamgroup.driver.logs.subscription import (
    is_subscribed,
    of_interest,
    require_inner_index,
    subscribed_partitions,
    subscribed_topics,
    topics_to_ask,
)
from streamgroup.driver.logs.watcher import LogWatcher
from streamgroup.driver.membership.backends import GroupBackend
from streamgroup.driver.membership.lineage_watch import LineageWatch
from streamgroup.group import events as ev
from streamgroup.model import ClusterSnapshot, Document, Position, TopicPartition
from streamgroup.net.resolve import require_resolvable
from streamgroup.options.types import SourceOptions
from streamgroup.planning import suspicions

log = logging.getLogger("streamgroup")


class Startup:
    """Starts one run; afterwards it keeps the resolved subscription current. `state` is the coordinator's lock.

    `is_stopped` returns whether the run was stopped meanwhile.
    """

    def __init__(
        self,
        options: SourceOptions,
        state: threading.Condition,
        backend: GroupBackend,
        *,
        watcher: LogWatcher,
        lineages: LineageWatch,
        claim: Claim | None,
        is_stopped: Callable[[], bool],
    ) -> None:
        self._options = options
        self._subscription = options.subscription
        self._state = state
        self._backend = backend
        self._member = backend.member
        self._thread = backend.thread
        self._watcher = watcher
        self._lineages = lineages
        self._claim = claim
        self._is_stopped = is_stopped
        self._topics: frozenset[str] = frozenset()
        self._others: Collection[str] = ()
        """Topics of the other members, whose metadata this member needs as the group's leader."""
        self.there: frozenset[TopicPartition] = frozenset()
        """The subscribed partitions that existed when the run began."""
        self.has_joined = False
        """Whether the member was started."""

    @property
    def is_member(self) -> bool:
        """Whether the run joins a group."""
        return self._options.group is not None and self._options.group.is_member

    def open(self) -> None:
        """Connect and resolve the subscription. Raises ConfigError if named topics or servers do not exist."""
        if self._claim is not None and self.is_member:
            self._claim.take(self._is_stopped)
        who = self._member.ledger.group or "no group"
        for note in self._options.notes:
            log.info("%s: %s", who, note)
        until = time.monotonic() + self._options.client.default_api_timeout_ms / 1000
        require_resolvable(self._options.client.bootstrap_servers, until)
        self._watcher.start()
        asked = topics_to_ask(self._subscription)
        snapshot = self._watcher.ask(
            lambda cluster, deadline: cluster.snapshot(asked, deadline, refresh=True),
            max(1.0, until - time.monotonic()),
        )
        require_inner_index(self._options.fetch, snapshot)
        self._backend.opened(snapshot.dialect)
        self.there = frozenset(subscribed_partitions(self._subscription, snapshot))
        self._topics = subscribed_topics(self._subscription, snapshot)
        self._watcher.snapshot = of_interest(snapshot, self._subscription, ())
        self._watcher.follow(self._topics)

    def join(self, now: float) -> None:
        """Start the member, once the ledger knows the checkpoint. The lock is held."""
        self.has_joined = True
        self._thread.start()
        ledger = self._member.ledger
        if self.is_member:
            identity = self._lineages.begin(ledger.lineage, ledger.run)
            self._thread.carry_out(self._member.step(ev.Identified(identity), now))
        topics = self._watcher.snapshot.topics
        actions = self._member.step(ev.Start(tuple(sorted(self._topics))), now)
        actions += self._member.step(ev.TopicsKnown(topics, self._topics | topics.keys()), now)
        self._thread.carry_out(actions)

    def look_again(self, checkpoint: Document) -> None:
        """Read the metadata again if it lacked partitions of `checkpoint` when the run began.

        A broker that has just started may not know every topic yet, so partitions count as deleted only if they are
        still missing after `BELIEVED_AFTER_S` (R8). Call it without the lock. Raises TransportError, ConfigError.
        """
        if self._watcher.snapshot.log_format.is_broker_bound:  # a partition comes and goes with its broker
            return
        until = time.monotonic() + suspicions.BELIEVED_AFTER_S
        asked = topics_to_ask(self._subscription)
        while (gone := self.gone(checkpoint)) and time.monotonic() < until:
            time.sleep(suspicions.LOOK_EVERY_S)
            if self._is_stopped():
                return
            snapshot = self._watcher.ask(
                lambda cluster, deadline: cluster.snapshot(asked, deadline, refresh=True),
                self._options.client.default_api_timeout_ms / 1000,
            )
            back = gone.keys() & subscribed_partitions(self._subscription, snapshot)
            if back:
                self.there |= back
                self._topics |= subscribed_topics(self._subscription, snapshot)
                self._watcher.snapshot = of_interest(snapshot, self._subscription, ())
                self._watcher.follow(self._topics)

    def gone(self, checkpoint: Document) -> dict[TopicPartition, Position]:
        """Return the positions of `checkpoint` whose partitions did not exist any more when the run began.

        Empty for a member: its checkpoint may have positions of partitions that another member holds by now.
        """
        if self.is_member or self.has_joined:
            return {}
        return {
            tp: position
            for tp, position in checkpoint.positions.items()
            if tp not in self.there and is_subscribed(self._subscription, tp)
        }

    # --- the resolved subscription ---------------------------------------------------------------------------------

    def follow(self, topics: Collection[str]) -> None:
        """Watch the metadata of `topics`, beside the subscribed ones. The lock is held."""
        self._others = topics
        self._watcher.follow(self._topics.union(topics))

    def see(self, snapshot: ClusterSnapshot, asked: frozenset[str]) -> None:
        """Pass new metadata to the member, after the topics that its pattern now matches (R23)."""
        with self._state:
            now = time.monotonic()
            if self._subscription.pattern is not None:
                self._resolve(subscribed_topics(self._subscription, snapshot), now)
            self._thread.carry_out(self._member.step(ev.TopicsKnown(snapshot.topics, asked), now))
            self._state.notify_all()

    def _resolve(self, topics: frozenset[str], now: float) -> None:
        if topics != self._topics:
            self._topics = topics
            self._watcher.follow(topics.union(self._others))
            self._thread.carry_out(self._member.step(ev.Subscribed(tuple(sorted(topics))), now))
