"""The member of a group in ZooKeeper, as for the consumers of Kafka 0.7 and 0.8: one reconcile loop without I/O.

It has the interface of `Membership`; `events.py` here and in `group/` have its events and actions. After each step it
compares the group as last read (`Seen`) with the group as it should be, and takes the next action. A lost answer, a
missed watch or a concurrent change need no cases of their own, because the action depends only on this comparison:

    not registered                                        -> register
    the group was not read, or a watch has fired          -> read the group
    registered with another subscription or identity      -> register again, write the identity
    an earlier registration of this session exists        -> delete it
    owns partitions that others should own                -> wait for the boundary of the batch, release them
    has written since the last read                       -> read the owners
    should own a partition that has no owner              -> claim it
    owns other partitions than it holds                   -> `Assigned`

R36: without a connection no batch is planned in any state. After a reconnection planning waits until the member has
read its own node. The session, and so the partitions held, may survive the loss of a connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any, ClassVar, get_args

from streamgroup.backoff import Random
from streamgroup.errors import ConfigError, ErrorCode, StreamGroupError
from streamgroup.group import events as ev
from streamgroup.group.events import INFO, WARNING, JoinCause
from streamgroup.group.registry import events as zk
from streamgroup.group.registry.nodes import GroupPaths, Incarnation
from streamgroup.group.registry.registration import (
    ForcedRebalanceBackoff,
    LoggedTexts,
    Registration,
    RegistryPurpose,
    RegistryTimer,
    Seen,
    SessionLease,
)
from streamgroup.group.registry.view import View, owner_subtrees, owners_in, subtrees, view_of
from streamgroup.group.rejoining import RejoinWait
from streamgroup.group.state_machine import PendingRequest, State, StateMachine, Table, ignore, on, table_of
from streamgroup.group.timing import LEAVE_TIMEOUT_MS, MemberConfig
from streamgroup.model import TopicPartition
from streamgroup.text import counted
from streamgroup.znodes import Delete, Operation, Refusal, Subtree

Action = ev.Action | zk.RegistryAction

PARTIAL_AFTER_S = 1.0
"""After this time a member continues without the partitions that other members have not released. Usually they release
them
immediately, and one assignment is better than two. Founders of a group so get the same generation (R7)."""

_NOTHING: frozenset[TopicPartition] = frozenset()
_PUT_OUT = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID}


class Reconcile:
    """Cue at the end of a step, when the member compares the group as read with the group as it should be."""


class RegistryMembership(StateMachine[Action, RegistryPurpose, RegistryTimer]):
    """The state machine of one member of a group in ZooKeeper (`/consumers/<group>`).

    `config.session_timeout_ms` is the timeout that the member requests from ZooKeeper; strategies are not used.
    """

    TABLE: ClassVar[Table]
    ANSWERS = (zk.SubtreesRead, zk.Transacted, zk.RequestRefused, zk.Unanswered)

    def __init__(
        self, config: MemberConfig, random: Random, paths: GroupPaths, new_incarnation: Callable[[], Incarnation]
    ) -> None:
        super().__init__(config, random, RegistryTimer)
        self._wait = RejoinWait(config.rebalance_wait_ms, cooperative=False)
        self._paths = paths
        self._noted = LoggedTexts()
        self._lease = SessionLease(config.session_timeout_ms)
        # The group as last read, and the state of this member in it.
        self._registration = Registration(paths, new_incarnation)
        self._seen = Seen(self._registration)
        self._claimed_topics: set[str] = set()
        """The topics in which this session may have owner nodes; each assignment removes those without any."""
        self._held = _NOTHING
        self._withheld = 0
        """How many partitions other consumers still owned at the last assignment that this member should own."""
        self._assigned = False
        """Whether `Assigned` was sent for the owned partitions, and no `Lost` since."""
        self._waited = False
        """Whether the member has waited `PARTIAL_AFTER_S` for other members to release partitions."""
        self._forced_backoff = ForcedRebalanceBackoff()

    @property
    def member_id(self) -> str:
        """The consumer id of this session, `""` before the first."""
        return self._registration.consumer_id

    @property
    def view(self) -> View | None:
        """The group as last read: its consumers (R28), and the owners of partitions."""
        return self._seen.view

    @property
    def lease_at(self) -> float | None:
        """When the newest accepted transaction with the fence, or the newest accepted commit, was sent (R9)."""
        return self._lease.lease_at

    @property
    def can_plan(self) -> bool:
        """Whether a batch of the owned partitions may be planned."""
        lease = self._lease
        return self._state is State.STABLE and not self.rebalance_wanted and lease.connected and lease.proven

    @property
    def may_commit(self) -> bool:
        """Whether commits are allowed. Not while partitions are released, since the fence would accept one (R31)."""
        return self._state is State.STABLE and self._lease.connected

    def _note_once(self, level: int, text: str) -> None:
        if self._noted.is_new(text):
            self._note(level, text)

    # -- starting and stopping ----------------------------------------------------------------------------------------

    def _start(self, event: ev.Start) -> None:
        self._topics, self._wait.settles = tuple(sorted(set(event.topics))), event.settles
        self._transition_to(State.FINDING)
        self._out.append(zk.OpenSession())

    def _stop(self, event: ev.Stop) -> None:
        self._wait.end()
        self._lease.end_lease()
        present = self._registration.topics is not None and self._lease.connected
        self._requests.reset()
        if not present:
            self._left()
            return
        self._transition_to(State.LEAVING)
        for operations in self._registration.fenced([Delete(self._paths.owner(tp)) for tp in sorted(self._seen.mine)]):
            self._transact(RegistryPurpose.LEAVE, operations)
        self._transact(RegistryPurpose.LEAVE, self._registration.delete())
        self._requests.set(RegistryTimer.LEAVE, self._now + LEAVE_TIMEOUT_MS / 1000)

    def _stop_unstarted(self, event: ev.Stop) -> None:
        self._transition_to(State.LEFT)
        self._out.append(ev.Left())

    def _leave_answered(self, event: Any, pending: PendingRequest[RegistryPurpose]) -> None:
        """Leave when all transactions are answered. The end of the session deletes the remaining nodes."""
        if not self._requests.is_pending(RegistryPurpose.LEAVE):
            self._left()

    def _left(self, event: object = None) -> None:
        self._forget_session()
        self._transition_to(State.LEFT)
        self._out += [zk.CloseSession(), ev.Left()]

    def _fail(self, error: StreamGroupError) -> None:
        self._requests.reset()
        self._wait.end()
        self._lease.end_lease()
        self._transition_to(State.FATAL)
        self._out.append(ev.Fail(error))

    # -- the session --------------------------------------------------------------------------------------------------

    def _began(self, event: zk.SessionBegan) -> None:
        if self._registration.session is not None:
            self._expired(zk.Expired("there is a new session"))
        self._registration.session = event.session_id
        self._lease.began(event.timeout_ms)
        if event.timeout_ms < (asked := self._config.session_timeout_ms):
            self._note_once(WARNING, _GRANTED.format(asked=asked, granted=event.timeout_ms))
        if self._generation < 0:
            self._enter("the query starts", JoinCause.START)
        else:
            self._enter("a new session in ZooKeeper", JoinCause.LOST)

    def _enter(self, reason: str, cause: JoinCause) -> None:
        self._rejoin(reason, cause)
        self._requests.set(
            RegistryTimer.HEARTBEAT, self._now + self._config.heartbeat_interval_s(self._lease.timeout_ms)
        )

    def _expired(self, event: zk.Expired) -> None:
        """Give up everything: ZooKeeper has removed the registration and the owner nodes with the session."""
        self._lose(event.reason)
        self._forget_session()
        self._transition_to(State.FINDING)

    def _gone(self, reason: str) -> None:
        """Register again under another id: the registration is gone, but the session is alive."""
        self._lose(reason)
        self._requests.reset()
        self._forget_registration()
        self._enter(reason, JoinCause.LOST)
        self._set_backoff(RegistryTimer.RETRY)

    def _lose(self, reason: str) -> None:
        """Give up all partitions: they are lost, or may be."""
        if self._assigned:
            self._out.append(ev.Lost(reason))
        self._drop_partitions()

    def _drop_partitions(self) -> None:
        self._held = self._seen.kept = _NOTHING
        self._withheld, self._assigned = 0, False
        self._wait.end()

    def _forget_session(self) -> None:
        self._requests.reset()
        self._registration.session = None
        self._lease.suspended()
        self._claimed_topics.clear()
        self._drop_partitions()
        self._forget_registration()

    def _forget_registration(self) -> None:
        self._registration.forget()
        self._seen.forget()
        self._lease.unregistered()
        self._forget_identity()

    def _suspended(self, event: zk.Suspended) -> None:
        """Stop planning until the connection is back (R36). `Unanswered` follows for each pending request."""
        if self._lease.connected:
            self._note(WARNING, f"no connection to ZooKeeper ({event.reason}): nothing is planned until it is back")
        self._lease.suspended()
        self._requests.clear(
            RegistryTimer.HEARTBEAT, RegistryTimer.FORCE_REBALANCE, RegistryTimer.RETRY, RegistryTimer.PARTIAL
        )

    def _resumed(self, event: zk.Resumed) -> None:
        if self._registration.session is None:
            return
        self._lease.connected = self._seen.view_stale = True  # watch events may have been missed
        self._note(INFO, "connected to ZooKeeper again, in the same session")
        self._heartbeat()

    def _heartbeat(self) -> None:
        self._requests.set(
            RegistryTimer.HEARTBEAT, self._now + self._config.heartbeat_interval_s(self._lease.timeout_ms)
        )
        if self._registration.topics is not None and not self._requests.is_pending(RegistryPurpose.HEARTBEAT):
            self._transact(RegistryPurpose.HEARTBEAT, (self._registration.fence,))

    # -- events of the driver and of watches --------------------------------------------------------------------------

    def _changed(self, event: zk.Changed) -> None:
        if event.path.startswith(self._paths.owners()):
            self._seen.owners_stale = True
        else:
            self._seen.view_stale = True

    def _settled(self, event: ev.Settled) -> None:
        self._wait.settling = False

    def _commit_accepted(self, event: ev.CommitAccepted) -> None:
        if (event.member_id, event.generation) == (self._registration.consumer_id, self._generation):
            self._lease.renew(event.sent_at)

    def _commit_refused(self, event: ev.CommitRefused) -> None:
        ours = (event.member_id, event.generation) == (self._registration.consumer_id, self._generation)
        if ours and event.code in _PUT_OUT:
            self._gone("a commit was refused: its registration or a partition belongs to another session")

    # -- reconciling --------------------------------------------------------------------------------------------------

    def _after_event(self) -> None:
        self._dispatch(Reconcile)

    def _reconcile(self) -> None:
        """Take the next action, unless an answer or a backoff is pending. Heartbeats are independent."""
        pending = self._requests.is_pending_beside(RegistryPurpose.HEARTBEAT)
        if not self._lease.connected or pending or self._requests.at(RegistryTimer.RETRY) is not None:
            return
        view = self._seen.view
        if self._registration.topics is None and (view is not None or not self._registration.consumer_id):
            operations = self._registration.create(self._topics, self._identity)
            self._transact(RegistryPurpose.REGISTER, operations, ensured=(self._paths.ids, self._paths.members))
        elif view is None or self._seen.view_stale:
            self._seen.look_began()
            self._look(RegistryPurpose.LOOK, subtrees(self._paths, self._topics))
        elif self._registration.topics != self._topics:
            self._transact(RegistryPurpose.RENEW, self._registration.renew(self._topics, self._identity))
        elif self._registration.identity != self._identity:
            self._transact(RegistryPurpose.IDENTIFY, self._registration.identify(self._topics, self._identity))
        elif leftovers := self._seen.leftovers():
            for consumer in leftovers:
                name = consumer.consumer_id
                self._note(INFO, f"deleting {name}, an earlier registration of this session")
                self._transact(RegistryPurpose.SWEEP, self._registration.sweep(consumer))
        else:
            self._reconcile_partitions(view)

    def _reconcile_partitions(self, view: View) -> None:
        mine, wanted = self._seen.mine, self._seen.wanted
        if self._state is State.STABLE and not self._held <= mine & wanted:
            lost = counted(len(self._held - (mine & wanted)), "partition")
            if not self._may_give_up(view, f"other members get {lost} of this member"):
                return
        elif self.rebalance_wanted:  # this member should own its partitions again
            self._wait.reason = None
            self._requests.clear(RegistryTimer.REJOIN)
        surplus = self._seen.surplus(wanted)
        claims = [tp for tp in sorted(wanted - mine) if self._seen.is_free(tp)]
        if self._seen.unconfirmed:
            self._confirm()
        elif surplus or claims:
            self._release(surplus)
            self._claim(claims)
        elif self._seen.owners_stale and wanted - mine:
            self._confirm()
        else:
            self._hold(view, mine & wanted, wanted - mine)

    # -- reading ------------------------------------------------------------------------------------------------------

    def _look(self, purpose: RegistryPurpose, nodes: Iterable[Subtree], *, watch: bool = True) -> None:
        """Read nodes, and the owners of this member's topics."""
        owners = owner_subtrees(self._paths, {*self._topics, *self._claimed_topics}, watch=watch)
        self._out.append(zk.ReadSubtrees(self._requests.add(purpose, self._now), (*nodes, *owners)))

    def _confirm(self) -> None:
        self._seen.confirm_began()
        self._look(RegistryPurpose.CONFIRM, (self._registration.subtree,))

    def _looked(self, event: zk.SubtreesRead, pending: PendingRequest[RegistryPurpose]) -> None:
        view = view_of(self._paths, event.nodes)
        for note in view.notes:
            self._note_once(WARNING, note)
        if not self._see_own_node(event):
            self._seen.view = view
            return
        before = self._seen.view
        if before is None or before.consumers.keys() != view.consumers.keys():
            self._forced_backoff.reset()
        self._seen.see(view)
        if view.foreign:
            self._set_forced_rebalance()
        else:
            self._requests.clear(RegistryTimer.FORCE_REBALANCE)

    def _owners_seen(self, event: zk.SubtreesRead, pending: PendingRequest[RegistryPurpose]) -> None:
        if self._see_own_node(event):
            self._seen.see_owners(owners_in(self._paths, event.nodes))

    def _see_own_node(self, event: zk.SubtreesRead) -> bool:
        """Return whether this session is registered according to the answer.

        The answer does not renew the lease: a server that is partitioned from the others also answers, with old data.
        """
        node = event.nodes.get(self._registration.path)
        if node is not None and node.owner == self._registration.session:
            self._registration.recognize(node, self._topics)
            self._attempts, self._lease.proven = 0, True
            return True
        if node is not None:
            self._note(
                WARNING, f"another session is registered as {self._registration.consumer_id}: rejoining under a new id"
            )
        if self._registration.topics is not None or node is not None:
            self._gone("its registration was deleted")
        return False

    # -- answers to transactions --------------------------------------------------------------------------------------

    def _transact(
        self, purpose: RegistryPurpose, operations: Iterable[Operation], ensured: tuple[str, ...] = ()
    ) -> None:
        self._out.append(zk.Transact(self._requests.add(purpose, self._now), tuple(operations), ensured))

    def _carried_out(self, event: zk.Transacted, pending: PendingRequest[RegistryPurpose]) -> None:
        """Renew the lease (R9): most servers agree on a transaction that creates or checks the member's node."""
        self._attempts = 0
        self._lease.renew(pending.sent_at)

    def _registered(self, event: zk.Transacted, pending: PendingRequest[RegistryPurpose]) -> None:
        self._registration.accept()
        self._swept(event, pending)

    def _swept(self, event: zk.Transacted, pending: PendingRequest[RegistryPurpose]) -> None:
        self._seen.view_stale = True
        self._carried_out(event, pending)

    def _heartbeat_accepted(self, event: zk.Transacted, pending: PendingRequest[RegistryPurpose]) -> None:
        self._carried_out(event, pending)
        self._lease.proven = True

    def _register_refused(self, event: zk.RequestRefused, pending: PendingRequest[RegistryPurpose]) -> None:
        if event.refusal is not Refusal.NODE_EXISTS:
            self._refused(event, pending)
            return
        self._note(WARNING, f"another ZooKeeper session owns {event.path}: registering under another consumer id")
        self._registration.forget()
        self._seen.view = None
        self._look_later("its id is taken")

    def _claim_refused(self, event: zk.RequestRefused, pending: PendingRequest[RegistryPurpose]) -> None:
        """Ignore that another member was faster: the next read of the owners shows which one."""
        if event.refusal is not Refusal.NODE_EXISTS:
            self._refused(event, pending)

    def _refused(self, event: zk.RequestRefused, pending: PendingRequest[RegistryPurpose]) -> None:
        path, doing = event.path, pending.purpose.value
        if event.is_final:
            self._fail(ConfigError(zk.forbidden(self._config.group_id, f"could not {doing}", event)))
        elif event.refusal is Refusal.NO_NODE and path == self._registration.path:
            self._gone("its registration was deleted")
        else:
            self._look_later(f"could not {doing}: {path}: {event.refusal.value}")

    def _unanswered(self, event: zk.Unanswered, pending: PendingRequest[RegistryPurpose]) -> None:
        """Read the group again: a transaction may have taken effect or not."""
        if pending.purpose is RegistryPurpose.HEARTBEAT:  # the next heartbeat follows
            return
        if pending.purpose in {RegistryPurpose.REGISTER, RegistryPurpose.RENEW, RegistryPurpose.IDENTIFY}:
            self._registration.doubt()
            self._seen.view = None
        self._look_later(f"could not {pending.purpose.value}: {event.reason}")

    def _look_later(self, reason: str) -> None:
        """Read everything again after a backoff."""
        self._seen.view_stale = True
        self._back_off(RegistryTimer.RETRY, self._state.value, reason)

    # -- giving up and claiming ---------------------------------------------------------------------------------------

    def _may_give_up(self, view: View, reason: str) -> bool:
        """Return whether partitions may be released now: at the boundary of a batch (R21).

        The starting positions of gained partitions are committed first (R6), since the next owner could not determine
        them. If a consumer of another client waits, the member releases partitions after 5 s at the latest (R33).
        """
        awaited = self._wait.awaited
        if awaited is None:
            self._rejoin(reason, JoinCause.GROUP)
            return True
        if not self.rebalance_wanted:
            self._wait.begin(reason, JoinCause.GROUP, self._now)
            self._note(INFO, f"{reason}: this member releases its partitions when {awaited}")
        due = self._wait.due(self._config.max_poll_interval_ms, foreign=bool(view.foreign))
        self._requests.set(RegistryTimer.REJOIN, due)
        return False

    def _waited_enough(self) -> None:
        if self._wait.batch.in_flight:
            foreign = () if self._seen.view is None else self._seen.view.foreign
            text = self._wait.gave_up(self._now, self._config.max_poll_interval_ms, foreign)
            self._out.append(ev.GaveUp(text))
        else:
            self._note(WARNING, self._wait.left_unsettled(self._generation, self._now))
        self._rejoin(*self._wait.why)

    def _rejoin(self, reason: str, cause: JoinCause) -> None:
        """Stop planning and committing until the next assignment."""
        self._out.append(ev.Joining(reason, abandoned=self._wait.batch.in_flight, cause=cause))
        self._transition_to(State.JOINING)
        self._wait.end()
        self._waited = False
        self._requests.clear(RegistryTimer.REJOIN, RegistryTimer.PARTIAL)

    def _release(self, partitions: list[TopicPartition]) -> None:
        nodes = [Delete(self._paths.owner(tp), self._seen.owners[tp].version) for tp in partitions]
        for operations in self._registration.fenced(nodes):
            self._transact(RegistryPurpose.RELEASE, operations)
        self._seen.released(frozenset(partitions))

    def _claim(self, partitions: Iterable[TopicPartition]) -> None:
        """Claim each partition in a separate transaction: if another member has claimed one, only that one fails."""
        for tp in partitions:
            operations = self._registration.claim(tp, self._seen.owners.get(tp))
            self._transact(RegistryPurpose.CLAIM, operations, ensured=(self._paths.owners(tp.topic),))
            self._claimed_topics.add(tp.topic)
            self._seen.unconfirmed = True

    def _hold(self, view: View, held: frozenset[TopicPartition], missing: frozenset[TopicPartition]) -> None:
        """Hold the partitions owned; `missing` are still owned by others."""
        for text in self._seen.lingering(view, missing, self._paths):
            self._note_once(WARNING, text)
        if self._state is State.STABLE and (held, len(missing)) == (self._held, self._withheld):
            return
        if self._state is State.JOINING and missing and not self._waited:
            if self._requests.at(RegistryTimer.PARTIAL) is None:
                self._requests.set(RegistryTimer.PARTIAL, self._now + PARTIAL_AFTER_S)
            return
        waited_for = self._seen.waited_for(view, missing)
        if waited_for is not None:
            self._note(INFO, waited_for)
        kept, self._held, self._seen.kept = self._seen.kept & held, held, held
        self._wait.settling = self._wait.settles and (self._wait.settling or kept != held)
        self._withheld, self._assigned, self._waited = len(missing), True, True
        self._generation = self._seen.next_generation(view, held, self._generation)
        self._transition_to(State.STABLE)
        # No claim is pending, so the owners show all topics in which this session has nodes.
        self._claimed_topics &= {*self._topics, *self._seen.owned_topics()}
        self._requests.clear(RegistryTimer.PARTIAL)
        self._out.append(
            ev.Assigned(
                self._generation,
                self._registration.consumer_id,
                tuple(sorted(held)),
                kept,
                "range",
                leader=False,
                members=len(view.consumers),
                total=view.total,
                withheld=len(missing),
                keeper="ZooKeeper",
            )
        )

    def _waited_for_owners(self) -> None:
        self._waited = True

    # -- consumers of other clients (R33) -----------------------------------------------------------------------------

    def _set_forced_rebalance(self) -> None:
        self._requests.set(RegistryTimer.FORCE_REBALANCE, self._now + self._forced_backoff.wait_s)

    def _rebalance_due(self) -> None:
        view, pending = self._seen.view, self._requests.is_pending_beside(RegistryPurpose.HEARTBEAT)
        if self._state is not State.STABLE or view is None or pending or not self._lease.connected:
            self._set_forced_rebalance()
        elif view.foreign and view.ours[:1] == (self._registration.consumer_id,):
            self._look(RegistryPurpose.NEIGHBOURS, (self._registration.subtree,), watch=False)

    def _neighbours_seen(self, event: zk.SubtreesRead, pending: PendingRequest[RegistryPurpose]) -> None:
        """Force a rebalance if a consumer of another client has not claimed its partitions."""
        self._owners_seen(event, pending)
        view = self._seen.view
        if view is None or self._seen.view_stale or not self._lease.proven:
            return
        missing, unreleased = self._seen.unclaimed(view.foreign)
        if missing:
            self._forced_backoff.add()
            self._note(INFO, f"{missing[0]} has not claimed its partitions: registering again so all rebalance")
            self._transact(RegistryPurpose.RENEW, self._registration.renew(self._topics, self._identity))
        elif unreleased:
            self._set_forced_rebalance()


