"""Decides when a member commits (R7, R18, R29), how a commit is split into requests, and what responses mean.

`Commits` decides when to commit, `PartSize` how many offsets one request contains, `refusals` and `deciding` what a
response means. `CommitMetadata` is the text that is stored with each offset (R20).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

from streamgroup.errors import ErrorCode
from streamgroup.frozen import frozen
from streamgroup.group.offsets.store import TIMED_OUT, PartitionVerdict, Verdict
from streamgroup.model import NO_TOPIC_ID, CommittedOffset, OffsetRange, TopicPartition

RECOMMIT_AFTER_S = 3600.0
"""An idle member commits hourly: brokers before 2.1 expire offsets 24 h after the commit, even of active groups."""

NO_GENERATION = -1
"""The generation in a commit of a query that is not a member. Equal to NOT_FOUNDED: such a commit must not look like
the founding commit of a generation of members (R7)."""


@frozen
class Commit:
    """A commit to send, for one member id and generation (R18)."""

    number: int
    member_id: str
    generation: int
    offsets: Mapping[TopicPartition, CommittedOffset]
    made_at: float
    """Monotonic time."""


class CommitVerdict(Enum):
    """The outcome of a commit, as the ledger needs it."""

    ACCEPTED = "accepted"
    RETRY = "retry"
    """Commit the same positions again: at once, or after the next assignment for partitions that are kept."""


class Commits:
    """Tracks the pending commit (at most one) and decides when the next one is due.

    `now` is from `time.monotonic()`.
    """

    __slots__ = ("_again", "_awaited", "_last_at", "_made", "_sunk", "accepted", "accepted_s")

    def __init__(self) -> None:
        self._awaited: Commit | None = None
        self._again = False
        self._made = 0
        self._last_at: float | None = None
        self._sunk: dict[TopicPartition, int] = {}
        self.accepted = 0
        """The number of commits that were accepted."""
        self.accepted_s = 0.0
        """The sum of the seconds from the creation of each of these commits to its acceptance."""

    def sank(self, ranges: Iterable[OffsetRange]) -> None:
        """Store the ranges of the newest completed batch that this process planned."""
        self._sunk = {range_.partition: range_.until for range_ in ranges}

    def seen(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Store offsets that the group has committed, by this member or another one."""
        self._sunk = {tp: until for tp, until in self._sunk.items() if tp not in offsets or offsets[tp].offset < until}

    @property
    def outstanding(self) -> frozenset[TopicPartition]:
        """The partitions of the newest completed batch without a known commit.

        The next owner may read the batch again for these partitions (R30).
        """
        return frozenset(self._sunk)

    @property
    def unfinished(self) -> bool:
        """Whether a commit is pending or must be repeated."""
        return self._awaited is not None or self._again

    def is_due(self, now: float, *, moved: bool, everything: bool) -> bool:
        """Return whether to commit now: positions have `moved`, a commit must be repeated, or the last commit is old.

        `everything`: commit in any case, in place of a pending commit.
        """
        if self._last_at is None:
            self._last_at = now
        if everything:
            return True
        return self._awaited is None and (moved or self._again or now - self._last_at >= RECOMMIT_AFTER_S)

    def make(
        self, now: float, member_id: str, generation: int, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Commit:
        """Create the commit to send. It is now the pending one."""
        self._made += 1
        self._last_at, self._again = now, False
        self._awaited = Commit(self._made, member_id, generation, offsets, now)
        return self._awaited

    def nothing_held(self) -> None:
        """Cancel the repetition of a commit, because the member owns no partitions."""
        self._again = False

    def interrupted(self, *, kept: bool) -> None:
        """Record a new assignment. A pending commit is repeated under it if partitions are `kept` (R18)."""
        self._again = self.unfinished and kept
        self._awaited = None

    def awaits(self, commit: Commit) -> bool:
        return self._awaited is not None and self._awaited.number == commit.number

    def answered(self, commit: Commit, verdict: CommitVerdict, now: float) -> bool:
        """Return whether the pending commit was accepted. A response to any other commit has no effect (R18)."""
        if not self.awaits(commit):
            return False
        self._awaited = None
        self._again = verdict is CommitVerdict.RETRY
        if not self._again:
            self.accepted += 1
            self.accepted_s += now - commit.made_at
            self.seen(commit.offsets)
        return not self._again


def refusals(
    offsets: Mapping[TopicPartition, CommittedOffset],
    verdicts: Mapping[TopicPartition, PartitionVerdict],
    exists: Callable[[TopicPartition], bool],
) -> dict[TopicPartition, PartitionVerdict]:
    """Return which of `offsets` were not committed, and why. A partition without a verdict counts as timed out.

    A partition that does not exist any more is not a refusal: it was deleted. There is nothing to commit, and planning,
    which waits for commits, reports the loss (R8).
    """
    answers = {tp: verdicts.get(tp, TIMED_OUT) for tp in offsets}
    return {
        tp: verdict
        for tp, verdict in answers.items()
        if verdict.verdict is not Verdict.COMMITTED
        and not (verdict.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not exists(tp))
    }


def deciding(refused: Mapping[TopicPartition, PartitionVerdict]) -> tuple[TopicPartition, PartitionVerdict]:
    """Return the rejected partition whose verdict decides about the commit, with that verdict."""
    return min(refused.items(), key=lambda item: (_rank(item[1]), item[0], item[1].code))


_RANKS = {Verdict.MOVED: 1, Verdict.REFUSED: 2, Verdict.RETRIABLE: 4, Verdict.STALE_METADATA: 4}


def _rank(refused: PartitionVerdict) -> tuple[int, int]:
    """Return a sort key that puts a final verdict before a temporary one, because the final one would recur."""
    if refused.verdict is Verdict.FENCED:
        return 0, refused.code
    return _RANKS.get(refused.verdict, 3), 0


PART_BYTES = 512 * 1024
"""The initial limit of one request: half of the broker's default limit."""
DOUBTFUL_BYTES = 16 * 1024
"""The group coordinator of Kafka 4 answers UNKNOWN_SERVER_ERROR if a batch is too large, but also for other reasons.
For a request below this size there is another reason."""
_RECORD_BYTES = 100
"""A record of `__consumer_offsets` without group, topic and metadata takes 50 to 70 bytes, by the broker's release."""

Offsets = Mapping[TopicPartition, CommittedOffset]


class PartSize:
    """Limits how many offsets one commit request contains.

    The size only shrinks, since the broker's limit rarely changes.
    """

    __slots__ = ("_fixed", "most")

    def __init__(self, group: str) -> None:
        self._fixed = _RECORD_BYTES + len(group.encode())
        self.most = PART_BYTES
        """Bytes in `__consumer_offsets`."""

    def bytes_of(self, offsets: Offsets) -> int:
        """Return an upper estimate of the bytes that these offsets take in `__consumer_offsets`."""
        return sum(self._record(tp, offset) for tp, offset in offsets.items())

    def _record(self, tp: TopicPartition, offset: CommittedOffset) -> int:
        return self._fixed + len(tp.topic) + len(offset.metadata)

    def split(self, offsets: Offsets) -> tuple[Offsets, ...]:
        """Split `offsets` in order into parts of at most `most` bytes, each with at least one partition."""
        parts: list[dict[TopicPartition, CommittedOffset]] = []
        left = 0
        for tp, offset in offsets.items():
            size = self._record(tp, offset)
            if not parts or size > left:
                parts.append({})
                left = self.most
            parts[-1][tp] = offset
            left -= size
        return tuple(parts)

    def shrink(self, part: Offsets, *, certain: bool) -> bool:
        """Reduce the size after the broker has refused `part`. `certain`: it named the size as the reason.

        Return whether smaller requests may succeed.
        """
        size = self.bytes_of(part)
        if len(part) == 1 or not (certain or size > DOUBTFUL_BYTES):
            return False
        self.most = min(self.most, size) // 2
        return True


FORMAT = 1
NOT_FOUNDED = -1
"""The founding generation of a group whose first commit was made by another client."""
FIRST_EPOCH = 1 << 32
"""Added to an epoch of the consumer protocol, so that it never equals a generation: an empty group that changes its
protocol keeps its commits, and numbers from 1 again."""


@frozen
class CommitMetadata:
    """The metadata of a commit: which query made it, and how far that query had read.

    `lineage` and `run` identify the checkpoint and the start of the query. `sequence` is the number of the newest
    document whose batch is confirmed as completed. For a partition assigned later it is at least the number of the
    newest document that had been passed to Spark by then. `asked` is the newest document for which Spark called
    `partitions`. `founding` is the generation of the group's first commit, or its epoch above `FIRST_EPOCH`, copied by
    every later commit of the same protocol (R7). `topic_id`
    is the topic of the offset (R8). `batch` is Spark's id of the newest completed batch, None without a listener.
    `in_table`: the query takes its offsets from a table of a database, and commits them to the group for tools (R37).
    """

    lineage: str
    run: str
    sequence: int
    asked: int
    founding: int
    topic_id: str = NO_TOPIC_ID
    batch: int | None = None
    in_table: bool = False

    def text(self) -> str:
        """Return the stored text: JSON, far shorter than the broker's `offset.metadata.max.bytes` (4096)."""
        value: dict[str, int | str] = {
            "streamgroup": FORMAT,
            "lineage": self.lineage,
            "run": self.run,
            "sequence": self.sequence,
            "asked": self.asked,
            "founding": self.founding,
            "topic": self.topic_id,
        }
        if self.batch is not None:
            value["batch"] = self.batch
        if self.in_table:
            value["table"] = True
        return json.dumps(value, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> CommitMetadata | None:
        """Parse `text`. Return None if another client, an operator's reset or a later format has written it."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, dict) or not _is_format(value.get("streamgroup")):
            return None
        match value:
            case {
                "lineage": str(lineage),
                "run": str(run),
                "sequence": int(sequence),
                "asked": int(asked),
                "founding": int(founding),
                "topic": str(topic_id),
            } if bool not in map(type, (sequence, asked, founding)):
                batch, in_table = _batch(value.get("batch")), value.get("table") is True
                return cls(lineage, run, sequence, asked, founding, topic_id, batch, in_table)
        return None


def _batch(value: Any) -> int | None:
    """Return Spark's batch id, None if it is absent or invalid: no decision depends on it."""
    return value if type(value) is int and value >= 0 else None


def _is_format(value: Any) -> bool:
    """Return whether `value` is the number of the format. JSON's `true` and `1.0` also equal 1 in Python."""
    return type(value) is int and value == FORMAT
