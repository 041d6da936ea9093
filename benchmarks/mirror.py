"""The mirror job, compared with Kafka's MirrorMaker: alternating pairs, medians and ratios.

    python -m benchmarks.mirror [--pairs 3] [--records 1000000] [--source 4.1.1] [--json]

Both copy the same topic from one local broker to another, by the same producer options. The destination's topic is new
for every run. A run lasts from the first record at the destination to the last one, as an observer sees them, so that
the start of Spark and of MirrorMaker does not count. The first pair of each case is a warm-up and does not count.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click
from confluent_kafka import KafkaError, KafkaException
from pyspark.sql import SparkSession

import streamgroup
from benchmarks.batch_read import session
from benchmarks.pairs import compare, show
from benchmarks.topics import Case, admin_client, create_topic, end_offsets, fill
from streamgroup.jobs.mirror.clusters import Clusters
from streamgroup.jobs.mirror.config import load
from streamgroup.jobs.mirror.query import mirror
from streamgroup.jobs.signals import StopRequest
from streamgroup.jobs.sinkguard import HadoopFiles
from streamgroup.testing import KafkaServer, java_tool
from streamgroup.testing.releases import NEWEST

CASES = (Case("100 B", 100, 1.0), Case("1000 B", 1000, 0.25))
PRODUCER = {"batch.size": "524288", "linger.ms": "20", "compression.type": "lz4"}
MIRROR_MAKER = "3.9.1"
"""The newest release that has it."""
TIMEOUT_S = 600.0
_runs = itertools.count()


_NOT_YET = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE)
"""The answers of a broker that has not heard of the topic, or of its leaders."""


class Observer:
    """Looks at the ends of a topic's logs until they hold all records."""

    def __init__(self, server: KafkaServer, topic: str, records: int) -> None:
        self._admin = admin_client(server)
        self._topic = topic
        self._records = records
        self._thread = threading.Thread(target=self._observe, daemon=True)
        self._seconds = 0.0
        self._thread.start()

    def seconds(self) -> float:
        """Wait for the last record. Return the time of all records at the rate since the first look with any."""
        self._thread.join(TIMEOUT_S)
        if not self._seconds:
            raise SystemExit(f"{self._topic}: only {self._copied()} of {self._records} records were copied")
        return self._seconds

    def _observe(self) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not (first := self._copied()) and time.monotonic() < deadline:
            time.sleep(0.02)
        began = time.perf_counter()
        while self._copied() < self._records:
            if time.monotonic() > deadline:
                return
            time.sleep(0.02)
        took = time.perf_counter() - began
        self._seconds = took * self._records / max(1, self._records - first)

    def _copied(self) -> int:
        """Return the records that are there; 0 while a broker does not yet lead the new topic's partitions."""
        try:
            return end_offsets(self._admin, self._topic)
        except KafkaException as error:
            if error.args[0].code() not in _NOT_YET:
                raise
            return 0


def by_streamgroup(spark: SparkSession, source: KafkaServer, destination: KafkaServer, case: Case, limit: int) -> None:
    """Mirror the backlog by the job's own code."""
    with tempfile.TemporaryDirectory() as home:
        file = Path(home) / "mirror.toml"
        options = "\n".join(f'kafka.{name} = "{value}"' for name, value in PRODUCER.items())
        file.write_text(
            f'[source]\nkafka.bootstrap.servers = "{source.bootstrap_servers}"\nsubscribe = "{case.topic}"\n'
            f'kafka.group.id = "bench-{next(_runs)}"\nmaxOffsetsPerTrigger = {limit}\n'
            f'[destination]\nkafka.bootstrap.servers = "{destination.bootstrap_servers}"\n{options}\n'
            f'[mirror]\ncheckpoint = "{home}/checkpoint"\nplan = "{home}/plan"\n[trigger]\navailable_now = true\n'
        )
        config = load(file, None, {})
        with closing(Clusters(config)) as clusters:
            mirror(spark, config, clusters, HadoopFiles(spark), stop=StopRequest(), say=lambda _: None)


@contextmanager
def mirror_maker(source: KafkaServer, destination: KafkaServer, topic: str) -> Iterator[None]:
    """Run MirrorMaker while the block lasts."""
    with tempfile.TemporaryDirectory() as home:
        consumer, producer, log = (Path(home) / name for name in ("consumer", "producer", "log"))
        consumer.write_text(
            f"bootstrap.servers={source.bootstrap_servers}\ngroup.id=bench-{next(_runs)}\nauto.offset.reset=earliest\n"
        )
        settings = {"bootstrap.servers": destination.bootstrap_servers, **PRODUCER}
        producer.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        arguments = (
            *("--consumer.config", str(consumer), "--producer.config", str(producer)),
            *("--num.streams", "2", "--include", topic),
        )
        argv = java_tool(MIRROR_MAKER, "kafka.tools.MirrorMaker", *arguments, jvm_flags=("-Xmx1g",))
        # The C1 compiler alone, which suits short tools, would slow it down.
        argv = [argument for argument in argv if argument != "-XX:TieredStopAtLevel=1"]
        with log.open("wb") as out:
            process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


def run(side: str, spark: SparkSession, clusters: tuple[KafkaServer, KafkaServer], case: Case, records: int) -> float:
    """Return the seconds that one side takes to copy all records."""
    source, destination = clusters
    create_topic(destination, case.topic)
    observer = Observer(destination, case.topic, records)
    if side == "streamgroup":
        by_streamgroup(spark, source, destination, case, max(1, records // 4))
        return observer.seconds()
    with mirror_maker(source, destination, case.topic):
        return observer.seconds()


@click.command()
@click.option("--pairs", default=3, show_default=True, help="Pairs that count, for each case.")
@click.option("--records", default=1_000_000, show_default=True, help="Records of 100 bytes; a quarter of 1000 bytes.")
@click.option("--source", "version", default=NEWEST, show_default=True, help="Kafka release of the source.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def main(pairs: int, records: int, version: str, as_json: bool) -> None:
    """Compare the mirror job with MirrorMaker."""
    flags = ("-Xmx768m", "-Xms768m")
    with KafkaServer(version, jvm_flags=flags) as source, KafkaServer(jvm_flags=flags) as destination:
        spark = session()
        streamgroup.listen(spark)
        results = []
        for case in CASES:
            count = int(records * case.share)
            fill(source, case, count)

            def once(side: str, case: Case = case, count: int = count) -> float:
                return run(side, spark, (source, destination), case, count)

            results.append(compare(case.name, once, count, pairs))
        spark.stop()
    if as_json:
        click.echo(json.dumps(results, indent=2))
    else:
        show(results, "mirrored", f"MirrorMaker {MIRROR_MAKER}")


if __name__ == "__main__":
    main()
