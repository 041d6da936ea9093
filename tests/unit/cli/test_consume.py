"""`streamgroup consume` on logs in memory: what is printed, notices, exit codes."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from streamgroup.cli import _consume_reading as module
from streamgroup.cli.main import main
from streamgroup.errors import TransportError
from streamgroup.model import Dialect, FetchTask, TopicPartition
from streamgroup.records import columns
from tests.fakes.cluster import FakeCluster
from tests.unit.cli.clusters import orders_cluster

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


def test_quiet_says_nothing(cluster: FakeCluster) -> None:
    assert consume("-t", "orders", "-p", "1", "-e", "-q").stderr == ""


def test_a_count_ends_the_command_in_the_middle_of_a_batch(cluster: FakeCluster) -> None:
    result = consume("-t", "orders:0", "-t", "orders:1", "-c", "3", "-f", "%t:%p:%o %k %s;", "-Z")
    assert (result.exit_code, result.stdout) == (0, "orders:0:10 NULL 10;orders:0:11 NULL 11;orders:0:12 NULL 12;")


@pytest.mark.parametrize(
    ("offset", "first", "notice"),
    [
        ("beginning", 10, ""),
        ("-3", 97, ""),
        ("-1000", 10, ""),
        ("42", 42, ""),
        ("5", 10, "% orders-0: offset 5 is out of range, the log holds [10, 100). Starting at offset 10\n"),
    ],
)
def test_reading_starts_where_o_says(cluster: FakeCluster, offset: str, first: int, notice: str) -> None:
    result = consume("-t", "orders:0", "-o", offset, "-e")
    assert result.stdout.split()[:1] == [str(first)]
    assert result.stderr == notice + "% Reached end of topic orders [0] at offset 100: exiting\n"


def test_the_end_prints_nothing(cluster: FakeCluster) -> None:
    assert (consume("-t", "orders:0", "-o", "end", "-e").stdout) == ""


def test_records_that_come_later_are_printed_until_the_count_is_reached(cluster: FakeCluster) -> None:
    tp = TopicPartition("orders", 0)

    def grow() -> None:
        cluster.logs.ends[tp] += 1

    cluster.logs.hook = grow
    result = consume("-t", "orders:0", "-o", "100", "-c", "5")
    assert (result.exit_code, len(result.stdout.split())) == (0, 5)
    assert [int(n) for n in result.stdout.split()] == list(range(int(result.stdout.split()[0]), cluster.logs.ends[tp]))


def test_with_e_records_that_come_later_are_not_printed(cluster: FakeCluster) -> None:
    tp = TopicPartition("orders", 0)
    listed = []

    def grow() -> None:
        listed.append(cluster.logs.ends[tp])
        cluster.logs.ends[tp] += 1

    cluster.logs.hook = grow
    result = consume("-t", "orders:0", "-o", "50", "-e")
    assert result.exit_code == 0
    assert int(result.stdout.split()[-1]) == listed[-1]


def test_an_offset_of_kafka_07_needs_no_boundary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading starts with the segment, and prints from the first message at or behind the offset."""
    fake = installed(monkeypatch, orders_cluster(Dialect.KAFKA07))
    fake.logs.segments = {TopicPartition("orders", 10001): (10, 40)}
    result = consume("-t", "orders:1-1", "-o", "57", "-e", "-f", "%p:%o ")
    assert (result.exit_code, result.stdout) == (0, "1-1:60 1-1:70 1-1:80 1-1:90 ")
    assert consume("-t", "orders:1-1", "-o", "-15", "-e", "-f", "%o ").stdout == "90 "


def test_a_log_that_stays_shorter_than_the_position_is_an_error(cluster: FakeCluster) -> None:
    tp = TopicPartition("orders", 0)

    def shorten() -> None:
        if len(cluster.logs.listings) > 6:
            cluster.logs.ends[tp] = 20

    cluster.logs.hook = shorten
    result = consume("-t", "orders:0", "--timeout", "100")
    assert result.exit_code == 1
    said = r"cannot go on reading orders-0 at offset 100: for \d+ s its log has ended at offset 20"
    assert re.search(said, result.stderr), result.stderr


def test_brokers_that_do_not_answer_are_an_error(cluster: FakeCluster) -> None:
    cluster.logs.failures.append(TransportError("no broker answers"))
    result = consume("-t", "orders", "-e")
    assert (result.exit_code, result.stderr) == (1, "Error: no broker answers\n")


def test_a_topic_that_does_not_exist_is_an_error(cluster: FakeCluster) -> None:
    result = consume("-t", "no", "-e")
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: topic 'no' does not exist. To see the topics of the cluster and their partitions, run: streamgroup "
        "topics --describe\n",
    )


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("-o", "begin"), "Invalid value for -o"),
        (("-f", "%z"), "unknown token '%z'"),
        (("-K", r"\x"), "hexadecimal"),
        (("-X", "a"), "expected NAME=VALUE"),
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


def test_an_unknown_property_is_an_error_with_the_nearest(cluster: FakeCluster) -> None:
    result = consume("-t", "orders", "-X", "fetch.min.byte=1")
    assert result.exit_code == 1
    assert "Did you mean 'fetch.min.bytes'?" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_without_an_error(cluster: FakeCluster, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    cluster.logs.hook = lambda: os.kill(os.getpid(), number) if len(cluster.logs.listings) > 6 else None
    result = consume("-t", "orders:0", "-o", "95")
    assert (result.exit_code, result.stdout) == (0, "95\n96\n97\n98\n99\n")
    assert signal.getsignal(number) is before
