"""`streamgroup consume` on logs in memory: what is printed, notices, exit codes."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from streamgroup.cli import _group_stores
from streamgroup.cli import consume as module
from streamgroup.cli._cluster import ClusterAddress
from streamgroup.cli._kcat_options import Bounds, ConsumeStart, StartKind, TopicArgument, source_options
from streamgroup.cli._output import Notices, RecordPrinter, StopSignals
from streamgroup.cli._record_format import FormatToken, TextFormat
from streamgroup.cli.consume import GroupReader, LogReader, ReadPosition, StartingPositions, opened_reading
from streamgroup.cli.main import main
from streamgroup.errors import ConfigError, DataLossError, TransportError
from streamgroup.kafka.cluster.requests import NO_OFFSET, ListedOffset
from streamgroup.kafka.records import columns
from streamgroup.model import CommittedOffset, Dialect, FetchRange, FetchTask, OffsetRange, TopicPartition
from streamgroup.options.types import Isolation, LimitOptions, SourceOptions
from tests.clock import Clock
from tests.fakes.cluster import FakeCluster
from tests.unit.cli.shown import orders, orders_cluster

STEP = 10
"""In Kafka 0.7 the fake's messages take as many bytes."""


def rows(task: FetchTask, dialect: Dialect) -> Iterator[pa.RecordBatch]:
    step = STEP if dialect is Dialect.KAFKA07 else 1
    for planned in task.ranges:
        tp, start, until = planned.range.partition, planned.range.start, planned.range.until
        offsets = list(range(start, until, step))
        count = len(offsets)
        arrays: list[Any] = [
            pa.nulls(count, pa.binary()),
            pa.array([b"%d" % offset for offset in offsets], pa.binary()),
            pa.array([tp.topic] * count, pa.string()),
            pa.array([tp.partition] * count, pa.int32()),
            pa.array(offsets, pa.int64()),
            pa.array([0] * count, pa.int64()).cast(columns.TIMESTAMP),
            pa.array([0] * count, pa.int32()),
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=columns.SCHEMA)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """`orders`: each log holds [10, 100); the fourth partition has no leader."""
    return installed(monkeypatch, orders_cluster())


def installed(monkeypatch: pytest.MonkeyPatch, fake: FakeCluster) -> FakeCluster:
    monkeypatch.setattr(module, "open_cluster", lambda _: fake)
    monkeypatch.setattr(module, "read", lambda task, *_, **__: rows(task, fake.logs.dialect))
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.01)
    return fake


def consume(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["consume", "-b", "b:1", *arguments])


def test_a_partition_is_printed_to_its_end(cluster: FakeCluster) -> None:
    result = consume("-t", "orders:0", "-e")
    assert (result.exit_code, result.stdout) == (0, "".join(f"{n}\n" for n in range(10, 100)))
    assert result.stderr == "% Reached end of topic orders [0] at offset 100: exiting\n"
    assert cluster.logs.closed == 1


def test_a_count_ends_the_command_in_the_middle_of_a_batch(cluster: FakeCluster) -> None:
    result = consume("-t", "orders:0", "-t", "orders:1", "-c", "3", "-f", "%t:%p:%o %k %s;", "-Z")
    assert (result.exit_code, result.stdout) == (0, "orders:0:10 NULL 10;orders:0:11 NULL 11;orders:0:12 NULL 12;")


@pytest.mark.parametrize(
    ("offset", "first", "notice"),
    [
        ("-3", 97, ""),
        ("5", 10, "% orders-0: offset 5 is out of range, the log holds [10, 100). Starting at offset 10\n"),
    ],
)
def test_reading_starts_where_o_says(cluster: FakeCluster, offset: str, first: int, notice: str) -> None:
    result = consume("-t", "orders:0", "-o", offset, "-e")
    assert result.stdout.split()[:1] == [str(first)]
    assert result.stderr == notice + "% Reached end of topic orders [0] at offset 100: exiting\n"


