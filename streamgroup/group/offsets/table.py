"""The offset store of a group whose offsets are in a database (R37): fetches claim, commits follow the batches.

The table in the database is the truth. A fetch asks Kafka for the group's commits first, for partitions that the table
does not know yet. Then it claims the gained partitions in the table, and returns the offsets of both; the table takes
precedence. The sink's transaction moves the offsets of a batch. A commit of the member, after the batch, stores what no
transaction has stored: a start position, a position that the data-loss policy moved, and the ends of batches whose sink
stores no offsets. Then the same offsets are committed to the group in Kafka, for tools that show its lag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from streamgroup.errors import ClaimLostError
from streamgroup.frozen import frozen
from streamgroup.group import events as ev
from streamgroup.group.offsets.store import (
    NOTHING,
    Answer,
    CommitOffsets,
    FetchOffsets,
    NoAnswer,
    OffsetsFetched,
    OffsetStore,
    Outcome,
)
from streamgroup.group.offsets.table_rows import BatchPart, Claimant, StoredOffset
from streamgroup.model import CommittedOffset, OffsetRange, TopicPartition, name_some

Rows = Mapping[TopicPartition, StoredOffset]


@frozen
class ClaimRows:
    """Action: claim `partitions` in the table, and read all of the group's rows. `found` are its commits in Kafka."""

    token: int
    group: str
    claimant: Claimant
    partitions: frozenset[TopicPartition]
    found: Mapping[TopicPartition, CommittedOffset]


@frozen
class CommitRows:
    """Action: commit `offsets` to the table, under the claims in `claims`."""

    token: int
    group: str
    claims: Rows
    offsets: Mapping[TopicPartition, CommittedOffset]


@frozen
class RowsClaimed:
    """Event: the result of the `ClaimRows` with this token: all rows of the group."""

    token: int
    rows: Rows


@frozen
class RowsCommitted:
    """Event: the result of the `CommitRows` with this token: the rows, None for partitions of another claim."""

    token: int
    rows: Mapping[TopicPartition, StoredOffset | None]


@frozen
class TableUnanswered:
    """Event: the database has not answered the action with this token. It may have been carried out."""

    token: int
    reason: str


TableEvent = RowsClaimed | RowsCommitted | TableUnanswered


