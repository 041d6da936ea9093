"""Records that cannot be parsed: set aside with nothing lost, or the stop of the query with nothing committed."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import streamgroup
from streamgroup.errors import ConfigError, DeadLetterError, TransportError
from streamgroup.jobs import ingest
from streamgroup.jobs.config import load
from streamgroup.jobs.following import Following
from streamgroup.jobs.signals import StopRequest
from streamgroup.spark.dead_letters import COUNTS
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.fakes.protobuf_files import ORDERS, ORDERS_TEXT, message_bytes
from tests.fakes.schema_registry import FakeRegistry, schema_registry
from tests.spark.submitting import submitted
from tests.spark.support import SHORT_SESSION, committed, damage, log_ends, rows_of
from tests.unit.spark.parsing.test_avro import written

pytestmark = [pytest.mark.spark, pytest.mark.live]

PARTITIONS = 2
PARSER = streamgroup.Parser("json", "id BIGINT, name STRING")
GARBAGE = [b"\xff\xfe garbage", b'{"id": 1', b'{"id": "x"}', b"", b'{"id": 1}{"id": 2}']
At = tuple[int, int]
"""Partition and offset."""


@dataclass
class Topic:
    """A topic, and the values that were sent to each place of it."""

    server: KafkaServer
    name: str
    sent: dict[At, bytes | None]

    def send(self, values: list[bytes | None]) -> None:
        """Produce the values round robin over the partitions, each with a key and a header."""
        producer = Producer({"bootstrap.servers": self.server.direct_servers, "linger.ms": 5})

        def note(error: Any, message: Any) -> None:
            assert error is None, error
            self.sent[message.partition(), message.offset()] = message.value()

        for n, value in enumerate(values):
            at: dict[str, Any] = {"partition": n % PARTITIONS, "key": f"k{n}", "headers": {"h": b"1"}}
            producer.produce(self.name, value, **at, on_delivery=note)
            producer.poll(0)
        assert producer.flush(30) == 0

    def split(self) -> tuple[dict[At, bytes | None], dict[At, bytes | None]]:
        """Return what can be read, null values among it, and what cannot."""
        dead = {at: value for at, value in self.sent.items() if value in GARBAGE}
        return {at: value for at, value in self.sent.items() if at not in dead}, dead


def mixed(count: int, every: int = 100) -> list[bytes | None]:
    """Return values of which one in `every` is garbage and another one null."""
    kinds = len(GARBAGE)
    return [
        GARBAGE[n // every % kinds] if n % every == 7 else None if n % every == 8 else json.dumps({"id": n}).encode()
        for n in range(count)
    ]


@pytest.fixture
def topic(kafka4: KafkaServer, make_topic: MakeTopic) -> Topic:
    return Topic(kafka4, make_topic(kafka4, PARTITIONS), {})


Start = Callable[..., StreamingQuery]


@pytest.fixture
def start(spark: SparkSession, topic: Topic, tmp_path: Path) -> Iterator[Start]:
    """Start the query of `topic` with a function for foreachBatch; each goes on at the same checkpoint."""
    started = []

    def go(letters: Any, **options: Any) -> StreamingQuery:
        source = {
            "kafka.bootstrap.servers": topic.server.bootstrap_servers,
            "kafka.group.id": topic.name,
            "subscribe": topic.name,
            "startingOffsets": "earliest",
            "includeHeaders": "true",
            **SHORT_SESSION,
            **options,
        }
        rows = spark.readStream.format("streamgroup").options(**source).load()
        writer = rows.writeStream.foreachBatch(letters).option("checkpointLocation", str(tmp_path / "checkpoint"))
        started.append(writer.trigger(availableNow=True).start())
        return started[-1]

    yield go
    for query in started:
        query.stop()


class Good:
    """Keeps the good rows of each batch. `failures` says how often a write fails after all others."""

    def __init__(self, failures: int = 0) -> None:
        self.rows: dict[At, tuple[bytes | None, int | None]] = {}
        self.failures = failures
        self.columns: list[str] = []

    def __call__(self, rows: DataFrame, batch: int) -> None:
        self.columns = rows.columns
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the sink is down")
        for row in rows.collect():
            at = row.partition, row.offset
            assert at not in self.rows, "written twice"
            parsed = None if row.parsed is None else row.parsed.id
            self.rows[at] = None if row.value is None else bytes(row.value), parsed


def ended(query: StreamingQuery) -> None:
    assert query.awaitTermination(90), "the query has not ended"


def read_path(spark: SparkSession, path: Path) -> list[Any]:
    return spark.read.parquet(str(path)).collect()


def read_topic(spark: SparkSession, server: KafkaServer, name: str) -> list[Any]:
    options = {"kafka.bootstrap.servers": server.bootstrap_servers, "subscribe": name, "includeHeaders": "true"}
    return spark.read.format("streamgroup").options(**options).load().collect()


def test_garbage_goes_to_a_path_and_the_counts_add_up(
    spark: SparkSession, topic: Topic, start: Start, tmp_path: Path
) -> None:
    topic.send(mixed(2_000))
    good, path = Good(), tmp_path / "dead"
    letters = streamgroup.dead_letters(PARSER, good, path=str(path), max_share=0.05)
    query = start(letters, maxOffsetsPerTrigger=700)
    ended(query)
    readable, unreadable = topic.split()
    assert {at: value for at, (value, _) in good.rows.items()} == readable
    assert all(parsed == (None if value is None else json.loads(value)["id"]) for value, parsed in good.rows.values())
    assert good.columns[-1] == "parsed"
    dead = read_path(spark, path)
    assert {(row.partition, row.offset): bytes(row.value) for row in dead} == unreadable
    assert len(dead) == len(unreadable) == 20
    assert len(good.rows) + len(dead) == len(topic.sent) == 2_000
    assert {(row.topic, bytes(row.key)[:1], bytes(row.headers[0].value)) for row in dead} == {(topic.name, b"k", b"1")}
    assert all(row.timestamp is not None and row.error for row in dead)
    assert {str(row.query) for row in dead} == {str(query.id)}
    assert COUNTS.of(str(query.id)) == 20
    assert committed(topic.server, topic.name, topic.name) == log_ends(topic.server, topic.name, PARTITIONS)


def test_garbage_goes_to_a_topic_with_its_place_in_headers(
    spark: SparkSession, topic: Topic, start: Start, make_topic: MakeTopic
) -> None:
    topic.send(mixed(400))
    target = make_topic(topic.server, 1)
    good = Good(failures=1)
    options = {"kafka.bootstrap.servers": topic.server.bootstrap_servers}
    letters = streamgroup.dead_letters(PARSER, good, topic=target, options=options)
    with pytest.raises(StreamingQueryException, match="the sink is down"):
        ended(start(letters))
    ended(start(letters))
    readable, unreadable = topic.split()
    assert {at: value for at, (value, _) in good.rows.items()} == readable
    rows = read_topic(spark, topic.server, target)
    assert len(rows) == 2 * len(unreadable), "a replay repeats dead letters in a topic"
    for row in rows:
        headers = {header.key: bytes(header.value).decode() for header in row.headers}
        at = int(headers["dead_letter.partition"]), int(headers["dead_letter.offset"])
        assert bytes(row.value) == unreadable[at]
        assert bytes(row.key).startswith(b"k")
        assert headers["h"] == "1"
        assert headers["dead_letter.topic"] == topic.name
        assert headers["dead_letter.error"]
        assert int(headers["dead_letter.timestamp"]) > 1_600_000_000_000


def test_a_replayed_batch_overwrites_its_dead_letters_in_a_path(
    spark: SparkSession, topic: Topic, start: Start, tmp_path: Path
) -> None:
    topic.send(mixed(400))
    good, path = Good(failures=1), tmp_path / "dead"
    letters = streamgroup.dead_letters(PARSER, good, path=str(path))
    with pytest.raises(StreamingQueryException, match="the sink is down"):
        ended(start(letters))
    assert len(read_path(spark, path)) == 4
    ended(start(letters))
    readable, unreadable = topic.split()
    assert good.rows.keys() == readable.keys()
    assert sorted((row.partition, row.offset) for row in read_path(spark, path)) == sorted(unreadable)


def test_the_limit_stops_the_query_and_a_restart_after_mending_goes_on(
    spark: SparkSession, topic: Topic, start: Start, tmp_path: Path
) -> None:
    topic.send([json.dumps({"id": n}).encode() for n in range(100)])
    good, path = Good(), tmp_path / "dead"
    strict = streamgroup.dead_letters(PARSER, good, path=str(path), max_records=3)
    ended(start(strict))
    before = committed(topic.server, topic.name, topic.name)
    topic.send(mixed(400))
    with pytest.raises(StreamingQueryException, match="cannot parse 4 of 400 records") as raised:
        ended(start(strict))
    text = str(raised.value)
    assert f"of group '{topic.name}', more than the 3 (max_records = 3)" in text
    first = re.search(rf"{topic.name}-1: 4 records, the first at offset (\d+) \(", text)
    assert first is not None, text
    assert topic.sent[1, int(first[1])] == GARBAGE[0]
    assert isinstance(strict.error, DeadLetterError)
    assert committed(topic.server, topic.name, topic.name) == before == {0: 50, 1: 50}
    assert (len(good.rows), path.exists()) == (100, False)

    mended = streamgroup.dead_letters(PARSER, good, path=str(path), max_records=4)
    ended(start(mended))
    readable, unreadable = topic.split()
    assert good.rows.keys() == readable.keys()
    assert {(row.partition, row.offset) for row in read_path(spark, path)} == unreadable.keys()
    assert committed(topic.server, topic.name, topic.name) == log_ends(topic.server, topic.name, PARTITIONS)


def test_without_a_target_one_unreadable_record_stops_the_query(topic: Topic, start: Start) -> None:
    topic.send([b'{"id": 1}', b"garbage"])
    good = Good()
    with pytest.raises(StreamingQueryException, match="set a topic or a path for dead letters"):
        ended(start(streamgroup.dead_letters(PARSER, good)))
    assert good.rows == {}


def test_rows_without_the_columns_of_a_record_are_refused(spark: SparkSession) -> None:
    letters = streamgroup.dead_letters(PARSER, Good())
    with pytest.raises(ConfigError, match="the rows lack topic, partition, offset, timestamp, key"):
        letters(spark.createDataFrame([(b"",)], "value BINARY"), 0)


def test_a_damaged_batch_is_a_dead_letter_with_its_bytes_and_the_others_go_on(
    spark: SparkSession, topic: Topic, start: Start, tmp_path: Path
) -> None:
    for _ in range(3):
        topic.send([b'{"id": 7}'] * 20)
    damage(topic.server, topic.name, 10)
    good, path = Good(), tmp_path / "dead"
    ended(start(streamgroup.dead_letters(PARSER, good, path=str(path)), includeDamagedBatches="true"))
    (row,) = read_path(spark, path)
    assert (row.topic, row.partition, row.offset, row.key, row.timestamp) == (topic.name, 0, 10, None, None)
    assert row.error.startswith("the record batch at offset 10: its CRC-32C is 0x")
    batch = bytes(row.value)
    base, count = int.from_bytes(batch[:8], "big"), int.from_bytes(batch[57:61], "big")
    assert len(batch) == 12 + int.from_bytes(batch[8:12], "big"), "the batch is whole"
    within = {(0, offset) for offset in range(base, base + count)}
    assert within
    assert good.rows.keys() == topic.sent.keys() - within
    assert good.columns[-1] == "parsed"
    assert "damage" not in good.columns
    assert committed(topic.server, topic.name, topic.name) == log_ends(topic.server, topic.name, PARTITIONS)


# --- Avro by a schema registry ---------------------------------------------------------------------------------------

V1 = json.dumps({"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}]})
V2 = json.dumps({"type": "record", "name": "r", "fields": [{"name": n, "type": "long"} for n in ("at", "id")]})
WANTED = json.dumps({"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]})


def avro_parser(registry: FakeRegistry) -> streamgroup.Parser:
    return streamgroup.Parser(
        "avro", WANTED, framing="schema_id", registry=streamgroup.SchemaRegistry(registry.url, "etl", "file:password")
    )


class GoodIds(Good):
    """Keeps the ids alone: the values are not JSON."""

    ids: list[int | None]

    def __call__(self, rows: DataFrame, batch: int) -> None:
        self.ids = [*getattr(self, "ids", []), *(row.parsed and row.parsed.id for row in rows.collect())]


def test_avro_is_read_by_the_schemas_of_a_registry(
    spark: SparkSession, topic: Topic, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "password").write_text("hunter2\n")
    good, path = GoodIds(), tmp_path / "dead"
    with schema_registry() as registry:
        registry.user_info = "etl:hunter2"
        registry.schemas = {1: {"schema": V1}, 2: {"schema": V2}}
        letters = streamgroup.dead_letters(avro_parser(registry), good, path=str(path), max_share=0.5)
        topic.send([*(written(V1, {"id": n}, 1) for n in range(50)), None, b"{}", written(V1, {"id": 1}, 99)])
        ended(start(letters))
        topic.send([written(V2, {"at": 5, "id": n}, 2) for n in range(50, 100)])
        ended(start(letters))
        assert registry.asked == [1, 99, 2], "the driver asks once for each schema, and no task asks"
    assert sorted(good.ids, key=lambda one: -1 if one is None else one) == [None, *range(100)]
    assert {bytes(row.value)[:5]: row.error for row in read_path(spark, path)} == {
        b"{}": "the value has 2 bytes, too few for the prefix of a schema registry",
        b"\0\0\0\0\x63": "the registry has no Avro schema with id 99",
    }
    assert len(good.ids) + 2 == len(topic.sent)


def test_protobuf_is_read_by_the_order_of_messages_that_a_registry_has(
    spark: SparkSession, topic: Topic, start: Start, tmp_path: Path
) -> None:
    good, path = GoodIds(), tmp_path / "dead"
    refund = message_bytes(ORDERS, "shop.Refund", id="7")
    with schema_registry() as registry:
        registry.schemas = {
            1: {"schema": ORDERS_TEXT, "schemaType": "PROTOBUF", "references": [{"name": "other.proto"}]},
            2: {"schema": V1},
        }
        parser = streamgroup.Parser(
            "protobuf",
            message="shop.Refund",
            descriptor=ORDERS,
            framing="schema_id",
            registry=streamgroup.SchemaRegistry(registry.url),
        )
        topic.send([b"\0\0\0\0" + rest + refund for rest in (b"\1\0", b"\1\2\0", b"\1\2\2", b"\2\0")])
        ended(start(streamgroup.dead_letters(parser, good, path=str(path), max_share=0.5)))
        assert registry.asked == [1, 2]
    assert good.ids == [7, 7]
    assert {row.error for row in read_path(spark, path)} == {
        "the message index [1] in schema 1 is shop.Order, not shop.Refund",
        "the registry has no Protobuf schema with id 2",
    }


def test_a_registry_that_is_down_fails_the_batch_and_makes_no_dead_letters(
    topic: Topic, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamgroup.spark.schema_registry.ATTEMPTS", 2)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "password").write_text("hunter2")
    good, path = GoodIds(), tmp_path / "dead"
    topic.send([written(V1, {"id": n}, 1) for n in range(10)])
    with schema_registry() as registry:
        registry.user_info = "etl:hunter2"
        registry.schemas, registry.statuses = {1: {"schema": V1}}, [503, 503]
        letters = streamgroup.dead_letters(avro_parser(registry), good, path=str(path), max_share=1)
        with pytest.raises(StreamingQueryException, match="HTTP status 503") as raised:
            ended(start(letters))
        assert "hunter2" not in str(raised.value)
        assert isinstance(letters.error, TransportError)
        assert (hasattr(good, "ids"), path.exists()) == (False, False)
        ended(start(letters))
    assert sorted(good.ids, key=str) == list(range(10))


# --- the ingest job --------------------------------------------------------------------------------------------------

JOB = """\
[source]
kafka.bootstrap.servers = "{servers}"
kafka.group.id = "{topic}"
kafka.session.timeout.ms = 6000
kafka.heartbeat.interval.ms = 300
subscribe = "{topic}"
startingOffsets = "earliest"
maxOffsetsPerTrigger = 200

