"""OffsetFetch, OffsetCommit and FindCoordinator, as the member sends them to a broker, carried out on nodes instead.

It stands between the member and ZooKeeper. Every action of the member's passes through `carry_out`, every event of the
registry through `hear`; the thread and the simulation alike do nothing but

    for action in exchange.carry_out(wanted, now).actions: ...    # Sends are looks and transactions by then
    outcome = exchange.hear(event, now)                           # outcome.answers go to the member
    if not exchange.takes(event): member.step(event, now)

**A commit** writes, in one transaction, the offset node, what ours tells beside it (R32), and checks the own id node
(R31): refused by that, nothing is written, and the answer is UNKNOWN_MEMBER_ID. Offset nodes are set in the version in
which they were read. Where that has changed they are read again, and overwritten: this member owns the partition, so
it was written by a real consumer that has lost it and committed late (its records have sunk: at worst some are
repeated), or by an operator while the group runs, which no consumer of this time would notice either.

**No commit after the release.** The id node fences sessions, not partitions. So a commit that is under way when the
member gives up partitions (`Joining`), or is assigned others, or makes another commit, writes nothing more from then
on; what was sent before is carried out before the release, in the session's order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamgroup.errors import ConfigError, DecodeError, ErrorCode
from streamgroup.group import events as ev
from streamgroup.group.events import WARNING
from streamgroup.group.registry import events as zk
from streamgroup.group.registry.formats import GroupPaths, consumer_of, offset_data, read_owner
from streamgroup.group.registry.requests import commit_response, fetch_response, offsets_in, partitions_wanted
from streamgroup.group.registry.stored import committed_in, committed_subtrees, metadata_data
from streamgroup.model import CommittedOffset, TopicPartition
from streamgroup.wire.messages import coordinator as c
from streamgroup.wire.messages import offsets as o
from streamgroup.wire.registrations import is_node_name
from streamgroup.znodes import Check, Create, Operation, Refusal, Set, Subtree, ZNode

FIRST_TOKEN = 1 << 48
"""The tokens here are above those of the machine and of the member."""
BYTES_MOST = 512 * 1024
"""Of one transaction; ZooKeeper takes a mebibyte (`jute.maxbuffer`)."""
ATTEMPTS_MOST = 5
"""So often a commit reads again what others have written since."""

_VERSIONS: dict[type[Any], int] = {o.OffsetCommitRequest: 8, o.OffsetFetchRequest: 7, c.FindCoordinatorRequest: 4}
"""The shapes of the requests: topics by name, one group."""
_OPERATION_BYTES = 64


@dataclass(frozen=True, slots=True)
class Outcome:
    """What to carry out, then what to tell the member."""

    actions: tuple[Any, ...] = ()
    answers: tuple[ev.Answered | ev.Failed, ...] = ()


@dataclass(frozen=True, slots=True)
class _Known:
    """The nodes of one partition: the version of the offset node, None where there is none; whether ours is there."""

    version: int | None
    metadata: bool


@dataclass(slots=True)
class _Job:
    """A request of the member's on its way. `token`: of what is out for it; `writes`: that is a transaction."""

    send: ev.Send
    due: float
    token: int = 0
    writes: bool = False


@dataclass(slots=True)
class _Fetch(_Job):
    wanted: tuple[TopicPartition, ...] | None = None


@dataclass(slots=True)
class _Find(_Job):
    pass


@dataclass(slots=True)
class _Commit(_Job):
    """`left`: not tried, or to be tried again; `chunk`: in the transaction that is out; `codes`: what is known."""

    member_id: str = ""
    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    left: list[TopicPartition] = field(default_factory=list)
    chunk: list[TopicPartition] = field(default_factory=list)
    codes: dict[TopicPartition, int] = field(default_factory=dict)
    attempts: int = 0
    alone: bool = False
    """Just seen: no consumer is registered."""
    stopped: bool = False
    """Nothing more is to be written for it."""

    @property
    def is_contested(self) -> bool:
        """Whether somebody else has written what this member is to own."""
        return bool(self.member_id and self.attempts)