def test_an_offset_of_kafka_07_needs_no_boundary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading starts with the segment, and prints from the first message at or behind the offset."""
    fake = installed(monkeypatch, orders_cluster(Dialect.KAFKA07))
    fake.logs.segments = {TopicPartition("orders", 10001): (10, 40)}
    result = consume("-t", "orders:1-1", "-o", "57", "-e", "-f", "%p:%o ")
    assert (result.exit_code, result.stdout) == (0, "1-1:60 1-1:70 1-1:80 1-1:90 ")
    assert consume("-t", "orders:1-1", "-o", "-15", "-e", "-f", "%o ").stdout == "90 "


def test_a_topic_that_does_not_exist_or_brokers_that_do_not_answer_are_an_error(cluster: FakeCluster) -> None:
    result = consume("-t", "no", "-e")
    look = "To see the topics of the cluster and their partitions, run: streamgroup topics --describe"
    assert (result.exit_code, result.stderr) == (1, f"Error: topic 'no' does not exist. {look}\n")
    assert cluster.logs.closed == 1
    cluster.logs.failures.append(TransportError("no broker answers"))
    result = consume("-t", "orders", "-e")
    assert (result.exit_code, result.stderr) == (1, "Error: no broker answers\n")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("-o", "begin"), "Invalid value for -o"),
        (("-f", "%z"), "unknown token '%z'"),
        (("-K", r"\x"), "hexadecimal"),
        (("-X", "a"), "expected NAME=VALUE"),
        (("-X", "fetch.min.byte=1"), "Did you mean 'fetch.min.bytes'?"),
        (("-c", "0"), "Invalid value for '-c'"),
        (("-o", "stored"), "-o stored needs the group"),
        (("-X", "group.id=g"), "group.id needs -o stored"),
        (("orders",), "unexpected argument 'orders': without -G a topic is given by -t"),
        (("-G", "g", "-p", "1"), "the group assigns the partitions"),
        (("-G", "g", "-o", "5"), "cannot start a group at an offset"),
    ],
)
def test_wrong_usage_has_exit_code_1(cluster: FakeCluster, arguments: tuple[str, ...], reason: str) -> None:
    result = consume("-t", "orders", *arguments)
    assert result.exit_code == 1, "as in kcat"
    assert reason in " ".join(result.stderr.split())


def test_a_topic_is_required(cluster: FakeCluster) -> None:
    result = consume("-G", "g")
    assert (result.exit_code, "name a topic with -t" in result.stderr) == (1, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_without_an_error(cluster: FakeCluster, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    cluster.logs.hook = lambda: os.kill(os.getpid(), number) if len(cluster.logs.listings) > 6 else None
    result = consume("-t", "orders:0", "-o", "95")
    assert (result.exit_code, result.stdout) == (0, "95\n96\n97\n98\n99\n")
    assert signal.getsignal(number) is before


ZERO, ONE = orders(0), orders(1)
OLD = orders(10001)
NOON = 1_800_000_000_000


class TimedCluster(FakeCluster):
    """`orders` with logs of [10, 100), and the offsets at NOON: NO_OFFSET where the log has no record so late."""

    def __init__(self, dialect: Dialect = Dialect.KAFKA) -> None:
        super().__init__(orders_cluster(dialect).logs)
        self.at_noon: dict[TopicPartition, ListedOffset] = {}

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation, deadline: float
    ) -> dict[TopicPartition, ListedOffset]:
        found = super().list_offsets(wanted, isolation, deadline)
        timed = {tp: self.at_noon.get(tp, ListedOffset(NO_OFFSET)) for tp, at in wanted.items() if at == NOON}
        return {**found, **timed}


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> TimedCluster:
    fake = TimedCluster()
    installed(monkeypatch, fake)
    return fake


def options(timeout_ms: int = 1_000, **properties: str) -> SourceOptions:
    given = {f"kafka.{name.replace('_', '.')}": value for name, value in properties.items()}
    return source_options(ClusterAddress("b:1"), ["orders"], given, timeout_ms, include_headers=False)


# -- where partitions start --------------------------------------------------------------------------------------------


def starts(
    timed: FakeCluster,
    start: ConsumeStart,
    *partitions: TopicPartition,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    committed: Mapping[TopicPartition, CommittedOffset] | None = None,
) -> list[ReadPosition]:
    snapshot = timed.snapshot(["orders"], 0.0)
    found = StartingPositions(start, timed, snapshot, isolation, committed=committed or {}, notices=Notices(1))
    positions = found.find(partitions, 0.0)
    assert set(positions) == set(partitions)
    return [positions[tp] for tp in partitions]


OUT_OF_RANGE = "% orders-0: offset {} is out of range, the log holds [10, 100). Starting at offset {}\n"


@pytest.mark.parametrize(
    ("start", "offset", "notice"),
    [
        (ConsumeStart(StartKind.BEGINNING), 10, ""),
        (ConsumeStart(StartKind.END), 100, ""),
        (ConsumeStart(StartKind.OFFSET, 10), 10, ""),
        (ConsumeStart(StartKind.OFFSET, 57), 57, ""),
        (ConsumeStart(StartKind.OFFSET, 100), 100, ""),
        (ConsumeStart(StartKind.LAST, 0), 100, ""),
        (ConsumeStart(StartKind.LAST, 90), 10, ""),
        (ConsumeStart(StartKind.LAST, 91), 10, ""),
        (ConsumeStart(StartKind.TIMESTAMP, NOON), 42, ""),
        (ConsumeStart(StartKind.OFFSET, 9), 10, OUT_OF_RANGE.format(9, 10)),
        (ConsumeStart(StartKind.OFFSET, 0), 10, OUT_OF_RANGE.format(0, 10)),
        (ConsumeStart(StartKind.OFFSET, 101), 100, OUT_OF_RANGE.format(101, 100)),
    ],
)
def test_a_start_that_the_log_holds_is_taken_and_the_nearest_one_with_a_notice(
    timed: TimedCluster, start: ConsumeStart, offset: int, notice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    timed.at_noon[ZERO] = ListedOffset(42, NOON)
    assert starts(timed, start, ZERO) == [ReadPosition(offset)]
    assert capsys.readouterr().err == notice


def test_without_a_commit_or_a_record_so_late_the_end_is_the_start(timed: TimedCluster) -> None:
    committed = {ZERO: CommittedOffset(60)}
    found = starts(timed, ConsumeStart(StartKind.STORED), ZERO, ONE, committed=committed)
    assert found == [ReadPosition(60), ReadPosition(100)]
    assert starts(timed, ConsumeStart(StartKind.TIMESTAMP, NOON), ZERO) == [ReadPosition(100)]


def test_the_end_under_read_committed_is_the_last_stable_offset(timed: TimedCluster) -> None:
    timed.logs.stable[ZERO] = 80
    for start, offset in (
        (ConsumeStart(StartKind.END), 80),
        (ConsumeStart(StartKind.LAST, 5), 75),
        (ConsumeStart(StartKind.OFFSET, 90), 90),
    ):
        assert starts(timed, start, ZERO, isolation=Isolation.READ_COMMITTED) == [ReadPosition(offset)]


@pytest.mark.parametrize(
    ("start", "position"),
    [
        (ConsumeStart(StartKind.OFFSET, 57), ReadPosition(40, 57)),
        (ConsumeStart(StartKind.OFFSET, 40), ReadPosition(40, 40)),
        (ConsumeStart(StartKind.OFFSET, 39), ReadPosition(10, 39)),
        (ConsumeStart(StartKind.LAST, 15), ReadPosition(40, 85)),
        (ConsumeStart(StartKind.OFFSET, 10), ReadPosition(10)),
        (ConsumeStart(StartKind.OFFSET, 100), ReadPosition(100)),
        (ConsumeStart(StartKind.BEGINNING), ReadPosition(10)),
        (ConsumeStart(StartKind.STORED), ReadPosition(57)),  # commits and times are starts of messages
        (ConsumeStart(StartKind.TIMESTAMP, NOON), ReadPosition(57)),
    ],
)
def test_a_position_of_kafka_07_is_read_from_the_start_of_its_segment(
    start: ConsumeStart, position: ReadPosition
) -> None:
    cluster = TimedCluster(Dialect.KAFKA07)
    cluster.logs.segments[OLD] = (10, 40)
    cluster.at_noon[OLD] = ListedOffset(57)
    assert starts(cluster, start, OLD, committed={OLD: CommittedOffset(57)}) == [position]


# -- what is read ------------------------------------------------------------------------------------------------------


def reading(
    cluster: FakeCluster,
    start: int | Mapping[TopicPartition, ReadPosition],
    *,
    given: SourceOptions | None = None,
    stop: int | None = None,
    until_ends: bool = True,
) -> Iterator[pa.RecordBatch]:
    """The batches of a reading from these positions, or of partition 0 from an offset on."""
    positions = {ZERO: ReadPosition(start)} if isinstance(start, int) else start
    made = LogReader(given or options(), cluster, positions, stop=stop, until_ends=until_ends, notices=Notices(1))
    return made.batches()


def offsets(batches: Iterable[pa.RecordBatch], tp: TopicPartition = ZERO) -> list[int]:
    rows = [row for batch in batches for row in batch.select(["partition", "offset"]).to_pylist()]
    return [row["offset"] for row in rows if row["partition"] == tp.partition]


def test_each_partition_is_read_up_to_its_end_and_the_last_notice_says_that_it_is_the_last(
    timed: TimedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    timed.logs.ends[ONE] = 12
    batches = list(reading(timed, {ZERO: ReadPosition(98), ONE: ReadPosition(10)}))
    assert (offsets(batches), offsets(batches, ONE)) == ([98, 99], [10, 11])
    assert capsys.readouterr().err == (
        "% Reached end of topic orders [0] at offset 100\n% Reached end of topic orders [1] at offset 12: exiting\n"
    )


def test_without_partitions_and_at_the_end_nothing_is_read(timed: TimedCluster) -> None:
    assert list(reading(timed, {}, until_ends=False)) == []
    assert list(reading(timed, 100)) == []


def test_records_that_come_while_the_log_is_read_are_not_read_where_the_first_end_counts(
    timed: TimedCluster,
) -> None:
    def grow() -> None:
        timed.logs.ends[ZERO] += 1

    made = reading(timed, 98)
    timed.logs.hook = grow
    assert offsets(made) == [98, 99, 100]


def test_otherwise_the_log_is_read_on_as_it_grows_and_its_end_is_said_once(
    timed: TimedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = iter([99, 99, 100, 100, 102])

    def grow() -> None:
        timed.logs.ends[ZERO] = next(rounds, 102)

    timed.logs.hook = grow
    made = reading(timed, 98, until_ends=False)
    assert [offsets([next(made)]) for _ in range(3)] == [[98], [99], [100, 101]]
    assert capsys.readouterr().err == (
        "% Reached end of topic orders [0] at offset 99\n% Reached end of topic orders [0] at offset 100\n"
    )


def test_records_of_the_segment_before_the_first_wanted_one_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = TimedCluster(Dialect.KAFKA07)
    installed(monkeypatch, cluster)
    assert offsets(reading(cluster, {OLD: ReadPosition(40, 57)}), OLD) == [60, 70, 80, 90]
    assert offsets(reading(cluster, {OLD: ReadPosition(40, 40)}), OLD) == [40, 50, 60, 70, 80, 90]


def test_a_partition_stops_before_the_first_record_of_the_stop_timestamp(
    timed: TimedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    timed.at_noon[ZERO] = ListedOffset(12, NOON)
    assert offsets(reading(timed, 10, stop=NOON, until_ends=False)) == [10, 11]
    assert capsys.readouterr().err == "% Reached stop timestamp for topic orders [0] at offset 12: exiting\n"
    assert list(reading(timed, 50, stop=NOON, until_ends=False)) == [], "the start is behind it"


def test_a_stop_timestamp_is_looked_for_until_a_record_has_it(timed: TimedCluster) -> None:
    def grow() -> None:
        timed.logs.ends[ZERO] += 1
        if timed.logs.ends[ZERO] == 106:
            timed.at_noon[ZERO] = ListedOffset(104, NOON)

    made = reading(timed, 99, stop=NOON, until_ends=False)
    timed.logs.hook = grow
    assert offsets(made) == list(range(99, 104))


def test_where_the_broker_knows_the_times_of_segments_only_a_start_is_remarked_and_a_stop_refused(
    timed: TimedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    timed.at_noon = {ONE: ListedOffset(40, coarse=True), ZERO: ListedOffset(40, coarse=True)}
    assert starts(timed, ConsumeStart(StartKind.TIMESTAMP, NOON), ZERO) == [ReadPosition(40)]
    said = capsys.readouterr().err
    assert "orders-0: the broker looks up timestamps by segment only. Starting at offset 40" in said
    made = reading(timed, {ZERO: ReadPosition(10), ONE: ReadPosition(10)}, stop=NOON)
    with pytest.raises(ConfigError, match=r"cannot stop at a timestamp in orders-0, orders-1: .* Leave e@ out"):
        list(made)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time of a reading, which passes only while it sleeps."""
    clock = Clock(0.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock, sleep=clock.sleep))
    return clock


