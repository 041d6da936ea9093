"""The calls of `streamgroup consume -G` to its coordinator process, in their order."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from streamgroup.cli import _group_reading as module
from streamgroup.cli._cluster import ClusterAddress
from streamgroup.cli._group_reading import GroupReader
from streamgroup.cli._kcat_options import source_options
from streamgroup.cli._output import Notices, RecordPrinter, StopSignals
from streamgroup.cli._record_format import FormatToken, TextFormat
from streamgroup.model import FetchRange, FetchTask, OffsetRange, TopicPartition
from streamgroup.options.types import LimitOptions, SourceOptions
from streamgroup.records import columns

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


def rows(task: FetchTask, *_: object, **__: object) -> Iterator[pa.RecordBatch]:
    for offset in range(task.ranges[0].range.start, task.ranges[0].range.until):
        arrays = [
            pa.array([None], pa.binary()),
            pa.array([b"%d" % offset], pa.binary()),
            pa.array(["orders"], pa.string()),
            pa.array([0], pa.int32()),
            pa.array([offset], pa.int64()),
            pa.array([0], pa.int64()).cast(columns.TIMESTAMP),
            pa.array([0], pa.int32()),
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=columns.SCHEMA)


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> SourceOptions:
    monkeypatch.setattr(module, "read", rows)
    return source_options(
        ClusterAddress(bootstrap_server="b:1"), ["orders"], {"kafka.group.id": "g"}, 1_000, include_headers=False
    )


def reading(
    options: SourceOptions, monkeypatch: pytest.MonkeyPatch, *, until_ends: bool, size: int = 2, end: int = 5
) -> tuple[GroupReader, ScriptedCoordinator]:
    coordinator = ScriptedCoordinator(size, end)
    monkeypatch.setattr(module, "Coordinator", lambda _: coordinator)
    return GroupReader(options, until_ends=until_ends, notices=Notices(1)), coordinator


def printer(stream: io.BytesIO, count: int | None = None) -> RecordPrinter:
    return RecordPrinter(stream, TextFormat((FormatToken.VALUE, b" ")), count)


def test_each_batch_is_reported_when_it_is_printed_and_the_member_leaves_at_the_end(
    options: SourceOptions, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made, coordinator = reading(options, monkeypatch, until_ends=True)
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


def test_a_count_limits_the_batch_so_that_all_of_it_is_committed(
    options: SourceOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, coordinator = reading(options, monkeypatch, until_ends=False)
    stream = io.BytesIO()
    made.run(printer(stream, 3), StopSignals())
    assert (stream.getvalue(), coordinator.position, coordinator.calls[-1]) == (b"0 1 2 ", 3, "stop")
    assert [(limits.max_offsets_per_trigger, limits.is_strict) for limits in coordinator.limits] == [
        (3, True),
        (1, True),
    ]


def test_a_batch_that_is_printed_in_part_is_not_reported(
    options: SourceOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Kafka 0.7 a batch within the limit may hold more records: those of a compressed message."""
    made, coordinator = reading(options, monkeypatch, until_ends=False)
    monkeypatch.setattr(module, "read", lambda task, *_, **__: (batch for _ in range(2) for batch in rows(task)))
    made.run(printer(io.BytesIO(), 3), StopSignals())
    assert coordinator.calls == ["partitions 2", "stop"]


def test_a_closed_pipe_leaves_the_batch_uncommitted(options: SourceOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.BytesIO):
        def write(self, _: object) -> int:
            raise BrokenPipeError

    made, coordinator = reading(options, monkeypatch, until_ends=False)
    with pytest.raises(BrokenPipeError):
        made.run(printer(Closed()), StopSignals())
    assert coordinator.calls == ["partitions 2", "stop"]


def test_a_signal_lets_the_batch_be_printed_and_reported_first(
    options: SourceOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Signalling(io.BytesIO):
        def write(self, data: Any) -> int:
            if not self.tell():
                os.kill(os.getpid(), signal.SIGTERM)
            return super().write(data)

    made, coordinator = reading(options, monkeypatch, until_ends=False)
    stream = Signalling()
    with StopSignals() as signals, pytest.raises(SystemExit) as ended:
        made.run(printer(stream), signals)
    assert ended.value.code == 0
    assert (stream.getvalue(), coordinator.calls) == (b"0 1 ", ["partitions 2", "sunk 2", "stop"])
