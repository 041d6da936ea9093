"""Commits from due to answered (R7, R18, R29), and which verdict on one decides."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from streamgroup.errors import ErrorCode
from streamgroup.group.offsets.store import TIMED_OUT, PartitionVerdict, Verdict
from streamgroup.model import NO_TOPIC_ID, CommittedOffset, OffsetRange, TopicPartition

RECOMMIT_AFTER_S = 3600.0
"""An idle member commits again hourly: brokers before 2.1 expire offsets 24 h after the commit, even of live groups."""

NO_GENERATION = -1
"""In a commit of a query that is not a member. Also NOT_FOUNDED, so that no generation of members takes such a commit
for its own founder's (R7)."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit to send. Answers count only for its member id and generation (R18)."""

    number: int
    member_id: str
    generation: int
    offsets: Mapping[TopicPartition, CommittedOffset]
    made_at: float
    """Monotonic time."""


class CommitVerdict(Enum):
    """The meaning of an answer to a commit for the ledger."""

    ACCEPTED = "accepted"
    RETRY = "retry"
    """No refusal: the same positions are committed again, after SyncGroup for those kept (27), or at once."""


class Commits:
    """Which commit is awaited, and whether one is to be made again. At most one is awaited; `now` is monotonic."""

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
        """Seconds from the making of each of them to its acceptance, in total."""

    def sank(self, ranges: Iterable[OffsetRange]) -> None:
        """The batch of these ranges, planned here, has sunk: the newest one."""
        self._sunk = {range_.partition: range_.until for range_ in ranges}

    def seen(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """The group has these commits, whoever made them."""
        self._sunk = {tp: until for tp, until in self._sunk.items() if tp not in offsets or offsets[tp].offset < until}

    @property
    def outstanding(self) -> frozenset[TopicPartition]:
        """Of which partitions the newest batch that has sunk is not known to be committed; whoever has one now reads
        that batch again (R30)."""
        return frozenset(self._sunk)

    @property
    def unfinished(self) -> bool:
        """Whether one is unanswered, or was answered by "again"."""
        return self._awaited is not None or self._again

    def is_due(self, now: float, *, moved: bool, everything: bool) -> bool:
        """Whether one is to be made now: something has `moved`, or the last one is old, or `everything` is to be sent
        in place of one that is awaited."""
        if self._last_at is None:
            self._last_at = now
        if everything:
            return True
        return self._awaited is None and (moved or self._again or now - self._last_at >= RECOMMIT_AFTER_S)

    def make(
        self, now: float, member_id: str, generation: int, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Commit:
        """The commit to send; it is awaited from here on."""
        self._made += 1
        self._last_at, self._again = now, False
        self._awaited = Commit(self._made, member_id, generation, offsets, now)
        return self._awaited

    def nothing_held(self) -> None:
        """There is nothing that could be committed again."""
        self._again = False

    def interrupted(self, *, kept: bool) -> None:
        """Another assignment: what is unfinished is made again under it, if something of it is kept (R18)."""
        self._again = self.unfinished and kept
        self._awaited = None

    def awaits(self, commit: Commit) -> bool:
        return self._awaited is not None and self._awaited.number == commit.number

    def answered(self, commit: Commit, verdict: CommitVerdict, now: float) -> bool:
        """Whether this is the one awaited and was accepted. Any other answer changes nothing (R18)."""
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

    A partition that the metadata does not know any more has been deleted. There is nothing to commit, and planning,
    which waits for commits, reports its loss (R8).
    """
    answers = {tp: verdicts.get(tp, TIMED_OUT) for tp in offsets}
    return {
        tp: verdict
        for tp, verdict in answers.items()
        if verdict.verdict is not Verdict.COMMITTED
        and not (verdict.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not exists(tp))
    }


def deciding(refused: Mapping[TopicPartition, PartitionVerdict]) -> tuple[TopicPartition, PartitionVerdict]:
    """Return the partition and the verdict to react to, of those that one commit was refused for."""
    return min(refused.items(), key=lambda item: (_rank(item[1]), item[0], item[1].code))


_RANKS = {Verdict.MOVED: 1, Verdict.REFUSED: 2, Verdict.RETRIABLE: 4, Verdict.STALE_METADATA: 4}


def _rank(refused: PartitionVerdict) -> tuple[int, int]:
    """Rank a final verdict before one that may pass: the final one would come back with every attempt."""
    if refused.verdict is Verdict.FENCED:
        return 0, refused.code
    return _RANKS.get(refused.verdict, 3), 0


PART_BYTES = 512 * 1024
"""One request holds no more than this to begin with: half of the default limit."""
DOUBTFUL_BYTES = 16 * 1024
"""The coordinator of Kafka 4 answers a batch that is too large with UNKNOWN_SERVER_ERROR, which may mean anything. A
request below this size is not what is wrong."""
_RECORD_BYTES = 100
"""A record of `__consumer_offsets` without group, topic and metadata takes 50 to 70 bytes, by the broker's release."""

Offsets = Mapping[TopicPartition, CommittedOffset]


class PartSize:
    """How much of a commit one request holds. It only ever shrinks, since the broker's limit hardly ever changes."""

    __slots__ = ("_fixed", "most")

    def __init__(self, group: str) -> None:
        self._fixed = _RECORD_BYTES + len(group.encode())
        self.most = PART_BYTES
        """Bytes in `__consumer_offsets`."""

    def bytes_of(self, offsets: Offsets) -> int:
        """Estimate how many bytes these offsets take in `__consumer_offsets`, rather too many than too few."""
        return sum(self._record(tp, offset) for tp, offset in offsets.items())

    def _record(self, tp: TopicPartition, offset: CommittedOffset) -> int:
        return self._fixed + len(tp.topic) + len(offset.metadata)

    def split(self, offsets: Offsets) -> tuple[Offsets, ...]:
        """Divide `offsets` in their order into parts of at most `most` bytes, and of one partition at least."""
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
        """Send less at a time, since the broker has refused `part`, for its size where that is `certain`.

        Return whether less may help.
        """
        size = self.bytes_of(part)
        if len(part) == 1 or not (certain or size > DOUBTFUL_BYTES):
            return False
        self.most = min(self.most, size) // 2
        return True


FORMAT = 1
NOT_FOUNDED = -1
"""The founding generation of a group whose first commit was not ours."""


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """The run that committed, and its documents by sequence number.

    `sequence` is the newest document proven sunk. For a partition gained later it is at least the newest document that
    Spark was given when the partition was gained. `asked` is the newest document for which Spark called `partitions`.
    `founding` is the generation of the group's first commit, copied by every later one (R7). `topic_id` is the topic
    that the offset belongs to (R8). `batch` is Spark's id of the newest batch proven sunk, None without a listener.
    """

    lineage: str
    run: str
    sequence: int
    asked: int
    founding: int
    topic_id: str = NO_TOPIC_ID
    batch: int | None = None

    def text(self) -> str:
        """Return the metadata as it is stored: JSON, well below the broker's `offset.metadata.max.bytes` (4096)."""
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
        return json.dumps(value, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> CommitMetadata | None:
        """Read `text`. None: another client wrote it, an operator with a reset, or a later format."""
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
                return cls(lineage, run, sequence, asked, founding, topic_id, _batch(value.get("batch")))
        return None


def _batch(value: Any) -> int | None:
    """Return Spark's batch id, None where it is absent or unreadable: nothing depends on it."""
    return value if type(value) is int and value >= 0 else None


def _is_format(value: Any) -> bool:
    """Return whether `value` is the number of the format. In Python JSON's `true` and `1.0` equal 1, too."""
    return type(value) is int and value == FORMAT
