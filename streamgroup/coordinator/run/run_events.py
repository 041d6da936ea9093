"""Reports events of a query, such as rebalances and lost records: one log line per event, and a counter per kind.

`streamgroup.logline` formats the lines and explains their keys. The counters are part of the control channel's
`status`. Reasons consist of fixed words, names of error codes and offsets, never of an option's value.

If only a task finds that records are lost, it logs them in the same format in the executor's log. The driver does not
count such losses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from streamgroup.errors import ClaimLostError, FencedError, StreamGroupError
from streamgroup.frozen import frozen
from streamgroup.group import events as ev
from streamgroup.group.events import ERROR, INFO, WARNING, JoinCause
from streamgroup.group.holdings import InFlightBatch
from streamgroup.logformat import KAFKA_LOG, LogFormat
from streamgroup.logline import render
from streamgroup.model import Document, OffsetRange, TopicPartition
from streamgroup.text import counted

MOST_REMEMBERED = 100_000
"""Maximum number of partitions whose newest loss is remembered; the oldest is forgotten first."""


class RunEventKind(StrEnum):
    """The kinds of events, as log lines and counters name them."""

    REBALANCE = "rebalance"
    """The member got an assignment; the first one counts, too."""
    FENCE = "fence"
    """The group continued without this member: its generation or session was lost, or its commit was rejected."""
    REPLAY = "replay"
    """A document that another process planned is read again (R13)."""
    SKIP = "skip"
    """The sink skipped a batch: it was reported as done, and no task asked for its data (R17)."""
    REPEAT = "repeat"
    """A batch was given up before it was confirmed as completed: it may be read again."""
    DATA_LOSS = "data_loss"
    """Records were lost before the query read them."""


_OF_PARTITIONS = frozenset({RunEventKind.REBALANCE, RunEventKind.FENCE})
"""The events whose `count` counts partitions."""


@frozen
class LostRecords:
    """Records of one partition that were lost before the query read them.

    `at` is the position before the loss (None: no position yet), `to` the position after it (None: none), `count` the
    number of offsets between (None: unknown).
    """

    partition: TopicPartition
    text: str
    cause: str
    at: int | None = None
    to: int | None = None
    count: int | None = None


@dataclass(slots=True)
class _Counter:
    count: int = 0
    last: float | None = None
    reason: str | None = None


class RunEvents:
    """Logs and counts the events of one query. Only one thread at a time may use it.

    `write(level, line)` logs a line. `log_format()` returns the format that defines the unit of offsets.
    """

    def __init__(
        self,
        group: str,
        run: str,
        write: Callable[[int, str], None] = lambda level, line: None,
        *,
        log_format: Callable[[], LogFormat] = lambda: KAFKA_LOG,
    ) -> None:
        self._group = group
        self._who = f"group {group}: " if group else ""
        self._run = run
        self.write = write
        self.now = 0.0
        """`time.monotonic()` of the current event."""
        self._log_format = log_format
        self._counters = {kind: _Counter() for kind in RunEventKind}
        self._member = ""
        self._generation = -1
        self._numbered = "generation"
        self._held = 0
        self._joining = ""
        self._cause = JoinCause.START
        self._causes: Counter[JoinCause] = Counter()
        self._left = False
        self._given_up: Document | None = None
        self._newest_losses: dict[TopicPartition, tuple[object, ...]] = {}
        """The newest loss of each partition, the newest last. The planner finds a loss again until the position moves,
        and never after that, so older losses need not be remembered."""

    # --- the membership ----------------------------------------------------------------------------------------------

    def on_action(self, action: object, flight: InFlightBatch | None) -> None:
        """Report an action of the member if it is an event. `flight` is the batch in flight."""
        match action:
            case ev.Joining(reason, cause=cause):
                self._joining, self._cause = reason, cause
            case ev.Released():
                self._joining, self._cause = "gave up revoked partitions", JoinCause.REVOKED
            case ev.Assigned(member_id=""):  # not a member: it has all partitions, and nothing rebalances
                self._held = len(action.partitions)
            case ev.Assigned():
                self._assigned(action)
            case ev.GaveUp(text):
                self._may_repeat(flight, "waited for no longer", text)
            case ev.Lost(reason):
                self._lost(reason)
                self._may_repeat(flight, "the membership was lost before the batch in flight was known to have sunk")
            case ev.Fail(error):
                self.failed(error)

    def _assigned(self, given: ev.Assigned) -> None:
        kept = len(given.kept)
        moves = given.revoked or not kept == len(given.partitions) == self._held
        is_quiet = given.is_epoch and not moves and self._cause in {JoinCause.GROUP, JoinCause.REVOKED}
        self._member, self._generation, self._held = given.member_id, given.generation, len(given.partitions)
        self._left = False
        self._numbered = "epoch" if given.is_epoch else "generation"
        reason, cause = self._joining, self._cause
        self._joining, self._cause = "the group rebalances", JoinCause.GROUP
        if is_quiet:  # another member has joined or left, and this one keeps what it has
            return
        self._causes[cause] += 1
        self._report(RunEventKind.REBALANCE, INFO, given.line(self._group), reason, count=self._held, kept=kept)

    def _lost(self, reason: str) -> None:
        held = counted(self._held, "partition")
        words = f"{self._who}{self._numbered} {self._generation} is lost ({reason}), {held}: rejoining"
        self._report(RunEventKind.FENCE, WARNING, words, reason, count=self._held)
        self._held = 0

    def failed(self, error: StreamGroupError) -> None:
        """Report that `error` ends the query, if the member was fenced. Spark shows all other errors."""
        if isinstance(error, ClaimLostError):
            words = (
                f"{self._who}another run or an operator has claimed partitions in the offset table, so the query ends"
            )
            self._report(RunEventKind.FENCE, ERROR, words, "offset table", count=self._held, failed=True)
        elif isinstance(error, FencedError):
            words = f"{self._who}another member with the same group.instance.id has joined, so the query ends"
            self._report(RunEventKind.FENCE, ERROR, words, "FENCED_INSTANCE_ID", count=self._held, failed=True)

    # --- batches -----------------------------------------------------------------------------------------------------

    def replaying(self, document: Document, ranges: Iterable[OffsetRange]) -> None:
        """Report that a document of an earlier start is read again. `ranges` are those that are not committed yet."""
        left, total = _offsets(ranges), _offsets(document.ranges)
        words = (
            f"{self._who}replaying document {document.sequence} of run {document.run}: {left} of {total} "
            f"{self._unit} are left to read"
        )
        reason = "the checkpoint holds a batch that is not known to have sunk"
        self._report(RunEventKind.REPLAY, INFO, words, reason, count=left, of=total, document=document.sequence)

    def skipped(self, document: Document) -> None:
        """Report that the sink skipped the batch of `document`; the query ends with a longer error."""
        self._given_up = document  # no task has read it, so reading it later does not repeat it
        words = f"{self._who}the sink skipped document {document.sequence}, the query ends"
        count = _offsets(document.ranges)
        reason = "reported as done, its data was never asked for"
        self._report(RunEventKind.SKIP, ERROR, words, reason, count=count, document=document.sequence, failed=True)

    def left(self, flight: InFlightBatch | None, uncommitted: int, how: str) -> None:
        """Report that the member has left the group.

        `how` is the reason: it was stopped, its drain timed out, the query failed, or Spark made no calls.
        `uncommitted` is the number of offsets of completed batches whose commit the group has not acknowledged.
        """
        self._may_repeat(flight, f"{how} before the batch in flight was confirmed")
        if uncommitted and flight is None and not self._left:
            self._left = True
            reason = f"{how} before the commit of the last batch was acknowledged"
            words = f"{self._who}{reason}: up to {uncommitted} {self._unit} may be repeated"
            self._report(RunEventKind.REPEAT, WARNING, words, reason, count=uncommitted)

    def _may_repeat(self, flight: InFlightBatch | None, reason: str, text: str = "") -> None:
        """Report once for each document that its batch is given up and may be read again."""
        if flight is None or flight.document == self._given_up:
            return
        count = _offsets(flight.ranges)
        if not count:
            return
        self._given_up = flight.document
        words = f"{self._who}{text or f'{reason}: up to {count} {self._unit} may be repeated'}"
        self._report(RunEventKind.REPEAT, WARNING, words, reason, count=count, document=flight.document.sequence)

    # --- the logs ----------------------------------------------------------------------------------------------------

    def lost_records(self, losses: Iterable[LostRecords], *, failed: bool) -> None:
        """Report lost records, each loss once. `failed`: `failOnDataLoss` ends the query with an error."""
        for loss in losses:
            if not self._is_new(loss):
                continue
            self._report(
                RunEventKind.DATA_LOSS,
                ERROR if failed else WARNING,
                loss.text,
                loss.cause,
                count=loss.count,
                partition=loss.partition,
                **{"from": loss.at},
                to=loss.to,
                failed=failed or None,
            )

    def _is_new(self, loss: LostRecords) -> bool:
        """Return whether `loss` differs from the last one reported of its partition; remember it."""
        facts = loss.cause, loss.at, loss.to, loss.count
        if self._newest_losses.pop(loss.partition, None) == facts:
            self._newest_losses[loss.partition] = facts
            return False
        self._newest_losses[loss.partition] = facts
        if len(self._newest_losses) > MOST_REMEMBERED:
            del self._newest_losses[next(iter(self._newest_losses))]
        return True

    # --- counters and lines ------------------------------------------------------------------------------------------

    def status(self) -> dict[str, dict[str, Any]]:
        """Return count, last time and last reason by kind: `{"rebalance": {"count": 2, "last": ..., "reason": ...}}`.

        `last` is from `time.monotonic()`. `last` and `reason` are None while the count is 0.
        """
        return {
            kind.value: {"count": counter.count, "last": counter.last, "reason": counter.reason}
            for kind, counter in self._counters.items()
        }

    def rebalances(self) -> dict[str, int]:
        """Return the number of rebalances by the reason for which the member had joined."""
        return {cause.value: self._causes[cause] for cause in JoinCause}

    @property
    def _unit(self) -> str:
        """The unit of a difference of two offsets."""
        return self._log_format().unit

    def _report(self, kind: RunEventKind, level: int, words: str, reason: str, **fields: Any) -> None:
        if kind not in _OF_PARTITIONS and fields.get("count") is not None:
            fields["unit"] = self._log_format().log_unit
        counter = self._counters[kind]
        counter.count += 1
        counter.last = self.now
        counter.reason = reason
        whose = {
            "group": self._group or None,
            "run": self._run,
            "member": self._member or None,
            "generation": self._generation if self._member else None,
        }
        self.write(level, render(words, kind.value, **whose, **fields, reason=reason))


def _offsets(ranges: Iterable[OffsetRange]) -> int:
    return sum(map(len, ranges))
