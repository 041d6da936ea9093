"""A mirror from a current Kafka to Kafka 0.7: each partition keeps its records and their order, and is verified."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamgroup.jobs.mirror.clusters import Clusters
from streamgroup.jobs.mirror.config import load
from streamgroup.jobs.mirror.plan import latest
from streamgroup.jobs.mirror.query import mirror as copy
from streamgroup.jobs.mirror.report import compare, differences
from streamgroup.jobs.signals import StopRequest
from streamgroup.jobs.sinkguard import HadoopFiles
from streamgroup.testing import KafkaServer
from streamgroup.testing.kafka07 import Kafka07Server
from tests.conftest import MakeTopic
from tests.spark.support import Load

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(240)]

PARTITIONS = 3
RECORDS = 600
SETTINGS = """\
[source]
kafka.bootstrap.servers = "{source}"
subscribe = "{topic}"
kafka.group.id = "{topic}"
maxOffsetsPerTrigger = 250

[destination]
zookeeper.connect = "{destination}"
kafka.compression.type = "gzip"
verify = "true"

[topics]
partitions = "keep"

[mirror]
checkpoint = "{home}/checkpoint"
plan = "{home}/plan"

[trigger]
available_now = true
"""


@pytest.fixture
def kafka07() -> Iterator[Kafka07Server]:
    """As many brokers as the source has partitions: a new topic of Kafka 0.7 has partition 0 of each broker."""
    config = {
        "log.flush.interval": 50,
        "log.default.flush.interval.ms": 100,
        "log.default.flush.scheduler.interval.ms": 100,
    }
    with Kafka07Server(brokers=PARTITIONS, config=config) as server:
        yield server


def test_a_current_kafka_is_mirrored_to_kafka_07(
    tmp_path: Path, kafka4: KafkaServer, kafka07: Kafka07Server, make_topic: MakeTopic, spark: SparkSession
) -> None:
    records = Load(kafka4, make_topic(kafka4, PARTITIONS), PARTITIONS)
    records.send(RECORDS, key=b"k")
    file, zookeeper = tmp_path / "mirror.toml", kafka07.zookeeper_connect
    file.write_text(
        SETTINGS.format(source=kafka4.bootstrap_servers, topic=records.topic, destination=zookeeper, home=tmp_path)
    )
    config = load(file, None, {})
    files, said = HadoopFiles(spark), list[str]()
    with closing(Clusters(config)) as clusters:
        copy(spark, config, clusters, files, stop=StopRequest(), say=said.append)
        rows = compare(spark, config, clusters, latest(files, config.plan)[1])
    assert differences(rows) == []
    assert len(rows) == PARTITIONS
    assert sum(row.destination_records for row in rows) == RECORDS

    reader = (
        spark.read.format("streamgroup")
        .option("zookeeper.connect", zookeeper)
        .option("includeInnerIndex", "true")
        .option("subscribe", records.topic)
    )
    copied = reader.load().selectExpr("partition", "offset", "inner", "CAST(value AS STRING) AS value").collect()
    for index, partition in enumerate(sorted({row.partition for row in copied})):
        values = [row.value for row in sorted(copied, key=lambda r: (r.offset, r.inner)) if row.partition == partition]
        assert values == records.sent[index::PARTITIONS], f"partition {partition}"