_GRANTED = (
    "zookeeper.session.timeout.ms={asked} is more than ZooKeeper grants: the session timeout is {granted} ms. Lower "
    "the option, or raise maxSessionTimeout of the servers (default: 20 ticks)"
)

_UNJOINED, _FINDING, _JOINING, _STABLE = State.UNJOINED, State.FINDING, State.JOINING, State.STABLE
_IN = (_FINDING, _JOINING, _STABLE)
_REGISTERED = (_JOINING, _STABLE)
_LEAVING = (State.LEAVING,)
_ALL = tuple(State)
_ANSWERS: Mapping[RegistryPurpose, tuple[type[Any], Callable[..., None], Callable[..., None]]] = {
    # For each purpose: the answer of success, its method, and the method for a refusal.
    RegistryPurpose.LOOK: (zk.SubtreesRead, RegistryMembership._looked, RegistryMembership._refused),
    RegistryPurpose.CONFIRM: (zk.SubtreesRead, RegistryMembership._owners_seen, RegistryMembership._refused),
    RegistryPurpose.NEIGHBOURS: (zk.SubtreesRead, RegistryMembership._neighbours_seen, RegistryMembership._refused),
    RegistryPurpose.REGISTER: (zk.Transacted, RegistryMembership._registered, RegistryMembership._register_refused),
    RegistryPurpose.RENEW: (zk.Transacted, RegistryMembership._registered, RegistryMembership._refused),
    RegistryPurpose.IDENTIFY: (zk.Transacted, RegistryMembership._registered, RegistryMembership._refused),
    RegistryPurpose.SWEEP: (zk.Transacted, RegistryMembership._swept, RegistryMembership._refused),
    RegistryPurpose.RELEASE: (zk.Transacted, RegistryMembership._carried_out, RegistryMembership._refused),
    RegistryPurpose.CLAIM: (zk.Transacted, RegistryMembership._carried_out, RegistryMembership._claim_refused),
    RegistryPurpose.HEARTBEAT: (zk.Transacted, RegistryMembership._heartbeat_accepted, RegistryMembership._refused),
}

