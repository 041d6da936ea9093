"""`streamgroup checkpoint`: show the offsets in a query's checkpoint, or rewrite them for Spark's own Kafka source."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime

import click

from streamgroup.cli._checkpoint_files import (
    VOID,
    CheckpointFiles,
    CheckpointHistory,
    StillRunningError,
    batch_of,
    refuse_running,
)
from streamgroup.cli._click import Column, SectionedCommand, flag, json_option, json_rows, table, timeout_option
from streamgroup.cli._cluster import EITHER, ClusterAddress, client_options, cluster_options
from streamgroup.cli._group_stores import opened_store
from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.frozen import frozen
from streamgroup.group.commits import CommitMetadata
from streamgroup.model import CommittedOffset, Document, GroupState, TopicPartition, name_some

Commits = Mapping[TopicPartition, CommittedOffset]


class NotWrittenError(StreamGroupError):
    """The files of the checkpoint cannot be written."""


@frozen
class CheckpointRow:
    """One partition of one source in the newest batch."""

    source: str
    group: str
    partition: TopicPartition
    start: int
    end: int


COLUMNS: tuple[Column[CheckpointRow], ...] = (
    Column("SOURCE", "source", lambda row: row.source),
    Column("GROUP", "group", lambda row: row.group or None),
    Column("TOPIC", "topic", lambda row: row.partition.topic),
    Column("PARTITION", "partition", lambda row: row.partition.partition),
    Column("START", "start", lambda row: row.start),
    Column("END", "end", lambda row: row.end),
)


@click.command(
    cls=SectionedCommand,
    short_help="Show the offsets of a query's checkpoint, or rewrite them for Spark's own source.",
    examples={
        "streamgroup checkpoint /data/orders-checkpoint": "the newest batch and its offsets",
        "streamgroup checkpoint /data/orders-checkpoint --to-spark -b localhost:9092": "a way back to Spark",
    },
)
@click.argument("path")
@flag(
    "Actions (the default shows the offsets)",
    "--to-spark",
    help='Rewrite the offsets, so that a query with format("kafka") continues from this checkpoint. Drain the query '
    "first. A copy of the original files stays in the checkpoint, in the directory before-to-spark-TIME.",
)
@json_option("Print the batch and its offsets as JSON.")
@cluster_options
@timeout_option(10_000, "How long the whole command may take.")
def checkpoint(*, where: ClusterAddress, path: str, to_spark: bool, timeout: int, as_json: bool) -> None:
    """Show the offsets in the checkpoint at PATH, or rewrite them for Spark's own Kafka source.

    PATH is the checkpointLocation of a streamgroup query, a local directory. Only --to-spark needs a connection: it
    reads the state and the offsets of the query's group.
    """
    history = CheckpointHistory(CheckpointFiles(path))
    if to_spark:
        _rewrite(history, where, timeout, as_json=as_json)
    else:
        rows = [
            CheckpointRow(source, document.group, tp, *batch_of(document, tp))
            for source, document in history.newest.items()
            for tp in sorted(document.positions)
        ]
        _print(history, rows, as_json=as_json)


# -- rewriting ---------------------------------------------------------------------------------------------------------


def _rewrite(history: CheckpointHistory, where: ClusterAddress, timeout: int, *, as_json: bool) -> None:
    if not history.newest:
        raise ConfigError(
            f"cannot rewrite the checkpoint {history.files.home}: its newest batch has no source of streamgroup. "
            'Spark can continue from it with format("kafka")'
        )
    if not history.is_sunk and history.last > 0 and history.last - 1 not in history.batches:
        raise ConfigError(
            f"cannot rewrite the checkpoint {history.files.home}: batch {history.last} is not complete, and the "
            f"offsets of the batch before it are missing. Restore offsets/{history.last - 1}"
        )
    refuse_running("rewrite the checkpoint", history.lineages())
    committed = _commits_of({document.group for document in history.newest.values()}, where, timeout)
    planned = {
        source: (after_sunk if history.is_sunk else of_replay)(
            document, committed[document.group], history.topics_of(source)
        )
        for source, document in history.newest.items()
    }
    backup = f"before-to-spark-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}"
    try:
        history.files.back_up(backup)
        _write(history, planned)
    except OSError as error:
        raise NotWrittenError(
            f"cannot rewrite the checkpoint {history.files.home}: {error}. Run the command again; the original files "
            f"are in its directory {backup}"
        ) from error
    for offsets in planned.values():
        for note in offsets.notes:
            click.echo(f"Warning: {note}", err=True)
    rows = [
        CheckpointRow(source, history.newest[source].group, tp, offsets.starts[tp], end)
        for source, offsets in planned.items()
        for tp, end in offsets.ends.items()
    ]
    _print(history, rows, as_json=as_json, backup=str(history.files.home / backup))
    click.echo(
        f'Rewrote {history.files.home}: start the query with format("kafka") and this checkpoint. The original files '
        f"are in its directory {backup}",
        err=True,
    )


def _commits_of(groups: Collection[str], where: ClusterAddress, timeout: int) -> dict[str, Commits]:
    """Return the commits of the groups. Raises StillRunningError if a group has members."""
    found: dict[str, Commits] = {"": {}}
    if not (named := sorted(group for group in groups if group)):
        return found
    if not where.bootstrap_server and not where.zookeeper:
        raise click.UsageError(f"the query is of group {', '.join(named)}: name its cluster with {EITHER}")
    with opened_store(client_options(where, "streamgroup-checkpoint", timeout)) as store:
        if store.log_format.has_boundaries:
            raise ConfigError("cannot rewrite the checkpoint: Spark's source does not read Kafka 0.7")
        deadline = time.monotonic() + timeout / 1000
        for group in named:
            state = store.describe([group], deadline)[group].state
            if state not in (GroupState.EMPTY, GroupState.DEAD):
                raise StillRunningError(
                    f"cannot rewrite the checkpoint: group {group!r} is {state}, so queries may still read. Drain all "
                    f"of them first: streamgroup drain --group {group}"
                )
            found[group] = store.committed(group, deadline)
    return found


def _write(history: CheckpointHistory, planned: Mapping[str, SparkOffsets]) -> None:
    """Write all offsets, the newest last. The command can be run again until the newest is written.

    If the newest batch has not sunk, the offsets of the batch before it become its starting offsets.
    """
    files, last = history.files, history.last
    for source, offsets in planned.items():
        is_first = not history.is_sunk and history.first_batch(source) == last
        if is_first or not files.has_initial(source):
            files.write_initial(source, spark_value(_first_starts(history, source, offsets)))
    for batch in sorted(history.batches):
        texts = {source: _text(of_document(document)) for source, document in history.documents[batch].items()}
        if batch == last:
            texts = {source: _text(offsets.ends) for source, offsets in planned.items()}
        elif batch == last - 1 and not history.is_sunk:
            texts |= {source: _text(offsets.starts) for source, offsets in planned.items()}
        if texts:
            files.write_offsets(batch, history.batches[batch].with_sources(texts))


def _first_starts(history: CheckpointHistory, source: str, offsets: SparkOffsets) -> dict[TopicPartition, int]:
    """Return the offsets at which the source's oldest batch began. Spark reads them if it replays its first batch."""
    oldest = history.first_batch(source)
    if oldest == history.last and not history.is_sunk:
        return dict(offsets.starts)
    document = history.documents[oldest][source]
    return {tp: batch_of(document, tp)[0] for tp in sorted(document.positions)}


