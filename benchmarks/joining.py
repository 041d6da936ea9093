"""How long a joining member pauses the others while their batches take 30 s: `python -m benchmarks.joining`.

Two queries share a topic of a real Kafka that is written to all the while. Each batch takes as long as `--batch` says.
Then a third query joins. For each of the two, the longest time between the end of a batch and the plan of the next one
is its pause. A query here is the real coordinator and the real fetcher in this process, without Spark.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import click
from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from benchmarks.pairs import PARTITIONS
from benchmarks.topics import create_topic
from streamgroup.testing import KafkaServer
from tests.fault.harness import Stream

WRITE_EVERY_S = 0.2
PROTOCOLS: Mapping[str, Mapping[str, str]] = {
    "classic, eager": {"kafka.group.protocol": "classic"},
    "classic, cooperative": {
        "kafka.group.protocol": "classic",
        "kafka.partition.assignment.strategy": "cooperative-sticky",
    },
    "consumer (KIP-848)": {"kafka.group.protocol": "consumer"},
}


class Slow(Stream):
    """A query whose batches take a fixed time, and which keeps the moments of its plans and of its batches' ends."""

    batch_s = 0.0

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        super().__init__(name, options)
        self.begun: list[float] = []
        self.ended: list[float] = []

    def _execute(self, coordinator: Any) -> None:
        self.begun.append(time.monotonic())
        self._stopping.wait(self.batch_s)
        super()._execute(coordinator)
        self.ended.append(time.monotonic())

    def pause_s(self, since: float, until: float = math.inf) -> float:
        """Return the longest time from the end of a batch to the next plan, if that plan was made in this time."""
        gaps = [start - end for end, start in zip(self.ended, self.begun[1:], strict=False) if since < start <= until]
        return max(gaps, default=0.0)


class Writer:
    """Writes a record to each partition now and then."""

    def __init__(self, server: KafkaServer, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": server.bootstrap_servers, "linger.ms": 0})
        self._topic = topic

    def write_until(self, end: float) -> None:
        while time.monotonic() < end:
            for partition in range(PARTITIONS):
                self._producer.produce(self._topic, b"x", partition=partition)
            self._producer.flush()
            time.sleep(WRITE_EVERY_S)


def measure(server: KafkaServer, protocol: str, batch_s: float) -> list[float]:
    """Return the pauses in seconds: the longest of both members before the third one joins, and each one's after it."""
    topic = f"joining-{protocol.partition(' ')[0].rstrip(',')}-{time.monotonic_ns()}"
    create_topic(server, topic)
    writer = Writer(server, topic)
    options = {
        "kafka.bootstrap.servers": server.bootstrap_servers,
        "kafka.group.id": topic,
        "subscribe": topic,
        "startingOffsets": "earliest",
        **PROTOCOLS[protocol],
    }
    with ExitStack() as stack:
        one, two, third = (Slow(name, options) for name in ("one", "two", "third"))
        for query in (one, two):
            stack.enter_context(query)
        while not (one.held and two.held and not one.held & two.held):
            writer.write_until(time.monotonic() + 1.0)
        began = time.monotonic()
        one.batch_s = two.batch_s = third.batch_s = batch_s
        writer.write_until(time.monotonic() + batch_s / 3)
        two.batch_s = batch_s * 0.8  # out of step with the other one
        writer.write_until(time.monotonic() + 1.5 * batch_s)
        joined = time.monotonic()
        stack.enter_context(third)
        writer.write_until(joined + 4 * batch_s)
        assert third.held, "the third one has no partition"
        before = max(query.pause_s(began, joined) for query in (one, two))
        return [before, *(query.pause_s(joined) for query in (one, two))]


@click.command()
@click.option("--batch", "batch_s", default=30.0, show_default=True, help="Seconds that each batch takes.")
def main(batch_s: float) -> None:
    """Measure the pauses under each protocol, and print them as a table in ms."""
    table = Table(
        "protocol", "without a join", "member one", "member two", title=f"pause in ms, batches of {batch_s:g} s"
    )
    with KafkaServer() as server:
        for protocol in PROTOCOLS:
            pauses = measure(server, protocol, batch_s)
            table.add_row(protocol, *(f"{1000 * pause:,.0f}" for pause in pauses))
    Console().print(table)


if __name__ == "__main__":
    main()
