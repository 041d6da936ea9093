"""The pictures of the pages by the names of their files."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks import charts
from tools.pictures import batch, machines, rooms, terminal, threads

DIRECTORY = rooms.ROOT / "docs" / "pictures"
PICTURES: Mapping[str, Callable[[], str]] = {
    "architecture": rooms.architecture,
    "imports": rooms.allowed_imports,
    "batch": batch.life_of_a_batch,
    "threads": threads.threads,
    "run": machines.run,
    "producer": machines.producer,
    "member": machines.member,
    "consumer-member": machines.consumer_member,
    "registered-member": machines.registered_member,
    "batch-read": charts.batch_read,
    "batch-write": charts.batch_write,
    "micro-batch-read": charts.micro_batch_read,
    "micro-batch-write": charts.micro_batch_write,
    "demo": terminal.demo,
    "demo-sql": terminal.demo_sql,
}