def test_a_log_that_stays_shorter_than_what_was_read_is_an_error_with_the_offsets(
    timed: TimedCluster, clock: Clock
) -> None:
    made = reading(timed, 98, given=options(timeout_ms=2_000), until_ends=False)
    assert offsets([next(made)]) == [98, 99]
    timed.logs.ends[ZERO] = 20
    with pytest.raises(DataLossError) as lost:
        next(made)
    assert "cannot continue reading orders-0 at offset 100: for 2 s its log has ended at offset 20" in str(lost.value)
    assert "Start again with -o" in str(lost.value)
    assert clock.now == pytest.approx(2, abs=0.1)


def test_brokers_that_lag_behind_for_less_than_the_timeout_each_time_are_waited_for(
    timed: TimedCluster, clock: Clock
) -> None:
    def lag() -> None:
        timed.logs.ends[ZERO] = 20 if clock.now % 1 < 0.9 else 100 if clock.now < 5 else 101

    made = reading(timed, 98, until_ends=False)
    assert offsets([next(made)]) == [98, 99]
    timed.logs.hook = lag
    assert offsets([next(made)]) == [100]
    assert clock.now > 5


def test_a_position_within_an_open_transaction_is_no_loss(timed: TimedCluster, clock: Clock) -> None:
    def commit() -> None:
        timed.logs.stable[ZERO] = 90 if clock.now < 3 else 97

    timed.logs.hook = commit
    given = options(isolation_level="read_committed")
    made = reading(timed, 95, given=given, until_ends=False)
    assert offsets([next(made)]) == [95, 96]


