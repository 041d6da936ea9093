"""Tasks that read from brokers of Kafka 0.7: emulated ones, on real sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamgroup.advice import StoredIn
from streamgroup.errors import BrokerError, DataLossError, DecodeError, TooLarge, TransportError
from streamgroup.executor.pools import POOL
from streamgroup.executor.read.cursor import Cursor
from streamgroup.executor.read.fetcher import read
from streamgroup.executor.read.kafka07 import Kafka07Lookup
from streamgroup.executor.read.recovery import Recovery
from streamgroup.logformat import KAFKA07_LOG
from streamgroup.logline import parse
from streamgroup.model import Broker, Dialect, FetchRange, FetchTask, OffsetRange, TopicPartition
from streamgroup.options.types import ClientOptions, FetchOptions
from streamgroup.testing.kafka07 import Compressed
from tests.fakes.broker07 import OldBroker, tp, values
from tests.unit.kafka.cluster.conftest import produced
from tests.waiting import soon

QUICK = FetchOptions(poll_timeout_ms=1_000)
Start = Callable[..., OldBroker]


def client(**others: Any) -> ClientOptions:
    shorter = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 20, "request_timeout_ms": 2_000}
    return ClientOptions(bootstrap_servers=(), **{**shorter, **others})


def planned(broker: OldBroker | None, where: TopicPartition, first: int, until: int) -> FetchRange:
    return FetchRange(OffsetRange(where, first, until), None if broker is None else broker.broker)


def whole(broker: OldBroker, where: TopicPartition) -> FetchRange:
    return planned(broker, where, 0, broker.end(where))


def batches(
    *ranges: FetchRange, fetch: FetchOptions = QUICK, options: ClientOptions | None = None, **others: Any
) -> list[pa.RecordBatch]:
    return list(read(FetchTask(ranges, Dialect.KAFKA07), options or client(), fetch, **others))


def column(name: str, *ranges: FetchRange, **others: Any) -> list[Any]:
    return [each for batch in batches(*ranges, **others) for each in batch[name].to_pylist()]


# -- what is delivered -------------------------------------------------------------------------------------------------


def test_a_range_is_delivered_whole_and_nothing_else(start: Start) -> None:
    broker, where = produced(start, *values(10), partition=1)
    ends = broker.ends[where]
    rows = pa.Table.from_batches(batches(planned(broker, where, ends[2], ends[7]))).to_pylist()
    assert [row["value"] for row in rows] == values(10)[2:7]
    assert [row["offset"] for row in rows] == ends[2:7]
    assert {(row["topic"], row["partition"], row["key"], row["timestampType"]) for row in rows} == {
        ("events", 1, None, -1)
    }


def test_messages_of_a_wrapper_share_its_offset_and_are_distinguished_by_their_index(start: Start) -> None:
    broker = start()
    nested = Compressed("gzip", [b"d", Compressed("snappy", [b"e", b"f"])])
    where = broker.produce(0, b"a", Compressed("gzip", [b"b", b"c"]), nested, Compressed("snappy-raw", [b"g"]))
    ends = broker.ends[where]
    rows = pa.Table.from_batches(
        batches(planned(broker, where, 0, ends[-1]), fetch=FetchOptions(include_inner_index=True))
    ).to_pylist()
    assert [(row["value"], row["offset"], row["inner"]) for row in rows] == [
        (b"a", ends[0], 0),
        (b"b", ends[1], 0),
        (b"c", ends[1], 1),
        (b"d", ends[2], 0),
        (b"e", ends[2], 1),
        (b"f", ends[2], 2),
        (b"g", ends[3], 0),
    ]


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("most", [1, 70_000, 4 << 20])
def test_segments_and_sizes_of_answers_change_nothing(prefetch: int, most: int, start: Start) -> None:
    broker = start(segment=60_000)
    written = [b"%d" % i * 2_000 for i in range(100)]
    first, second = broker.produce(0, *written[:50]), broker.produce(1, *written[50:])
    assert len(broker.segments(first)) > 2
    fetch = FetchOptions(max_partition_bytes=most, prefetch=prefetch)
    found = column(
        "value",
        planned(broker, first, 0, broker.end(first)),
        planned(broker, second, 0, broker.end(second)),
        fetch=fetch,
    )
    assert sorted(found) == sorted(written)
    assert [value for value in found if value in written[:50]] == written[:50], "in order within each range"


def test_ranges_of_two_brokers(start: Start) -> None:
    brokers = [start(node) for node in (0, 1)]
    places = [broker.produce(0, *values(5, first=10 * broker.node)) for broker in brokers]
    found = column("value", *(planned(b, w, 0, b.end(w)) for b, w in zip(brokers, places, strict=True)))
    assert found == values(5) + values(5, first=10)
    assert places[1].partition == 10_000


def test_a_message_larger_than_an_answer_comes_whole(start: Start) -> None:
    broker, where = produced(start, b"small", b"x" * 900_000, b"behind")
    fetch = FetchOptions(max_partition_bytes=1_000)
    assert column("value", whole(broker, where), fetch=fetch) == [b"small", b"x" * 900_000, b"behind"]


def test_connections_are_kept_for_the_next_task_of_the_same_dialect(start: Start) -> None:
    broker, where = produced(start, b"one")
    for _ in range(2):
        assert column("value", whole(broker, where)) == [b"one"]
    kept = POOL.take("127.0.0.1", broker.port, client(), soon(), Dialect.KAFKA07)
    assert kept.idle
    assert kept.dialect is Dialect.KAFKA07
    kept.close()


# -- what cannot be read -----------------------------------------------------------------------------------------------


def test_a_message_that_is_larger_than_can_be_is_an_error_with_its_position(start: Start) -> None:
    broker, where = produced(start, b"a", b"x" * 200_000)
    with pytest.raises(TooLarge, match=r"position 11: the bytes there declare a message of 200006 bytes") as raised:
        batches(whole(broker, where), options=client(max_frame_bytes=150_000))
    assert raised.value.base_offset == 11


@pytest.mark.parametrize("shift", range(1, 29))
def test_a_start_inside_of_a_message_is_an_error_that_names_it(shift: int, start: Start) -> None:
    broker, where = produced(start, *values(6))
    ends = broker.ends[where]
    with pytest.raises(DecodeError, match=rf"position {ends[2] + shift}\b") as raised:
        batches(planned(broker, where, ends[2] + shift, ends[-1]))
    assert raised.value.base_offset == ends[2] + shift


def test_an_end_inside_of_a_message_is_an_error_that_names_it(start: Start) -> None:
    broker, where = produced(start, *values(3))
    ends = broker.ends[where]
    with pytest.raises(DecodeError, match=rf"events 0-0: position {ends[1]}: .* ends within it, at {ends[2] - 3}"):
        batches(planned(broker, where, 0, ends[2] - 3))


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        (
            {"group": "drain", "stored_in": StoredIn.ZOOKEEPER},
            "write {next} into ZooKeeper's node /consumers/drain/offsets/events/0-0",
        ),
        (
            {},
            'the records before it with endingOffsets {{"events": {{"0-0": {base}}}}}, '
            'the records after it with startingOffsets {{"events": {{"0-0": {next}}}}}',
        ),
    ],
)
def test_damage_is_reported_with_what_steps_over_it(
    kept: dict[str, Any], told: str, start: Start, tmp_path: Path
) -> None:
    broker, where = produced(start, *values(4))
    ends = broker.ends[where]
    (file,) = (tmp_path / "broker-0" / "events-0").glob("*.kafka")
    data = bytearray(file.read_bytes())
    data[ends[2] - 1] ^= 1
    file.write_bytes(data)
    with pytest.raises(DecodeError) as raised:
        batches(planned(broker, where, 0, ends[-1]), **kept)
    text = str(raised.value)
    assert f"the next message begins at position {ends[2]}" in text
    assert told.format(base=ends[1], next=ends[2]) in text
    assert "kafka-consumer-groups" not in text
    assert "/consumers/" in text or "read in two parts" in text
    assert raised.value.base_offset == ends[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "count", "told"), [(20, 4, "lost the rest"), (30, 6, r"events 0-0 .*position 60\b"), (20, 6, None)]
)
def test_another_machine_under_a_brokers_id_is_noticed_unless_its_messages_end_where_those_did(
    size: int, count: int, told: str | None, start: Start, tmp_path: Path
) -> None:
    """Planned as [60, 180) of a log that is not there any more. Another log is shorter, or has no message at 60, or
    looks the same: 0.7 has nothing by which such a log could be told from the old one."""
    before = start()
    where = before.produce(0, *values(6))
    before.stop()
    other = OldBroker(tmp_path / "other")
    try:
        other.produce(0, *values(count, size, first=1_000))
        reading = planned(other, where, before.ends[where][2], before.end(where))
        if told is None:
            assert column("value", reading) == values(6, first=1_000)[2:]
            return
        with pytest.raises((DataLossError, DecodeError), match=told):
            batches(reading)
    finally:
        other.stop()


# -- brokers in trouble ------------------------------------------------------------------------------------------------


def test_retention_that_has_overtaken_the_range_is_data_loss(start: Start) -> None:
    broker, where = produced(start, *values(20), segment=100)
    begins = broker.forget(where, 2)
    told = rf"events 0-0: {begins} bytes at the positions \[0, {begins}\) were planned .* begins at position {begins}"
    with pytest.raises(DataLossError, match=told):
        batches(whole(broker, where))


def test_without_fail_on_data_loss_what_is_left_is_read(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    broker, where = produced(start, *values(20), segment=100)
    begins = broker.forget(where, 2)
    found = column("offset", whole(broker, where), fail_on_data_loss=False)
    assert found == [end for end in broker.ends[where][:-1] if end >= begins]
    assert f"continuing at offset {begins}" in caplog.text


def test_a_log_that_cannot_be_looked_at_now_is_looked_at_again(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is loss is not decided by a connection that breaks."""
    broker, where = produced(start, *values(20), segment=100)
    begins = broker.forget(where, 2)
    asked = []
    look = Kafka07Lookup._log

    def shy(self: Kafka07Lookup, cursor: Cursor, deadline: float) -> Any:
        asked.append(cursor.position)
        if len(asked) < 3:
            raise TransportError("reset by peer")
        return look(self, cursor, deadline)

    monkeypatch.setattr(Kafka07Lookup, "_log", shy)
    with pytest.raises(DataLossError, match=f"now begins at position {begins}"):
        batches(whole(broker, where), fetch=FetchOptions(poll_timeout_ms=10_000))
    assert len(asked) == 3


