"""Ledgers in the middle of things, for the scenarios of the ledger: one topic, three partitions, generation 3."""

from __future__ import annotations

from collections.abc import Mapping

from streamgroup.group.commits import Commit, CommitMetadata, CommitVerdict
from streamgroup.group.ledger import Ledger
from streamgroup.group.start_positions import StartPosition
from streamgroup.model import (
    INITIAL_DOCUMENT,
    CommittedOffset,
    Document,
    OffsetRange,
    PartitionInfo,
    Position,
    TopicInfo,
    TopicPartition,
)

A, B, C = (TopicPartition("t", n) for n in range(3))
NOW = 1000.0


def topics(topic_id: str = "id", count: int = 3, epoch: int = 5) -> Mapping[str, TopicInfo]:
    return {"t": TopicInfo("t", tuple(PartitionInfo(n, 1, epoch) for n in range(count)), topic_id)}


def ours(
    offset: int, sequence: int = 4, *, run: str = "before", asked: int = 0, founding: int = 1, topic: str = "id"
) -> CommittedOffset:
    return CommittedOffset(offset, CommitMetadata("lineage", run, sequence, asked, founding, topic).text())


def document(sequence: int, run: str = "now", **ranges: tuple[int, int]) -> Document:
    """`document(5, a=(90, 100))`: a range of partition A, and its position after it."""
    named = {TopicPartition("t", "abc".index(name)): span for name, span in ranges.items()}
    return Document(
        "g",
        "lineage",
        run,
        sequence,
        ranges=tuple(OffsetRange(tp, *span) for tp, span in named.items() if span[0] < span[1]),
        positions={tp: Position(span[1], "id", 5) for tp, span in named.items()},
    )


def started(start: Document = INITIAL_DOCUMENT, *, in_table: bool = False) -> Ledger:
    ledger = Ledger("g", "now", "lineage", in_table=in_table)
    ledger.complete_batch(start)
    return ledger


def assign(ledger: Ledger, *tps: TopicPartition, generation: int = 3, kept: tuple[TopicPartition, ...] = ()) -> None:
    ledger.assigned("m", generation, tps, kept)


def gain(
    ledger: Ledger,
    commits: Mapping[TopicPartition, CommittedOffset],
    *partitions: TopicPartition,
    generation: int = 3,
    kept: tuple[TopicPartition, ...] = (),
) -> dict[TopicPartition, StartPosition]:
    assign(ledger, *(partitions or tuple(commits)), generation=generation, kept=kept)
    return ledger.offsets_found("m", generation, commits, topics())


def due(ledger: Ledger, now: float = NOW) -> Commit:
    commit = ledger.commit_due(now)
    assert commit is not None
    return commit


def accept(ledger: Ledger, now: float = NOW) -> Commit:
    commit = due(ledger, now)
    ledger.answered(commit, CommitVerdict.ACCEPTED, NOW)
    return commit


def last_commit(ledger: Ledger) -> Commit:
    """The commit of a member that leaves: of all that it holds."""
    commit = ledger.commit_due(NOW, everything=True)
    assert commit is not None
    return commit


def told(commit: Commit, tp: TopicPartition) -> CommitMetadata:
    metadata = CommitMetadata.parse(commit.offsets[tp].metadata)
    assert metadata is not None
    return metadata


def offsets(of: Commit | Ledger) -> dict[TopicPartition, int]:
    return {tp: p.offset for tp, p in (of.offsets if isinstance(of, Commit) else of.positions()).items()}


PLANNED = document(5, a=(90, 100))
BOTH = document(5, a=(90, 100), b=(40, 60))


def in_flight(
    commits: Mapping[TopicPartition, CommittedOffset], planned: Document = PLANNED, *, in_table: bool = False
) -> Ledger:
    """A ledger whose document 5 has been asked for."""
    ledger = started(document(4, a=(90, 90), b=(40, 40)), in_table=in_table)
    gain(ledger, commits)
    ledger.emitted(planned)
    ledger.handed_out(planned)
    return ledger
