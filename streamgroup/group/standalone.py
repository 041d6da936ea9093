"""A query that is no member of any group: `group.mode=commit` and `off`, behind the interface of `Membership`.

It holds all partitions of its subscription, from the first metadata on: what a member is *assigned* by its group, a
solo query assigns to itself, anew whenever the metadata shows other partitions. So the ledger, the planner and the
rules are the same for all modes. With a group (`commit`) it finds the coordinator, for the driver's commits; brokers
before 0.8.2 have none: there, and where the user says so, any broker takes the commits to ZooKeeper. Where the query
itself writes the commits into ZooKeeper it opens a session. Without a group (`off`) it sends nothing at all.

**While the group has members** the coordinator refuses commits of who is none (UNKNOWN_MEMBER_ID). They are waited for,
for they may be dead predecessors whose session has yet to end: nothing is planned meanwhile (R9), so nothing is read
that is not committed. When the patience is over the query fails instead of going on without commits: those of a
consumer look like an operator's reset, which the next start of this query follows, past what it has not read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from streamgroup.errors import ConfigError, ErrorCode, StreamGroupError, error_of
from streamgroup.group import events as ev
from streamgroup.group import requests
from streamgroup.group.events import INFO, WARNING
from streamgroup.group.exchange import Exchange, Purpose, Timer
from streamgroup.group.reactions import (
    UNEXPECTED_ATTEMPTS,
    Reaction,
    fatal_error,
    reaction_to,
    reaction_to_commit,
)
from streamgroup.group.registry import events as zk
from streamgroup.group.table import State
from streamgroup.group.timing import MemberConfig, Random
from streamgroup.model import Broker, TopicInfo, TopicPartition
from streamgroup.remediation import OffsetLocation, StoredIn, how_to_look
from streamgroup.wire.messages import coordinator as c

_TOPICS_NAMED = 3
_OF_MEMBERS = {Reaction.UNKNOWN, Reaction.STALE, Reaction.REJOIN}


class StandaloneMember:
    """See the module. `config.group_id` is empty in mode `off`; of the rest only what is about requests counts.

    `assigned` are the partitions of the option `assign`; without them the topics of `Start` and `Subscribed` count.
    `members_timeout_s` is how long members of the group are waited for. `is_missed` tells of a held partition that the
    metadata does not know any more whether it is to be held on to: its loss has not been told yet (R8). `in_zookeeper`
    says where brokers keep the group's offsets; None: in Kafka, but for brokers that cannot. With `session` the query
    keeps them in ZooKeeper itself. `stored_in` is the same for people, who are told how to look at the group.
    """

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
        self._config = config
        self._random = random
        self._assigned = assigned
        self._members_timeout_s = members_timeout_s
        self._is_missed = is_missed
        self._in_zookeeper = in_zookeeper
        self._session = session
        self._connecting = False
        """Whether the session has yet to begin."""
        self._stored_in = stored_in
        self._state = State.UNJOINED
        self._exchange = Exchange()
        self._now = 0.0
        self._out: list[ev.Action | zk.RegistryAction] = []
        self._attempts = 0
        self._unexpected = 0
        """Unexpected failures of the broker since it last told the coordinator."""
        self._topics: frozenset[str] = frozenset()
        self._held: frozenset[TopicPartition] | None = None
        """None until the metadata has told them."""
        self._generation = 0
        self._refused_since: float | None = None

    # -- what others ask ----------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """UNJOINED, FINDING (partitions or coordinator), STABLE, LEFT or FATAL."""
        return self._state

    @property
    def member_id(self) -> str:
        """No member has no id."""
        return ""

    @property
    def topics(self) -> tuple[str, ...]:
        """The subscription, sorted; empty with `assign` and before `Start`."""
        return tuple(sorted(self._topics))

    @property
    def can_plan(self) -> bool:
        """Whether what is held may be planned."""
        return self._state is State.STABLE

    @property
    def may_commit(self) -> bool:
        """Whether a commit may be accepted, as far as it knows."""
        return self._state is State.STABLE

    @property
    def revoking(self) -> frozenset[TopicPartition]:
        """Never anything: see `rebalance_wanted`."""
        return frozenset()

    @property
    def settling(self) -> bool:
        """Never: see `rebalance_wanted`."""
        return False

    @property
    def generation(self) -> int:
        """How often it has assigned partitions to itself; no broker hears of it."""
        return self._generation

    @property
    def lease_at(self) -> float | None:
        """R9's lease is given: nobody else can own what it reads."""
        return math.inf if self._state is State.STABLE else None

    @property
    def rebalance_wanted(self) -> bool:
        """Never: nothing is given up for others."""
        return False

    # -- the machine --------------------------------------------------------------------------------------------------

    def step(self, event: ev.Event | zk.RegistryEvent, now: float) -> list[ev.Action | zk.RegistryAction]:
        """Take one event at `now` (monotonic seconds); the actions to carry out, in order (see `events`)."""
        self._now, self._out = now, []
        if isinstance(event, ev.Stop):
            self._stop()
        elif isinstance(event, ev.Start):
            self._start(event)
        elif self._state not in {State.UNJOINED, State.LEFT, State.FATAL}:
            self._hear(event)
            self._look_at_the_time()
        wake_at = self._exchange.wake_at
        return self._out if wake_at is None else [*self._out, ev.WakeAt(wake_at)]

    def _hear(self, event: ev.Event | zk.RegistryEvent) -> None:
        match event:
            case zk.SessionBegan() | zk.Resumed():
                self._connecting = False
                self._settle()
            case ev.Subscribed(topics):
                self._topics = frozenset(topics)
            case ev.TopicsKnown(topics):
                self._see(topics)
            case ev.Answered() | ev.Failed():
                if self._exchange.take(event.token) is not None:
                    self._found(event)
            case ev.CoordinatorGone(reason):
                self._coordinator_lost(reason)
            case ev.CommitAccepted():
                self._refused_since, self._attempts = None, 0
            case ev.CommitRefused(code):
                self._refused(code)

    def _look_at_the_time(self) -> None:
        for pending in self._exchange.overdue(self._now):
            self._out.append(ev.Reset(pending.purpose.lane))
            self._exchange.forget(pending.purpose)
            self._find_later(f"no answer to {pending.purpose.api.NAME} in time")
        while (timer := self._exchange.take_due(self._now)) is not None:
            if timer is Timer.RETRY:
                self._find()
            elif self._held is not None:
                self._assign(self._held)

    def _start(self, event: ev.Start) -> None:
        self._topics, self._held = frozenset(event.topics), None
        self._state = State.FINDING
        if not self._config.group_id:
            return
        if self._session:
            self._connecting = True
            self._out.append(zk.OpenSession())
        elif self._in_zookeeper:
            self._out.append(ev.NoCoordinator())
        else:
            self._find()

    def _stop(self) -> None:
        if self._state is not State.LEFT:
            self._exchange.reset()
            if self._session and self._state is not State.UNJOINED:
                self._out.append(zk.CloseSession())
            self._state = State.LEFT
            self._out.append(ev.Left())

    def _fail(self, error: StreamGroupError) -> None:
        self._exchange.reset()
        self._state = State.FATAL
        self._out.append(ev.Fail(error))

    def _note(self, level: int, text: str) -> None:
        self._out.append(ev.Note(level, text))

    # -- partitions ---------------------------------------------------------------------------------------------------

    def _see(self, topics: Mapping[str, TopicInfo]) -> None:
        there = {
            TopicPartition(name, info.partition)
            for name in self._topics & topics.keys()
            for info in topics[name].partitions
        }
        missed = {tp for tp in self._held or () if tp.topic not in topics and self._is_missed(tp)}
        now = frozenset(self._assigned or there | missed)
        if now == self._held:
            return
        if self._state is State.STABLE:
            self._assign(now)
        else:
            self._held = now
            self._settle()

    def _settle(self) -> None:
        """STABLE where partitions and, for commits, the coordinator are known."""
        if self._state is State.FINDING and self._held is not None and not self._seeks_coordinator:
            self._state = State.STABLE
            held, self._held = self._held, None
            self._assign(held)

    def _assign(self, partitions: frozenset[TopicPartition]) -> None:
        """Hold these from now on. The driver goes on with those it held; it retries a commit that was refused."""
        before, self._held = self._held, partitions
        self._generation += 1
        if before != partitions:
            self._note(INFO, self._line(partitions, again=before is not None))
        kept = partitions & (before or frozenset())
        self._out.append(
            ev.Assigned(self._generation, "", tuple(sorted(partitions)), kept, "", False, members=None, total=None)
        )

    def _line(self, partitions: frozenset[TopicPartition], *, again: bool) -> str:
        """What the log says of this query first."""
        topics = sorted({tp.topic for tp in partitions})
        named = ", ".join(topics[:_TOPICS_NAMED]) or "no topic so far"
        more = f" and {len(topics) - _TOPICS_NAMED} more topics" if len(topics) > _TOPICS_NAMED else ""
        group = self._config.group_id
        commits = f"commits to group {group} without joining" if group else "commits nothing"
        return f"{'now ' if again else ''}reads {len(partitions)} partitions of {named}{more}, {commits}"

    # -- the coordinator ----------------------------------------------------------------------------------------------

    @property
    def _seeks_coordinator(self) -> bool:
        return self._connecting or self._exchange.is_pending(Purpose.FIND) or self._exchange.at(Timer.RETRY) is not None

    def _find(self) -> None:
        build = requests.find_coordinator(self._config.group_id)
        send = self._exchange.send(Purpose.FIND, build, self._config.request_timeout_ms, self._now)
        self._out.append(replace(send, optional=self._in_zookeeper is None))

    def _find_later(self, reason: str) -> None:
        self._attempts += 1
        self._exchange.set(Timer.RETRY, self._now + self._config.backoff_s(self._attempts, self._random))
        if self._attempts & (self._attempts - 1) == 0:
            text = f"looking for its coordinator: {reason}; trying again (attempt {self._attempts})"
            self._note(INFO, f"group {self._config.group_id}: {text}")

    def _coordinator_lost(self, reason: str) -> None:
        finds = self._config.group_id and not self._in_zookeeper and not self._session
        if finds and not self._seeks_coordinator:
            self._find_later(reason)

    def _found(self, event: ev.Answered | ev.Failed) -> None:
        if isinstance(event, ev.Failed):
            if event.unsupported:
                self._do_without()
            else:
                self._find_later(event.reason)
            return
        self._in_zookeeper = False  # a broker without coordinators, met later, is of no use
        answer = _coordinator_in(event, self._config.group_id)
        if answer.error_code == ErrorCode.NONE:
            self._attempts = self._unexpected = 0
            self._out.append(ev.CoordinatorFound(Broker(answer.node_id, answer.host, answer.port)))
            self._settle()
            return
        reaction = reaction_to(Purpose.FIND, answer.error_code)
        self._unexpected += reaction is Reaction.UNEXPECTED
        if reaction is Reaction.FATAL or self._unexpected >= UNEXPECTED_ATTEMPTS:
            self._fail(fatal_error(answer.error_code, "find its coordinator", self._config))
        else:
            self._find_later(error_of(answer.error_code).name)

    def _do_without(self) -> None:
        """The brokers know no coordinators (before 0.8.2)."""
        self._in_zookeeper, self._attempts = True, 0
        text = f"group {self._config.group_id}: the brokers have no coordinators, its offsets are kept in ZooKeeper"
        self._note(INFO, text)
        self._out.append(ev.NoCoordinator())
        self._settle()

    # -- refused commits ----------------------------------------------------------------------------------------------

    def _refused(self, code: int) -> None:
        reaction = reaction_to_commit(code)
        if reaction is Reaction.FIND:
            self._coordinator_lost(error_of(code).name)
        elif code == ErrorCode.GROUP_ID_NOT_FOUND:
            # The first commit of a query that is not a member creates the group, so this one is of another kind.
            self._fail(fatal_error(code, "commit", self._config))
        elif reaction in _OF_MEMBERS:
            self._members_met(error_of(code).name)

    def _members_met(self, name: str) -> None:
        group = self._config.group_id
        if self._refused_since is None:
            self._refused_since = self._now
            self._note(
                WARNING,
                f"group {group}: it has members, so a commit of this query, which is none, was refused ({name}). "
                f"Nothing is read until they have left, for {self._members_timeout_s:g} s (group.joinTimeout) at most",
            )
        waited = self._now - self._refused_since
        if waited >= self._members_timeout_s:
            shown = how_to_look(OffsetLocation(group, self._stored_in))
            self._fail(ConfigError(_HAS_MEMBERS.format(group=group, waited=waited, name=name, look=shown)))
            return
        self._attempts += 1
        self._exchange.set(Timer.REJOIN, self._now + self._config.backoff_s(self._attempts, self._random))


def _coordinator_in(event: ev.Answered, group_id: str) -> c.FindCoordinatorResponse | c.Coordinator:
    """What FindCoordinator tells of the group: in the answer itself up to v3, in a list from v4 (KIP-699)."""
    response: c.FindCoordinatorResponse = event.response
    if event.version < 4:
        return response
    found = (one for one in response.coordinators if one.key == group_id)
    return next(found, c.Coordinator(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))


_HAS_MEMBERS = (
    "group {group}: it has members, and with group.mode=commit this query is none of them: its commits have been "
    "refused for {waited:.0f} s ({name}; group.joinTimeout), and it has read nothing meanwhile. Stop the members, or "
    "give this query a kafka.group.id of its own, or let it share the partitions with them (group.mode=member), or "
    "let it commit nothing (group.mode=off). Mind that it follows what consumers have committed to its group, as "
    "it would a reset: look before it starts there again ({look})"
)
