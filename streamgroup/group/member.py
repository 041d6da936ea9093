"""A member of a group: combines its membership state machine, its ledger and its offset store. Pure.

The state machine joins and leaves; the ledger stores the positions. The member fetches and commits offsets through the
offset store when the rules allow it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from streamgroup.advice import UNKNOWN, Requester
from streamgroup.backoff import Backoff
from streamgroup.errors import StreamGroupError, error_of
from streamgroup.frozen import frozen
from streamgroup.group import events as ev
from streamgroup.group.commits import Commit, CommitVerdict, Offsets, PartSize, deciding, refusals
from streamgroup.group.events import Action, Event
from streamgroup.group.ledger import Ledger
from streamgroup.group.offsets.both import AskKafka, WithdrawFromKafka
from streamgroup.group.offsets.store import (
    Answer,
    CommitOffsets,
    FetchOffsets,
    NoAnswer,
    OffsetsCommitted,
    OffsetsFetched,
    OffsetStore,
    Outcome,
    PartitionVerdict,
    Verdict,
)
from streamgroup.group.offsets.table import ClaimRows, CommitRows, TableEvent, TableOffsetStore
from streamgroup.group.offsets.transaction import TransactionOffsetStore
from streamgroup.group.reactions import UNEXPECTED_ATTEMPTS, offsets_error
from streamgroup.group.registry.events import RegistryAction, RegistryEvent
from streamgroup.group.start_positions import Origin
from streamgroup.group.state_machine import State
from streamgroup.model import CommittedOffset, Document, OffsetRange, TopicInfo, TopicPartition
from streamgroup.text import counted

OWN_TOKENS = 1 << 32
"""The membership machine's tokens are smaller; requests to the offset store have tokens from this number on."""


class Machine(Protocol):
    """The interface of the state machines that decide which partitions a query owns.

    `Membership`, `ConsumerMembership`, `RegistryMembership` and (for a query outside any group) `StandaloneMember`
    implement it. The docstrings of `Membership` describe the methods.
    """

    retries: int
    """The number of backoffs since the start, each before another attempt."""

    @property
    def trouble(self) -> str:
        """Why the last attempt failed, empty after a success."""

    @property
    def state(self) -> State:
        """The state of the member."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of the subscription."""

    @property
    def lease_at(self) -> float | None:
        """When the newest accepted heartbeat or commit was sent. Planning stops one session timeout later (R9)."""

    @property
    def can_plan(self) -> bool:
        """Whether a batch of the owned partitions may be planned."""

    @property
    def may_commit(self) -> bool:
        """Whether the group may accept a commit."""

    @property
    def revoking(self) -> frozenset[TopicPartition]:
        """The partitions to give up when their batch is completed and committed (R25)."""

    @property
    def settling(self) -> bool:
        """Whether a rejoin waits for `Settled`."""

    @property
    def rebalance_wanted(self) -> bool:
        """Whether the member gives up its partitions at the next boundary of a batch."""

    def step(self, event: Any, now: float) -> Sequence[Action | RegistryAction]:
        """Handle one event. Return the actions to carry out, in order."""


def shown_state(machine: Machine) -> str:
    """Return the state in lower case; `suspended` if the member owns partitions and has lost ZooKeeper (R36)."""
    is_suspended = machine.state is State.STABLE and not machine.may_commit
    return "suspended" if is_suspended else machine.state.name.lower()


def _because_of(cause: str) -> str:
    return f": {cause}" if cause else ""


@frozen
class Resolve:
    """Action of the member: look up in the logs where these partitions, newly assigned in `generation`, start."""

    generation: int
    partitions: Mapping[TopicPartition, Origin]


@frozen
class MetadataStale:
    """Action of the member: refresh the metadata now, because a response contradicts it. A topic may be deleted."""


MemberAction = Action | RegistryAction | AskKafka | WithdrawFromKafka | ClaimRows | CommitRows | Resolve | MetadataStale


@frozen
class _Fetch:
    """A pending fetch of offsets. Its response counts only for this member id and generation (R18)."""

    member_id: str
    generation: int
    topics: frozenset[str]
    """The topics that the metadata contained when it was sent."""


