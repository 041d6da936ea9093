"""The memory of a worker that writes far more than `buffer.memory` while some brokers do not answer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.fakes.scripted_cluster import ScriptedCluster
from tests.unit.executor.producing import TOPIC

Start = Callable[..., ScriptedCluster]

MIB = 1 << 20
BUFFER = 8 * MIB
BATCH = 4 * MIB
"""Of the Arrow batches that the task gets."""
BATCHES = 16
BROKERS = 8
MOST = BUFFER + BUFFER // 2 + 6 * BATCH
"""Half of `buffer.memory` more, for batches that are held by a few of their records. And a constant: the batch that the
task gives, the Python values it was made of, the batch before, the records by partition, and what is encoded."""

WRITE_AND_MEASURE = """
import sys
import numpy as np
import pyarrow as pa
from streamgroup.executor.write.sink_writer import write
from streamgroup.model import TopicPartition
from streamgroup.options.parse import parse_sink
from streamgroup.kafka.producer.machine import Producer

servers, topic, buffer, size, count, brokers, order, silent = sys.argv[1:]
options = parse_sink({
    "kafka.bootstrap.servers": servers, "topic": topic, "kafka.buffer.memory": buffer, "kafka.batch.size": "65536",
    # The brokers answer as soon as they are told to, however slow the machine is.
    "kafka.request.timeout.ms": "100000", "kafka.delivery.timeout.ms": "200000", "kafka.max.block.ms": "200000",
})
ROWS = 1000
value = int(size) // ROWS
partitions = np.arange(ROWS, dtype=np.int32) % int(brokers)
if order == "sorted":
    partitions.sort()

def status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024

def batches(count):
    for number in range(count):
        values = pa.array([b"%d/%d/" % (number, row) + b"x" * (value - 20) for row in range(ROWS)], pa.binary())
        yield pa.record_batch({"value": values, "partition": pa.array(partitions)})
    say_stuck()

said = []
def say_stuck():
    if "warm" in said and "stuck" not in said:
        said.append("stuck")
        print("stuck", flush=True)

has_room = Producer.has_room.fget
def look(producer):
    has = has_room(producer)
    waiting = sum(producer.queued_bytes(TopicPartition(topic, number)) for number in range(int(silent)))
    if not has and producer.buffered_bytes == waiting:
        say_stuck()  # there is no room before a silent broker answers
    return has
Producer.has_room = property(look)

write(batches(2), options)
said.append("warm")
print("warm", flush=True)
sys.stdin.readline()
before = status("VmRSS")
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak begins anew
written = write(batches(int(count)), options)
print(status("VmHWM") - before, written.records, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("order", "silent"), [("mixed", 1), ("sorted", 1), ("mixed", BROKERS)])
def test_a_write_holds_little_more_than_buffer_memory(start_cluster: Start, order: str, silent: int) -> None:
    cluster = start_cluster(BROKERS, {TOPIC: BROKERS}, max_message_bytes=MIB)
    servers = ",".join(f"{host}:{port}" for host, port in cluster.addresses)
    numbers = [str(each) for each in (BUFFER, BATCH, BATCHES, BROKERS)]
    process = subprocess.Popen(
        [sys.executable, "-c", WRITE_AND_MEASURE, servers, TOPIC, *numbers, order, str(silent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # Arrays are returned to the system as soon as they are freed: what counts is what the writer holds.
        env=os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_MMAP_THRESHOLD_": "32768"},
    )
    with process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "warm\n"
        released = [cluster.hold(node) for node in range(silent)]
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "stuck\n", "it waits for the silent brokers, or has read all batches"
        for each in released:
            each.set()
        grown, records = map(int, process.stdout.readline().split())
    assert records == BATCHES * 1000
    assert grown < MOST, f"{grown / MIB:.1f} MiB"
