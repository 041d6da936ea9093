"""Reports what went otherwise than planned in a run: one log line for each event, and a counter of each kind.

The lines are those of `streamgroup.logline`, whose table explains the keys; the counters stand in the `status` of the
control channel. Reasons are words of ours, names of error codes and offsets: never an option's value.

Records that only a task finds gone are told by that task, in the same format, in the executor's log: the driver does
not hear of them and does not count them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from streamgroup.errors import FencedError, StreamGroupError
from streamgroup.group import events as ev
from streamgroup.group.events import INFO, WARNING
from streamgroup.group.in_flight import InFlightBatch
from streamgroup.logformat import KAFKA_LOG, LogFormat
from streamgroup.logline import render
from streamgroup.model import Document, OffsetRange, TopicPartition

ERROR = 40
"""The level of that name in `logging`."""
MOST_REMEMBERED = 100_000
"""Of how many partitions the newest loss is remembered; the oldest is forgotten first."""


class Kind(StrEnum):
    """The kinds of events, as lines and counters name them."""

    REBALANCE = "rebalance"
    """An assignment came; the first one too."""
    FENCE = "fence"
    """The group has gone on without this member: a generation or session is lost, a commit was refused for it."""
    REPLAY = "replay"
    """A document that another process planned is read again (R13)."""
    SKIP = "skip"
    """The sink reports a batch as done whose data nobody asked for (R17)."""
    REPEAT = "repeat"
    """A batch was given up before it was known to have sunk: it may be read again."""
    DATA_LOSS = "data_loss"
    """Records that should be there are gone."""


_OF_PARTITIONS = frozenset({Kind.REBALANCE, Kind.FENCE})
"""The events whose `count` is one of partitions."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Records that are gone of one partition.

    `at` is where reading stood (None: nowhere yet), `to` where it goes on (None: nowhere), `count` how many offsets lie
    between (None: nobody knows).
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
    last: str | None = None
    reason: str | None = None


