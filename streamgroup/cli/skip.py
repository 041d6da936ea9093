"""`streamgroup skip`: give up records that a stopped query cannot process, and record which they were."""

from __future__ import annotations

import getpass
import json
import os
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamgroup.cli._checkpoint_files import CheckpointFiles, CheckpointHistory, StillRunningError, refuse_running
from streamgroup.cli._click import (
    Column,
    SectionedCommand,
    flag,
    json_option,
    json_rows,
    option,
    partitions_option,
    table,
    timeout_option,
)
from streamgroup.cli._cluster import EITHER, ClusterAddress, client_options, cluster_options
from streamgroup.cli._group_stores import GroupStore, opened_store
from streamgroup.cli._offset_store import StoreAddress, offset_database, store_options
from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.frozen import frozen
from streamgroup.group.commits import CommitMetadata
from streamgroup.logline import render
from streamgroup.model import (
    EARLIEST,
    LATEST,
    CommittedOffset,
    Document,
    GroupState,
    OffsetRange,
    TopicPartition,
    name_some,
)

if TYPE_CHECKING:
    from streamgroup.sql.operations import OffsetDatabase

AUDIT = "streamgroup-skips.jsonl"
"""The file in the checkpoint with a line for each skip. Spark ignores it."""
_DRY = "Dry run: no offset was changed. Add --execute to give these records up."


class NotSkippedError(StreamGroupError):
    """The record of a skip cannot be written, so nothing was skipped."""


COLUMNS: tuple[Column[Skip], ...] = (
    Column("GROUP", "group", lambda row: row.group),
    Column("TOPIC", "topic", lambda row: row.range.partition.topic),
    Column("PARTITION", "partition", lambda row: row.range.partition.partition),
    Column("FROM", "from", lambda row: row.range.start),
    Column("UNTIL", "until", lambda row: row.range.until),
    Column("OFFSETS", "offsets", lambda row: len(row.range)),
)


@click.command(
    cls=SectionedCommand,
    examples={
        "streamgroup skip /data/orders-checkpoint -b localhost:9092": "what would be given up of the batch that fails",
        "streamgroup skip /data/orders-checkpoint -b localhost:9092 --topic-partition orders-3 --execute": (
            "the range of one partition"
        ),
        "streamgroup skip /data/orders-checkpoint -b localhost:9092 --topic-partition orders-3 --to-offset 4712 "
        "--execute": "one partition to an offset, such as the one after the bad record",
    },
)
@click.argument("path")
@partitions_option("Partition to skip, such as orders-3; repeat it for several. The default is the whole batch.")
@option(
    "Which partitions",
    "--to-offset",
    type=click.IntRange(min=0),
    metavar="OFFSET",
    help="The first offset of the one --topic-partition that is read again. The default is the end of its range.",
)
@flag(
    "Actions (the default is a dry run)",
    "--execute",
    "executes",
    help="Give the records up: commit the offsets after them to the group.",
)
@json_option("Print the given-up offsets as JSON.")
@store_options
@cluster_options
@timeout_option(10_000, "How long the whole command may take.")
def skip(
    *,
    where: ClusterAddress,
    store: StoreAddress,
    path: str,
    partitions: tuple[TopicPartition, ...],
    to_offset: int | None,
    executes: bool,
    timeout: int,
    as_json: bool,
) -> None:
    """Give up records that the stopped query of the checkpoint at PATH cannot get past.

    PATH is the checkpointLocation of the query, a local directory. The newest batch that has not sunk is replayed at
    each start. This command commits the end of its ranges to the query's group, or to the database of `offsets.store`,
    so that the replay leaves them out. The records stay in Kafka. It refuses while the query runs or the group has
    members.
    """
    if to_offset is not None and len(partitions) != 1:
        raise click.UsageError("--to-offset requires one --topic-partition")
    history = CheckpointHistory(CheckpointFiles(path))
    documents = _documents(history)
    refuse_running("skip records", history.lineages())
    if not where.bootstrap_server and not where.zookeeper:
        raise click.UsageError(f"name the cluster of the group with {EITHER}")
    store = store.completed(where)
    opened_table = nullcontext(None) if store.url is None else offset_database(store, timeout)
    with opened_store(client_options(where, "streamgroup-skip", timeout)) as cluster, opened_table as table_:
        offsets = QueryOffsets(cluster, table_, time.monotonic() + timeout / 1000)
        skips = _planned(history, documents, offsets, partitions=partitions, to_offset=to_offset)
        if executes:
            _execute(history, skips, offsets)
    if as_json:
        value = {"batch": history.last, "sunk": history.is_sunk, "executed": executes}
        click.echo(json.dumps({**value, "skipped": json_rows(COLUMNS, skips)}, indent=2))
    else:
        click.echo(f"Batch {history.last} is {'complete' if history.is_sunk else 'not complete: it is replayed'}.")
        click.echo(table(COLUMNS, skips))
    if executes:
        for one in skips:
            click.echo(_line(one, history), err=True)
    else:
        click.echo(_DRY, err=True)