@pytest.mark.slow
def test_a_broker_that_has_lost_its_log_is_data_loss_not_silence(start: Start) -> None:
    broker, where = produced(start, *values(4))
    broker.lose(where)
    with pytest.raises(DataLossError, match="the broker has lost the rest"):
        batches(whole(broker, where))


@pytest.mark.slow
def test_the_rest_of_a_log_cut_inside_the_range_is_left_out_where_that_is_allowed(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    broker, where = produced(start, *values(4))
    cut = broker.ends[where][2]
    found = column("value", planned(broker, where, 0, broker.end(where) + 60), fail_on_data_loss=False)
    broker.cut(where, cut)
    found += column("value", whole(broker, where), fail_on_data_loss=False)
    assert found == values(4) + values(2)
    assert [(told["from"], told["to"], told["unit"]) for told in map(parse, caplog.messages) if told] == [
        (str(broker.end(where)), str(broker.end(where) + 60), "bytes"),
        (str(cut), str(broker.end(where)), "bytes"),
    ]


def test_a_log_that_is_back_in_the_last_moment_is_no_loss(start: Start) -> None:
    """It may have been cut inside of the range: what it still has is read first, by the next attempt."""
    broker, where = produced(start, *values(4))
    ends = broker.ends[where]
    cursor = Cursor.of(planned(broker, where, ends[1], ends[4] + 30), KAFKA07_LOG)
    lookup = Kafka07Lookup(client(), time.monotonic)
    recovery = Recovery(lookup, client(), QUICK, fail_on_data_loss=False, clock=time.monotonic)
    with pytest.raises(TransportError, match=rf"the log holds \[0, {ends[4]}\)"):
        recovery._time_out(cursor, 1.0, "cannot connect")
    assert cursor.position == ends[1]


def test_a_broker_that_is_restarted_meanwhile_is_read_on(start: Start) -> None:
    broker = start(segment=20_000)
    written = values(40, size=5_000)
    where = broker.produce(0, *written)
    fetch = FetchOptions(max_partition_bytes=5_100, prefetch=0, poll_timeout_ms=10_000)
    reading = read(FetchTask((whole(broker, where),), Dialect.KAFKA07), client(), fetch)
    found = next(reading)["value"].to_pylist()
    broker.stop()
    back = threading.Timer(0.3, broker.restart)
    back.start()
    for batch in reading:
        found += batch["value"].to_pylist()
    back.join()
    assert found == written


@pytest.mark.slow
def test_a_broker_that_stays_away_is_an_error_that_says_what_plans_anew(start: Start) -> None:
    broker, where = produced(start, b"a")
    broker.stop()
    with pytest.raises(TransportError, match=r"cannot connect.*Tasks do not look for brokers in ZooKeeper") as raised:
        batches(planned(broker, where, 0, 11))
    assert "events 0-0 at position 0 of [0, 11)" in str(raised.value)


def test_a_broker_that_was_away_when_planned_is_named() -> None:
    with pytest.raises(TransportError, match="broker 2 was not registered when planned"):
        batches(planned(None, tp(2, 1), 0, 11))


def test_a_partition_that_the_broker_does_not_have_is_an_error(start: Start) -> None:
    broker = start(partitions=2)
    with pytest.raises(BrokerError, match=r"events 0-7 .* fewer num\.partitions.*WRONG_PARTITION"):
        batches(planned(broker, tp(0, 7), 0, 11))


def test_an_illegal_topic_is_an_error(start: Start) -> None:
    with pytest.raises(BrokerError, match=r"UNKNOWN \(-1\)"):
        batches(planned(start(), tp(0, 0, topic="a/b"), 0, 11))


@pytest.mark.slow
def test_a_newer_kafka_is_named_as_a_possible_cause(start: Start) -> None:
    """A Kafka 4.1 closes the connection at a FETCH of 0.7."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            while True:
                try:
                    with listener.accept()[0] as connected:
                        connected.recv(4096)
                except OSError:
                    return

        threading.Thread(target=hang_up, daemon=True).start()
        port = listener.getsockname()[1]
        range_ = FetchRange(OffsetRange(tp(0, 0), 0, 11), Broker(0, "127.0.0.1", port))
        with pytest.raises(TransportError, match=r"Kafka 0\.8 or later does so"):
            batches(range_)
        listener.shutdown(socket.SHUT_RDWR)
