"""Offsets of a group in ZooKeeper: a fetch reads its offset nodes, a commit is a transaction on them.

**A commit** writes the offset node and its metadata node (R32) in one transaction, which also checks the member's id
node (R31). If that check fails, nothing is written and the commit is fenced. Offset nodes are set in the version in
which they were read. If the version has changed, they are read again and overwritten, because this member owns the
partition. Either another consumer, which has lost the partition, has committed late; at worst some records are
repeated. Or an operator has written while the group runs, which no other consumer of ZooKeeper would notice either.

**No commit after the release.** The id node fences sessions, not partitions. So a pending commit sends no further
writes once the member gives up partitions (`Joining`), is assigned others, or makes another commit. Requests that were
sent before take effect before the release, since a session writes in order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamgroup.errors import ConfigError, DecodeError, ErrorCode
from streamgroup.frozen import frozen
from streamgroup.group import events as ev
from streamgroup.group.events import WARNING
from streamgroup.group.offsets.store import (
    COMMITTED,
    TIMED_OUT,
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
from streamgroup.group.registry import events as zk
from streamgroup.group.registry.nodes import (
    GroupPaths,
    committed_in,
    committed_subtrees,
    consumer_of,
    metadata_data,
    offset_data,
    read_owner,
)
from streamgroup.kafka.wire.registrations import is_node_name
from streamgroup.model import CommittedOffset, TopicPartition
from streamgroup.znodes import Check, Create, Operation, Set, Subtree, ZNode

FIRST_TOKEN = 1 << 48
"""The tokens of this store are larger than those of the machine and of the member."""
BYTES_MOST = 512 * 1024
"""Bytes of one transaction; ZooKeeper accepts a mebibyte (`jute.maxbuffer`)."""
ATTEMPTS_MOST = 5
"""How often a commit reads nodes again that other clients have written."""

_OPERATION_BYTES = 64


FENCED = PartitionVerdict(Verdict.FENCED, ErrorCode.UNKNOWN_MEMBER_ID)
"""The member's id node is gone, or another consumer owns the partition."""
INTERRUPTED = PartitionVerdict(Verdict.FENCED, ErrorCode.REBALANCE_IN_PROGRESS)
"""The member has given up partitions since, or has made another commit."""
UNNAMEABLE = PartitionVerdict(Verdict.STALE_METADATA, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""No node can have this name, so the topic does not exist."""


@frozen
class _Known:
    """The known state of a partition's nodes: version of the offset node (None if absent), whether it has metadata."""

    version: int | None
    metadata: bool


@dataclass(slots=True)
class _Job:
    """A pending request. `token` is of its pending read or, with `writes`, transaction."""

    due: float
    token: int = 0
    writes: bool = False


@dataclass(slots=True)
class _NodesFetch(_Job):
    request: FetchOffsets = field(kw_only=True)


@dataclass(slots=True)
class _Commit(_Job):
    """`left`: partitions to write; `chunk`: those in the pending transaction; `verdicts`: those known."""

    request: CommitOffsets = field(kw_only=True)
    left: list[TopicPartition] = field(default_factory=list)
    chunk: list[TopicPartition] = field(default_factory=list)
    verdicts: dict[TopicPartition, PartitionVerdict] = field(default_factory=dict)
    attempts: int = 0
    alone: bool = False
    """Whether the last read showed that no consumer is registered."""
    stopped: bool = False
    """Whether no further transaction may be sent for it."""

    @property
    def member_id(self) -> str:
        """The consumer that commits; empty for a query that is not a member."""
        return self.request.member_id

    @property
    def is_contested(self) -> bool:
        """Whether another client has written an offset of a partition that this member should own."""
        return bool(self.member_id and self.attempts)


class ZooKeeperOffsetStore(OffsetStore):
    """The offset store of a group in ZooKeeper. It uses the session of the membership state machine."""

    is_the_groups = True

    def __init__(self, paths: GroupPaths) -> None:
        self._paths = paths
        self._tokens = itertools.count(FIRST_TOKEN)
        self._jobs: list[_NodesFetch | _Commit] = []
        self._known: dict[TopicPartition, _Known] = {}
        """Bounded by the offset nodes of the group: each fetch removes partitions without a node."""
        self._actions: list[Any] = []
        self._answers: list[Answer] = []

    @property
    def wake_at(self) -> float | None:
        return min((job.due for job in self._jobs), default=None)

    def fetch(self, request: FetchOffsets, now: float) -> Outcome:
        job = _NodesFetch(now + request.timeout_ms / 1000, request=request)
        self._jobs.append(job)
        self._read(job, committed_subtrees(self._paths, None))
        return self._outcome()

    def commit(self, request: CommitOffsets, now: float) -> Outcome:
        """Write the offsets, after a read of nodes with unknown versions."""
        self._interrupt()
        left = [tp for tp in request.offsets if is_node_name(tp.topic)]
        job = _Commit(now + request.timeout_ms / 1000, request=request, left=left)
        self._jobs.append(job)
        self._go_on(job)
        return self._outcome()

    def follow(self, action: object) -> Outcome:
        """Interrupt commits when the member gives up partitions or gets an assignment."""
        match action:
            case ev.Joining() | ev.Assigned() | ev.Lost():
                self._interrupt()
            case ev.Left():
                self._jobs.clear()
        return self._outcome()

    def takes(self, event: object) -> bool:
        return is_of_zookeeper(event, FIRST_TOKEN)

    def hear(self, event: object, now: float) -> Outcome:
        """Continue the request for which `event` is the response, and give up overdue ones."""
        match event:
            case zk.Expired():
                self._known.clear()
                for job in tuple(self._jobs):
                    self._fail(job, event.reason)
            case zk.SubtreesRead() | zk.Transacted() | zk.RequestRefused() | zk.Unanswered():
                asked = next((job for job in self._jobs if job.token == event.token), None)
                if asked is not None:
                    self._answered(asked, event)
        for job in [job for job in self._jobs if job.due <= now]:
            self._fail(job, "no response from ZooKeeper within the timeout")
        return self._outcome()

    def _outcome(self) -> Outcome:
        outcome = Outcome(tuple(self._actions), tuple(self._answers))
        self._actions, self._answers = [], []
        return outcome

    def _answered(self, job: _NodesFetch | _Commit, event: Any) -> None:
        if isinstance(event, zk.RequestRefused) and event.is_final:
            self._jobs.remove(job)
            self._actions.append(ev.Fail(ConfigError(zk.forbidden(self._paths.group, _NEITHER, event))))
        elif isinstance(job, _NodesFetch):
            self._fetched(job, event)
        else:
            self._committed(job, event)

    def _read(self, job: _Job, subtrees: Iterable[Subtree]) -> None:
        job.token, job.writes = next(self._tokens), False
        self._actions.append(zk.ReadSubtrees(job.token, tuple(subtrees)))

    def _fail(self, job: _NodesFetch | _Commit, reason: str) -> None:
        if isinstance(job, _Commit):
            self._unknown(job)
            return
        self._jobs.remove(job)
        self._answers.append(NoAnswer(job.request.token, reason))

    # -- fetches ------------------------------------------------------------------------------------------------------

    def _fetched(self, job: _NodesFetch, event: Any) -> None:
        if not isinstance(event, zk.SubtreesRead):
            self._fail(job, event.reason if isinstance(event, zk.Unanswered) else event.refusal.value)
            return
        self._jobs.remove(job)
        try:
            committed = committed_in(self._paths, event.nodes)
        except DecodeError as error:
            text = _GARBAGE.format(group=self._paths.group, error=error)
            self._actions.append(ev.Fail(DecodeError(text)))
            return
        if not any(other.writes for other in self._jobs):  # else the read may be older than a pending write
            if not any(isinstance(other, _Commit) for other in self._jobs):
                self._known.clear()  # other known partitions belong to deleted topics
            self._learn(committed, event.nodes)
        self._answers.append(OffsetsFetched(job.request.token, committed))

    def _learn(self, partitions: Iterable[TopicPartition], nodes: Mapping[str, ZNode]) -> None:
        for tp in partitions:
            node = nodes.get(self._paths.offset(tp))
            there = self._paths.metadata_of(tp) in nodes
            self._known[tp] = _Known(None if node is None else node.version, there)

    # -- commits ------------------------------------------------------------------------------------------------------

    def _go_on(self, job: _Commit) -> None:
        """Send the next transaction, after a read if needed. Report the result once all partitions are written."""
        if not job.left:
            self._answer(job)
            return
        unknown = [tp for tp in job.left if tp not in self._known]
        member = bool(job.member_id)
        if unknown or not (member or job.alone):
            ids = () if member else (Subtree(self._paths.ids, 1, watch=False),)
            owners = (Subtree(self._paths.owner(tp), 0, watch=False) for tp in unknown if job.is_contested)
            self._read(job, (*ids, *owners, *committed_subtrees(self._paths, unknown)))
            return
        job.alone = False
        operations, ensured = self._operations(job)
        job.token, job.writes = next(self._tokens), True
        self._actions.append(zk.Transact(job.token, operations, ensured))

    def _answer(self, job: _Commit) -> None:
        self._jobs.remove(job)
        verdicts = {tp: job.verdicts.get(tp, UNNAMEABLE) for tp in job.request.offsets}
        self._answers.append(OffsetsCommitted(job.request.token, verdicts))

    def _operations(self, job: _Commit) -> tuple[tuple[Operation, ...], tuple[str, ...]]:
        """Return the operations for as many partitions as fit into one transaction, and the parents that it needs.

        Updates the known versions to those after the transaction.
        """
        operations: list[Operation] = [Check(self._paths.consumer(job.member_id))] if job.member_id else []
        size, job.chunk = 0, []
        for tp in job.left:
            written = tuple(self._write(tp, job.request.offsets[tp]))
            size += sum(len(op.path) + len(op.data) + _OPERATION_BYTES for op in written)
            if size > BYTES_MOST and job.chunk:
                break
            operations += written
            job.chunk.append(tp)
            known = self._known[tp]
            self._known[tp] = _Known(0 if known.version is None else known.version + 1, True)
        job.left = job.left[len(job.chunk) :]
        # Only new nodes need parents: to check the others would take another round trip.
        parents = dict.fromkeys(op.path.rpartition("/")[0] for op in operations if isinstance(op, Create))
        return tuple(operations), tuple(parents)

    def _write(self, tp: TopicPartition, committed: CommittedOffset) -> Iterator[Create | Set]:
        known, data = self._known[tp], offset_data(committed.offset)
        path, beside = self._paths.offset(tp), self._paths.metadata_of(tp)
        if known.version is None:
            yield Create(path, data)
        else:
            yield Set(path, data, known.version)
        data = metadata_data(committed, 0 if known.version is None else known.version + 1)
        yield Set(beside, data) if known.metadata else Create(beside, data)

    def _committed(self, job: _Commit, event: Any) -> None:
        match event:
            case zk.SubtreesRead():
                unknown = [tp for tp in job.left if tp not in self._known]
                self._learn(unknown, event.nodes)
                if job.is_contested and not all(self._is_owned(tp, job.member_id, event.nodes) for tp in unknown):
                    self._give_up(job, FENCED)
                else:
                    self._read_alone(job, event)
            case zk.Transacted():
                job.verdicts |= dict.fromkeys(job.chunk, COMMITTED)
                self._next_chunk(job)
            case zk.RequestRefused(path=path) if job.member_id and path == self._paths.consumer(job.member_id):
                self._forget(job)
                self._give_up(job, FENCED)
            case zk.RequestRefused(path=path):
                self._written_since(job, path)
            case _:
                self._unknown(job)

    def _is_owned(self, tp: TopicPartition, consumer_id: str, nodes: Mapping[str, ZNode]) -> bool:
        node = nodes.get(self._paths.owner(tp))
        try:
            return node is not None and consumer_of(read_owner(self._paths.owner(tp), node.data)) == consumer_id
        except DecodeError:
            return False

    def _read_alone(self, job: _Commit, event: zk.SubtreesRead) -> None:
        """Continue the commit of a query that is not a member, if the group has no members.

        A member that registers between this read and the transaction is not detected: ZooKeeper can check the version
        of a node, but not that it has no children. That member's first commit then sets the offsets again.
        """
        ids = event.nodes.get(self._paths.ids)
        if not job.member_id and ids is not None and ids.children:
            self._give_up(job, FENCED)
            return
        job.alone = True
        self._go_on(job)

    def _next_chunk(self, job: _Commit) -> None:
        job.chunk = []
        if job.stopped:
            self._give_up(job, INTERRUPTED)
        else:
            self._go_on(job)

    def _written_since(self, job: _Commit, path: str) -> None:
        """Retry: another client has written, created or deleted a node since it was read."""
        self._forget(job)
        job.attempts += 1
        if job.attempts == 1:
            text = (
                f"group {self._paths.group}: another client wrote {path}, but this member owns the partition: it "
                "overwrites the offset with its own newer position. To reset offsets, stop the group first"
            )
            self._actions.append(ev.Note(WARNING, text))
        job.left, job.chunk = job.chunk + job.left, []
        if job.stopped or job.attempts >= ATTEMPTS_MOST:
            self._give_up(job, INTERRUPTED if job.stopped else TIMED_OUT)
        else:
            self._go_on(job)

    def _forget(self, job: _Commit) -> None:
        for tp in job.chunk:
            self._known.pop(tp, None)

    def _unknown(self, job: _Commit) -> None:
        """Give up: the pending transaction may take effect or not. The member commits its partitions again."""
        self._forget(job)
        self._give_up(job, TIMED_OUT)

    def _give_up(self, job: _Commit, verdict: PartitionVerdict) -> None:
        job.verdicts |= dict.fromkeys((*job.chunk, *job.left), verdict)
        self._answer(job)

    def _interrupt(self) -> None:
        """Stop every pending commit: it sends no further transaction."""
        for job in [job for job in self._jobs if isinstance(job, _Commit)]:
            if job.writes:
                job.stopped = True
            else:
                self._give_up(job, INTERRUPTED)


_NEITHER = "could not read or write its offsets"

_GARBAGE = (
    "group {group}: {error}. The query stops, so that it skips no records. Stop the group, then write the right "
    "offset into that node, or delete the node: startingOffsets then apply, or the earliest offset if other "
    "partitions have offsets"
)


def is_of_zookeeper(event: object, first_token: int) -> bool:
    """Return whether `event` answers a read or a transaction with a token from `first_token` on."""
    answers = zk.SubtreesRead | zk.Transacted | zk.RequestRefused | zk.Unanswered
    return isinstance(event, answers) and event.token >= first_token