class TableOffsetStore(OffsetStore):
    """The offset store of a group whose offsets are in a database. `kafka` is the store of the group itself."""

    def __init__(self, kafka: OffsetStore, claimant: Callable[[], Claimant]) -> None:
        self._kafka = kafka
        self._claimant = claimant
        self._group = ""
        self._held: frozenset[TopicPartition] = frozenset()
        self._claims: dict[TopicPartition, StoredOffset] = {}
        """The rows of the partitions that this member has claimed, as it knows them."""
        self._batch: dict[TopicPartition, StoredOffset] = {}
        """The rows of the batch in flight, as they were claimed when it was planned or replayed.

        The batch keeps these claims whatever is assigned meanwhile. If another run has claimed a partition since, the
        table refuses the batch, even if this member has claimed the partition again.
        """
        self._asked: dict[int, FetchOffsets | CommitOffsets] = {}
        """By token: requests that Kafka has not answered yet."""
        self._fetching: dict[int, Mapping[TopicPartition, CommittedOffset]] = {}
        """By token of a fetch whose claims the database has not answered yet: the group's commits in Kafka."""
        self._committing: dict[int, CommitOffsets] = {}
        """By token: commits that the database has not answered yet."""

    @property
    def is_the_groups(self) -> bool:
        """Whether a commit renews the lease: it ends in Kafka."""
        return self._kafka.is_the_groups

    @property
    def wake_at(self) -> float | None:
        return self._kafka.wake_at

    def fetch(self, request: FetchOffsets, now: float) -> Outcome:
        """Fetch from Kafka, then claim in the table."""
        self._group = request.group
        self._asked[request.token] = request
        return self._passed_on(self._kafka.fetch(request, now))

    def commit(self, request: CommitOffsets, now: float) -> Outcome:
        """Commit to the table, then to Kafka."""
        claims = {tp: self._claims[tp] for tp in request.offsets if tp in self._claims}
        offsets = {tp: request.offsets[tp] for tp in claims}
        self._committing[request.token] = request
        return Outcome((CommitRows(request.token, request.group, claims, offsets),))

    def planned(self, ranges: Iterable[OffsetRange]) -> None:
        """Record that a batch of `ranges` is in flight, under the claims that the member has now."""
        self._batch = {one.partition: self._claims[one.partition] for one in ranges if one.partition in self._claims}

    def replayed(self, rows: Rows) -> None:
        """Record that a replay (R13) is in flight under its own claims. No partition may be assigned yet."""
        self._batch = dict(rows)

    def parts(self, ranges: Iterable[OffsetRange], after: Mapping[TopicPartition, CommittedOffset]) -> list[BatchPart]:
        """Return what a sink must store with the rows of a batch.

        A partition that the batch has not claimed has claim 0, which no row has: the batch is refused.
        """
        unclaimed = StoredOffset()
        return [BatchPart(one, self._batch.get(one.partition, unclaimed).claim, after[one.partition]) for one in ranges]

    def follow(self, action: object) -> Outcome:
        """Forget pending requests at an assignment. Kept partitions keep their claims."""
        match action:
            case ev.Assigned():
                self._held = frozenset(action.partitions)
                kept = action.kept | frozenset(action.revoked)
                self._claims = {tp: row for tp, row in self._claims.items() if tp in kept}
                self._forget()
            case ev.Lost() | ev.Left():
                self._held = frozenset()
                self._forget()
        return self._passed_on(self._kafka.follow(action))

    def takes(self, event: object) -> bool:
        return isinstance(event, TableEvent) or self._kafka.takes(event)

    def hear(self, event: object, now: float) -> Outcome:
        match event:
            case RowsClaimed():
                return self._claimed(event)
            case RowsCommitted():
                return self._committed(event, now)
            case TableUnanswered():
                if event.token in self._fetching or event.token in self._committing:
                    self._fetching.pop(event.token, None)
                    self._committing.pop(event.token, None)
                    return Outcome(answers=(NoAnswer(event.token, event.reason, is_elsewhere=True),))
                return NOTHING
        return self._passed_on(self._kafka.hear(event, now))

    def _forget(self) -> None:
        self._asked.clear()
        self._fetching.clear()
        self._committing.clear()

    def _passed_on(self, outcome: Outcome) -> Outcome:
        """Claim in the table what Kafka has fetched. Other answers are the member's."""
        actions, answers = list(outcome.actions), list[Answer]()
        for answer in outcome.answers:
            request = self._asked.pop(answer.token, None)
            if isinstance(answer, OffsetsFetched) and answer.refusal is None and isinstance(request, FetchOffsets):
                self._fetching[answer.token] = answer.offsets
                gained = self._held - self._claims.keys()
                actions.append(ClaimRows(answer.token, request.group, self._claimant(), gained, answer.offsets))
            else:
                answers.append(answer)
        return Outcome(tuple(actions), tuple(answers))

    def _claimed(self, event: RowsClaimed) -> Outcome:
        found = self._fetching.pop(event.token, None)
        if found is None:
            return NOTHING
        # A kept partition may have a batch stored since, beyond its position: the row from then would undo the batch.
        gained = self._held - self._claims.keys()
        self._claims |= {tp: row for tp, row in event.rows.items() if tp in gained and self._is_mine(row)}
        stored = {tp: row.committed for tp, row in event.rows.items() if row.committed is not None}
        behind = [tp for tp in self._held if tp in stored and tp in found and found[tp].offset > stored[tp].offset]
        text = _BEHIND.format(group=self._group, partitions=name_some(behind))
        notes = (ev.Note(ev.WARNING, text),) if behind else ()
        outdated = frozenset(
            tp for tp in self._held & stored.keys() if tp not in found or found[tp].offset != stored[tp].offset
        )
        return Outcome(notes, answers=(OffsetsFetched(event.token, {**found, **stored}, outdated=outdated),))

    def _is_mine(self, row: StoredOffset) -> bool:
        return Claimant(row.lineage, row.member) == self._claimant()

    def _committed(self, event: RowsCommitted, now: float) -> Outcome:
        request = self._committing.pop(event.token, None)
        if request is None:
            return NOTHING
        fenced = [tp for tp, row in event.rows.items() if row is None]
        if fenced:
            return Outcome(
                (ev.Fail(ClaimLostError(_FENCED.format(group=request.group, partitions=name_some(fenced)))),)
            )
        for tp, row in event.rows.items():
            if row is not None and tp in self._claims and row.next_offset == request.offsets[tp].offset:
                self._claims[tp] = row  # else a batch was stored since, beyond the position
        self._asked[request.token] = request
        return self._passed_on(self._kafka.commit(request, now))


_BEHIND = (
    "group {group}: the commits of {partitions} in Kafka are beyond the offsets in the offset table, which count. "
    "Either the group was reset in Kafka only, or a member without offsets.store has read these partitions, and this "
    "query reads its records again"
)
_FENCED = (
    "group {group}: cannot commit {partitions} to the offset table: another run has claimed them there, or an operator "
    "has reset their offsets. Nothing was committed. Start the query again: it continues at the offsets of the table"
)
