"""Membership and ledger as one machine: what the group's thread carries out. Pure: no clock, no thread, no socket.

The membership machine decides about joining, the ledger about positions; this file fetches and commits offsets between
the two, at the moments that the rules allow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from streamgroup.errors import error_of
from streamgroup.group import events as ev
from streamgroup.group.commit_parts import Offsets, PartSize
from streamgroup.group.commits import Commit, CommitVerdict, commit_request, refusals
from streamgroup.group.events import Action, Event, Lane, Send
from streamgroup.group.ledger import Ledger
from streamgroup.group.membership import State
from streamgroup.group.offsets.unknown_topic import UnknownTopicCheck, all_topics
from streamgroup.group.positions import Origin
from streamgroup.group.reactions import (
    UNEXPECTED_ATTEMPTS,
    Reaction,
    deciding,
    is_of_membership,
    offsets_error,
    reaction_to_commit,
    reaction_to_fetch,
)
from streamgroup.group.registry.events import RegistryAction, RegistryEvent
from streamgroup.model import CommittedOffset, Document, OffsetRange, TopicInfo, TopicPartition
from streamgroup.wire.messages.cluster import MetadataRequest, MetadataResponse
from streamgroup.wire.messages.offsets import OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest
from streamgroup.wire.offsets import ZOOKEEPER_VERSION, fetched_offsets, offset_fetch_request

OWN_TOKENS = 1 << 32
"""The machine's tokens are below, ours from here on."""


class Waits(Protocol):
    """How long to wait before the next attempt; chance is injected with it."""

    def next(self) -> float:
        """Seconds before the next attempt."""

    def reset(self) -> None:
        """The last attempt went well."""


class Machine(Protocol):
    """The machine that holds partitions: `Membership`, `Registry`, or `StandaloneMember` for a query outside any group.

    See the docstrings of `Membership`.
    """

    @property
    def state(self) -> State:
        """Where it stands."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The subscription."""

    @property
    def lease_at(self) -> float | None:
        """R9."""

    @property
    def can_plan(self) -> bool:
        """Whether what is held may be planned."""

    @property
    def may_commit(self) -> bool:
        """Whether a commit may be accepted."""

    @property
    def revoking(self) -> frozenset[TopicPartition]:
        """What is to be given up after its batch (R25)."""

    @property
    def settling(self) -> bool:
        """Whether a rejoin waits for `Settled`."""

    @property
    def rebalance_wanted(self) -> bool:
        """Whether it gives up what it holds at the next boundary of a batch."""

    def step(self, event: Any, now: float) -> Sequence[Action | RegistryAction]:
        """Take one event, one of its keeper's (broker, ZooKeeper) or of all; the actions to carry out, in order."""


@dataclass(frozen=True, slots=True)
class Resolve:
    """An action of our own: the log has to tell where these partitions, gained in `generation`, start."""

    generation: int
    partitions: Mapping[TopicPartition, Origin]


@dataclass(frozen=True, slots=True)
class MetadataStale:
    """An action of our own: an answer contradicts the metadata (a topic may be gone): refresh it now."""


MemberAction = Action | RegistryAction | Resolve | MetadataStale


@dataclass(frozen=True, slots=True)
class _Fetch:
    """An OffsetFetch that is out; its answer counts for this member id and generation only (R18)."""

    member_id: str
    generation: int
    topics: frozenset[str]
    """Those that were known when it was sent."""


@dataclass(frozen=True, slots=True)
class _Committing:
    """An OffsetCommit that is out: `part` of the commit. The parts in `left` are sent one after the other."""

    commit: Commit
    part: Offsets
    left: tuple[Offsets, ...]
    sent_at: float