class RunEvents:
    """The events of one run. `say(level, line)` writes the log, `now` tells the time. One caller at a time.

    `log_format` tells in which unit offsets are.
    """

    def __init__(
        self,
        group: str,
        run: str,
        say: Callable[[int, str], None],
        now: Callable[[], datetime],
        log_format: Callable[[], LogFormat] = lambda: KAFKA_LOG,
    ) -> None:
        self._group = group
        self._who = f"group {group}: " if group else ""
        self._run = run
        self._say = say
        self._now = now
        self._log_format = log_format
        self._counters = {kind: _Counter() for kind in Kind}
        self._member = ""
        self._generation = -1
        self._held = 0
        self._joining = ""
        self._left = False
        self._given_up: Document | None = None
        self._told: dict[TopicPartition, tuple[object, ...]] = {}
        """The newest loss of each partition, the newest last. The planner finds a loss again until the position moves,
        and then it is never found again: so older ones need not be remembered, however long the query runs."""

    # --- the membership ----------------------------------------------------------------------------------------------

    def hear(self, action: object, flight: InFlightBatch | None) -> None:
        """What the member wants done, as far as it is of note; `flight` is the document in flight."""
        match action:
            case ev.Joining(reason):
                self._joining = reason
            case ev.Assigned(member_id=""):  # no member: it has all partitions, and nothing rebalances
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
        self._member, self._generation, self._held = given.member_id, given.generation, len(given.partitions)
        self._left = False
        kept = len(given.kept)
        self._tell(Kind.REBALANCE, INFO, given.line(self._group), self._joining, count=self._held, kept=kept)

    def _lost(self, reason: str) -> None:
        words = f"{self._who}generation {self._generation} is lost ({reason}), {self._held} partitions: rejoining"
        self._tell(Kind.FENCE, WARNING, words, reason, count=self._held)
        self._held = 0

    def failed(self, error: StreamGroupError) -> None:
        """The query ends. Only being fenced is an event of its own; Spark shows what `error` says."""
        if isinstance(error, FencedError):
            words = f"{self._who}another member has taken this one's place, the query ends"
            self._tell(Kind.FENCE, ERROR, words, "FENCED_INSTANCE_ID", count=self._held, failed=True)

    # --- batches -----------------------------------------------------------------------------------------------------

    def replaying(self, document: Document, ranges: Iterable[OffsetRange]) -> None:
        """A document of another process is read again, but for what is committed: `ranges` is left of it."""
        left, total = _offsets(ranges), _offsets(document.ranges)
        words = (
            f"{self._who}replaying document {document.sequence} of run {document.run}: {left} of {total} "
            f"{self._unit} are left to read"
        )
        reason = "the checkpoint holds a batch that is not known to have sunk"
        self._tell(Kind.REPLAY, INFO, words, reason, count=left, of=total, document=document.sequence)

    def skipped(self, document: Document) -> None:
        """The sink skipped the batch of `document`; the query ends with an error that says more."""
        self._given_up = document  # nobody has read it: it is no repeat when it is read
        words = f"{self._who}the sink skipped document {document.sequence}, the query ends"
        count = _offsets(document.ranges)
        reason = "reported as done, its data was never asked for"
        self._tell(Kind.SKIP, ERROR, words, reason, count=count, document=document.sequence, failed=True)

    def left(self, flight: InFlightBatch | None, uncommitted: int, how: str) -> None:
        """The member has left; `how` says whether it was stopped, its drain's time was over, or Spark was silent.

        `uncommitted`: how many offsets have sunk whose commit the group has not acknowledged.
        """
        self._may_repeat(flight, f"{how} before the batch in flight was known to have sunk")
        if uncommitted and flight is None and not self._left:
            self._left = True
            reason = f"{how} before the commit of the last batch was acknowledged"
            words = f"{self._who}{reason}: up to {uncommitted} {self._unit} may be repeated"
            self._tell(Kind.REPEAT, WARNING, words, reason, count=uncommitted)

    def _may_repeat(self, flight: InFlightBatch | None, reason: str, text: str = "") -> None:
        """The batch in flight is given up; told once for each document."""
        if flight is None or flight.document == self._given_up:
            return
        count = _offsets(flight.ranges)
        if not count:
            return
        self._given_up = flight.document
        words = f"{self._who}{text or f'{reason}: up to {count} {self._unit} may be repeated'}"
        self._tell(Kind.REPEAT, WARNING, words, reason, count=count, document=flight.document.sequence)

    # --- the logs ----------------------------------------------------------------------------------------------------

    def lost_records(self, losses: Iterable[Loss], *, failed: bool) -> None:
        """Records are gone, each told once. `failed`: `failOnDataLoss` ends the query with an error."""
        for loss in losses:
            if not self._is_new(loss):
                continue
            self._tell(
                Kind.DATA_LOSS,
                ERROR if failed else WARNING,
                loss.text,
                loss.cause,
                count=loss.count,
                partition=loss.partition,
                **{"from": loss.at},
                to=loss.to,
                failed=failed or None,
            )

    def _is_new(self, loss: Loss) -> bool:
        """Whether `loss` is not the one told last of its partition; it is from now on."""
        facts = loss.cause, loss.at, loss.to, loss.count
        if self._told.pop(loss.partition, None) == facts:
            self._told[loss.partition] = facts
            return False
        self._told[loss.partition] = facts
        if len(self._told) > MOST_REMEMBERED:
            del self._told[next(iter(self._told))]
        return True

    # --- what comes of it --------------------------------------------------------------------------------------------

    def status(self) -> dict[str, dict[str, Any]]:
        """For each kind how often it was, when and why last: `{"rebalance": {"count": 2, "last": ..., "reason": ...}}`.

        `last` is the time in ISO 8601, UTC; null with `reason` where the count is 0.
        """
        return {
            kind.value: {"count": counter.count, "last": counter.last, "reason": counter.reason}
            for kind, counter in self._counters.items()
        }

    @property
    def _unit(self) -> str:
        """What the difference of two offsets counts."""
        return self._log_format().unit

    def _tell(self, kind: Kind, level: int, words: str, reason: str, **fields: Any) -> None:
        if kind not in _OF_PARTITIONS and fields.get("count") is not None:
            fields["unit"] = self._log_format().log_unit
        counter = self._counters[kind]
        counter.count += 1
        counter.last = self._now().isoformat(timespec="seconds")
        counter.reason = reason
        whose = {
            "group": self._group or None,
            "run": self._run,
            "member": self._member or None,
            "generation": self._generation if self._member else None,
        }
        self._say(level, render(words, kind.value, **whose, **fields, reason=reason))


def _offsets(ranges: Iterable[OffsetRange]) -> int:
    return sum(map(len, ranges))
