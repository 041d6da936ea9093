"""The mirror as users run it: killed in the middle and started again, it loses nothing and keeps the order."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
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
from streamgroup.testing import KafkaServer, Producer07
from streamgroup.testing.kafka07 import Kafka07Server
from tests.conftest import MakeTopic
from tests.live.transacting import read_committed
from tests.old_kafka import librdkafka
from tests.read_back import read_back
from tests.spark.submitting import SMALL, Job, submitted, toml_lines
from tests.spark.support import Load, log_ends
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(400)]

START_S = 90.0
PARTITIONS = 3
RECORDS = 2_000
MANY = 20_000
SETTINGS = """\
[source]
{source}
{topics}
kafka.group.id = "{group}"
maxOffsetsPerTrigger = {limit}

[destination]
kafka.bootstrap.servers = "{destination}"

[topics]
create = true

[rename]
prefix = "copy."

[mirror]
checkpoint = "{home}/checkpoint"
plan = "{home}/plan"

[trigger]
{trigger}

[spark.conf]
{conf}
spark.sql.shuffle.partitions = 2
"""


@dataclass
class Source:
    """A topic to mirror: how to reach it, and how to fill it."""

    topic: str
    options: str
    send: Callable[[int], None]
    partitions: int = PARTITIONS
    sent: dict[int, list[str]] = field(default_factory=dict)
    """The values by the partition at the destination, in order."""
    bytes_per_record: int = 1


@dataclass
class Mirror:
    """A mirror between two clusters, and where it runs."""

    home: Path
    source: Source
    destination: KafkaServer

    @property
    def copy(self) -> str:
        return f"copy.{self.source.topic}"

    def file(self, batches: int, records: int, trigger: str = "") -> Path:
        file = self.home / "mirror.toml"
        text = SETTINGS.format(
            source=self.source.options,
            topics="" if "assign" in self.source.options else f'subscribe = "{self.source.topic}"',
            group=self.source.topic,
            limit=records // batches * self.source.bytes_per_record,
            destination=self.destination.bootstrap_servers,
            trigger=trigger,
            home=self.home,
            conf=toml_lines(SMALL),
        )
        file.write_text(text)
        return file

    def count(self) -> int:
        """How many records the copy has; 0 while there is none."""
        try:
            return sum(log_ends(self.destination, self.copy, self.source.partitions).values())
        except Exception:
            return 0

    def check(self) -> int:
        """Nothing is lost, and each partition keeps its order. Return how many records are repeated."""
        copied = read_back(self.destination, self.copy)
        assert set(range(len(copied))) == self.source.sent.keys()
        for partition, messages in enumerate(copied):
            values = [message.value().decode() for message in messages]
            assert list(dict.fromkeys(values)) == self.source.sent[partition], f"partition {partition}"
        return sum(map(len, copied)) - sum(map(len, self.source.sent.values()))


def loaded(load: Load, options: str) -> Source:
    def send(count: int) -> None:
        for n, value in enumerate(load.send(count, key=b"k"), len(load.sent) - count):
            source.sent.setdefault(n % load.partitions, []).append(value)

    source = Source(load.topic, options, send, load.partitions)
    return source


@pytest.fixture
def source41(kafka4: KafkaServer, make_topic: MakeTopic) -> Source:
    load = Load(kafka4, make_topic(kafka4, PARTITIONS), PARTITIONS)
    return loaded(load, f'kafka.bootstrap.servers = "{kafka4.bootstrap_servers}"')


@pytest.fixture
def source08(kafka08: KafkaServer, make_topic: MakeTopic) -> Source:
    """By assignment, through the brokers."""
    topic = make_topic(kafka08, PARTITIONS)
    load = Load(kafka08, topic, PARTITIONS, {**librdkafka(kafka08), "enable.idempotence": False})
    assigned = f"""assign = '{{"{topic}": {list(range(PARTITIONS))}}}'"""
    return loaded(load, f'kafka.bootstrap.servers = "{kafka08.bootstrap_servers}"\n{assigned}')


@pytest.fixture
def source07() -> Iterator[Source]:
    """Two brokers with two partitions each, whose group is in ZooKeeper. The tests share the destination."""
    with Kafka07Server(brokers=2, config={"num.partitions": 2}) as kafka:
        topic = f"events-{uuid.uuid4().hex[:8]}"

        def send(count: int) -> None:
            with Producer07(zookeeper=kafka.zookeeper_connect) as producer:
                for number in range(4):
                    broker, partition = divmod(number, 2)
                    known = source.sent.setdefault(number, [])
                    values = [f"{topic}-{number}-{n}" for n in range(len(known), len(known) + count // 4)]
                    for n in range(0, len(values), 5):
                        codec = (None, "gzip", "snappy")[n // 5 % 3]
                        payload = [value.encode() for value in values[n : n + 5]]
                        producer.produce(topic, payload, codec=codec, broker=broker, partition=partition)
                    known += values

        options = f'zookeeper.connect = "{kafka.zookeeper_connect}"'
        source = Source(topic, options, send, 4, bytes_per_record=20)
        yield source


def run(mirror: Mirror, file: Path, *arguments: str) -> Job:
    with submitted(mirror.home, file, *arguments, script="mirror", hooks=True) as job:
        job.exit_code(180)
        return job


def killed_in_the_middle(mirror: Mirror, records: int, file: Path | None = None) -> None:
    """Start the mirror over a backlog, and kill all of it when a third has been copied."""
    with submitted(mirror.home, file or mirror.file(20, records), script="mirror", hooks=True) as job:

        def is_midway() -> bool:
            return mirror.count() > records // 3 or job.process.poll() is not None

        wait_until(is_midway, "a third is copied", START_S + 90, every=0.02)
        assert job.process.poll() is None, job.log()
        os.killpg(job.process.pid, signal.SIGKILL)
    assert mirror.count() < records


def long(version: str) -> object:
    return pytest.param(version, MANY, marks=pytest.mark.long)


@pytest.mark.parametrize(
    ("version", "records"),
    [
        pytest.param("source41", RECORDS, marks=pytest.mark.long),
        *(long(version) for version in ("source07", "source08", "source41")),
    ],
)
def test_a_mirror_that_is_killed_in_the_middle_loses_nothing(
    tmp_path: Path, kafka4: KafkaServer, version: str, records: int, request: pytest.FixtureRequest
) -> None:
    """Started again and verified from a shell."""
    source = request.getfixturevalue(version)
    mirror = Mirror(tmp_path, source, kafka4)
    source.send(records)
    killed_in_the_middle(mirror, records)
    source.send(records // 10)
    rest = run(mirror, mirror.file(5, records, "available_now = true"))
    assert rest.process.returncode == 0, rest.log()
    repeated = mirror.check()
    assert repeated < records // 2, "one batch, at most"
    assert any(line.startswith("batch ") and " rows in " in line for line in rest.said())

    verified = run(mirror, mirror.file(5, records), "--verify")
    assert verified.process.returncode == 0, verified.log()
    isolation, *said = verified.said()
    assert isolation.startswith("both sides are read with kafka.isolation.level=read_committed")
    assert said[-1] == "verified: the destination has all records of the source"
    columns = said[0].split("  ")
    assert columns[0].strip() == "source"
    assert sum(int(line.split()[4]) for line in said[1:-1]) == sum(map(len, source.sent.values()))
    assert sum(int(line.split()[8]) for line in said[1:-1]) == repeated


@pytest.mark.long
def test_an_exactly_once_mirror_that_is_killed_repeats_nothing(
    tmp_path: Path, kafka4: KafkaServer, source41: Source
) -> None:
    mirror = Mirror(tmp_path, source41, kafka4)

    def exactly_once(batches: int, trigger: str = "") -> Path:
        file = mirror.file(batches, MANY, trigger)
        file.write_text(file.read_text().replace("[mirror]", '[mirror]\nguarantee = "exactly-once"'))
        return file

    source41.send(MANY)
    killed_in_the_middle(mirror, MANY, exactly_once(20))
    source41.send(MANY // 10)
    rest = run(mirror, exactly_once(5, "available_now = true"))
    assert rest.process.returncode == 0, rest.log()
    copied = read_committed(kafka4, mirror.copy)
    for values in source41.sent.values():
        known = set(values)
        assert [value for value in copied if value in known] == values
    assert len(copied) == sum(map(len, source41.sent.values()))

    verified = run(mirror, exactly_once(5), "--verify")
    assert verified.process.returncode == 0, verified.log()
    isolation, _, *rows, last = verified.said()
    assert isolation.startswith("both sides are read with kafka.isolation.level=read_committed")
    assert last == "verified: the destination has all records of the source"
    assert sum(int(line.split()[8]) for line in rows) == 0, "repeated"


@pytest.mark.long  # test_mirror_verify.py restarts a mirror, and test_kafka07.py reads records of Kafka 0.7
@pytest.mark.parametrize("version", ["source07", "source08"])
def test_an_old_cluster_is_mirrored_on_after_a_kill(
    tmp_path: Path, kafka4: KafkaServer, version: str, request: pytest.FixtureRequest, spark: SparkSession
) -> None:
    """Started again and verified in this process, which saves two starts of Spark."""
    source = request.getfixturevalue(version)
    mirror = Mirror(tmp_path, source, kafka4)
    source.send(RECORDS)
    killed_in_the_middle(mirror, RECORDS)
    source.send(RECORDS // 10)
    config = load(mirror.file(5, RECORDS, "available_now = true"), None, {})
    files, said = HadoopFiles(spark), list[str]()
    with closing(Clusters(config)) as clusters:
        copy(spark, config, clusters, files, stop=StopRequest(), say=said.append)
        repeated = mirror.check()
        rows = compare(spark, config, clusters, latest(files, config.plan)[1])
    assert repeated < RECORDS // 2, "one batch, at most"
    assert differences(rows) == []
    assert (len(rows), sum(row.repeated for row in rows)) == (source.partitions, repeated)
    assert any(line.startswith("batch ") and " rows in " in line for line in said)


@pytest.mark.long
def test_members_share_the_partitions(tmp_path: Path, kafka4: KafkaServer, source41: Source) -> None:
    """Two at once; one leaves, and the other takes over what it had."""
    mirror = Mirror(tmp_path, source41, kafka4)
    file = mirror.file(4, RECORDS)
    file.write_text(file.read_text().replace(f"{tmp_path}/checkpoint", f"{tmp_path}/checkpoints/{{member}}"))
    homes = {member: tmp_path / f"at-{member}" for member in "ab"}
    with ExitStack() as running:
        jobs = {}
        for member, home in homes.items():
            home.mkdir()
            jobs[member] = running.enter_context(submitted(home, file, "--member", member, script="mirror", hooks=True))

        def have_written() -> bool:
            source41.send(30)
            return all("batch " in job.log() for job in jobs.values())

        wait_until(have_written, "both write", START_S, every=0.5)
        jobs["a"].process.terminate()
        assert jobs["a"].exit_code() == 0, jobs["a"].log()
        assert "stopped; nothing will be repeated" in "\n".join(jobs["a"].said())
        source41.send(300)
        sent = sum(map(len, source41.sent.values()))
        wait_until(
            lambda: mirror.count() >= sent or jobs["b"].process.poll() is not None,
            "the other takes over",
            START_S,
            every=0.2,
        )
        jobs["b"].process.terminate()
        assert jobs["b"].exit_code() == 0, jobs["b"].log()
    assert mirror.check() == 0
