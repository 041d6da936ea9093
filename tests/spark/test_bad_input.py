"""Input that cannot work: an error says so within its deadline, and no query hangs."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from streamgroup.testing import KafkaServer
from streamgroup.testing.ports import LOOPBACK, free_ports
from tests.conftest import MakeTopic
from tests.spark.support import SHORT_SESSION, Load, Streams, committed, damage, reset_offsets
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live]

IMPATIENT = {
    "kafka.default.api.timeout.ms": "2000",
    "kafka.request.timeout.ms": "1000",
    "kafka.socket.connection.setup.timeout.ms": "1000",
}
DEADLINE_S = 30.0
"""Two seconds are for the brokers; the rest is what a fresh Spark takes to plan and to fork on a busy machine."""
BOMB = 300 << 20
"""Bytes; the cap of one decompressed batch is 256 MiB."""

Run = Callable[[Mapping[str, str]], int]


@pytest.fixture(params=["batch", "stream"])
def run(request: pytest.FixtureRequest, spark: SparkSession, streams: Streams) -> Run:
    """Read with these options to the end, as a batch and as a stream: how many rows, or what the user sees raised."""

    def batch(options: Mapping[str, str]) -> int:
        return frame_of(spark.read, options).count()

    def stream(options: Mapping[str, str]) -> int:
        group = {"kafka.group.id": "bad-input", **SHORT_SESSION}
        frame = frame_of(spark.readStream, {"startingOffsets": "earliest", **group, **options})
        sunk = streams.to_parquet(frame, availableNow=True)
        try:
            sunk.finish(60)
        finally:
            assert not sunk.query.isActive
        return len(sunk.rows("offset"))

    return batch if request.param == "batch" else stream


def frame_of(reader: object, options: Mapping[str, str]) -> DataFrame:
    frame: DataFrame = reader.format("streamgroup").options(**options).load()  # type: ignore[attr-defined]
    return frame


def refusal(run: Run, options: Mapping[str, str], deadline: float = DEADLINE_S) -> str:
    """Why `run` fails, in one line; fails where it does not, or not in time."""
    began = time.monotonic()
    with pytest.raises(PySparkException) as raised:
        run(options)
    assert time.monotonic() - began < deadline
    return " ".join(str(raised.value).split())


@contextmanager
def listener(answer: bytes) -> Iterator[str]:
    """Something that is no Kafka: takes connections, says `answer` when asked anything, nothing where it is empty."""
    taken: list[socket.socket] = []

    def serve(server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            taken.append(connection)
            if answer:
                connection.recv(4096)
                connection.sendall(answer)

    with socket.create_server((LOOPBACK, 0)) as server:
        thread = threading.Thread(target=serve, args=[server], daemon=True)
        thread.start()
        try:
            yield f"{LOOPBACK}:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            for connection in taken:
                connection.close()


# -- brokers -----------------------------------------------------------------------------------------------------------


def test_no_broker_listens(run: Run) -> None:
    address = f"{LOOPBACK}:{free_ports(1)[0]}"
    text = refusal(run, {"kafka.bootstrap.servers": address, "subscribe": "t", **IMPATIENT})
    assert "TransportError" in text
    assert address in text
    assert "Connection refused" in text


def test_a_listener_that_says_nothing(run: Run) -> None:
    with listener(b"") as address:
        text = refusal(run, {"kafka.bootstrap.servers": address, "subscribe": "t", **IMPATIENT})
    assert "TransportError" in text
    assert address in text
    assert "handshake" in text


def test_a_web_server(run: Run) -> None:
    with listener(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n") as address:
        text = refusal(run, {"kafka.bootstrap.servers": address, "subscribe": "t", **IMPATIENT})
    assert address in text
    assert "The server uses HTTP, not Kafka's protocol" in text


# -- options -----------------------------------------------------------------------------------------------------------


def test_an_unknown_topic(run: Run, kafka4: KafkaServer) -> None:
    text = refusal(run, {"kafka.bootstrap.servers": kafka4.bootstrap_servers, "subscribe": "no-such-topic"})
    error = "ConfigError: cannot read topic 'no-such-topic': the cluster has no such topic. Create it, or correct"
    assert f"{error} option 'subscribe'" in text


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"startingOffsets": '{"t": {"0": 5'}, r"invalid value '{\"t\": {\"0\": 5' for option startingOffsets: "),
        ({"startingOffsets": '{"t": {"zero": 5}}'}, r"for option startingOffsets: .*zero"),
        ({"subscribePattern": "t.*"}, "are set. Set exactly one of subscribe, subscribePattern, assign"),
        (
            {"maxOffsetPerTrigger": "5"},
            "(?i)unknown option 'maxOffsetPerTrigger'. Did you mean 'maxOffsetsPerTrigger'",
        ),
        ({"kafka.sesion.timeout.ms": "5"}, "Did you mean 'kafka.session.timeout.ms'"),
    ],
    ids=["bad JSON", "JSON of the wrong shape", "two subscriptions", "unknown option", "unknown property"],
)
def test_an_option_that_cannot_be(run: Run, wrong: Mapping[str, str], words: str) -> None:
    address = f"{LOOPBACK}:{free_ports(1)[0]}"
    text = refusal(run, {"kafka.bootstrap.servers": address, "subscribe": "t", **wrong})
    assert "ConfigError" in text
    assert re.search(words, text), text


# -- offsets -----------------------------------------------------------------------------------------------------------


def test_a_start_below_what_the_log_holds(run: Run, kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    load = Load(kafka4, make_topic(kafka4), 1)
    load.send(100)
    admin = AdminClient({"bootstrap.servers": kafka4.bootstrap_servers})
    wait_until(
        lambda: all(f.result(20) for f in admin.delete_records([TopicPartition(load.topic, 0, 60)]).values()), ""
    )
    text = refusal(run, at(load, 10))
    assert "DataLossError" in text
    assert f"{load.topic}-0" in text
    assert re.search(r"\b10\b.*\b60\b", text)
    assert "failOnDataLoss=false" in text
    assert run({**at(load, 10), "failOnDataLoss": "false"}) == 40


def test_a_start_beyond_the_end_of_the_log(run: Run, kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    load = Load(kafka4, make_topic(kafka4), 1)
    load.send(100)
    text = refusal(run, at(load, 500))
    assert "DataLossError" in text
    assert f"{load.topic}-0" in text
    assert re.search(r"\b500\b.*\b100\b", text)
    assert run({**at(load, 500), "failOnDataLoss": "false"}) == 0


def test_a_start_at_the_end_of_the_log_is_no_error(run: Run, kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    load = Load(kafka4, make_topic(kafka4), 1)
    load.send(100)
    assert run(at(load, 100)) == 0


def at(load: Load, offset: int) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": load.server.bootstrap_servers,
        "kafka.group.id": load.topic,
        "subscribe": load.topic,
        "startingOffsets": json.dumps({load.topic: {"0": offset}}),
    }


# -- bytes -------------------------------------------------------------------------------------------------------------


def test_a_damaged_batch_is_reported_and_what_to_do_steps_over_it_alone(
    spark: SparkSession, streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4), 1)
    before, _, behind = load.send(10), load.send(10), load.send(10)
    damage(kafka4, load.topic, 10)
    options = {"kafka.bootstrap.servers": kafka4.bootstrap_servers, "subscribe": load.topic}
    damaged = f"ChecksumMismatch: cannot read {load.topic}-0: the record batch at offset 10: its CRC-32C is 0x"
    first, second = (json.dumps({load.topic: {"0": offset}}) for offset in (10, 20))

    text = refusal(lambda o: frame_of(spark.read, o).count(), options)
    assert damaged in text
    parts = f"the records before it with endingOffsets {first}, the records after it with startingOffsets {second}"
    assert parts in text
    for part, expected in ({"endingOffsets": first}, before), ({"startingOffsets": second}, behind):
        rows = frame_of(spark.read, options | part).orderBy("offset").collect()
        assert [bytes(row.value).decode() for row in rows] == expected

    frame = streams.read(kafka4, load.topic, "damaged")
    with pytest.raises(PySparkException) as raised:
        streams.to_parquet(frame, "q", availableNow=True).finish()
    assert damaged in str(raised.value)
    assert f"--reset-offsets --group damaged --topic {load.topic}:0 --to-offset 20 --execute" in str(raised.value)
    assert committed(kafka4, "damaged", load.topic).get(0, 0) == 0

    reset_offsets(kafka4, "damaged", load.topic, {0: 20})
    again = streams.to_parquet(frame, "q", availableNow=True)
    again.finish()
    assert again.values() == behind
    assert committed(kafka4, "damaged", load.topic) == {0: 30}


@pytest.mark.parametrize("codec", [pytest.param("gzip", marks=pytest.mark.long), "zstd"])
def test_a_batch_that_would_fill_the_memory(run: Run, kafka4: KafkaServer, make_topic: MakeTopic, codec: str) -> None:
    topic = make_topic(kafka4)
    producer = Producer(
        {
            "bootstrap.servers": kafka4.bootstrap_servers,
            "compression.type": codec,
            "message.max.bytes": 1_000_000_000,
            "log_level": 0,
        }
    )
    failed: list[object] = []
    producer.produce(topic, bytes(BOMB), partition=0, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(60) == 0
    assert failed == [None]
    text = refusal(run, {"kafka.bootstrap.servers": kafka4.bootstrap_servers, "subscribe": topic})
    cap = rf"TooLarge: cannot read {topic}-0: the record batch at offset 0: its .*group\.maxDecompressedBytes is"
    assert re.search(cap, text), text
    assert "the next batch begins at offset 1. To skip this batch, " in text