def _text(offsets: Mapping[TopicPartition, int]) -> str:
    """Return the line of a source. A source that has not read anything has no offsets."""
    return json.dumps(spark_value(offsets), separators=(",", ":")) if offsets else VOID


def _print(
    history: CheckpointHistory, rows: Iterable[CheckpointRow], *, as_json: bool, backup: str | None = None
) -> None:
    rows = list(rows)
    if as_json:
        value = {"batch": history.last, "sunk": history.is_sunk, "offsets": json_rows(COLUMNS, rows), "backup": backup}
        click.echo(json.dumps(value, indent=2))
        return
    click.echo(f"Batch {history.last} is {'complete' if history.is_sunk else 'not complete: it is replayed'}.")
    if rows:
        click.echo(table(COLUMNS, rows))


Offsets = dict[TopicPartition, int]


@frozen
class SparkOffsets:
    """The offsets at which Spark starts and ends the batch of a document."""

    starts: Offsets
    ends: Offsets
    notes: tuple[str, ...] = ()
    """Notes about partitions whose offsets come from the group's commits instead of the document."""


def of_document(document: Document) -> Offsets:
    """Return the positions in the document of a batch that has sunk."""
    return {tp: position.offset for tp, position in sorted(document.positions.items())}


def after_sunk(
    document: Document, committed: Mapping[TopicPartition, CommittedOffset], topics: Collection[str]
) -> SparkOffsets:
    """Return the offsets at which Spark continues after `document`, whose batch has sunk.

    A member of the group would follow the group's commit if it differs (R5b), except if the query itself has committed
    less than it has written. `topics` are those of the query.
    """
    ends, notes = of_document(document), []
    for tp, position in document.positions.items():
        commit = committed.get(tp)
        if commit is None or commit.offset == position.offset or _is_behind(document, position.offset, commit):
            continue
        ends[tp] = commit.offset
        notes.append(f"{tp}: the group has committed {commit.offset}, the checkpoint has {position.offset}")
    others = _of_others(document, committed, topics)
    if others:
        notes.append(f"of other members of the group, from its commits: {name_some(others)}")
    ends = dict(sorted((ends | others).items()))
    return SparkOffsets(ends, ends, tuple(notes))


