"""The same rows written by Spark's own sink and by this one: the same records and partitions, the same errors."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.read_back import read_back

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(300)]

SINKS = ("kafka", "streamgroup")
KEYS = 10_000
PARTITIONS = 7
HEADERS = "array<struct<key:string,value:binary>>"

Headers = list[Row] | None
Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]


@dataclass(frozen=True)
class Log:
    """The records that one sink has written to a topic, by partition and in the order of the offsets."""

    messages: list[list[Message]]
    began_ms: float
    ended_ms: float

    def records(self) -> list[list[Record]]:
        return [[(m.key(), m.value(), m.headers()) for m in messages] for messages in self.messages]


@pytest.fixture
def write(kafka4: KafkaServer) -> Callable[..., tuple[float, float]]:
    """Writes a frame by a sink `(sink, frame, mode, **options)`. Returns when it began and ended, in ms since 1970."""

    def act(sink: str, frame: DataFrame, mode: str | None = "append", **options: str) -> tuple[float, float]:
        began = time.time()
        writer = frame.write.format(sink).option("kafka.bootstrap.servers", kafka4.bootstrap_servers)
        for name, value in options.items():
            writer = writer.option(name.replace("__", "."), value)
        (writer if mode is None else writer.mode(mode)).save()
        return began * 1000, time.time() * 1000

    return act


Write = Callable[..., tuple[float, float]]


def headers_of(number: int) -> Headers:
    """Headers of many kinds: none, an empty list, null and empty values, a name twice, names beyond ASCII."""
    kinds: list[Headers] = [
        None,
        [],
        [Row(key="a", value=b"1")],
        [Row(key="a", value=None), Row(key="a", value=b""), Row(key="", value=b"x")],
        [Row(key="größe", value=bytes(range(256)))],
    ]
    return kinds[number % len(kinds)]


def key_of(number: int) -> str:
    """A key that no other number has: of many lengths, some beyond ASCII, and one that is empty."""
    if number == 0:
        return ""
    rng = random.Random(number)
    return f"{number}" + "".join(rng.choice("abcäß中\U0001f600 ") for _ in range(rng.randrange(40)))


def value_of(number: int) -> str | None:
    return None if number % 11 == 0 else "" if number % 7 == 0 else f"value {number} ü"


def keyed(spark: SparkSession, kind: str) -> DataFrame:
    """A frame of `KEYS` distinct keys, in one task, so that the order in each partition is that of the rows."""
    rows = [(key_of(n), value_of(n), headers_of(n)) for n in range(KEYS)]
    frame = spark.createDataFrame(rows, f"key string, value string, headers {HEADERS}").coalesce(1)
    return frame.selectExpr(f"CAST(key AS {kind}) key", f"CAST(value AS {kind}) value", "headers")


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_ten_thousand_keys_with_values_and_headers_are_written_alike(
    spark: SparkSession, kafka4: KafkaServer, make_topic: MakeTopic, write: Write, kind: str
) -> None:
    logs = []
    for sink in SINKS:
        topic = make_topic(kafka4, PARTITIONS)
        began, ended = write(sink, keyed(spark, kind), topic=topic)
        logs.append(Log(read_back(kafka4, topic), began, ended))
    theirs, ours = logs
    assert sum(map(len, theirs.messages)) == KEYS
    assert ours.records() == theirs.records()
    assert {key for messages in ours.records() for key, _, _ in messages} == {key_of(n).encode() for n in range(KEYS)}
    # Spark's sink takes no timestamp from a column: each record has the time at which it was written.
    for log in logs:
        for message in (each for messages in log.messages for each in messages):
            kind_, time_ms = message.timestamp()
            assert kind_ == TIMESTAMP_CREATE_TIME
            assert int(log.began_ms) <= time_ms <= log.ended_ms + 1


def test_the_columns_partition_and_topic_mean_the_same(
    spark: SparkSession, kafka4: KafkaServer, make_topic: MakeTopic, write: Write
) -> None:
    """The column `partition` wins over the key, a null leaves the choice to the key; the column `topic` names it."""
    found = []
    for sink in SINKS:
        topics = [make_topic(kafka4, PARTITIONS) for _ in range(2)]
        rows = [
            (
                topics[n % 2],
                None if n % 5 == 0 and n % 3 else f"key {n}",
                value_of(n),
                n % PARTITIONS if n % 3 else None,
            )
            for n in range(1_000)
        ]
        write(sink, spark.createDataFrame(rows, "topic string, key string, value string, partition int").coalesce(1))
        found.append([Log(read_back(kafka4, topic), 0, 0).records() for topic in topics])
    assert found[1] == found[0]
    assert [sum(map(len, log)) for log in found[0]] == [500, 500]


def test_records_without_keys_are_all_there(
    spark: SparkSession, kafka4: KafkaServer, make_topic: MakeTopic, write: Write
) -> None:
    """Their partitions are chosen by chance. The option `topic` wins over the column."""
    rows = [("nobody-made-it", None, f"value {n}") for n in range(1_000)]
    frame = spark.createDataFrame(rows, "topic string, key binary, value string")
    for sink in SINKS:
        topic = make_topic(kafka4, PARTITIONS)
        write(sink, frame, topic=topic)
        records = [record for messages in Log(read_back(kafka4, topic), 0, 0).records() for record in messages]
        assert sorted(records) == sorted((None, value.encode(), None) for _, _, value in rows), sink


# -- bad input ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bad:
    """A write that both sinks refuse, and the text of each one's error as a regular expression.

    `{topic}` in a row or an option stands for a topic with seven partitions.
    """

    columns: str
    theirs: str
    ours: str
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    mode: str = "append"
    options: dict[str, str] = field(default_factory=lambda: {"topic": "{topic}"})


REFUSED = {
    "no value": Bad("key string", "[Rr]equired attribute 'value' not found", "required column 'value' is missing"),
    "no topic": Bad(
        "value string", "'?topic'? option required when no 'topic'", "option 'topic' is required", options={}
    ),
    "topic int": Bad(
        "topic int, value string",
        "topic attribute unsupported type int. topic must be a.* string",
        "column 'topic' has the unsupported type int. It must be string",
        options={},
    ),
    "key int": Bad(
        "key int, value string",
        "key attribute unsupported type int. key must be a.* string or binary",
        "column 'key' has the unsupported type int. It must be string or binary",
    ),
    "value bigint": Bad(
        "value bigint",
        "value attribute unsupported type bigint. value must be a.* string or binary",
        "column 'value' has the unsupported type bigint. It must be string or binary",
    ),
    "headers string": Bad(
        "value string, headers string",
        "headers attribute unsupported type string. headers must be a.* array",
        "column 'headers' has the unsupported type string. It must be array",
    ),
    "headers of strings": Bad(
        "value string, headers array<struct<key:string,value:string>>",
        "headers attribute unsupported type array<.*>. headers must be a.* array",
        "column 'headers' has the unsupported type array<struct<key:string,value:string>>. It must be array",
    ),
    "partition bigint": Bad(
        "value string, partition bigint",
        "partition attribute unsupported type bigint. partition must be a.* int",
        "column 'partition' has the unsupported type bigint. It must be int",
    ),
    "overwrite": Bad(
        "value string", "[Ss]ave mode .?Overwrite.? not allowed", "cannot overwrite a topic", mode="overwrite"
    ),
    "ignore": Bad("value string", "[Ss]ave mode .?Ignore.? not allowed", "[Ii]gnore", mode="ignore"),
    "null topic": Bad(
        "topic string, value string",
        "contains a null topic. Use the .topic. option for setting a default topic",
        "null topic present in the data. Use the option 'topic' for setting a default topic",
        rows=[("{topic}", "a"), (None, "b")],
        options={},
    ),
    "negative partition": Bad(
        "value string, partition int",
        "Invalid partition: -5",
        "partition -5",
        rows=[("a", 0), ("b", -5)],
    ),
    "partition above the count": Bad(
        "value string, partition int",
        "Partition 7 of topic .* with partition count 7 is not present",
        "partition 7 of topic .* has 7 partitions",
        rows=[("a", 0), ("b", 7)],
    ),
    "null header key": Bad(
        f"value string, headers {HEADERS}",
        "NullPointerException",  # it does not look for one
        "null header keys are not permitted",
        rows=[("a", [Row(key=None, value=b"x")])],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_both_sinks_refuse_what_cannot_be_written(
    spark: SparkSession, kafka4: KafkaServer, make_topic: MakeTopic, write: Write, name: str
) -> None:
    bad = REFUSED[name]
    topic = make_topic(kafka4, PARTITIONS) if bad.rows else "never-made"
    rows = [tuple(topic if cell == "{topic}" else cell for cell in row) for row in bad.rows]
    options = {key: topic if value == "{topic}" else value for key, value in bad.options.items()}
    frame = spark.createDataFrame(rows, bad.columns).coalesce(1)
    for sink, said in zip(SINKS, (bad.theirs, bad.ours), strict=True):
        with pytest.raises((PySparkException, Py4JJavaError), match=f"(?s){said}"):
            write(sink, frame, bad.mode, kafka__max__block__ms="4000", **options)


def test_only_sparks_sink_takes_a_write_without_a_mode(
    spark: SparkSession, kafka4: KafkaServer, make_topic: MakeTopic, write: Write
) -> None:
    """PySpark refuses it for every sink in Python, before this one is asked."""
    topic = make_topic(kafka4, PARTITIONS)
    frame = spark.createDataFrame([("a",)], "value string")
    write("kafka", frame, None, topic=topic)
    with pytest.raises(PySparkException, match=r"(?i)append"):
        write("streamgroup", frame, None, topic=topic)
    assert sum(map(len, read_back(kafka4, topic))) == 1
