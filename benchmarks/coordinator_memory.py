"""Memory of a coordinator over many batches, against a real broker: python -m benchmarks.coordinator_memory

Each batch is planned, handed out and reported as sunk, as Spark and a listener would do. No task reads. Heartbeats and
refreshes of metadata come ten times as often as by default. With `--restarts` the broker is killed and started again
twenty times, so that connections break and requests fail.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from benchmarks.memory import resident_mb
from benchmarks.topics import Case, fill
from streamgroup.coordinator.coordinator import Coordinator
from streamgroup.coordinator.planning.document import to_value
from streamgroup.model import INITIAL_DOCUMENT
from streamgroup.options.parse import parse_source
from streamgroup.testing import KafkaServer

CASE = Case("8 B", 8, 1.0)
RECORDS = 12
"""Records of a batch."""
LINES = 20
WARM_UP_SHARE = 0.1
"""The share of the batches that does not count."""


def restart(server: KafkaServer) -> None:
    """Kill the broker, and start it again."""
    server.kill()
    server.restart()


def run(
    coordinator: Coordinator, limits: Any, batches: int, disturb: Callable[[], object]
) -> list[tuple[int, float, int]]:
    """Run batches; return the count, the resident memory and the objects of Python's collector at each of LINES.

    `disturb` is called after each line.
    """
    found = []
    start = to_value(INITIAL_DOCUMENT)
    done = 0
    while done < batches:
        end = coordinator.latest_offset(start, limits=limits)
        if end == start:
            time.sleep(0.002)
            continue
        coordinator.partitions(start, end)
        start = json.loads(json.dumps(end))
        figures = {"batch": done, "began": "2026-01-01T00:00:00.000Z", "rows": RECORDS, "durations_ms": {"addBatch": 5}}
        coordinator.sunk(start, done, {"id": "memory", "name": "memory", "batch": figures})
        coordinator.report_latest()
        coordinator.status()
        done += 1
        if done % max(1, batches // LINES) == 0:
            gc.collect()
            found.append((done, resident_mb(), len(gc.get_objects())))
            click.echo(f"{done:>8} batches  {found[-1][1]:6.2f} MB  {found[-1][2]} objects")
            disturb()
    return found


@click.command()
@click.option("--batches", default=10_000, show_default=True, help="How many batches.")
@click.option("--restarts", is_flag=True, help="Kill the broker and start it again after each line.")
def main(batches: int, *, restarts: bool) -> None:
    """Print the memory of a coordinator, and its growth after the first tenth of the batches."""
    with KafkaServer() as server:
        fill(server, CASE, (batches + 100) * RECORDS)
        options = parse_source(
            {
                "kafka.bootstrap.servers": server.bootstrap_servers,
                "kafka.group.id": "memory",
                "subscribe": CASE.topic,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(RECORDS),
                "kafka.heartbeat.interval.ms": "300",
                "kafka.metadata.max.age.ms": "500",
            },
            streaming=True,
        )
        coordinator = Coordinator(options)
        began = time.monotonic()
        found = run(coordinator, options.limits, batches, partial(restart, server) if restarts else lambda: None)
        took = time.monotonic() - began
        coordinator.stop()
    counted = [one for one in found if one[0] >= batches * WARM_UP_SHARE]
    (first, memory, objects), (last, memory_then, objects_then) = counted[0], counted[-1]
    click.echo(
        f"{last - first} batches in {took:.0f} s: {memory_then - memory:+.2f} MB, {objects_then - objects:+d} objects"
    )


if __name__ == "__main__":
    main()