class OffsetsExchange:
    """See the module. Pure, and not for several threads; `now` is monotonic seconds."""

    def __init__(self, paths: GroupPaths) -> None:
        self._paths = paths
        self._tokens = itertools.count(FIRST_TOKEN)
        self._jobs: list[_Job] = []
        self._known: dict[TopicPartition, _Known] = {}
        """Bounded by the offset nodes of the group: each fetch of all of them forgets what is not among them."""
        self._connected = False
        self._opened = False
        self._actions: list[Any] = []
        self._answers: list[ev.Answered | ev.Failed] = []

    @property
    def wake_at(self) -> float | None:
        """When `hear` wants a Tick."""
        return min((job.due for job in self._jobs), default=None)

    # -- between the member and ZooKeeper -----------------------------------------------------------------------------

    def carry_out(self, action: Any, now: float) -> Outcome:
        """What an action of the member's means here; what does not concern offsets passes as it is.

        Raises ValueError for a request that only a broker could answer.
        """
        match action:
            case ev.Send():
                self._begin(action, now)
            case ev.Joining() | ev.Assigned() | ev.Lost():
                self._interrupt()
                self._actions.append(action)
            case ev.Left():
                self._jobs.clear()
                if self._opened:  # of a query that is no member: its machine knows of no session
                    self._opened = self._connected = False
                    self._actions.append(zk.CloseSession())
                self._actions.append(action)
            case _:
                self._actions.append(action)
        return self._outcome()

    def takes(self, event: Any) -> bool:
        """Whether `event` answers a question of ours, so that the member need not hear it."""
        return isinstance(event, zk.Looked | zk.Transacted | zk.Refused | zk.Unanswered) and event.token >= FIRST_TOKEN

    def hear(self, event: Any, now: float) -> Outcome:
        """An event of the registry, or a Tick."""
        match event:
            case zk.SessionBegan() | zk.Resumed():
                self._connected = True
                self._found()
            case zk.Suspended():
                self._connected = False
            case zk.Expired():
                self._connected = False
                self._known.clear()
                for job in [job for job in self._jobs if not isinstance(job, _Find)]:
                    self._fail(job, event.reason)
            case zk.Looked() | zk.Transacted() | zk.Refused() | zk.Unanswered():
                asked = next((job for job in self._jobs if job.token == event.token), None)
                if asked is not None:
                    self._answered(asked, event)
        for job in [job for job in self._jobs if job.due <= now]:
            self._fail(job, "no answer of ZooKeeper in time")
        return self._outcome()

    def _outcome(self) -> Outcome:
        outcome = Outcome(tuple(self._actions), tuple(self._answers))
        self._actions, self._answers = [], []
        return outcome

    def _begin(self, send: ev.Send, now: float) -> None:
        version = _VERSIONS.get(send.api)
        if version is None:
            raise ValueError(f"{send.api.NAME} has no place in a group that ZooKeeper keeps")
        request, due = send.build(version), now + send.timeout_ms / 1000
        match request:
            case o.OffsetFetchRequest():
                fetch = _Fetch(send, due, wanted=partitions_wanted(request))
                self._jobs.append(fetch)
                self._look(fetch, committed_subtrees(self._paths, fetch.wanted))
            case o.OffsetCommitRequest():
                self._interrupt()
                commit = _Commit(send, due, member_id=request.member_id, offsets=offsets_in(request))
                commit.left = [tp for tp in commit.offsets if is_node_name(tp.topic)]
                self._jobs.append(commit)
                self._go_on(commit)
            case _:
                self._jobs.append(_Find(send, due))
                self._find()

    def _answered(self, job: _Job, event: Any) -> None:
        if isinstance(event, zk.Refused) and event.refusal is Refusal.NO_AUTH:
            self._jobs.remove(job)
            self._actions.append(ev.Fail(ConfigError(_NO_AUTH.format(group=self._paths.group, path=event.path))))
        elif isinstance(job, _Fetch):
            self._fetched(job, event)
        elif isinstance(job, _Commit):
            self._committed(job, event)

    def _look(self, job: _Job, subtrees: Iterable[Subtree]) -> None:
        job.token, job.writes = next(self._tokens), False
        self._actions.append(zk.Look(job.token, tuple(subtrees)))

    def _answer(self, job: _Job, response: Any) -> None:
        self._jobs.remove(job)
        self._answers.append(ev.Answered(job.send.token, response, _VERSIONS[job.send.api]))

    def _fail(self, job: _Job, reason: str) -> None:
        if isinstance(job, _Commit):
            self._unknown(job)
            return
        self._jobs.remove(job)
        self._answers.append(ev.Failed(job.send.token, reason))

    # -- FindCoordinator: a query that is no member -------------------------------------------------------------------

    def _find(self) -> None:
        if not self._opened:
            self._opened = True
            self._actions.append(zk.OpenSession())
        if self._connected:
            self._found()

    def _found(self) -> None:
        """There is nothing to find but ZooKeeper."""
        coordinator = c.Coordinator(key=self._paths.group, node_id=-1, host="zookeeper", port=0)
        for job in [job for job in self._jobs if isinstance(job, _Find)]:
            self._answer(job, c.FindCoordinatorResponse(coordinators=(coordinator,)))

    # -- OffsetFetch --------------------------------------------------------------------------------------------------

    def _fetched(self, job: _Fetch, event: Any) -> None:
        if not isinstance(event, zk.Looked):
            self._fail(job, event.reason if isinstance(event, zk.Unanswered) else event.refusal.value)
            return
        try:
            committed = committed_in(self._paths, event.nodes)
        except DecodeError as error:
            self._jobs.remove(job)
            text = _GARBAGE.format(group=self._paths.group, error=error)
            self._actions.append(ev.Fail(DecodeError(text)))
            return
        if not any(other.writes for other in self._jobs):  # else what was read may be older than what is known
            if job.wanted is None and not any(isinstance(other, _Commit) for other in self._jobs):
                self._known.clear()  # all there is was read: what is known besides is of topics that are gone
            self._learn(committed, event.nodes)
        self._answer(job, fetch_response(committed, job.wanted))

    def _learn(self, partitions: Iterable[TopicPartition], nodes: Mapping[str, ZNode]) -> None:
        for tp in partitions:
            node = nodes.get(self._paths.offset(tp))
            there = self._paths.metadata_of(tp) in nodes
            self._known[tp] = _Known(None if node is None else node.version, there)

    # -- OffsetCommit -------------------------------------------------------------------------------------------------

    def _go_on(self, job: _Commit) -> None:
        """The next transaction, after a look where one is needed; or the answer."""
        if not job.left:
            self._answer(job, commit_response(job.offsets, job.codes))
            return
        unknown = [tp for tp in job.left if tp not in self._known]
        member = bool(job.member_id)
        if unknown or not (member or job.alone):
            ids = () if member else (Subtree(self._paths.ids, 1, watch=False),)
            owners = (Subtree(self._paths.owner(tp), 0, watch=False) for tp in unknown if job.is_contested)
            self._look(job, (*ids, *owners, *committed_subtrees(self._paths, unknown)))
            return
        job.alone = False
        operations, ensured = self._operations(job)
        job.token, job.writes = next(self._tokens), True
        self._actions.append(zk.Transact(job.token, operations, ensured))

    def _operations(self, job: _Commit) -> tuple[tuple[Operation, ...], tuple[str, ...]]:
        """As many partitions as fit into one transaction; they are known as they will be after it."""
        operations: list[Operation] = [Check(self._paths.consumer(job.member_id))] if job.member_id else []
        size, job.chunk = 0, []
        for tp in job.left:
            written = tuple(self._write(tp, job.offsets[tp]))
            size += sum(len(op.path) + len(op.data) + _OPERATION_BYTES for op in written)
            if size > BYTES_MOST and job.chunk:
                break
            operations += written
            job.chunk.append(tp)
            known = self._known[tp]
            self._known[tp] = _Known(0 if known.version is None else known.version + 1, True)
        job.left = job.left[len(job.chunk) :]
        # Only what is new needs parents: looking for them would be another round trip.
        parents = dict.fromkeys(op.path.rpartition("/")[0] for op in operations if isinstance(op, Create))
        return tuple(operations), tuple(parents)

    def _write(self, tp: TopicPartition, committed: CommittedOffset) -> Iterator[Create | Set]:
        known, data = self._known[tp], offset_data(committed.offset)
        path, beside = self._paths.offset(tp), self._paths.metadata_of(tp)
        if known.version is None:
            yield Create(path, data)
        else:
            yield Set(path, data, known.version)
        told = metadata_data(committed, 0 if known.version is None else known.version + 1)
        yield Set(beside, told) if known.metadata else Create(beside, told)

    def _committed(self, job: _Commit, event: Any) -> None:
        match event:
            case zk.Looked():
                unknown = [tp for tp in job.left if tp not in self._known]
                self._learn(unknown, event.nodes)
                if job.is_contested and not all(self._is_owned(tp, job.member_id, event.nodes) for tp in unknown):
                    self._give_up(job, ErrorCode.UNKNOWN_MEMBER_ID)
                else:
                    self._looked_alone(job, event)
            case zk.Transacted():
                job.codes |= dict.fromkeys(job.chunk, ErrorCode.NONE)
                self._next_chunk(job)
            case zk.Refused(path=path) if job.member_id and path == self._paths.consumer(job.member_id):
                self._forget(job)
                self._give_up(job, ErrorCode.UNKNOWN_MEMBER_ID)
            case zk.Refused(path=path):
                self._written_since(job, path)
            case _:
                self._unknown(job)

    def _is_owned(self, tp: TopicPartition, consumer_id: str, nodes: Mapping[str, ZNode]) -> bool:
        node = nodes.get(self._paths.owner(tp))
        try:
            return node is not None and consumer_of(read_owner(self._paths.owner(tp), node.data)) == consumer_id
        except DecodeError:
            return False

    def _looked_alone(self, job: _Commit, event: zk.Looked) -> None:
        """A query that is no member commits only while there are none. One that registers between this look and the
        transaction is not noticed: ZooKeeper can check that a node has not been written, not that it has no children.
        Its own first commit then sets the offsets again."""
        ids = event.nodes.get(self._paths.ids)
        if not job.member_id and ids is not None and ids.children:
            self._give_up(job, ErrorCode.UNKNOWN_MEMBER_ID)
            return
        job.alone = True
        self._go_on(job)

    def _next_chunk(self, job: _Commit) -> None:
        job.chunk = []
        if job.stopped:
            self._give_up(job, ErrorCode.REBALANCE_IN_PROGRESS)
        else:
            self._go_on(job)

    def _written_since(self, job: _Commit, path: str) -> None:
        """Somebody else has written, made or deleted a node since it was read."""
        self._forget(job)
        job.attempts += 1
        if job.attempts == 1:
            text = (
                f"group {self._paths.group}: {path} was written by somebody else; while this member owns the partition "
                "its own position is newer and is written over it. To reset offsets, stop the group first"
            )
            self._actions.append(ev.Note(WARNING, text))
        job.left, job.chunk = job.chunk + job.left, []
        if job.stopped or job.attempts >= ATTEMPTS_MOST:
            self._give_up(job, ErrorCode.REBALANCE_IN_PROGRESS if job.stopped else ErrorCode.REQUEST_TIMED_OUT)
        else:
            self._go_on(job)

    def _forget(self, job: _Commit) -> None:
        for tp in job.chunk:
            self._known.pop(tp, None)

    def _unknown(self, job: _Commit) -> None:
        """What is in the transaction that is out may be committed or not: it is committed again."""
        self._forget(job)
        self._give_up(job, ErrorCode.REQUEST_TIMED_OUT)

    def _give_up(self, job: _Commit, code: int) -> None:
        job.codes |= dict.fromkeys((*job.chunk, *job.left), code)
        self._answer(job, commit_response(job.offsets, job.codes))

    def _interrupt(self) -> None:
        """No commit that is under way writes anything more."""
        for job in [job for job in self._jobs if isinstance(job, _Commit)]:
            if job.writes:
                job.stopped = True
            else:
                self._give_up(job, ErrorCode.REBALANCE_IN_PROGRESS)


_NO_AUTH = (
    "group {group}: its offsets cannot be read and written: the access control list of {path} forbids it. Give the "
    "user that made it (zookeeper.username, zookeeper.password), or have that node opened to this user"
)

_GARBAGE = (
    "group {group}: {error}. Nothing is read rather than read past: write the right offset there while the group is "
    "stopped, or delete the node, for startingOffsets to apply (or the earliest record, where others have offsets)"
)
