"""The mirror within a session: hashed partitions, new topics of a pattern, and what a verification finds."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from streamgroup.errors import BrokerError, ConfigError
from streamgroup.jobs.mirror.clusters import Clusters
from streamgroup.jobs.mirror.config import MirrorConfig, load
from streamgroup.jobs.mirror.plan import MirrorPlan, Placement, TopicPlan, latest
from streamgroup.jobs.mirror.query import mirror
from streamgroup.jobs.mirror.report import Comparison, Place, compare
from streamgroup.jobs.signals import StopRequest
from streamgroup.jobs.sinkguard import HadoopFiles
from streamgroup.spark.exactly_once import _TransactionWriter
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.live.transacting import read_committed
from tests.read_back import read_back
from tests.spark.support import committed, log_ends

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(180)]

T0 = int(time.time()) * 1000 - 3_600_000
"""An hour ago: a broker deletes records whose timestamps are older than its retention time."""
_numbers = itertools.count()


def configured(home: Path, server: KafkaServer, subscription: str, more: str = "") -> MirrorConfig:
    file = home / "mirror.toml"
    file.write_text(
        f"""
        [source]
        kafka.bootstrap.servers = "{server.bootstrap_servers}"
        kafka.group.id = "{home.name}"
        {subscription}
        [destination]
        kafka.bootstrap.servers = "{server.bootstrap_servers}"
        [mirror]
        checkpoint = "{home}/checkpoint"
        plan = "{home}/plan"
        [trigger]
        available_now = true
        [rename]
        match = "^from"
        replace = "to"
        {more}
        """
    )
    return load(file, None, {})


def exactly_once(config: MirrorConfig) -> MirrorConfig:
    """Return the mirror with the guarantee in its file."""
    config.file.write_text(config.file.read_text().replace("[mirror]", '[mirror]\nguarantee = "exactly-once"'))
    return load(config.file, None, {})


@dataclass(frozen=True)
class Pair:
    """A topic, the one that a mirror copies it to, and the mirror."""

    source: str
    destination: str
    config: MirrorConfig

    def comparison(self, partition: int, records: int, **differences: Any) -> Comparison:
        """Return what a verification says of a partition that has as many records on both sides."""
        return Comparison(
            f"{self.source}-{partition}",
            f"{self.destination}-{partition}",
            source_records=records,
            destination_records=records,
            source_offsets=(0, records - 1),
            destination_offsets=(0, records - 1),
            **differences,
        )


MakePair = Callable[[int, int], Pair]


@pytest.fixture
def make_pair(tmp_path: Path, kafka4: KafkaServer, make_topic: MakeTopic) -> MakePair:
    """Make both topics, each with its number of partitions."""

    def make(partitions: int, copied_to: int) -> Pair:
        number = next(_numbers)
        source = make_topic(kafka4, partitions, name=f"from-{number}")
        destination = make_topic(kafka4, copied_to, name=f"to-{number}")
        return Pair(source, destination, configured(tmp_path, kafka4, f'subscribe = "{source}"'))

    return make


def copy(spark: SparkSession, config: MirrorConfig) -> list[str]:
    """Mirror the backlog; what the job has said."""
    said: list[str] = []
    with closing(Clusters(config)) as clusters:
        mirror(spark, config, clusters, HadoopFiles(spark), stop=StopRequest(), say=said.append)
    return said


def verified(spark: SparkSession, config: MirrorConfig) -> list[Comparison]:
    _, plan = latest(HadoopFiles(spark), config.plan)
    with closing(Clusters(config)) as clusters:
        return compare(spark, config, clusters, plan.of(clusters.topics(clusters.source())))


def produce(server: KafkaServer, topic: str, partition: int, *records: tuple[str, int] | str, **more: object) -> None:
    """Values with their timestamps, after T0."""
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "log_level": 3})
    for record in records:
        value, timestamp = record if isinstance(record, tuple) else (record, int(record[1:] or 0))
        producer.produce(topic, value.encode(), partition=partition, timestamp=T0 + timestamp, **more)
    assert producer.flush(30) == 0


def test_a_verification_tells_losses_from_repeats(
    spark: SparkSession, kafka4: KafkaServer, make_pair: MakePair
) -> None:
    pair = make_pair(2, 2)
    source, destination = pair.source, pair.destination
    produce(kafka4, source, 0, "a0", "a1", "a2", "a3", "a4", "a5")
    produce(kafka4, destination, 0, "a0", "a1", "a0", "a1", "a3", "x9")
    produce(kafka4, source, 1, "b0", "b1", "b2", headers=[("h", b"1")])
    produce(kafka4, destination, 1, ("b0", 77), "b2", "b1", headers=[("h", b"1")])
    plan = MirrorPlan({source: TopicPlan(source, destination, Placement.KEEP, {0: 0, 1: 1})})
    with closing(Clusters(pair.config)) as clusters:
        first, second = compare(spark, pair.config, clusters, plan)
    no_sums = {"source_sum": 0, "destination_sum": 0}
    assert replace(first, **no_sums) == pair.comparison(
        partition=0,
        records=6,
        lost=1,
        behind=2,
        repeated=2,
        extra=1,
        first_lost=Place("0", 2),
        first_behind=Place("0", 4),
        first_extra=Place("0", 5),
    )
    assert first.checksums[0] != first.checksums[1]
    assert replace(second, **no_sums) == pair.comparison(
        partition=1, records=3, disordered=1, retimed=1, first_disordered=Place("1", 2), first_retimed=Place("1", 0)
    )
    assert second.checksums[0] == second.checksums[1]


def test_keys_place_records_where_the_counts_differ(
    spark: SparkSession, kafka4: KafkaServer, make_topic: MakeTopic, make_pair: MakePair
) -> None:
    pair = make_pair(3, 2)
    source, destination = pair.source, pair.destination
    keys = [f"k{n}" for n in range(20)]
    for partition in range(3):
        for n, key in enumerate(keys[partition::3]):
            produce(kafka4, source, partition, f"{partition}{n}", key=key, headers=[("h", None), ("g", b"1")])
        produce(kafka4, source, partition, *(f"n{m}" for m in range(partition * 50, partition * 50 + 50)))
    said = copy(spark, pair.config)
    assert f"started {source} -> {destination} (hash)" in said[0]
    found = read_back(kafka4, destination)
    keyless = [[m.value().decode() for m in messages if m.key() is None] for messages in found]
    assert [v for v in keyless[0] if int(v[1:]) < 50] == [f"n{n}" for n in range(50)], "source partition 0"
    assert [v for v in keyless[0] if int(v[1:]) >= 50] == [f"n{n}" for n in range(100, 150)], "source partition 2"
    assert keyless[1] == [f"n{n}" for n in range(50, 100)]
    keyed = [m for messages in found for m in messages if m.key() is not None]
    assert sorted(m.key().decode() for m in keyed) == sorted(keys)
    assert {tuple(m.headers()) for m in keyed} == {(("h", None), ("g", b"1"))}
    assert all(m.timestamp()[1] == T0 + int(m.value()[1:]) for messages in found for m in messages)

    by_java = make_topic(kafka4, 2)
    producer = Producer({"bootstrap.servers": kafka4.bootstrap_servers, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce(by_java, b"", key=key)
    assert producer.flush(30) == 0
    placed = [{m.key() for m in messages} for messages in read_back(kafka4, by_java)]
    assert [{m.key() for m in messages if m.key()} for messages in found] == placed

    (row,) = verified(spark, pair.config)
    assert row.is_equal
    assert (row.source, row.source_records, row.destination_records, row.repeated) == (source, 170, 170, 0)


def test_a_mirror_of_a_pattern_takes_new_topics(
    tmp_path: Path, spark: SparkSession, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    number = next(_numbers)
    first = make_topic(kafka4, 1, name=f"from-{number}-first")
    config = configured(
        tmp_path, kafka4, f'subscribePattern = "from-{number}-.*"', '[topics]\npartitions = "keep"\ncreate = true'
    )
    produce(kafka4, first, 0, "a0", "a1")
    copy(spark, config)
    second = make_topic(kafka4, 2, name=f"from-{number}-second")
    produce(kafka4, first, 0, "a2")
    produce(kafka4, second, 1, "b0")
    copy(spark, config)
    assert [m.value() for m in read_back(kafka4, f"to-{number}-first")[0]] == [b"a0", b"a1", b"a2"]
    assert [m.value() for m in read_back(kafka4, f"to-{number}-second")[1]] == [b"b0"]
    rows = verified(spark, config)
    assert all(row.is_equal for row in rows)
    assert [row.source for row in rows] == [f"{first}-0", f"{second}-0", f"{second}-1"]


def transact(server: KafkaServer, topic: str, name: str, end: str) -> Producer:
    """Write three records in a transaction, with a key that says how it ends. Return its producer."""
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "transactional.id": f"{topic}-{name}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for n in range(3):
        producer.produce(topic, f"{name}{n}".encode(), key=end, partition=0, timestamp=T0)
    assert producer.flush(30) == 0
    if end != "open":
        getattr(producer, f"{end}_transaction")(30)
    return producer


@pytest.mark.long
def test_a_copy_has_the_records_of_committed_transactions_only(
    spark: SparkSession, kafka4: KafkaServer, make_pair: MakePair
) -> None:
    pair = make_pair(1, 1)
    transact(kafka4, pair.source, "a", "commit")
    transact(kafka4, pair.source, "b", "abort")
    last = transact(kafka4, pair.source, "c", "open")
    produce(kafka4, pair.source, 0, "d0", key="behind the open one")
    for ended in (False, True):
        if ended:
            last.commit_transaction(30)
        copy(spark, pair.config)
        (copied,) = read_back(kafka4, pair.destination)
        expected = ["a0", "a1", "a2", *(["c0", "c1", "c2", "d0"] if ended else [])]
        assert [message.value().decode() for message in copied] == expected
        (row,) = verified(spark, pair.config)
        assert (row.is_equal, row.source_records, row.repeated) == (True, len(expected), 0)


@pytest.mark.parametrize("copied_to", [3, pytest.param(2, marks=pytest.mark.long)], ids=["kept", "placed by keys"])
def test_a_copy_exactly_once_repeats_no_record_of_a_batch_that_has_failed(
    spark: SparkSession,
    kafka4: KafkaServer,
    make_pair: MakePair,
    monkeypatch: pytest.MonkeyPatch,
    *,
    copied_to: int,
) -> None:
    """The records of the failed batch stay in the log, in an aborted transaction."""
    pair = make_pair(3, copied_to)
    config = exactly_once(pair.config)
    sent = [[f"{partition}{n}" for n in range(10)] for partition in range(3)]
    for partition, values in enumerate(sent):
        for value in values:
            produce(kafka4, pair.source, partition, value, key=value, headers=[("h", b"1")])

    def ends(*_: Any) -> None:
        raise BrokerError(0, "the mirror ends here")

    with monkeypatch.context() as patched:
        patched.setattr(_TransactionWriter, "_commit", ends)
        patched.setattr(_TransactionWriter, "_abort", lambda _: None)  # as if the process were killed
        with pytest.raises(BrokerError, match="the mirror ends here"):
            copy(spark, config)
    assert read_committed(kafka4, pair.destination) == []
    said = copy(spark, config)
    assert any(line.startswith("batch ") for line in said)
    copied = read_committed(kafka4, pair.destination)
    assert sorted(copied) == sorted(itertools.chain(*sent))
    for values in sent:
        of_partition = [value for value in copied if value in values]
        assert copied_to < 3 or of_partition == values
    log_end = sum(log_ends(kafka4, pair.destination, copied_to).values())
    assert log_end >= 2 * len(copied), "both attempts are in the log"
    rows = verified(spark, config)
    assert all(row.is_equal for row in rows)
    assert sum(row.destination_records for row in rows) == sum(row.source_records for row in rows) == 30
    assert sum(row.repeated for row in rows) == 0
    ends_of_source = log_ends(kafka4, pair.source, 3)
    assert committed(kafka4, config.source["kafka.group.id"], pair.source) == ends_of_source


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", r"the destination has no topic 'to-.*' \(2 partitions\)\. Create it, or .* create = true"),
        (
            "table = { {source} = '{source}' }",
            r"source and destination are one cluster, and the mirror reads that topic",
        ),
    ],
)
def test_a_topic_that_cannot_be_mirrored_is_refused(
    tmp_path: Path, spark: SparkSession, kafka4: KafkaServer, make_topic: MakeTopic, *, more: str, said: str
) -> None:
    source = make_topic(kafka4, 2, name=f"from-refused-{next(_numbers)}")
    config = configured(tmp_path, kafka4, f'subscribe = "{source}"', more.replace("{source}", source))
    with pytest.raises(ConfigError, match=said):
        copy(spark, config)
