from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.cli import produce as module
from streamgroup.cli.produce import Delivery, Record, lines, produce, record_of, send
from streamgroup.errors import ConfigError, TransportError
from streamgroup.model import ClusterSnapshot, TopicInfo


class Message:
    def __init__(self, topic: str, partition: int | None) -> None:
        self._topic, self._partition = topic, partition

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int | None:
        return self._partition


class Refusal:
    def str(self) -> str:
        return "Broker: Unknown partition"


class QueueingProducer:
    """A producer with room for `room` records that answers one of them each time it is polled; or none at all."""

    def __init__(self, room: int = 3, *, refused: frozenset[int] = frozenset(), silent: bool = False) -> None:
        self.room, self.refused, self.silent = room, refused, silent
        self.sent: list[dict[str, Any]] = []
        self.waiting: list[tuple[int, Any]] = []

    def __len__(self) -> int:
        return len(self.waiting)

    def produce(self, *, on_delivery: Any, **record: Any) -> None:
        if len(self.waiting) >= self.room:
            raise BufferError
        self.waiting.append((len(self.sent), on_delivery))
        self.sent.append(record)

    def poll(self, timeout: float) -> None:
        if self.waiting and not self.silent and timeout > 0:
            number, told = self.waiting.pop(0)
            told(Refusal() if number in self.refused else None, Message("t", 3))

    def flush(self, timeout: float) -> None:
        self.poll(timeout)


def test_every_record_is_sent_once_although_the_queue_is_small() -> None:
    producer = QueueingProducer(room=3)
    records = [Record(None, str(n).encode()) for n in range(50)]
    delivery = send(producer, records, lambda _: None, timeout_s=5, topic="t")
    assert (delivery.delivered, delivery.failed) == (50, 0)
    assert [sent["value"] for sent in producer.sent] == [record.value for record in records]
    assert {sent["topic"] for sent in producer.sent} == {"t"}


def test_refused_records_are_counted_and_some_are_named() -> None:
    producer = QueueingProducer(refused=frozenset(range(10, 30)))
    delivery = send(producer, [Record(None, b"x")] * 50, lambda _: None, timeout_s=5, topic="t")
    assert (delivery.delivered, delivery.failed) == (30, 20)
    assert delivery.failures() == "t-3: Broker: Unknown partition (20 records)"