def of_replay(
    document: Document, committed: Mapping[TopicPartition, CommittedOffset], topics: Collection[str]
) -> SparkOffsets:
    """Return the offsets with which Spark replays the batch of `document`, which has not sunk.

    The ranges are those of the document, without records that the group has committed, as in a replay by a member
    (R13). Raises ConfigError for a commit below the batch that the query has not made: Spark cannot go back behind it.
    """
    ranges = {r.partition: (r.start, r.until) for r in document.ranges}
    starts, ends, notes = {}, {}, []
    for tp, position in document.positions.items():
        start, until = ranges.get(tp, (position.offset, position.offset))
        commit = committed.get(tp)
        if commit is not None and commit.offset > start:
            notes.append(f"{tp}: the group has committed {commit.offset}, so the batch skips the offsets below it")
            start, until = commit.offset, max(until, commit.offset)
        elif commit is not None and commit.offset < start and not _is_behind(document, start, commit):
            raise ConfigError(
                f"cannot rewrite the checkpoint: its newest batch starts {tp} at {start}, and the group was reset to "
                f"{commit.offset}. Spark cannot go back to offsets before a planned batch. Let the query complete the "
                f"batch first, or set the group to {start} (streamgroup groups --reset-offsets --to-offset {start})"
            )
        starts[tp], ends[tp] = start, until
    others = _of_others(document, committed, topics)
    if others:
        notes.append(f"of other members of the group, from its commits: {name_some(others)}")
    return SparkOffsets(dict(sorted((starts | others).items())), dict(sorted((ends | others).items())), tuple(notes))


def _is_behind(document: Document, offset: int, commit: CommittedOffset) -> bool:
    """Return whether the query of `document` has sunk up to `offset` and committed less, as after a crash (R5a)."""
    metadata = CommitMetadata.parse(commit.metadata)
    return commit.offset < offset and metadata is not None and metadata.lineage == document.lineage


def _of_others(
    document: Document, committed: Mapping[TopicPartition, CommittedOffset], topics: Collection[str]
) -> Offsets:
    return {
        tp: commit.offset
        for tp, commit in sorted(committed.items())
        if tp.topic in topics and tp not in document.positions
    }


def spark_value(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets in the shape of Spark's connector: `{"orders": {"0": 123}}`."""
    nested: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        nested.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return nested
