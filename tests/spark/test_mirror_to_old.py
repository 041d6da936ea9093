"""A mirror from a current Kafka to an old one, which cannot hold all that the records have."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Message
from pyspark.sql import SparkSession

from streamgroup.jobs.mirror.clusters import Clusters
from streamgroup.jobs.mirror.config import load
from streamgroup.jobs.mirror.plan import latest
from streamgroup.jobs.mirror.query import mirror as copy
from streamgroup.jobs.mirror.report import compare, differences
from streamgroup.jobs.signals import StopRequest
from streamgroup.jobs.sinkguard import HadoopFiles
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.old_kafka import number, stored
from tests.read_back import read_back
from tests.spark.support import Load

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(240)]

PARTITIONS = 2
RECORDS = 600
FIRST_THAT_CREATES = (0, 10, 1)
"""Before, brokers have no CreateTopics."""
FIRST_WITH_TIMESTAMPS, FIRST_WITH_HEADERS = (0, 10), (0, 11)
SETTINGS = """\
[source]
kafka.bootstrap.servers = "{source}"
subscribe = "{topic}"
kafka.group.id = "{topic}"
maxOffsetsPerTrigger = 250

[destination]
kafka.bootstrap.servers = "{destination}"
kafka.compression.type = "snappy"

[mirror]
checkpoint = "{home}/checkpoint"
plan = "{home}/plan"

[trigger]
available_now = true
"""


@pytest.mark.long
@pytest.mark.parametrize("version", ["kafka08", "kafka09", "kafka010", "kafka11", "kafka39"])
def test_a_current_kafka_is_mirrored_to_an_old_one(
    *,
    tmp_path: Path,
    kafka4: KafkaServer,
    version: str,
    make_topic: MakeTopic,
    spark: SparkSession,
    request: pytest.FixtureRequest,
) -> None:
    old_kafka: KafkaServer = request.getfixturevalue(version)
    records = Load(kafka4, make_topic(kafka4, PARTITIONS), PARTITIONS)
    records.send(RECORDS, key=b"k", headers=[("h", b"1"), ("h", None)])
    creates = "[topics]\ncreate = true\nreplication_factor = 1\n"
    if number(old_kafka) < FIRST_THAT_CREATES:
        creates = ""
        make_topic(old_kafka, PARTITIONS, name=records.topic)
    file = tmp_path / "mirror.toml"
    servers = {"source": kafka4.bootstrap_servers, "destination": old_kafka.bootstrap_servers}
    file.write_text(SETTINGS.format(topic=records.topic, home=tmp_path, **servers) + creates)
    config = load(file, None, {})
    files, said = HadoopFiles(spark), list[str]()
    with closing(Clusters(config)) as clusters:
        copy(spark, config, clusters, files, stop=StopRequest(), say=said.append)
        rows = compare(spark, config, clusters, latest(files, config.plan)[1])
    assert differences(rows) == []
    assert [row.destination_records for row in rows] == [RECORDS // PARTITIONS] * PARTITIONS

    has_timestamps, has_headers = number(old_kafka) >= FIRST_WITH_TIMESTAMPS, number(old_kafka) >= FIRST_WITH_HEADERS
    assert any(line.startswith("timestamps are not copied") for line in said) is not has_timestamps
    assert any(line.startswith("headers are not copied") for line in said) is not has_headers
    assert stored(old_kafka, records.topic).magic == (2 if has_headers else 1 if has_timestamps else 0)
    sent, copied = read_back(kafka4, records.topic), read_back(old_kafka, records.topic)

    def kept(message: Message) -> tuple[object, ...]:
        headers, timestamp = message.headers() if has_headers else None, message.timestamp() if has_timestamps else None
        return message.key(), message.value(), headers, timestamp

    for written, found in zip(sent, copied, strict=True):
        assert list(map(kept, found)) == list(map(kept, written))