@frozen
class _Committing:
    """A commit that is sent in parts: `part` is pending, and the parts in `left` follow one after the other."""

    commit: Commit
    part: Offsets
    left: tuple[Offsets, ...]
    sent_at: float


class Member:
    """One member of one group: decides when to join, plan, fetch and commit.

    Every method that may cause requests returns the actions to carry out, in order.
    """

    def __init__(
        self,
        membership: Machine,
        ledger: Ledger,
        store: OffsetStore,
        *,
        instance_id: str | None,
        session_timeout_s: float,
        request_timeout_ms: int,
        backoff: Backoff,
        requester: Requester = UNKNOWN,
    ) -> None:
        self.membership = membership
        self.ledger = ledger
        self.store = store
        """Where the offsets are fetched from and committed to."""
        self._instance_id = instance_id
        self._session_timeout_s = session_timeout_s
        self._request_timeout_ms = request_timeout_ms
        self._backoff = backoff
        self._requester = requester
        self._token = OWN_TOKENS
        self._fetching: tuple[int, _Fetch] | None = None
        self._committing: tuple[int, _Committing] | None = None
        self._part_size = PartSize(ledger.group)
        self._unexpected = 0
        """Unexpected failures of the store since the last fetch or commit that succeeded."""
        self._retry_at: float | None = None
        self._store_retries = 0
        self._store_trouble = ""
        """Why the last request to the store failed; empty after a success."""
        self._busy = False
        self._withheld = 0
        self._commit_waits_for_join = False
        self._machine_wakes_at: float | None = None
        self._otherwise: Machine | None = None
        """The state machine of the other protocol, to be used if the group coordinator refuses the present one."""
        self._identity: ev.UserDataChanged | None = None
        """The newest data for the other members."""
        self._topics: Mapping[str, TopicInfo] = {}
        self.is_listened: Callable[[], bool] = lambda: False
        """Whether a listener reports completed batches (R22). Set by the coordinator."""
        self._answers: deque[Answer] = deque()
        """Responses of the store that this step has not handled yet."""

    def try_protocol(self, membership: Machine) -> None:
        """Use this state machine until the group coordinator refuses its protocol.

        Then use the one that `Member` was created with, which has not started.
        """
        assert self.membership.state is State.UNJOINED
        self.membership, self._otherwise = membership, self.membership

    # --- state --------------------------------------------------------------------------------------------------------

    @property
    def table(self) -> TableOffsetStore | None:
        """The offset store if it is a table in a database (R37), else None."""
        return self.store if isinstance(self.store, TableOffsetStore) else None

    @property
    def in_transaction(self) -> bool:
        """Whether the sink's transactions commit the offsets (R38)."""
        return isinstance(self.store, TransactionOffsetStore)

    @property
    def instance_id(self) -> str | None:
        """The `group.instance.id`; None if the member is not static."""
        return self._instance_id

    @property
    def is_static(self) -> bool:
        return self._instance_id is not None

    @property
    def is_joining(self) -> bool:
        """Whether the member waits for an assignment."""
        return self.membership.state in {State.FINDING, State.JOINING, State.SYNCING}

    @property
    def stable(self) -> bool:
        """Whether the member has an assignment and no rebalance is announced."""
        return self.membership.state is State.STABLE and not self.membership.rebalance_wanted

    def may_plan(self, now: float) -> bool:
        """Return whether a batch may be planned (R9).

        Requires an assignment (R25: also one that is kept through a rebalance), settled positions, and a heartbeat or
        commit of this generation that was sent and accepted within the session timeout.
        """
        lease = self.membership.lease_at
        fresh = lease is not None and now - lease < self._session_timeout_s
        return self.membership.can_plan and fresh and self.ledger.settled and self.ledger.idle

    def waits_for(self, now: float) -> str:
        """Return what `may_plan` waits for, in words; empty if a batch may be planned."""
        if self.may_plan(now):
            return ""
        if self.membership.state is State.FINDING:
            return f"the group coordinator was not found yet{_because_of(self.membership.trouble)}"
        if self.membership.state in {State.JOINING, State.SYNCING}:
            trouble = _because_of(self.membership.trouble) or "; another member may be slow to rejoin"
            return f"the member is {shown_state(self.membership)}{trouble}"
        if not self.membership.can_plan:
            state = "about to rejoin" if self.membership.rebalance_wanted else shown_state(self.membership)
            return f"the member is {state}"
        if self.ledger.settled and self.ledger.idle:
            return f"no heartbeat was accepted for {self._session_timeout_s:g} s (session.timeout.ms)"
        what = "its last commit" if self.ledger.commit_pending else "the positions of its partitions"
        return f"the member waits for {what}{_because_of(self._store_trouble)}"

    @property
    def retries(self) -> int:
        """The number of backoffs since the member started, each before another attempt."""
        return self._store_retries + self.membership.retries

    @property
    def awaited(self) -> int:
        """How many partitions the group will assign to this member when others have given them up (R11)."""
        return self._withheld

    @property
    def complete(self) -> bool:
        """Whether the member owns all partitions that it should read, and none is being moved (R11, R25)."""
        moving = self._withheld or self.membership.revoking
        return self.stable and not moving and self.ledger.settled and not self.ledger.awaits_offsets

    @property
    def wake_at(self) -> float | None:
        """When to call `step` with a Tick, in monotonic seconds; None: no timer is running."""
        wakes = (self._machine_wakes_at, self._retry_at, self.store.wake_at)
        times = [time for time in wakes if time is not None]
        return min(times, default=None)

    # --- calls of Spark's thread -------------------------------------------------------------------------------------

    def batch_completed(self, start: Document, now: float) -> list[MemberAction]:
        """Mark the batch that ends at `start` as completed: Spark requests the next one. Raises SkippedBatchError."""
        self.ledger.complete_batch(start)
        return self.step(ev.Tick(), now)

    def planned(self, document: Document, now: float) -> list[MemberAction]:
        """Record that `document` is passed to Spark: a batch is in flight."""
        self.ledger.emitted(document)
        self.store.planned(document.ranges)
        self._busy = True
        return self.step(ev.Planned(), now)

    def planned_empty(self, document: Document) -> None:
        """Record that a document without ranges is passed to Spark (R10). A rebalance does not wait for it."""
        self.ledger.emitted(document)

    def handed_out(self, document: Document, now: float) -> tuple[tuple[OffsetRange, ...], list[MemberAction]]:
        """Return the ranges of a document planned by this process, whose tasks start now."""
        # An empty document (R10) was not a batch to the machine: no event would report its end.
        event = ev.Asked(self.is_listened()) if document.ranges else ev.Tick()
        return self.ledger.handed_out(document), self.step(event, now)

    def replayed(
        self,
        start: Document,
        end: Document,
        ranges: tuple[OffsetRange, ...],
        seen: Mapping[TopicPartition, CommittedOffset],
        now: float,
    ) -> list[MemberAction]:
        """Record that tasks start for a document that another process planned (R13)."""
        self.ledger.replayed(start, end, ranges, seen)
        self._busy = True
        return self.step(ev.Asked(self.is_listened()), now)

    def adopted(
        self, start: Document, end: Document, ranges: tuple[OffsetRange, ...], now: float
    ) -> list[MemberAction]:
        """Record that tasks start for a document of another process, of which the member holds `ranges` (R38)."""
        self.ledger.adopted(start, end, ranges)
        self.store.planned(ranges)
        self._busy = True
        return self.step(ev.Planned(), now) + self.step(ev.Asked(self.is_listened()), now)

    def resolved(self, generation: int, offsets: Mapping[TopicPartition, int], now: float) -> list[MemberAction]:
        """Set the positions that the log lookup of a `Resolve` has found."""
        self.ledger.resolved(generation, offsets)
        return self.step(ev.Tick(), now)

    def moved(self, offsets: Mapping[TopicPartition, int], now: float) -> list[MemberAction]:
        """Set the positions that the data-loss policy has moved."""
        for tp, offset in offsets.items():
            self.ledger.moved(tp, offset)
        return self.step(ev.Tick(), now)

    def farewell(self, now: float) -> list[MemberAction]:
        """Commit the positions of all owned partitions before a stop (R29). This replaces a pending commit."""
        if not self.membership.may_commit:
            return []
        commit = self.ledger.commit_due(now, everything=True)
        actions: list[MemberAction] = []
        if commit is not None:
            self._commit(commit, now, actions)
            if self._answers:
                self._finish(now, actions)
        return actions

    # --- the machine -------------------------------------------------------------------------------------------------

    def step(self, event: Event | RegistryEvent | Answer | TableEvent, now: float) -> list[MemberAction]:
        """Handle one event. Return the actions to carry out, in order."""
        actions: list[MemberAction] = []
        if isinstance(event, ev.Start):
            event = replace(event, settles=True)
        elif isinstance(event, ev.UserDataChanged):
            self._identity = event
        if isinstance(event, ev.MetadataRefreshed):
            self._topics = event.topics
            if self.ledger.topics_seen(self._topics):
                actions.append(Resolve(self.ledger.generation, self.ledger.unresolved))
        answers_the_store = self.store.takes(event)
        self._take(self.store.hear(event, now), actions)
        if not answers_the_store:
            self._machine(event, now, actions)
        self._finish(now, actions)
        return actions

    def _take(self, outcome: Outcome, actions: list[MemberAction]) -> None:
        """Add the store's actions, and keep its responses for the end of this step."""
        actions += outcome.actions
        self._answers += outcome.answers

    def _finish(self, now: float, actions: list[MemberAction]) -> None:
        """End a step: handle the store's responses, then send what is due, until the store has no more responses."""
        while True:
            while self._answers:
                self._own_answer(self._answers.popleft(), now, actions)
            self._work(now, actions)
            if not self._answers:
                return

    def _machine(
        self, event: Event | RegistryEvent | Answer | TableEvent, now: float, actions: list[MemberAction]
    ) -> None:
        self._machine_wakes_at = None
        for action in self.membership.step(event, now):
            match action:
                case ev.WakeAt(time):
                    self._machine_wakes_at = time
                    continue
                case ev.Fail(refuses_protocol=True) if self._otherwise is not None:
                    self._use_other_protocol(self._otherwise, action.error, now, actions)
                    return
                case ev.Assigned():
                    kept, revoked, self._withheld = action.kept, action.revoked, action.withheld
                    self.ledger.assigned(
                        action.member_id,
                        action.generation,
                        action.partitions,
                        kept,
                        revoked,
                        leader_id=action.leader_id,
                        is_epoch=action.is_epoch,
                    )
                    self._forget_requests()
                    if any(tp.topic not in self._topics for tp in action.partitions):
                        actions.append(MetadataStale())
                case ev.Joining(abandoned=True):
                    self.ledger.abandoned()
                case ev.Joining():
                    self.ledger.give_up(action.gives_up)
                case ev.Released():
                    self.ledger.give_up(action.partitions)
                case ev.Withheld():
                    self._withheld = action.count
                case ev.Lost() | ev.Left():
                    self.ledger.lost()
                    self._forget_requests()
            self._take(self.store.follow(action), actions)
            if not isinstance(action, ev.NoCoordinator):  # only the store uses it
                actions.append(action)

    def _use_other_protocol(
        self, machine: Machine, refusal: StreamGroupError, now: float, actions: list[MemberAction]
    ) -> None:
        # The tokens of the new machine begin at 1 again. Only the join was pending, and it is answered.
        topics, self.membership, self._otherwise = self.membership.topics, machine, None
        actions.append(ev.Note(ev.INFO, f"{refusal}. Joining by the classic protocol (kafka.group.protocol=auto)"))
        if self._identity is not None:
            self._machine(self._identity, now, actions)
        self._machine(ev.Start(topics, settles=True), now, actions)

    def _forget_requests(self) -> None:
        self._fetching = self._committing = self._retry_at = None
        self._backoff.reset()
        self._commit_waits_for_join = False

    def _work(self, now: float, actions: list[MemberAction]) -> None:
        """Fetch and commit if due. Then report the boundary of a batch (R21) and completed revocations (R25)."""
        if self._retry_at is not None and now >= self._retry_at:
            self._retry_at = None
        if self.membership.may_commit and self._retry_at is None:
            if self.ledger.offsets_wanted(self._topics) and self._fetching is None:
                self._fetch(now, actions)
            if not self._commit_waits_for_join:
                commit = self.ledger.commit_due(now)
                if commit is not None:
                    self._commit(commit, now, actions)
        if self._busy and self.ledger.idle and (not self.ledger.commit_pending or self._commit_waits_for_join):
            self._busy = False
            self._machine(ev.Idle(), now, actions)
        if self.membership.settling and (self._commit_waits_for_join or not self.ledger.settling(self._topics)):
            self._machine(ev.Settled(), now, actions)
        if (
            self.membership.revoking
            and not self.membership.settling
            and not self.ledger.in_use(self.membership.revoking)
        ):
            self._machine(ev.RevocationCompleted(), now, actions)

    def _fetch(self, now: float, actions: list[MemberAction]) -> None:
        """Fetch all of the group's offsets: R7 decides by all of them."""
        self._token += 1
        known = {TopicPartition(name, p.partition) for name, topic in self._topics.items() for p in topic.partitions}
        known.update(tp for tp in self.ledger.held if tp.topic in self._topics)  # grown since the metadata was read
        self._fetching = (self._token, _Fetch(self.ledger.member_id, self.ledger.generation, frozenset(self._topics)))
        request = FetchOffsets(self._token, self.ledger.group, frozenset(known), self._request_timeout_ms)
        self._take(self.store.fetch(request, now), actions)

    def _commit(self, commit: Commit, now: float, actions: list[MemberAction]) -> None:
        self._commit_part(commit, self._part_size.split(commit.offsets), now, actions)

    def _commit_part(self, commit: Commit, parts: tuple[Offsets, ...], now: float, actions: list[MemberAction]) -> None:
        """Commit the first of these parts. The next one follows once it is accepted."""
        part, *left = parts
        self._token += 1
        self._committing = (self._token, _Committing(commit, part, tuple(left), now))
        request = CommitOffsets(
            self._token,
            self.ledger.group,
            commit.member_id,
            commit.generation,
            part,
            self._request_timeout_ms,
            self._instance_id,
        )
        self._take(self.store.commit(request, now), actions)

    # --- answers of the offset store ---------------------------------------------------------------------------------

    def _own_answer(self, answer: Answer, now: float, actions: list[MemberAction]) -> None:
        if self._fetching is not None and self._fetching[0] == answer.token:
            fetch, self._fetching = self._fetching[1], None
            if isinstance(answer, OffsetsFetched):
                self._fetched(fetch, answer, now, actions)
        elif self._committing is not None and self._committing[0] == answer.token:
            committing, self._committing = self._committing[1], None
            if isinstance(answer, OffsetsCommitted):
                self._committed(committing, answer, now, actions)
            else:
                self.ledger.answered(committing.commit, CommitVerdict.RETRY, now)
        else:
            return
        if isinstance(answer, NoAnswer):
            self._later(now)
            self._store_trouble = answer.reason
            if not answer.is_elsewhere:
                self._store_lost(answer.reason, now, actions)

    def _later(self, now: float) -> None:
        self._retry_at = now + self._backoff.next()
        self._store_retries += 1

    def _store_lost(self, reason: str, now: float, actions: list[MemberAction]) -> None:
        """Find the group coordinator again, if the group itself stores the offsets."""
        if self.store.is_the_groups:
            self._machine(ev.CoordinatorGone(reason), now, actions)

    def _fetched(self, fetch: _Fetch, answer: OffsetsFetched, now: float, actions: list[MemberAction]) -> None:
        if answer.refusal is not None:
            self._refused(answer.refusal, "fetch its committed offsets", now, actions)
            return
        self._went_well()
        topics = {name: topic for name, topic in self._topics.items() if name in fetch.topics}
        starts = self.ledger.offsets_found(fetch.member_id, fetch.generation, answer.offsets, topics, answer.outdated)
        for tp, start in starts.items():
            if start.offset is not None:
                text = f"{self.ledger.group}: {tp} starts at {start.offset} ({start.origin.name.lower()})"
                actions.append(ev.Note(ev.DEBUG, text))
        if self.ledger.unresolved:
            actions.append(Resolve(self.ledger.generation, self.ledger.unresolved))

    def _went_well(self) -> None:
        self._backoff.reset()
        self._unexpected = 0
        self._store_trouble = ""

    def _committed(self, sent: _Committing, answer: OffsetsCommitted, now: float, actions: list[MemberAction]) -> None:
        """Process the verdict of each partition.

        A part is accepted if no existing partition was rejected. The commit is accepted once all its parts are.
        """
        commit = sent.commit
        refused = refusals(sent.part, answer.verdicts, self._exists)
        self.ledger.acknowledged(commit, sent.part.keys() - refused.keys())
        if refused:
            self._commit_refused(sent, refused, now, actions)
            return
        if not sent.left:
            self._went_well()  # not after each part: else one that always fails would never end the query
            self.ledger.answered(commit, CommitVerdict.ACCEPTED, now)
        if self.store.is_the_groups:
            self._machine(ev.CommitAccepted(commit.member_id, commit.generation, sent.sent_at), now, actions)
        if sent.left and self.membership.may_commit and self.ledger.commits.awaits(commit):
            self._commit_part(commit, sent.left, now, actions)
        elif sent.left:  # the member leaves or rejoins
            self.ledger.answered(commit, CommitVerdict.RETRY, now)

    def _commit_refused(
        self,
        sent: _Committing,
        refused: Mapping[TopicPartition, PartitionVerdict],
        now: float,
        actions: list[MemberAction],
    ) -> None:
        commit = sent.commit
        tp, refusal = deciding(refused)
        if refusal.verdict is Verdict.TOO_LARGE:
            if self._shrunk(sent, refusal, actions) and self.membership.may_commit:
                left = {tp: offset for part in (sent.part, *sent.left) for tp, offset in part.items()}
                self._commit_part(commit, self._part_size.split(left), now, actions)
                return
            refusal = replace(refusal, verdict=Verdict.REFUSED if len(sent.part) == 1 else Verdict.RETRIABLE)
        elif refusal.verdict is Verdict.FAILED:
            self._shrunk(sent, refusal, actions)
        self.ledger.answered(commit, CommitVerdict.RETRY, now)
        if refusal.verdict in {Verdict.FENCED, Verdict.MOVED}:
            self._commit_waits_for_join = refusal.verdict is Verdict.FENCED
            self._later(now)
            event = ev.CommitRefused(refusal.code, commit.member_id, commit.generation, sent.sent_at)
            self._machine(event, now, actions)
            return
        what = f"commit {tp} at offset {commit.offsets[tp].offset} in generation {commit.generation}"
        self._refused(replace(refusal, topic=tp.topic), what, now, actions)

    def _shrunk(self, sent: _Committing, refusal: PartitionVerdict, actions: list[MemberAction]) -> bool:
        """Reduce the size of later requests. Return whether a smaller one may succeed."""
        if not self._part_size.shrink(sent.part, certain=refusal.verdict is Verdict.TOO_LARGE):
            return False
        name = error_of(refusal.code).name
        refused = f"the broker rejected a commit of {counted(len(sent.part), 'partition')} in one request ({name})"
        smaller = f"sending at most {self._part_size.most} bytes a request from now on"
        actions.append(ev.Note(ev.INFO, f"group {self.ledger.group}: {refused}; {smaller}"))
        return True

    def _exists(self, tp: TopicPartition) -> bool:
        topic = self._topics.get(tp.topic)
        return topic is not None and topic.partition(tp.partition) is not None

    def _refused(self, refusal: PartitionVerdict, what: str, now: float, actions: list[MemberAction]) -> None:
        """Retry later if that may help, else fail the query. The refusal does not concern the membership."""
        self._later(now)
        self._store_trouble = error_of(refusal.code).name
        self._unexpected += refusal.verdict is Verdict.FAILED
        if refusal.verdict is Verdict.MOVED:
            self._store_lost(error_of(refusal.code).name, now, actions)
        elif refusal.verdict is Verdict.REFUSED or self._unexpected >= UNEXPECTED_ATTEMPTS:
            error = offsets_error(refusal.code, what, self.ledger.group, refusal.topic, self._requester)
            actions.append(ev.Fail(error))
        elif refusal.verdict is Verdict.STALE_METADATA:
            actions.append(MetadataStale())
