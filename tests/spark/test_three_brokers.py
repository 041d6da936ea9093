"""Queries on three brokers, which die and come back: leaders and coordinators move."""

from __future__ import annotations

import itertools
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

import streamgroup
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.wire.messages.group import TRANSACTION_KEY
from streamgroup.options.parse import parse_sink
from streamgroup.testing import KafkaServer, java_tool
from tests.conftest import MakeTopic
from tests.console_tools import console_consumer
from tests.spark.support import Load, Streams, assigned, committed, log_ends, repeated, under_load
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.long]

PARTITIONS = 6
BATCH = 300
PATIENT = {"message.timeout.ms": 60_000, "log_level": 0}


@pytest.fixture
def three_brokers() -> Iterator[KafkaServer]:
    with KafkaServer(brokers=3, config={"min.insync.replicas": 1}) as server:
        yield server


@pytest.mark.timeout(400)
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_broker_dies_and_comes_back(
    streams: Streams, three_brokers: KafkaServer, make_topic: MakeTopic, victim: int
) -> None:
    topic = make_topic(three_brokers, PARTITIONS, replication=3)
    load = Load(three_brokers, topic, PARTITIONS, PATIENT)
    options = {"maxOffsetsPerTrigger": BATCH, "kafka__request__timeout__ms": 3000}
    a, b = (streams.to_parquet(streams.read(three_brokers, topic, "three", **options), name) for name in "ab")

    def sunk() -> int:
        return len(a.rows("offset")) + len(b.rows("offset"))

    def goes_on(what: str) -> None:
        before = sunk()
        wait_until(lambda: sunk() > before + 50, what, 60)
        assert a.query.isActive
        assert b.query.isActive

    with under_load(load):
        wait_until(lambda: len(assigned(a.query)) == len(assigned(b.query)) == 3, "a split of 3-3", 60)
        goes_on("batches on three brokers")
        three_brokers.brokers[victim].kill()
        goes_on("batches on two")
        three_brokers.brokers[victim].restart()
        goes_on("batches on three again")
    wait_until(lambda: set(a.values() + b.values()) >= set(load.sent), "everything in the sinks", 60)
    ends = log_ends(three_brokers, topic, PARTITIONS)
    wait_until(lambda: committed(three_brokers, "three", topic) == ends, "everything committed", 30)
    values = a.values() + b.values()
    assert set(values) == set(load.sent)
    assert sum(count - 1 for count in repeated(values).values()) <= 2 * BATCH


COPIED = 100_000


@pytest.mark.timeout(900)
@pytest.mark.parametrize("is_clean", [True, False], ids=["cleanly", "at once"])
def test_a_copy_in_transactions_is_exact_while_brokers_end(
    streams: Streams, make_topic: MakeTopic, is_clean: bool
) -> None:
    """As Kafka's own system test of transactions: one broker after the other ends and starts again while records are
    copied, then the transaction coordinator. A Java consumer reads the copy."""
    with KafkaServer(brokers=3, config={"min.insync.replicas": 2}) as server:
        load = Load(server, make_topic(server, PARTITIONS, replication=3), PARTITIONS, PATIENT)
        target = make_topic(server, PARTITIONS, replication=3)
        load.send(COPIED)
        sink = streamgroup.exactly_once(target, **{"kafka.bootstrap.servers": server.bootstrap_servers})
        options = {"offsets__store": "transaction", "kafka__request__timeout__ms": 5000}
        identified = {"kafka__transactional__id": "copy"}
        frame = streams.read(server, load.topic, "copying", maxOffsetsPerTrigger=2_500, **options, **identified)
        rows = frame.selectExpr("cast(partition as string) as key", "value")
        query = (
            rows.writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(streams.home / "copy-checkpoint"))
            .start()
        )
        streams.add(query)

        def copied() -> int:
            return sum(committed(server, "copying", load.topic).values())

        bounced = 0
        for number in itertools.count():
            before = copied()
            wait_until(lambda before=before: copied() > before or copied() == COPIED, "a batch is copied", 120)
            if copied() == COPIED:
                break
            victim = server.brokers[number % 4 if number % 4 < 3 else coordinator_of(server, "copy")]
            if is_clean:
                victim.stop()
            else:
                victim.kill()
            victim.restart()
            bounced += 1
            assert query.isActive, query.exception()
        assert bounced >= 4
        query.stop()
        values = [line for line in read_by_java(server, target) if line.startswith(load.topic)]
    assert Counter(values) == Counter(load.sent)
    of_key = defaultdict(list)
    for value in values:
        of_key[value.split("-")[-2]].append(int(value.split("-")[-1]))
    assert all(numbers == sorted(numbers) for numbers in of_key.values())


def coordinator_of(server: KafkaServer, transactional_id: str) -> int:
    """Return the index of the broker that coordinates a transactional id."""
    options = parse_sink({"kafka.bootstrap.servers": server.bootstrap_servers, "topic": "unused"})
    cluster = KafkaCluster(options.client)
    try:
        return cluster.coordinator(transactional_id, cluster.deadline(), TRANSACTION_KEY).node_id
    finally:
        cluster.close()


def read_by_java(server: KafkaServer, topic: str) -> list[str]:
    """Return what Kafka's console consumer prints: values of committed records, until none comes for 10 s, then an
    error."""
    arguments = ("--bootstrap-server", server.bootstrap_servers, "--topic", topic, "--from-beginning")
    committed_only = ("--isolation-level", "read_committed", "--timeout-ms", "10000")
    argv = java_tool(server.version, console_consumer(server.version), *arguments, *committed_only)
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=180, check=False)
    return ran.stdout.splitlines()