[trigger]
available_now = true

[sink]
format = "parquet"
path = "{home}/rows"
checkpoint = "{home}/checkpoint"
columns = ["parsed.id", "partition", "offset", "'row' AS kind"]
partition_by = ["kind"]

[parser]
format = "json"
schema = "{schema}"

[dead_letters]
path = "{home}/dead"
max_records = 2

[spark.conf]
spark.ui.enabled = "false"
"""


def job_file(home: Path, topic: Topic, schema: str = "id BIGINT") -> Path:
    file = home / "job.toml"
    servers = topic.server.bootstrap_servers
    file.write_text(JOB.format(servers=servers, topic=topic.name, home=home, schema=schema))
    return file


def run_job(spark: SparkSession, file: Path) -> None:
    """Run the job as `ingest.run` does, in the session of the tests."""
    job = load(file, None, {})
    letters = ingest.store_of(spark, job)
    query = ingest.start(spark, job, letters)
    try:
        ingest.follow_to_the_end(Following(query, ingest.say, lambda end: {}), letters, StopRequest())
    finally:
        query.stop()


def forget_last_batch(checkpoint: Path) -> None:
    """Make Spark run the last batch again: the sink has its rows, and the checkpoint does not know."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink()


def test_a_job_writes_each_row_once_into_files_that_sparks_readers_see(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    topic.send(mixed(400))
    run_job(spark, job_file(tmp_path, topic))
    forget_last_batch(tmp_path / "checkpoint")
    run_job(spark, job_file(tmp_path, topic))
    readable, unreadable = topic.split()
    rows = spark.read.parquet(str(tmp_path / "rows")).collect()
    assert sorted((row.partition, row.offset) for row in rows) == sorted(readable)
    assert sorted(rows_of(tmp_path / "rows", "partition", "offset")) == sorted(readable)
    assert {row.kind for row in rows} == {"row"}
    assert sorted((row.partition, row.offset) for row in read_path(spark, tmp_path / "dead")) == sorted(unreadable)


def test_a_batch_that_is_stored_in_a_database_repeats_neither_rows_nor_dead_letters(
    spark: SparkSession, topic: Topic, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic.send(mixed(400))
    target, database = make_topic(topic.server, 1), tmp_path / "orders.db"
    text = job_file(tmp_path, topic).read_text()
    for old, new in {
        f'format = "parquet"\npath = "{tmp_path}/rows"\n': f"""format = "streamgroup-sql"
options = {{ url = "sqlite:///{database}", dbtable = "orders", createTable = true }}\n""",
        'partition_by = ["kind"]\n': "",
        f'path = "{tmp_path}/dead"': f'topic = "{target}"',
    }.items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "job.toml").write_text(text)
    run_job(spark, tmp_path / "job.toml")
    forget_last_batch(tmp_path / "checkpoint")
    topic.send(mixed(100))
    run_job(spark, tmp_path / "job.toml")
    readable, unreadable = topic.split()
    with closing(sqlite3.connect(database)) as connection:
        assert sorted(connection.execute('SELECT "partition", "offset" FROM orders')) == sorted(readable)
        stored = dict(connection.execute('SELECT "partition", next_offset FROM streamgroup_offsets'))
    assert stored == log_ends(topic.server, topic.name, PARTITIONS)
    dead = [{h.key: bytes(h.value).decode() for h in row.headers} for row in read_topic(spark, topic.server, target)]
    at = [(int(headers["dead_letter.partition"]), int(headers["dead_letter.offset"])) for headers in dead]
    assert sorted(at) == sorted(unreadable)


def test_a_job_above_its_limit_raises_the_error_itself(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    topic.send(mixed(300, every=50))
    with pytest.raises(DeadLetterError, match=r"^cannot parse 4 of 200 records in batch 0 of group "):
        run_job(spark, job_file(tmp_path, topic))
    assert set(committed(topic.server, topic.name, topic.name).values()) <= {0}
    assert rows_of(tmp_path / "rows", "offset") == []


def test_a_job_that_aggregates_or_has_an_invalid_schema_is_refused_at_its_start(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    file = job_file(tmp_path, topic)
    columns = """"parsed.id", "partition", "offset", "'row' AS kind\""""
    assert columns in file.read_text()
    file.write_text(file.read_text().replace(columns, '"max(topic) AS kind"'))
    with pytest.raises(ConfigError, match=r"cannot aggregate in \[sink\] columns"):
        run_job(spark, file)
    with pytest.raises(ConfigError, match="cannot read the schema of the parser"):
        run_job(spark, job_file(tmp_path, topic, schema="id BIGINTT"))


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_submitted_job_stops_at_the_limit_and_goes_on_when_mended(topic: Topic, tmp_path: Path) -> None:
    topic.send(mixed(300, every=50))
    file = job_file(tmp_path, topic)
    with submitted(tmp_path, file, hooks=True) as job:
        assert job.exit_code() == 1, job.log()
    said = job.said()[-1]
    assert said.startswith("error: cannot parse 4 of 200 records in batch 0 of group "), said
    file.write_text(file.read_text().replace("max_records = 2", "max_records = 4"))
    with submitted(tmp_path, file, hooks=True) as job:
        assert job.exit_code() == 0, job.log()
    readable, _ = topic.split()
    assert sorted(rows_of(tmp_path / "rows", "partition", "offset")) == sorted(readable)