def _documents(history: CheckpointHistory) -> list[Document]:
    """Return the newest documents of the checkpoint's sources. Raises ConfigError if no safe skip is possible."""
    documents = list(history.newest.values())
    if not documents:
        raise ConfigError(
            f"cannot skip records of {history.files.home}: its newest batch has no source of streamgroup. Name the "
            'checkpoint of a query that reads by format("streamgroup")'
        )
    if alone := [document for document in documents if not document.group]:
        ends = {tp: range_.until for document in alone for tp, range_ in _ranges(document).items()}
        raise ConfigError(
            f"cannot skip records of {history.files.home}: its query has no group (group.mode=off), so its positions "
            "are only in its checkpoint, and a batch in it cannot be changed safely. Start the query with a new "
            f"checkpoint and startingOffsets after the records; the newest batch ends at {_starting(alone, ends)}"
        )
    return documents


def _ranges(document: Document) -> Mapping[TopicPartition, Any]:
    return {range_.partition: range_ for range_ in document.ranges}


def _starting(documents: Sequence[Document], ends: Mapping[TopicPartition, int]) -> str:
    nested: dict[str, dict[str, int]] = {}
    for document in documents:
        for tp, position in sorted(document.positions.items()):
            nested.setdefault(tp.topic, {})[str(tp.partition)] = ends.get(tp, position.offset)
    return json.dumps(nested)


def _planned(
    history: CheckpointHistory,
    documents: Sequence[Document],
    offsets: QueryOffsets,
    *,
    partitions: Sequence[TopicPartition],
    to_offset: int | None,
) -> list[Skip]:
    """Return the offsets to give up. Raises StillRunningError for a group with members, ConfigError."""
    if history.is_sunk and to_offset is None:
        raise ConfigError(
            f"nothing to skip: batch {history.last} is complete, and none is replayed. To skip records that were not "
            "planned yet, name --topic-partition and --to-offset"
        )
    held = {tp for document in documents for tp in document.positions}
    if strange := sorted(tp for tp in partitions if tp not in held):
        raise ConfigError(
            f"the newest batch of the checkpoint does not have {name_some(strange)}. It has {name_some(held)}"
        )
    skips = []
    for document in documents:
        mine = [tp for tp in partitions if tp in document.positions]
        if partitions and not mine:
            continue
        state = offsets.cluster.describe([document.group], offsets.deadline)[document.group].state
        if state not in (GroupState.EMPTY, GroupState.DEAD):
            raise StillRunningError(
                f"cannot skip records of group {document.group!r}: it is {state}, so queries may still read. Drain all "
                f"of them first: streamgroup drain --group {document.group}"
            )
        skips += plan_skips(document, offsets.of(document), mine, to_offset, is_sunk=history.is_sunk)
    if not skips:
        raise ConfigError("nothing to skip: the group has committed the ends of these ranges already")
    _require_in_logs(skips, offsets.cluster, offsets.deadline, is_given=to_offset is not None)
    return skips


def _require_in_logs(skips: Sequence[Skip], store: GroupStore, deadline: float, *, is_given: bool) -> None:
    """Raise ConfigError for a given offset beyond the end of a log, or within a message of Kafka 0.7."""
    if not is_given:
        return
    for one in skips:
        tp, until = one.range.partition, one.range.until
        earliest, latest = (store.offsets_at({tp: at}, deadline).get(tp) for at in (EARLIEST, LATEST))
        name = store.log_format.name(tp)
        if latest is None or until > latest:
            ends = "it does not exist" if latest is None else f"its log ends at {latest}"
            raise ConfigError(f"cannot skip {name} to offset {until}: {ends}")
        if until not in (earliest, latest) and not store.starts_message(tp, until, deadline):
            raise ConfigError(f"cannot skip {name} to offset {until}: no message begins there")