# -- the cluster of a reading ------------------------------------------------------------------------------------------


def test_the_commits_are_those_of_the_group_that_the_user_names(
    timed: TimedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Store:
        def committed(self, group: str, deadline: float) -> dict[TopicPartition, CommittedOffset]:
            return {"g": {ZERO: CommittedOffset(97)}}[group]

    monkeypatch.setattr(_group_stores, "opened_store", lambda _: nullcontext(Store()))
    bounds, wanted = Bounds(ConsumeStart(StartKind.STORED)), [TopicArgument("orders", "0")]
    with opened_reading(options(), wanted, bounds, stored_group="g", until_ends=True, notices=Notices(0)) as made:
        assert not timed.logs.closed
        assert offsets(made.batches()) == [97, 98, 99]


TP = TopicPartition("orders", 0)


class ScriptedCoordinator:
    """Plans batches of `size` records up to `end`, no larger than the limit."""

    def __init__(self, size: int, end: int) -> None:
        self.size, self.end = size, end
        self.position = 0
        self.calls: list[str] = []
        self.limits: list[LimitOptions] = []

    def listen(self, is_announced: Callable[[], bool]) -> None:
        assert is_announced()

    def interrupt(self) -> None:
        sys.exit(0)

    def prepare_available_now(self) -> None:
        self.calls.append("prepare")

    def latest_offset(self, start: Mapping[str, Any], *, limits: LimitOptions) -> dict[str, Any]:
        self.limits.append(limits)
        until = min(self.end, self.position + min(self.size, limits.max_offsets_per_trigger or self.size))
        return dict(start) if until == self.position else {"until": until}

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[FetchTask]:
        self.calls.append(f"partitions {end['until']}")
        return [FetchTask((FetchRange(OffsetRange(TP, self.position, end["until"]), None),))]

    def sunk(self, document: Mapping[str, Any], batch: int | None, query: Mapping[str, Any]) -> dict[str, Any]:
        self.position = document["until"]
        self.calls.append(f"sunk {self.position}")
        return {}

    def status(self) -> dict[str, Any]:
        return {"generation": 1, "member": "m", "positions": {"orders-0": self.position}}

    def stop(self, *, last_word: bool) -> None:
        self.calls.append("stop")


MakeReader = Callable[..., tuple[GroupReader, ScriptedCoordinator]]


@pytest.fixture
def group_reading(monkeypatch: pytest.MonkeyPatch) -> MakeReader:
    monkeypatch.setattr(module, "read", lambda task, *_, **__: rows(task, Dialect.KAFKA))
    where = ClusterAddress(bootstrap_server="b:1")
    given = source_options(where, ["orders"], {"kafka.group.id": "g"}, 1_000, include_headers=False)

    def make(*, until_ends: bool = False) -> tuple[GroupReader, ScriptedCoordinator]:
        coordinator = ScriptedCoordinator(size=2, end=5)
        monkeypatch.setattr(module, "Coordinator", lambda _: coordinator)
        return GroupReader(given, until_ends=until_ends, notices=Notices(1)), coordinator

    return make


def printer(stream: io.BytesIO, count: int | None = None) -> RecordPrinter:
    return RecordPrinter(stream, TextFormat((FormatToken.VALUE, b" ")), count)


def test_each_batch_is_reported_when_it_is_printed_and_the_member_leaves_at_the_end(
    group_reading: MakeReader, capsys: pytest.CaptureFixture[str]
) -> None:
    made, coordinator = group_reading(until_ends=True)
    stream = io.BytesIO()
    made.run(printer(stream), StopSignals())
    assert stream.getvalue() == b"0 1 2 3 4 "
    assert coordinator.calls == [
        "prepare",
        *(f"{call} {until}" for until in (2, 4, 5) for call in ("partitions", "sunk")),
        "stop",
    ]
    assert capsys.readouterr().err == (
        "% Waiting for group g to rebalance\n"
        "% Group g rebalanced (member m): assigned: orders-0\n"
        "% Reached end of orders-0 at offset 5\n"
    )


def test_a_count_limits_the_batch_so_that_all_of_it_is_committed(group_reading: MakeReader) -> None:
    made, coordinator = group_reading()
    stream = io.BytesIO()
    made.run(printer(stream, 3), StopSignals())
    assert (stream.getvalue(), coordinator.position, coordinator.calls[-1]) == (b"0 1 2 ", 3, "stop")
    assert [(limits.max_offsets_per_trigger, limits.is_strict) for limits in coordinator.limits] == [
        (3, True),
        (1, True),
    ]


def test_a_batch_that_is_printed_in_part_is_not_reported(
    group_reading: MakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Kafka 0.7 a batch within the limit may hold more records: those of a compressed message."""
    made, coordinator = group_reading()
    monkeypatch.setattr(
        module, "read", lambda task, *_, **__: (batch for _ in range(2) for batch in rows(task, Dialect.KAFKA))
    )
    made.run(printer(io.BytesIO(), 3), StopSignals())
    assert coordinator.calls == ["partitions 2", "stop"]


def test_a_closed_pipe_leaves_the_batch_uncommitted(group_reading: MakeReader) -> None:
    class Closed(io.BytesIO):
        def write(self, _: object) -> int:
            raise BrokenPipeError

    made, coordinator = group_reading()
    with pytest.raises(BrokenPipeError):
        made.run(printer(Closed()), StopSignals())
    assert coordinator.calls == ["partitions 2", "stop"]


def test_a_signal_lets_the_batch_be_printed_and_reported_first(group_reading: MakeReader) -> None:
    class Signalling(io.BytesIO):
        def write(self, data: Any) -> int:
            if not self.tell():
                os.kill(os.getpid(), signal.SIGTERM)
            return super().write(data)

    made, coordinator = group_reading()
    stream = Signalling()
    with StopSignals() as signals, pytest.raises(SystemExit) as ended:
        made.run(printer(stream), signals)
    assert ended.value.code == 0
    assert (stream.getvalue(), coordinator.calls) == (b"0 1 ", ["partitions 2", "sunk 2", "stop"])
