"""`streamgroup consume`: print the records of topics, with kcat's options."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc

from streamgroup.cli._click import CONNECTION, KcatCommand, flag, notice_options, option, parsed, timeout_option
from streamgroup.cli._cluster import ClusterAddress, cluster_options
from streamgroup.cli._kcat_options import (
    GROUP_ID,
    Bounds,
    ConsumeStart,
    StartKind,
    TopicArgument,
    group_start,
    parse_bounds,
    parse_consume_properties,
    parse_topics,
    partitions_of,
    source_options,
)
from streamgroup.cli._output import Notices, RecordPrinter, StopSignals, quiet_when_closed
from streamgroup.coordinator.batch_read import tasks_of
from streamgroup.coordinator.coordinator import Coordinator
from streamgroup.coordinator.planning.document import to_value
from streamgroup.coordinator.planning.packing import SMALL
from streamgroup.errors import ConfigError, DataLossError
from streamgroup.executor.read.fetcher import read
from streamgroup.frozen import frozen
from streamgroup.kafka.cluster.interface import Cluster, open_cluster
from streamgroup.kafka.cluster.requests import NO_OFFSET, ListedOffset
from streamgroup.model import (
    EARLIEST,
    INITIAL_DOCUMENT,
    LATEST,
    ClusterSnapshot,
    CommittedOffset,
    FetchTask,
    OffsetRange,
    TopicPartition,
    name_some,
)
from streamgroup.options.types import Isolation, LimitOptions, SourceOptions

_WHAT = "What to read"
_PRINT = "How to print"


@click.command(
    cls=KcatCommand,
    short_help="Print the records of topics, with kcat's options.",
    examples={
        "streamgroup consume -b localhost:9092 -t orders": "all records, then wait for more",
        "streamgroup consume -b localhost:9092 -t orders -o -10 -e -J": "the last 10 records of each partition",
        r"streamgroup consume -b localhost:9092 -t orders -e -f '%p %o %k %s\n'": "a format of your own",
        "streamgroup consume -b localhost:9092 -G my-group orders": "as a member of a group, which commits",
    },
)
@option(
    _WHAT,
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:PARTITION]",
    help="Topic, or one partition of it; repeatable. With -G topics may also follow all options.",
)
@click.argument("more_topics", metavar="[TOPIC]...", nargs=-1)
@option(
    _WHAT,
    "-p",
    "--partition",
    metavar="PARTITION",
    help="Partition of every topic that names none; `1-2` in Kafka 0.7.  [default: all]",
)
@option(
    _WHAT,
    "-o",
    "--offset",
    "offsets",
    multiple=True,
    metavar="OFFSET",
    help="Where to start: `beginning`, `end`, N (an offset), -N (N offsets before the end), s@MS (the first record of "
    "this time or later, in milliseconds since 1970), `stored` (where the group of -X group.id=GROUP has committed). "
    "Or where to stop: e@MS (before this time). With -G it is the start of partitions without a committed offset.  "
    "[default: beginning; with -G: end]",
)
@option(_WHAT, "-c", "--count", type=click.IntRange(1), metavar="N", help="Exit after N records.")
@flag(_WHAT, "-e", "--exit", "until_ends", help="Exit at the ends that the logs have when the command starts.")
@option(_WHAT, "-G", "--group", metavar="GROUP", help="Join this consumer group, and commit what is printed.")
@option(
    _PRINT,
    "-f",
    "--format",
    "template",
    metavar="FORMAT",
    help=r"Format of a record: %s value, %k key, %t topic, %p partition, %o offset, %T timestamp (ms), %h headers, "
    r"%S and %K lengths of value and key (-1: null), %R length of the value as 4 bytes, %%; \n, \t, \r, \0, \xNN. "
    r"-D and -K have no effect with it.",
)
@option(_PRINT, "-K", "--key-delimiter", metavar="TEXT", help="Print the key, then this text, then the value.")
@option(_PRINT, "-D", "--delimiter", default="\\n", metavar="TEXT", help="Text after each record.  [default: \\n]")
@flag(_PRINT, "-J", "--json", "as_json", help="Print each record as a JSON object.")
@flag(_PRINT, "-Z", "--show-null", help="Print null keys and values as NULL; with -J they are null anyway.")
@notice_options
@cluster_options
@option(
    CONNECTION,
    "-X",
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="Property of a Kafka consumer, such as fetch.max.bytes=1048576, or failOnDataLoss; repeatable.",
)
@timeout_option(60_000, "How long brokers may give no answer.")
def consume(
    *,
    where: ClusterAddress,
    topics: tuple[str, ...],
    more_topics: tuple[str, ...],
    partition: str | None,
    offsets: tuple[str, ...],
    count: int | None,
    until_ends: bool,
    template: str | None,
    key_delimiter: str | None,
    delimiter: str,
    as_json: bool,
    show_null: bool,
    group: str | None,
    properties: tuple[str, ...],
    notices: Notices,
    timeout: int,
) -> None:
    """Print the records of topics to standard output, and wait for more.

    The cluster may run any Kafka from 0.7 on. The options are kcat's.
    """
    from streamgroup.cli._record_format import record_format  # noqa: PLC0415  (loads Arrow, which no help text needs)

    if more_topics and group is None:
        raise click.UsageError(f"unexpected argument {more_topics[0]!r}: without -G a topic is given by -t")
    if not topics and not more_topics:
        raise click.UsageError("name a topic with -t")
    wanted = parsed("-t", lambda: parse_topics((*topics, *more_topics), partition))
    bounds = parsed("-o", lambda: parse_bounds(offsets))
    given = parsed("-X", lambda: parse_consume_properties(properties))
    printed = parsed(
        "-f, -K or -D",
        lambda: record_format(template, key_delimiter, delimiter, as_json=as_json, show_null=show_null),
    )
    stored = None if group is not None else _stored_group(bounds, given)
    if group is not None:
        if GROUP_ID in given or any(one.partition is not None for one in wanted):
            raise click.UsageError("with -G, group.id and partitions cannot be given: the group assigns the partitions")
        given |= {GROUP_ID: group, **parsed("-o", lambda: group_start(bounds))}
    names = dict.fromkeys(one.topic for one in wanted)
    options = source_options(where, names, given, timeout, include_headers=printed.needs_headers)
    stream = sys.stdout.buffer
    with notices.logging(), StopSignals() as signals, quiet_when_closed(stream):
        for note in options.notes:
            notices.say(note)
        printer = RecordPrinter(stream, printed, count)
        if group is not None:
            GroupReader(options, until_ends=until_ends, notices=notices).run(printer, signals)
            return

        with (
            signals.waiting(),
            opened_reading(
                options, wanted, bounds, stored_group=stored, until_ends=until_ends, notices=notices
            ) as reading,
        ):
            reading.run(printer, signals)


def _stored_group(bounds: Bounds, properties: dict[str, str]) -> str | None:
    """Remove the group of `-o stored` from `properties` and return it; None for another start. Raises UsageError."""
    group = properties.pop(GROUP_ID, None)
    is_stored = bounds.start is not None and bounds.start.kind is StartKind.STORED
    if is_stored and not group:
        raise click.UsageError(
            "-o stored needs the group that has committed: -X group.id=GROUP. To join it, give -G GROUP"
        )
    if group and not is_stored:
        raise click.UsageError("group.id needs -o stored. To join the group, give -G GROUP")
    return group


SHORTEST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 0.1
"""The wait before the log ends are listed again. It doubles from the shortest to the longest while no log grows."""

Listed = Mapping[TopicPartition, ListedOffset]


@frozen
class ReadPosition:
    """The offset from which a partition is read. Records before `first` are left out."""

    offset: int
    first: int = 0


class StartingPositions:
    """Finds the starting offsets.

    `committed` has the offsets of `stored`; a partition without one starts at its end.
    """

    def __init__(
        self,
        start: ConsumeStart,
        cluster: Cluster,
        snapshot: ClusterSnapshot,
        isolation: Isolation,
        *,
        committed: Mapping[TopicPartition, CommittedOffset],
        notices: Notices,
    ) -> None:
        self._start = start
        self._cluster = cluster
        self._log_format = snapshot.log_format
        self._isolation = isolation
        self._committed = committed
        self._notices = notices

    def find(self, partitions: Collection[TopicPartition], deadline: float) -> dict[TopicPartition, ReadPosition]:
        """Return the starting positions of `partitions`.

        An offset that a log does not hold becomes the nearest one that it does. Where only some offsets can be read
        from (Kafka 0.7), a partition is read from the start of the segment that holds the offset.
        """
        listing, any_record = self._cluster.list_offsets, Isolation.READ_UNCOMMITTED
        earliest = listing(dict.fromkeys(partitions, EARLIEST), any_record, deadline)
        ends = listing(dict.fromkeys(partitions, LATEST), self._isolation, deadline)
        if self._start.kind is StartKind.TIMESTAMP:
            starts = self._timed(listing(dict.fromkeys(partitions, self._start.value), self._isolation, deadline), ends)
        else:
            starts = {tp: self._offset(tp, earliest[tp].offset, ends[tp].offset) for tp in partitions}
        high = listing(dict.fromkeys(partitions, LATEST), any_record, deadline)
        return {tp: self._within(tp, starts[tp], earliest[tp], high[tp].offset) for tp in partitions}

    def _offset(self, tp: TopicPartition, begin: int, end: int) -> int:
        match self._start:
            case ConsumeStart(StartKind.END):
                return end
            case ConsumeStart(StartKind.OFFSET, offset):
                return offset
            case ConsumeStart(StartKind.LAST, count):
                return max(begin, end - count)
            case ConsumeStart(StartKind.STORED):
                return self._committed[tp].offset if tp in self._committed else end
        return begin

    def _timed(self, listed: Listed, ends: Listed) -> dict[TopicPartition, int]:
        for tp, found in sorted(listed.items()):
            if found.coarse:
                self._notices.say(
                    f"{self._log_format.name(tp)}: the broker looks up timestamps by segment only. Starting at offset "
                    f"{found.offset}, where a segment starts"
                )
        return {
            tp: found.offset if found.offset != NO_OFFSET else ends[tp].offset for tp, found in sorted(listed.items())
        }

    def _within(self, tp: TopicPartition, offset: int, earliest: ListedOffset, high: int) -> ReadPosition:
        begin = min(earliest.offset, high)
        held = min(max(offset, begin), high)
        if held != offset:
            self._notices.say(
                f"{self._log_format.name(tp)}: offset {offset} is out of range, the log holds [{begin}, {high}). "
                f"Starting at offset {held}"
            )
        is_chosen = self._start.kind in {StartKind.OFFSET, StartKind.LAST}
        if self._log_format.has_boundaries and is_chosen and begin < held < high:
            return ReadPosition(max((segment for segment in earliest.segments if segment <= held), default=begin), held)
        return ReadPosition(held)


@contextmanager
def opened_reading(
    options: SourceOptions,
    wanted: Collection[TopicArgument],
    bounds: Bounds,
    *,
    stored_group: str | None,
    until_ends: bool,
    notices: Notices,
) -> Iterator[LogReader]:
    """Find the partitions and their starts. `stored_group` is the group of `-o stored`.

    Raises NoSuchPartition, ConfigError, TransportError.
    """
    with closing(open_cluster(options.client)) as cluster:
        deadline = cluster.deadline()
        snapshot = cluster.snapshot({one.topic for one in wanted}, deadline)
        start = StartingPositions(
            bounds.start or ConsumeStart(StartKind.BEGINNING),
            cluster,
            snapshot,
            options.fetch.isolation,
            committed={} if stored_group is None else _committed(options, stored_group, deadline),
            notices=notices,
        )
        positions = start.find(partitions_of(wanted, snapshot), deadline)
        yield LogReader(options, cluster, positions, stop=bounds.stop, until_ends=until_ends, notices=notices)


def _committed(options: SourceOptions, group: str, deadline: float) -> dict[TopicPartition, CommittedOffset]:
    from streamgroup.cli._group_stores import opened_store  # noqa: PLC0415  (only `stored` needs it)

    with opened_store(options.client) as store:
        return store.committed(group, deadline)


class LogReader:
    """Reads from `positions` in rounds: each lists the log ends and fetches up to them.

    `stop` is a timestamp (ms): a partition is done before its first record of this time or later. With `until_ends` a
    partition is done at the end that its log had in the first round.
    """

    def __init__(
        self,
        options: SourceOptions,
        cluster: Cluster,
        positions: Mapping[TopicPartition, ReadPosition],
        *,
        stop: int | None,
        until_ends: bool,
        notices: Notices,
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._positions = {tp: position.offset for tp, position in positions.items()}
        self._first = {tp: position.first for tp, position in positions.items() if position.first > position.offset}
        self._stop = stop
        self._stops: dict[TopicPartition, int] = {}
        """The offsets at which partitions stop, once a record has the stop timestamp."""
        self._until_ends = until_ends
        self._targets: dict[TopicPartition, int] = {}
        """The ends of the first round, with `until_ends`."""
        self._notices = notices
        self._left = set(self._positions)
        """The partitions that are not done."""
        self._seen_ends: dict[TopicPartition, int] = {}
        self._shorter_since: dict[TopicPartition, float] = {}
        self._noted_ends: dict[TopicPartition, int] = {}
        self._log_format = self._snapshot().log_format

    def run(self, printer: RecordPrinter, signals: StopSignals) -> None:
        """Print records until all partitions are done, the printer is done, or a signal ends it (SystemExit)."""
        with signals.waiting():
            for batch in self.batches():
                with signals.completing():
                    printer.print(batch, self._log_format)
                if printer.is_done:
                    return

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the records, in order within each partition. Waits for more at the ends of the logs.

        Raises DataLossError, DecodeError, TransportError after `default_api_timeout_ms` without an answer.
        """
        pause = SHORTEST_PAUSE_S
        while self._left:
            ends = self._ends()
            ranges = [
                OffsetRange(tp, self._positions[tp], ends[tp]) for tp in sorted(ends) if ends[tp] > self._positions[tp]
            ]
            snapshot = self._snapshot()
            # One process reads the tasks one after the other, so packing costs nothing.
            for task in tasks_of(ranges, snapshot, self._options, packed_offsets=SMALL[snapshot.log_format]):
                yield from self._read(task)
            self._note_ends(ends)
            if ranges:
                pause = SHORTEST_PAUSE_S
            elif self._left:
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)

    def _snapshot(self) -> ClusterSnapshot:
        return self._cluster.snapshot({tp.topic for tp in self._positions}, self._cluster.deadline())

    def _read(self, task: FetchTask) -> Iterator[pa.RecordBatch]:
        options = self._options
        for batch in read(task, options.client, options.fetch, fail_on_data_loss=options.fail_on_data_loss):
            tp = TopicPartition(batch["topic"][0].as_py(), batch["partition"][0].as_py())
            if tp in self._first:
                kept = batch.filter(pc.greater_equal(batch["offset"], self._first[tp]))
                if kept.num_rows:
                    yield kept
            else:
                yield batch
        for planned in task.ranges:
            tp = planned.range.partition
            self._positions[tp] = planned.range.until
            if self._first.get(tp, 0) <= planned.range.until:
                self._first.pop(tp, None)

    # -- where the partitions that are left end -----------------------------------------------------------------------

    def _ends(self) -> dict[TopicPartition, int]:
        """Return the offsets up to which the remaining partitions can be read now."""
        deadline, isolation = self._cluster.deadline(), self._options.fetch.isolation
        # The ends are listed before the timestamps, so no record with the stop timestamp is below these ends.
        listed = self._cluster.list_offsets(dict.fromkeys(self._left, LATEST), isolation, deadline)
        ends = {tp: found.offset for tp, found in listed.items()}
        self._require_growth(ends)
        self._find_stops(deadline)
        if self._until_ends:
            for tp, end in ends.items():
                self._targets.setdefault(tp, end)
            ends = {tp: min(end, self._targets[tp]) for tp, end in ends.items()}
        return {tp: min(end, self._stops.get(tp, end)) for tp, end in ends.items()}

    def _find_stops(self, deadline: float) -> None:
        """Look up the stop timestamp in partitions that had no such record so far. Raises ConfigError before 0.10.1."""
        wanted = self._left - self._stops.keys()
        if self._stop is None or not wanted:
            return
        found = self._cluster.list_offsets(dict.fromkeys(wanted, self._stop), self._options.fetch.isolation, deadline)
        if coarse := sorted(tp for tp, listed in found.items() if listed.coarse):
            raise ConfigError(
                f"cannot stop at a timestamp in {name_some(coarse, self._log_format.name)}: brokers before 0.10.1 "
                "look up timestamps by segment only. Leave e@ out"
            )
        self._stops.update((tp, listed.offset) for tp, listed in found.items() if listed.offset != NO_OFFSET)

    def _require_growth(self, ends: Mapping[TopicPartition, int]) -> None:
        """Raise DataLossError for a log whose end is below the position for longer than brokers may lag."""
        now = time.monotonic()
        for tp, end in ends.items():
            position = self._positions[tp]
            if end >= position or self._seen_ends.get(tp, 0) < position:
                self._shorter_since.pop(tp, None)
                self._seen_ends[tp] = max(end, self._seen_ends.get(tp, 0))
                continue
            waited = now - self._shorter_since.setdefault(tp, now)
            if waited >= self._options.client.default_api_timeout_ms / 1000:
                raise DataLossError(
                    f"cannot continue reading {self._log_format.name(tp)} at offset {position}: for {waited:.0f} s its "
                    f"log has ended at offset {end}. The topic was created again, or the log was truncated. Start "
                    "again with -o"
                )

    def _note_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        """Mark finished partitions as done, and print a notice for each that has reached its end."""
        for tp, end in sorted(ends.items()):
            position = self._positions[tp]
            is_stopped = position >= self._stops.get(tp, position + 1)
            is_done = is_stopped or (self._until_ends and position >= self._targets[tp])
            if is_done:
                self._left.discard(tp)
            if is_done or (position == end and self._noted_ends.get(tp) != position):
                self._noted_ends[tp] = position
                self._say_end(tp, position, is_stopped=is_stopped)

    def _say_end(self, tp: TopicPartition, position: int, *, is_stopped: bool) -> None:
        reached = "stop timestamp for" if is_stopped else "end of"
        name = self._log_format.partition_name(tp.partition)
        ending = "" if self._left else ": exiting"
        self._notices.say(f"Reached {reached} topic {tp.topic} [{name}] at offset {position}{ending}")


