"""The state machine of a query that is not a group member: `group.mode=commit` and `off`.

It has the interface of `Membership`. It owns all partitions of its subscription, and assigns them to itself whenever
the metadata shows other partitions. So the ledger, the planner and the rules are the same in all modes. With a group
(`commit`) it finds the group coordinator for its commits. Brokers before 0.8.2 have no group coordinators. With such
brokers, or if the options say that offsets are in ZooKeeper, any broker writes the commits into ZooKeeper. A query that
writes into ZooKeeper itself opens a session. Without a group (`off`) it sends no requests.

**If the group has members**, the group coordinator rejects the commits of a query that is not one of them
(UNKNOWN_MEMBER_ID). The query waits until the members leave: they may be ended processes whose sessions have not
expired. Meanwhile it plans nothing (R9), so it reads no records that it cannot commit. After `members_timeout_s` it
fails. It does not continue without commits, because the commits of another consumer look like an operator's reset: the
next start of this query would follow them, past records that it has not read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import chain
from typing import ClassVar, get_args

from streamgroup.advice import OffsetLocation, StoredIn, how_to_look
from streamgroup.backoff import Random
from streamgroup.errors import ConfigError, ErrorCode, StreamGroupError, error_of
from streamgroup.group import events as ev
from streamgroup.group.events import INFO, WARNING
from streamgroup.group.reactions import UNEXPECTED_ATTEMPTS, Reaction, fatal_error, reaction_to, reaction_to_commit
from streamgroup.group.registry import events as zk
from streamgroup.group.requests import Purpose, Timer
from streamgroup.group.state_machine import BrokerMachine, PendingRequest, State, Table, on, table_of
from streamgroup.group.timing import MemberConfig
from streamgroup.model import TopicInfo, TopicPartition, name_some
from streamgroup.text import counted, first_of

_TOPICS_NAMED = 3
_OF_MEMBERS = {Reaction.UNKNOWN, Reaction.STALE, Reaction.REJOIN}


class StandaloneMember(BrokerMachine):
    """Assigns all partitions of its subscription to a query that is not a group member.

    `config.group_id` is empty in mode `off`. `assigned` are the partitions of the option `assign`; without them the
    topics of `Start` and `Subscribed` count. `members_timeout_s` is how long the query waits for members of the group
    to leave. `is_missed` returns whether a partition that the metadata lacks must still be owned, because its loss has
    not been reported yet (R8). `in_zookeeper`: brokers store the group's offsets in ZooKeeper. None: they store them in
    Kafka, if they can. `session`: the query writes them into ZooKeeper itself. `stored_in` is where the offsets are
    stored, as text for error messages.
    """

    TABLE: ClassVar[Table]

    def __init__(
        self,
        config: MemberConfig,
        random: Random,
        *,
        assigned: tuple[TopicPartition, ...] = (),
        members_timeout_s: float = 60.0,
        is_missed: Callable[[TopicPartition], bool] = lambda _: False,
        in_zookeeper: bool | None = None,
        session: bool = False,
        stored_in: StoredIn = StoredIn.KAFKA,
    ) -> None:
        super().__init__(config, random, Timer)
        self._assigned = assigned
        self._members_timeout_s = members_timeout_s
        self._is_missed = is_missed
        self._in_zookeeper = in_zookeeper
        self._session = session
        self._connecting = False
        """Whether the ZooKeeper session has not started yet."""
        self._stored_in = stored_in
        self._unexpected = 0
        """The number of unexpected errors of the broker since the group coordinator was last found."""
        self._held: frozenset[TopicPartition] | None = None
        """None until the first metadata."""
        self._generation = 0
        """The number of assignments of the query to itself. It is not sent to brokers."""
        self._refused_since: float | None = None

    @property
    def member_id(self) -> str:
        return ""

    @property
    def lease_at(self) -> float | None:
        """Infinity in STABLE, else None: no other member can own its partitions (R9)."""
        return math.inf if self._state is State.STABLE else None

    # -- starting and stopping ----------------------------------------------------------------------------------------

    def _start(self, event: ev.Start) -> None:
        self._topics, self._held = tuple(sorted(set(event.topics))), None
        self._transition_to(State.FINDING)
        if not self._config.group_id:
            return
        if self._session:
            self._connecting = True
            self._out.append(zk.OpenSession())
        elif self._in_zookeeper:
            self._out.append(ev.NoCoordinator())
        else:
            self._find_coordinator()

    def _stop(self, event: ev.Stop) -> None:
        self._requests.reset()
        if self._session and self._state is not State.UNJOINED:
            self._out.append(zk.CloseSession())
        self._transition_to(State.LEFT)
        self._out.append(ev.Left())

    def _fail(self, error: StreamGroupError) -> None:
        self._requests.reset()
        self._transition_to(State.FATAL)
        self._out.append(ev.Fail(error))

    def _connected(self, event: zk.SessionBegan | zk.Resumed) -> None:
        self._connecting = False
        self._stabilize()

    # -- partitions ---------------------------------------------------------------------------------------------------

    def _metadata_refreshed(self, event: ev.MetadataRefreshed) -> None:
        topics = event.topics
        there = {
            TopicPartition(name, info.partition)
            for name in self._topics
            if name in topics
            for info in topics[name].partitions
        }
        if self._assigned:
            now = self._assigned_of(topics)
        else:
            missed = {tp for tp in self._held or () if tp.topic not in topics and self._is_missed(tp)}
            now = frozenset(there | missed)
        if now == self._held:
            return
        if self._state is State.STABLE:
            self._assign(now)
        else:
            self._held = now
            self._stabilize()

    def _assigned_of(self, topics: Mapping[str, TopicInfo]) -> frozenset[TopicPartition]:
        """Return the partitions of the option `assign` to own. Warn of those that an existing topic lacks."""
        held = self._held or ()
        unknown = [
            tp
            for tp in self._assigned
            if tp.topic in topics and topics[tp.topic].partition(tp.partition) is None and tp not in held
        ]
        if unknown and self._held is None:
            text = (
                f"option 'assign' lists partitions that do not exist: {name_some(unknown)}. The query reads them once "
                "they exist"
            )
            self._out.append(ev.Note(WARNING, text))
        return frozenset(self._assigned).difference(unknown)

    def _stabilize(self) -> None:
        """Enter STABLE if the partitions and, for commits, the group coordinator are known."""
        if self._state is State.FINDING and self._held is not None and not self._seeks_coordinator:
            self._transition_to(State.STABLE)
            held, self._held = self._held, None
            self._assign(held)

    def _assign(self, partitions: frozenset[TopicPartition]) -> None:
        """Own these partitions from now on. Those owned before are kept; a rejected commit is repeated."""
        before, self._held = self._held, partitions
        self._generation += 1
        if before != partitions:
            self._out.append(ev.Note(INFO, self._line(partitions, again=before is not None)))
        kept = partitions & (before or frozenset())
        self._out.append(
            ev.Assigned(self._generation, "", tuple(sorted(partitions)), kept, "", False, members=None, total=None)
        )

    def _assign_again(self) -> None:
        if self._held is not None:
            self._assign(self._held)

    def _line(self, partitions: frozenset[TopicPartition], *, again: bool) -> str:
        topics = sorted({tp.topic for tp in partitions})
        named = first_of(topics, _TOPICS_NAMED, "topic") or "no topic so far"
        group = self._config.group_id
        commits = f"commits to group {group} without joining" if group else "commits nothing"
        return f"{'now ' if again else ''}reads {counted(len(partitions), 'partition')} of {named}, {commits}"

    # -- the group coordinator------------------------------------------------------------------------------------------

    @property
    def _seeks_coordinator(self) -> bool:
        finds = self._requests.is_pending(Purpose.FIND) or self._requests.at(Timer.RETRY) is not None
        return self._connecting or finds

    def _find_coordinator(self) -> None:
        self._find(optional=self._in_zookeeper is None)

    def _find_later(self, reason: str) -> None:
        self._back_off(Timer.RETRY, "looking for its group coordinator", reason)

    def _coordinator_gone(self, event: ev.CoordinatorGone) -> None:
        self._coordinator_lost(event.reason)

    def _coordinator_lost(self, reason: str) -> None:
        finds = self._config.group_id and not self._in_zookeeper and not self._session
        if finds and not self._seeks_coordinator:
            self._find_later(reason)

    def _find_failed(self, event: ev.RequestFailed, pending: PendingRequest[Purpose]) -> None:
        if not event.unsupported:
            self._find_later(event.reason)
            return
        self._in_zookeeper, self._attempts = True, 0  # brokers before 0.8.2 have no group coordinators
        self._note(INFO, "the brokers, older than 0.8.2, have no group coordinator: the offsets are in ZooKeeper")
        self._out.append(ev.NoCoordinator())
        self._stabilize()

    def _found(self, event: ev.RequestAnswered, pending: PendingRequest[Purpose]) -> None:
        self._in_zookeeper = False  # from now on offsets are in Kafka, even if an older broker answers later
        answer = self._coordinator_in(event)
        if not isinstance(answer, int):
            self._attempts = self._unexpected = 0
            self._out.append(ev.CoordinatorFound(answer))
            self._stabilize()
            return
        reaction = reaction_to(Purpose.FIND, answer)
        self._unexpected += reaction is Reaction.UNEXPECTED
        if reaction is Reaction.FATAL or self._unexpected >= UNEXPECTED_ATTEMPTS:
            self._fail(fatal_error(answer, Purpose.FIND.doing, self._config))
        else:
            self._find_later(error_of(answer).name)

    # -- commits ------------------------------------------------------------------------------------------------------

    def _commit_accepted(self, event: ev.CommitAccepted) -> None:
        self._refused_since, self._attempts = None, 0

    def _commit_refused(self, event: ev.CommitRefused) -> None:
        reaction, name = reaction_to_commit(event.code), error_of(event.code).name
        if reaction is Reaction.FIND:
            self._coordinator_lost(name)
        elif event.code == ErrorCode.GROUP_ID_NOT_FOUND:
            # The first commit of a query that is not a member would create the group, so this group is of another kind.
            self._fail(fatal_error(event.code, "commit", self._config))
        elif reaction in _OF_MEMBERS:
            self._wait_for_members(name)

    def _wait_for_members(self, name: str) -> None:
        group = self._config.group_id
        if self._refused_since is None:
            self._refused_since = self._now
            self._note(
                WARNING,
                f"the group coordinator rejected a commit ({name}), because the group has members and this query is "
                f"not a member. The query reads nothing until they have left, for at most "
                f"{self._members_timeout_s:g} s (group.joinTimeout)",
            )
        waited = self._now - self._refused_since
        if waited >= self._members_timeout_s:
            shown = how_to_look(OffsetLocation(group, self._stored_in))
            self._fail(ConfigError(_HAS_MEMBERS.format(group=group, waited=waited, name=name, look=shown)))
            return
        self._set_backoff(Timer.REJOIN)


_HAS_MEMBERS = (
    "cannot commit to group {group}: the group has members, and this query (group.mode=commit) is not a member. The "
    "group coordinator has rejected its commits for {waited:.0f} s ({name}; group.joinTimeout), and the query has "
    "read nothing meanwhile. Stop the members, or set another kafka.group.id, or share the partitions with the "
    "members (group.mode=member), or commit nothing (group.mode=off). The next start follows the commits of other "
    "consumers in its group like a reset: check them first ({look})"
)

_UNJOINED, _FINDING, _STABLE, _LEFT = State.UNJOINED, State.FINDING, State.STABLE, State.LEFT
_BOTH = (_FINDING, _STABLE)

StandaloneMember.TABLE = table_of(
    chain(
        on(ev.Start, (_UNJOINED, _LEFT), StandaloneMember._start, _FINDING),
        on(ev.Stop, (_UNJOINED, _FINDING, _STABLE, State.FATAL), StandaloneMember._stop, _LEFT),
        on(ev.Subscribed, _BOTH, StandaloneMember._subscribed),
        *(
            chain(
                on(event, (_FINDING,), StandaloneMember._connected, _STABLE),
                on(event, (_STABLE,), StandaloneMember._connected),
            )
            for event in (zk.SessionBegan, zk.Resumed)
        ),
        on(ev.MetadataRefreshed, (_FINDING,), StandaloneMember._metadata_refreshed, _STABLE),
        on(ev.MetadataRefreshed, (_STABLE,), StandaloneMember._metadata_refreshed),
        on((Purpose.FIND, ev.RequestAnswered), (_FINDING,), StandaloneMember._found, _STABLE),
        on((Purpose.FIND, ev.RequestAnswered), (_STABLE,), StandaloneMember._found),
        on((Purpose.FIND, ev.RequestFailed), (_FINDING,), StandaloneMember._find_failed, _STABLE),
        on((Purpose.FIND, ev.RequestFailed), (_STABLE,), StandaloneMember._find_failed),
        on(Timer.RETRY, _BOTH, StandaloneMember._find_coordinator),
        on(ev.CoordinatorGone, _BOTH, StandaloneMember._coordinator_gone),
        on(ev.CommitAccepted, _BOTH, StandaloneMember._commit_accepted),
        on(ev.CommitRefused, _BOTH, StandaloneMember._commit_refused),
        on(Timer.REJOIN, _BOTH, StandaloneMember._assign_again),
    ),
    # The query gives no partitions up for other members, so batches and starting positions delay nothing.
    ignored={*get_args(ev.Event), *get_args(zk.RegistryEvent)} - {ev.Start, ev.RequestAnswered, ev.RequestFailed},
)