RegistryMembership.TABLE = table_of(
    chain(
        on(ev.Start, (_UNJOINED, State.LEFT), RegistryMembership._start, _FINDING),
        on(ev.Stop, (_UNJOINED,), RegistryMembership._stop_unstarted, State.LEFT),
        on(ev.Stop, (*_IN, State.FATAL), RegistryMembership._stop, State.LEAVING, State.LEFT),
        on(ev.UserDataChanged, _ALL, RegistryMembership._user_data_changed),
        on(ev.Subscribed, (_UNJOINED, *_IN, State.LEAVING, State.LEFT), RegistryMembership._subscribed),
        # Spark calls at any time. A member that rejoins must know whether a batch is in flight.
        on(ev.Planned, _ALL, RegistryMembership._planned),
        on(ev.Asked, _ALL, RegistryMembership._asked),
        on(ev.Idle, _ALL, RegistryMembership._idle),
        on(ev.Settled, (_STABLE,), RegistryMembership._settled),
        on(ev.CommitAccepted, (_STABLE,), RegistryMembership._commit_accepted),
        on(ev.CommitRefused, (_STABLE,), RegistryMembership._commit_refused, _JOINING),
        on(zk.SessionBegan, _IN, RegistryMembership._began, _FINDING, _JOINING),
        on(zk.Suspended, _IN, RegistryMembership._suspended),
        on(zk.Suspended, _LEAVING, RegistryMembership._left, State.LEFT),
        on(zk.Resumed, _IN, RegistryMembership._resumed),
        on(zk.Expired, _IN, RegistryMembership._expired, _FINDING),
        on(zk.Expired, _LEAVING, RegistryMembership._left, State.LEFT),
        on(zk.Changed, _REGISTERED, RegistryMembership._changed),
        on(Reconcile, _REGISTERED, RegistryMembership._reconcile, *_REGISTERED),
        *(on((why, answer), _REGISTERED, done, _JOINING) for why, (answer, done, _) in _ANSWERS.items()),
        *(on((why, zk.RequestRefused), _REGISTERED, refused, _JOINING) for why, (_, _, refused) in _ANSWERS.items()),
        *(on((why, zk.Unanswered), _REGISTERED, RegistryMembership._unanswered) for why in _ANSWERS),
        *(
            on((RegistryPurpose.LEAVE, answer), _LEAVING, RegistryMembership._leave_answered, State.LEFT)
            for answer in (zk.Transacted, zk.RequestRefused, zk.Unanswered)
        ),
        on(RegistryTimer.LEAVE, _LEAVING, RegistryMembership._left, State.LEFT),
        on(RegistryTimer.REJOIN, _REGISTERED, RegistryMembership._waited_enough, _JOINING),
        on(RegistryTimer.RETRY, _REGISTERED, ignore),  # `_reconcile` follows
        on(RegistryTimer.PARTIAL, _REGISTERED, RegistryMembership._waited_for_owners),
        on(RegistryTimer.FORCE_REBALANCE, _REGISTERED, RegistryMembership._rebalance_due),
        on(RegistryTimer.HEARTBEAT, _REGISTERED, RegistryMembership._heartbeat),
    ),
    # Topics and brokers are read from ZooKeeper, and there is no group coordinator.
    ignored={Reconcile, *get_args(ev.Event), *get_args(zk.RegistryEvent)} - {ev.Start, *RegistryMembership.ANSWERS},
)