class Member:
    """One member of one group. Every method that may cause requests returns the actions to carry out, in order."""

    def __init__(
        self,
        membership: Machine,
        ledger: Ledger,
        *,
        instance_id: str | None,
        session_timeout_s: float,
        request_timeout_ms: int,
        backoff: Waits,
    ) -> None:
        self.membership = membership
        self.ledger = ledger
        self._instance_id = instance_id
        self._session_timeout_s = session_timeout_s
        self._request_timeout_ms = request_timeout_ms
        self._backoff = backoff
        self._token = OWN_TOKENS
        self._fetching: tuple[int, _Fetch] | None = None
        self._committing: tuple[int, _Committing] | None = None
        self._part_size = PartSize(ledger.group)
        self._unexpected = 0
        """Unexpected failures of the broker since it last answered a fetch or a commit well."""
        self._retry_at: float | None = None
        self._busy = False
        self._withheld = 0
        self._commit_waits_for_join = False
        self._machine_wakes_at: float | None = None
        self._topics: Mapping[str, TopicInfo] = {}
        self._unknown_topic = UnknownTopicCheck()
        self.is_listened: Callable[[], bool] = lambda: False
        """Whether a listener tells of batches that have sunk; the coordinator knows (R22)."""
        self._ceiling: int | None = None  # of OffsetFetch and OffsetCommit: v0 are ZooKeeper's offsets

    # --- what others ask ---------------------------------------------------------------------------------------------

    @property
    def stable(self) -> bool:
        """Whether the member holds an assignment that nothing has called in question."""
        return self.membership.state is State.STABLE and not self.membership.rebalance_wanted

    def may_plan(self, now: float) -> bool:
        """R9: an assignment that stands (R25: also while it is kept through a rebalance), a heartbeat or commit of its
        generation accepted within the session, all positions settled."""
        lease = self.membership.lease_at
        fresh = lease is not None and now - lease < self._session_timeout_s
        return self.membership.can_plan and fresh and self.ledger.settled and self.ledger.idle

    @property
    def complete(self) -> bool:
        """R11, R25: nothing moves: what is held is what this member is to read, as far as the group's leader tells."""
        moving = self._withheld or self.membership.revoking
        return self.stable and not moving and self.ledger.settled and not self.ledger.awaits_offsets

    @property
    def wake_at(self) -> float | None:
        """When `step` wants a Tick."""
        times = [t for t in (self._machine_wakes_at, self._retry_at) if t is not None]
        return min(times, default=None)

    # --- what Spark's thread tells -----------------------------------------------------------------------------------

    def mark_sunk(self, start: Document, now: float) -> list[MemberAction]:
        """Spark asks for a batch from `start`. Raises ConfigError for a skipped batch (R17)."""
        self.ledger.mark_sunk(start)
        return self.step(ev.Tick(), now)

    def planned(self, document: Document, now: float) -> list[MemberAction]:
        """`document` is given to Spark."""
        self.ledger.emitted(document)
        self._busy = True
        return self.step(ev.Planned(), now)

    def planned_empty(self, document: Document) -> None:
        """A document without ranges is given to Spark (R10): no batch that a rebalance would have to wait for."""
        self.ledger.emitted(document)

    def handed_out(self, document: Document, now: float) -> tuple[tuple[OffsetRange, ...], list[MemberAction]]:
        """The partitions of a document planned here are asked."""
        # An empty document (R10) was no batch to the machine: nothing would tell it of its end.
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
        """The partitions of a document that another process planned are asked (R13)."""
        self.ledger.replayed(start, end, ranges, seen)
        self._busy = True
        return self.step(ev.Asked(self.is_listened()), now)

    def resolved(self, generation: int, offsets: Mapping[TopicPartition, int], now: float) -> list[MemberAction]:
        """The log told where gained partitions start."""
        self.ledger.resolved(generation, offsets)
        return self.step(ev.Tick(), now)

    def moved(self, offsets: Mapping[TopicPartition, int], now: float) -> list[MemberAction]:
        """The data-loss policy moved positions."""
        for tp, offset in offsets.items():
            self.ledger.moved(tp, offset)
        return self.step(ev.Tick(), now)

    def farewell(self, now: float) -> list[MemberAction]:
        """R29: commit every held position, moved or not, whatever else is under way."""
        if not self.membership.may_commit:
            return []
        commit = self.ledger.commit_due(now, everything=True)
        return [] if commit is None else [self._commit(commit, now)]

    # --- the machine -------------------------------------------------------------------------------------------------

    def step(self, event: Event | RegistryEvent, now: float) -> list[MemberAction]:
        """Take one event; the actions to carry out, in order."""
        actions: list[MemberAction] = []
        if isinstance(event, ev.Start):
            event = replace(event, settles=True)
        if isinstance(event, ev.TopicsKnown):
            self._topics = event.topics
            if self.ledger.topics_seen(self._topics):
                actions.append(Resolve(self.ledger.generation, self.ledger.unresolved))
        if isinstance(event, ev.CoordinatorGone):
            self._unknown_topic.reset()
        if isinstance(event, ev.Answered | ev.Failed) and event.token >= OWN_TOKENS:
            self._own_answer(event, now, actions)
        else:
            self._machine(event, now, actions)
        self._work(now, actions)
        return actions

    def _machine(self, event: Event | RegistryEvent, now: float, actions: list[MemberAction]) -> None:
        self._machine_wakes_at = None
        for action in self.membership.step(event, now):
            match action:
                case ev.WakeAt(time):
                    self._machine_wakes_at = time
                    continue
                case ev.NoCoordinator():
                    self._ceiling = ZOOKEEPER_VERSION
                    continue
                case ev.Assigned():
                    kept, revoked, self._withheld = action.kept, action.revoked, action.withheld
                    self.ledger.assigned(action.member_id, action.generation, action.partitions, kept, revoked)
                    self._forget_requests()
                    if any(tp.topic not in self._topics for tp in action.partitions):
                        actions.append(MetadataStale())
                case ev.Joining(abandoned=True):
                    self.ledger.abandoned()
                case ev.Joining():
                    self.ledger.give_up(action.gives_up)
                case ev.Lost() | ev.Left():
                    self.ledger.lost()
                    self._forget_requests()
            actions.append(action)

    def _forget_requests(self) -> None:
        self._fetching = self._committing = self._retry_at = None
        self._backoff.reset()
        self._commit_waits_for_join = False

    def _work(self, now: float, actions: list[MemberAction]) -> None:
        """Fetch and commit where it is due, then tell the machine of the boundary (R21) and of what can go (R25)."""
        if self._retry_at is not None and now >= self._retry_at:
            self._retry_at = None
        if self.membership.may_commit and self._retry_at is None:
            if self.ledger.offsets_wanted(self._topics) and self._fetching is None:
                actions.append(self._fetch())
            if not self._commit_waits_for_join:
                commit = self.ledger.commit_due(now)
                if commit is not None:
                    actions.append(self._commit(commit, now))
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
            self._machine(ev.Released(), now, actions)

    def _fetch(self) -> Send:
        """R19: all of the group's offsets (R7 looks at all), stable ones; below v2 those of topics known."""
        self._token += 1
        known = {TopicPartition(name, p.partition) for name, topic in self._topics.items() for p in topic.partitions}
        known.update(tp for tp in self.ledger.held if tp.topic in self._topics)  # grown since the metadata was read
        asked = _Fetch(self.ledger.member_id, self.ledger.generation, frozenset(self._topics))
        self._fetching = (self._token, asked)
        return Send(
            self._token,
            Lane.COORDINATOR,
            OffsetFetchRequest,
            lambda version: offset_fetch_request(version, self.ledger.group, None, known=known),
            self._request_timeout_ms,
            ceiling=self._ceiling,
        )

    def _commit(self, commit: Commit, now: float) -> Send:
        return self._commit_part(commit, self._part_size.split(commit.offsets), now)

    def _commit_part(self, commit: Commit, parts: tuple[Offsets, ...], now: float) -> Send:
        """Send the first of these parts. The next one goes out once it is accepted."""
        part, *left = parts
        self._token += 1
        self._committing = (self._token, _Committing(commit, part, tuple(left), now))
        request = commit_request(self.ledger.group, self._instance_id, replace(commit, offsets=part))
        timeout_ms = self._request_timeout_ms
        return Send(self._token, Lane.COORDINATOR, OffsetCommitRequest, request, timeout_ms, ceiling=self._ceiling)

    # --- answers to our own requests ---------------------------------------------------------------------------------

    def _own_answer(self, event: ev.Answered | ev.Failed, now: float, actions: list[MemberAction]) -> None:
        if self._fetching is not None and self._fetching[0] == event.token:
            fetch, self._fetching = self._fetching[1], None
            if isinstance(event, ev.Answered):
                self._fetched(fetch, event, now, actions)
        elif self._committing is not None and self._committing[0] == event.token:
            committing, self._committing = self._committing[1], None
            if isinstance(event, ev.Answered):
                self._committed(committing, event.response, now, actions)
            else:
                self.ledger.answered(committing.commit, CommitVerdict.RETRY)
        else:
            return
        if isinstance(event, ev.Failed):
            self._later(now)
            self._machine(ev.CoordinatorGone(event.reason), now, actions)

    def _later(self, now: float) -> None:
        self._unknown_topic.reset()
        self._retry_at = now + self._backoff.next()

    def _fetched(self, fetch: _Fetch, event: ev.Answered, now: float, actions: list[MemberAction]) -> None:
        if isinstance(event.response, MetadataResponse):
            self._unknown_topic.learn(event.response)
            return
        answer = fetched_offsets(event.response, event.version, self.ledger.group)
        code = answer.error_code or next((p.error_code for p in answer.partitions.values() if p.error_code), 0)
        if code:
            self._refused(reaction_to_fetch(code), code, "fetch its committed offsets", now, actions)
            return
        doubtful = {tp.topic for tp, p in answer.partitions.items() if p.committed is None}
        if event.version == ZOOKEEPER_VERSION and not self._unknown_topic.knows(doubtful):
            self._doubt(fetch, now, actions)
            return
        self._went_well()
        commits = {tp: p.committed for tp, p in answer.partitions.items() if p.committed is not None}
        topics = {name: topic for name, topic in self._topics.items() if name in fetch.topics}
        starts = self.ledger.offsets_found(fetch.member_id, fetch.generation, commits, topics)
        for tp, start in starts.items():
            if start.offset is not None:
                text = f"{self.ledger.group}: {tp} starts at {start.offset} ({start.origin.name.lower()})"
                actions.append(ev.Note(ev.DEBUG, text))
        if self.ledger.unresolved:
            actions.append(Resolve(self.ledger.generation, self.ledger.unresolved))

    def _doubt(self, fetch: _Fetch, now: float, actions: list[MemberAction]) -> None:
        if self._unknown_topic.has_topics:  # and it knows less than the metadata of others: it has only just started
            self._later(now)
        else:
            self._token += 1
            self._fetching = (self._token, fetch)
            actions.append(Send(self._token, Lane.COORDINATOR, MetadataRequest, all_topics, self._request_timeout_ms))

    def _went_well(self) -> None:
        self._backoff.reset()
        self._unexpected = 0

    def _committed(
        self, sent: _Committing, response: OffsetCommitResponse, now: float, actions: list[MemberAction]
    ) -> None:
        """Each partition has an answer of its own. The commit is accepted once every part is, and a part is accepted
        where no partition that exists was refused."""
        commit = sent.commit
        refused = refusals(replace(commit, offsets=sent.part), response, self._exists)
        self.ledger.acknowledged(commit, sent.part.keys() - refused.keys())
        if refused:
            self._commit_refused(sent, refused, now, actions)
            return
        if not sent.left:
            self._went_well()  # not after each part: one may fail for ever behind another that goes well
            self.ledger.answered(commit, CommitVerdict.ACCEPTED)
        self._machine(ev.CommitAccepted(commit.member_id, commit.generation, sent.sent_at), now, actions)
        if sent.left and self.membership.may_commit and self.ledger.commits.awaits(commit):
            actions.append(self._commit_part(commit, sent.left, now))
        elif sent.left:  # the member leaves, or joins again
            self.ledger.answered(commit, CommitVerdict.RETRY)

    def _commit_refused(
        self, sent: _Committing, refused: Mapping[TopicPartition, int], now: float, actions: list[MemberAction]
    ) -> None:
        commit = sent.commit
        tp, code = deciding(refused)
        reaction = reaction_to_commit(code)
        if reaction is Reaction.SMALLER:
            if self._shrunk(sent, code, actions) and self.membership.may_commit:
                left = {tp: offset for part in (sent.part, *sent.left) for tp, offset in part.items()}
                actions.append(self._commit_part(commit, self._part_size.split(left), now))
                return
            reaction = Reaction.FATAL if len(sent.part) == 1 else Reaction.RETRY
        elif reaction is Reaction.UNEXPECTED:
            self._shrunk(sent, code, actions)
        self.ledger.answered(commit, CommitVerdict.RETRY)
        if is_of_membership(code) or reaction is Reaction.FIND:
            self._commit_waits_for_join = is_of_membership(code)
            self._later(now)
            told = ev.CommitRefused(code, commit.member_id, commit.generation, sent.sent_at)
            self._machine(told, now, actions)
            return
        what = f"commit {tp} at offset {commit.offsets[tp].offset} in generation {commit.generation}"
        self._refused(reaction, code, what, now, actions)

    def _shrunk(self, sent: _Committing, code: int, actions: list[MemberAction]) -> bool:
        """Whether smaller requests may help; from here on they are."""
        if not self._part_size.shrink(sent.part, certain=reaction_to_commit(code) is Reaction.SMALLER):
            return False
        refused = f"the broker refused a commit of {len(sent.part)} partitions in one request ({error_of(code).name})"
        smaller = f"sending at most {self._part_size.most} bytes a request from now on"
        actions.append(ev.Note(ev.INFO, f"group {self.ledger.group}: {refused}; {smaller}"))
        return True

    def _exists(self, tp: TopicPartition) -> bool:
        topic = self._topics.get(tp.topic)
        return topic is not None and topic.partition(tp.partition) is not None

    def _refused(self, reaction: Reaction, code: int, what: str, now: float, actions: list[MemberAction]) -> None:
        """An error code that is not the membership's: retry what may be retried, else end the query."""
        self._later(now)
        self._unexpected += reaction is Reaction.UNEXPECTED
        if reaction is Reaction.FIND:
            self._machine(ev.CoordinatorGone(error_of(code).name), now, actions)
        elif reaction is Reaction.FATAL or self._unexpected >= UNEXPECTED_ATTEMPTS:
            actions.append(ev.Fail(offsets_error(code, what, self.ledger.group)))
        elif reaction is Reaction.METADATA:
            actions.append(MetadataStale())