class QueryOffsets:
    """Reads and sets the offsets at which queries continue: in the table of a database, or in the cluster."""

    def __init__(self, cluster: GroupStore, table: OffsetDatabase | None, deadline: float) -> None:
        self.cluster, self.deadline = cluster, deadline
        self._table = table

    def of(self, document: Document) -> Commits:
        """Return the offsets of the query of `document`. Raises ConfigError if they are not where the options say."""
        if self._table is not None:
            found = {tp: row.stored.committed for tp, row in self._table.rows(document.group).items()}
            if not found:
                raise ConfigError(
                    f"cannot skip records of group {document.group!r}: the offset table in {self._table.where} has no "
                    "offset of it. Name the database of the query's option offsets.store, or leave out --store"
                )
            return {tp: committed for tp, committed in found.items() if committed is not None}
        commits = self.cluster.committed(document.group, self.deadline)
        known = [CommitMetadata.parse(commit.metadata) for tp, commit in commits.items() if tp in document.positions]
        if any(one is not None and one.in_table and one.lineage == document.lineage for one in known):
            raise ConfigError(
                f"cannot skip records of group {document.group!r}: its query takes its offsets from a database "
                "(option offsets.store), and a commit to the group would have no effect. Name the database with --store"
            )
        return commits

    def set(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Make the queries of `group` continue at `offsets`."""
        if self._table is None:
            self.cluster.set_offsets(group, offsets, self.deadline)
        else:
            self._table.reset(group, offsets)


def _execute(history: CheckpointHistory, skips: Sequence[Skip], offsets: QueryOffsets) -> None:
    """Record the skip in the checkpoint, then commit. If the record lacks the state `done`, the commit may have failed.

    Raises NotSkippedError if the record cannot be written, and the error of the store.
    """
    audit = history.files.home / AUDIT
    _record(audit, history, skips, "begun")
    for group in sorted({one.group for one in skips}):
        offsets.set(group, {one.range.partition: one.range.until for one in skips if one.group == group})
    _record(audit, history, skips, "done")


def _record(audit: Path, history: CheckpointHistory, skips: Sequence[Skip], state: str) -> None:
    value = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "state": state,
        "user": getpass.getuser(),
        "batch": history.last,
        "skipped": json_rows(COLUMNS, skips),
    }
    try:
        with audit.open("a", encoding="utf-8") as file:
            file.write(json.dumps(value) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise NotSkippedError(
            f"cannot write {audit}, which records the skipped offsets: {error}. Fix its directory and run the command "
            "again" + (": the offsets are committed already" if state == "done" else "; nothing was skipped")
        ) from error


def _line(one: Skip, history: CheckpointHistory) -> str:
    """Return the log line of a skip, in the format of docs/log-events.md."""
    tp = one.range.partition
    return render(
        f"group {one.group}: skipped {tp} from {one.range.start} to {one.range.until}: these records are given up",
        "operator_skip",
        group=one.group,
        count=len(one.range),
        partition=str(tp),
        **{"from": one.range.start, "to": one.range.until},
        batch=history.last,
    )


Commits = Mapping[TopicPartition, CommittedOffset]


@frozen
class Skip:
    """The offsets of one partition that are given up. The group's next committed offset is the end of the range."""

    group: str
    range: OffsetRange


def plan_skips(
    document: Document,
    committed: Commits,
    partitions: Collection[TopicPartition],
    to_offset: int | None,
    *,
    is_sunk: bool,
) -> list[Skip]:
    """Return the offsets to give up in `partitions`, or in the whole batch if none is named.

    If the newest batch has not sunk, it is replayed (R13) less what the group has committed, so a commit at the end of
    its range skips it, and one within the range skips the first part. A member that starts later continues at the
    commit (R5). If the batch has sunk, only `to_offset` says how far to skip.

    Raises ConfigError for a partition that the batch does not have, an offset that skips nothing, and a commit that an
    operator has set back behind the batch: a skip would also pass over what was to be read again.
    """
    planned = {} if is_sunk else {range_.partition: range_ for range_ in document.ranges}
    chosen = sorted(partitions) if partitions else sorted(planned)
    known = document.positions if to_offset is not None else planned
    if strange := [tp for tp in chosen if tp not in known]:
        raise ConfigError(
            f"cannot skip {name_some(strange)}: the newest batch of the checkpoint "
            + ("does not have it" if to_offset is not None else "has no incomplete range of it")
            + f". It has {name_some(known) or 'none'}"
        )
    skips = []
    for tp in chosen:
        position = document.positions[tp].offset
        start = planned[tp].start if tp in planned else position
        until = planned[tp].until if to_offset is None else to_offset
        begin = _begin(document, tp, start, committed.get(tp), is_sunk=is_sunk)
        if until > begin:
            skips.append(Skip(document.group, OffsetRange(tp, begin, until)))
        elif to_offset is not None:
            raise ConfigError(
                f"cannot skip {tp} to offset {to_offset}: group {document.group!r} continues at {begin}, which is not "
                "before it. To read records again, reset the group: streamgroup groups --reset-offsets"
            )
    return skips


def _begin(document: Document, tp: TopicPartition, start: int, commit: CommittedOffset | None, *, is_sunk: bool) -> int:
    """Return the first offset of `tp` that the query would read next. Raises ConfigError; see `plan_skips`."""
    if commit is None or commit.offset == start:
        return start
    if commit.offset > start:
        return commit.offset
    metadata = CommitMetadata.parse(commit.metadata)
    if metadata is not None and metadata.lineage == document.lineage:
        return start  # the query has sunk up to there, and ended before its commit (R5a)
    batch = "the newest batch ends" if is_sunk else "the incomplete batch begins"
    raise ConfigError(
        f"cannot skip records of {tp}: group {document.group!r} is at {commit.offset}, and {batch} at {start}, "
        "because the group was reset or another member has read after it. Set the group to the offset that you want: "
        "streamgroup groups --reset-offsets --to-offset"
    )