PAUSE_S = 0.05
"""The wait before the next request if the last one found no records."""
FIRST_BATCH = 1_000
"""Offsets of the first batch."""
LARGEST_BATCH = 1_000_000
SHORT_BATCH_S = 0.1
LONG_BATCH_S = 0.5
"""The longest time of a batch.

A rebalance and a signal wait for the batch in flight, so the batch after a slower one is smaller.
"""


class GroupReader:
    """Reads the partitions that the group assigns to this member, and commits what is printed.

    With `until_ends` it ends when the member has read its partitions up to their ends at the start.
    """

    def __init__(self, options: SourceOptions, *, until_ends: bool, notices: Notices) -> None:
        assert options.group is not None, "options of a batch read"
        self._options = options
        self._group = options.group
        self._until_ends = until_ends
        self._notices = notices
        self._coordinator = Coordinator(options)
        self._coordinator.listen(lambda: True)  # `sunk` reports each batch
        self._batch = FIRST_BATCH
        self._held: tuple[int, frozenset[str]] = (-1, frozenset())
        """The generation and the partitions of the last notice."""

    def run(self, printer: RecordPrinter, signals: StopSignals) -> None:
        """Print and commit batches until the printer is done, the ends are reached, or a signal comes (SystemExit).

        The member then leaves the group. A partly printed batch is not committed.
        """
        try:
            self._run(printer, signals)
        finally:
            with signals.ending():
                self._coordinator.stop(last_word=False)

    def _run(self, printer: RecordPrinter, signals: StopSignals) -> None:
        coordinator = self._coordinator
        start: dict[str, Any] = to_value(INITIAL_DOCUMENT)
        self._notices.say(f"Waiting for group {self._group.group_id} to rebalance")
        if self._until_ends:
            with signals.waiting(coordinator.interrupt):
                coordinator.prepare_available_now()
        while not printer.is_done:
            with signals.waiting(coordinator.interrupt):
                end = coordinator.latest_offset(start, limits=self._limits(printer))
                tasks = [] if end == start else coordinator.partitions(start, end)
            self._say_held()
            if end == start:
                if self._until_ends:
                    self._say_ends()
                    return
                with signals.waiting():
                    time.sleep(PAUSE_S)
                continue
            if not self._print(tasks, printer):
                return
            coordinator.sunk(end, None, {})
            start = end

    def _limits(self, printer: RecordPrinter) -> LimitOptions:
        """Return the limits of the next batch: at most the records that are still to be printed."""
        if printer.left is None:
            return LimitOptions(max_offsets_per_trigger=self._batch)
        return LimitOptions(max_offsets_per_trigger=min(self._batch, printer.left), is_strict=True)

    def _print(self, tasks: list[FetchTask], printer: RecordPrinter) -> bool:
        """Print a batch, and return whether all of its records were printed."""
        options, location = self._options, self._group.offset_location
        began = time.monotonic()
        for task in tasks:
            log_format = task.dialect.log_format
            batches = read(
                task,
                options.client,
                options.fetch,
                fail_on_data_loss=options.fail_on_data_loss,
                group=location.group,
                stored_in=location.stored_in,
            )
            for batch in batches:
                if not printer.print(batch, log_format):
                    return False
        took = time.monotonic() - began
        if took < SHORT_BATCH_S:
            self._batch = min(2 * self._batch, LARGEST_BATCH)
        elif took > LONG_BATCH_S:
            self._batch = max(self._batch // 2, 1)
        return True

    def _say_held(self) -> None:
        """Print the partitions that the member holds if they have changed."""
        status = self._coordinator.status()
        held = status["generation"], frozenset(status["positions"])
        if held != self._held and held[0] >= 0:
            names = ", ".join(sorted(held[1])) or "no partitions"
            group, member = self._group.group_id, status["member"]
            self._notices.say(f"Group {group} rebalanced (member {member}): assigned: {names}")
            self._held = held

    def _say_ends(self) -> None:
        for name, offset in self._coordinator.status()["positions"].items():
            self._notices.say(f"Reached end of {name} at offset {offset}")