@pytest.mark.parametrize("count", [2, 5], ids=["waiting for the end", "waiting for room"])
def test_silent_brokers_are_given_up(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr("streamgroup.cli.produce.time.monotonic", lambda: float(next(ticks)))
    with pytest.raises(TransportError, match=r"no record within 7 s \([23] are waiting, 0 were delivered\)"):
        send(QueueingProducer(silent=True), [Record(None, b"")] * count, lambda _: None, timeout_s=7, topic="t")


def test_progress_advances_by_thousands() -> None:
    seen: list[int] = []
    send(QueueingProducer(room=9999), [Record(None, b"")] * 2500, seen.append, timeout_s=5, topic="t")
    assert seen == [1000, 1000]


def test_a_failure_before_a_partition_was_chosen_names_the_topic() -> None:
    delivery = Delivery()
    delivery.report(Refusal(), Message("t", None))
    assert delivery.failures() == "t: Broker: Unknown partition (1 records)"


@pytest.mark.parametrize(
    ("line", "separator", "record"),
    [
        (b"a:b", None, Record(None, b"a:b")),
        (b"a:b:c", b":", Record(b"a", b"b:c")),
        (b":b", b":", Record(b"", b"b")),
        (b"a::b", b"::", Record(b"a", b"b")),
    ],
)
def test_a_line_becomes_a_record(line: bytes, separator: bytes | None, record: Record) -> None:
    assert record_of(line, 1, separator) == record


def test_a_line_without_the_separator_is_named() -> None:
    with pytest.raises(ConfigError, match=r"cannot read line 7: no ':' after the key"):
        record_of(b"abc", 7, b":")


@given(
    st.lists(st.binary().filter(lambda b: b"\n" not in b and not b.endswith(b"\r"))), st.sampled_from([b"\n", b"\r\n"])
)
def test_lines_lose_their_ends_and_nothing_else(texts: list[bytes], end: bytes) -> None:
    assert list(lines(text + end for text in texts)) == texts


def test_a_last_line_needs_no_end() -> None:
    assert list(lines([b"a\n", b"b\r"])) == [b"a", b"b\r"]


class ClusterWith:
    def __init__(self, *topics: str) -> None:
        self.topics = topics
        self.closed = False

    def deadline(self, timeout_ms: int) -> float:
        return timeout_ms / 1000

    def snapshot(self, topics: list[str], deadline: float) -> ClusterSnapshot:
        return ClusterSnapshot({}, {t: TopicInfo(t, ()) for t in topics if t in self.topics})

    def close(self) -> None:
        self.closed = True


def run(producer: QueueingProducer, monkeypatch: pytest.MonkeyPatch, *arguments: str, stdin: bytes = b"") -> Result:
    monkeypatch.setattr(module, "_producer", lambda *_: producer)
    monkeypatch.setattr(module, "cluster_of", lambda *_: ClusterWith("orders"))
    return CliRunner().invoke(produce, ["-b", "h:1", "-t", "orders", *arguments], input=stdin)


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = QueueingProducer()
    result = run(producer, monkeypatch, "-H", "a=b=c", "-p", "2", "-K", "\\t", stdin=b"k\tv\nl\tw")
    assert result.exit_code == 0, result.output
    assert "2 records to orders in" in result.stderr
    common = {"topic": "orders", "partition": 2, "headers": [("a", b"b=c")]}
    assert producer.sent == [{"key": b"k", "value": b"v", **common}, {"key": b"l", "value": b"w", **common}]


def test_a_file_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    producer = QueueingProducer()
    (tmp_path / "lines").write_bytes(b"1\n2\n3\n")
    assert run(producer, monkeypatch, str(tmp_path / "lines")).exit_code == 0
    assert [sent["value"] for sent in producer.sent] == [b"1", b"2", b"3"]


def test_an_absent_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = run(QueueingProducer(), monkeypatch, str(tmp_path / "absent"))
    assert "absent: No such file" in str(result.exception)


def test_a_record_that_was_not_delivered_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(QueueingProducer(refused=frozenset([1])), monkeypatch, stdin=b"a\nb\nc\n")
    assert result.exit_code != 0
    assert str(result.exception) == "1 records were not delivered: t-3: Broker: Unknown partition (1 records)"
    assert "2 records to orders" in result.stderr


def test_the_lines_before_an_invalid_line_are_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = QueueingProducer(room=1)
    result = run(producer, monkeypatch, "-K", ":", stdin=b"a:1\nb\n")
    assert "cannot read line 2: no ':'" in str(result.exception)
    assert (len(producer), len(producer.sent)) == (0, 1)


@pytest.mark.parametrize("arguments", [("-H", "ab"), ("-K", ""), ("-p", "-1"), ("-z", "rar")])
def test_bad_arguments_are_refused(monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]) -> None:
    assert run(QueueingProducer(), monkeypatch, *arguments).exit_code == 2


def test_without_confluent_kafka_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    monkeypatch.setattr(module, "cluster_of", lambda *_: ClusterWith("orders"))
    result = CliRunner().invoke(produce, ["-b", "h:1", "-t", "orders"])
    assert "pip install 'streamgroup[produce]'" in str(result.exception)


def test_an_unknown_topic_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, producer = ClusterWith(), QueueingProducer()
    result = run(producer, monkeypatch, "-t", "absent", stdin=b"a")
    assert "cannot write to topic 'absent' at h:1: it does not exist. Create it with --create PARTITIONS" in str(
        result.exception
    )
    assert producer.sent == []
    monkeypatch.setattr(module, "cluster_of", lambda *_: cluster)
    CliRunner().invoke(produce, ["-b", "h:1", "-t", "orders"])
    assert cluster.closed


def test_a_topic_is_made_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[dict[str, int], int]] = []
    monkeypatch.setattr(
        module.admin,
        "create_topics",
        lambda _, topics, __, *, replication_factor: made.append((topics, replication_factor)),
    )
    assert run(QueueingProducer(), monkeypatch, "--create", "6", "-t", "new", stdin=b"a").exit_code == 0
    assert run(QueueingProducer(), monkeypatch, "--create", "6", "-t", "orders", stdin=b"a").exit_code == 0
    assert made == [({"new": 6}, -1)]
