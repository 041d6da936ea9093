"""The planned tasks as Spark sends them to executors, their execution, and garbage collection in Python workers."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from streamgroup.advice import NO_LOCATION
from streamgroup.coordinator.log_output import log_warnings_to_stderr
from streamgroup.errors import ConfigError
from streamgroup.kafka.net.transport import acknowledge_at_once
from streamgroup.model import FetchTask
from streamgroup.options.kinds import time_string
from streamgroup.options.types import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa


_NETWORK_TIMEOUT = "spark.network.timeout"


def task_options(options: SourceOptions) -> SourceOptions:
    """Return the options for the executors, without ZooKeeper's: tasks read only from brokers."""
    return replace(options, client=replace(options.client, zookeeper=None))


class TaskPartition(InputPartition):
    """The ranges of one Spark task."""

    def __init__(self, task: FetchTask) -> None:
        super().__init__(None)
        self.task = task

    def __repr__(self) -> str:
        return f"TaskPartition({', '.join(str(r.range) for r in self.task.ranges)})"


def read_task(partition: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Fetch the ranges of one task as Arrow batches. It runs in an executor's Python worker."""
    from streamgroup.executor.read.fetcher import read  # noqa: PLC0415  (the driver does not fetch)

    log_warnings_to_stderr()
    if not isinstance(partition, TaskPartition):
        raise ConfigError(f"cannot read partition {partition!r}: it is not a partition of streamgroup")
    fetch = options.fetch
    if fetch.poll_timeout_ms is None:
        fetch = replace(fetch, poll_timeout_ms=network_timeout_ms())
    location = options.group.offset_location if options.group else NO_LOCATION
    rows = read(
        partition.task,
        options.client,
        fetch,
        fail_on_data_loss=options.fail_on_data_loss,
        group=location.group or None,
        stored_in=location.stored_in,
    )
    return _then_exempt_modules(rows)


def network_timeout_ms() -> int | None:
    """Return `spark.network.timeout` of the application in milliseconds; None if it is not set, or outside of a task.

    Spark passes the settings of a session to its tasks as local properties. No process of the driver that runs this
    package gets them.
    """
    context = TaskContext.get()
    text = context.getLocalProperty(_NETWORK_TIMEOUT) if context is not None else None
    return time_string(text, "s") if text else None


def _then_exempt_modules(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from rows
    exempt_modules()


_exempt = 0
"""How many modules are exempt from garbage collections."""


def exempt_modules() -> None:
    """Exempt all objects that exist now from later garbage collections, if modules were loaded since the last call.

    Spark's worker collects garbage after each task. Call this at the end of a task, when its modules are loaded. Python
    still frees objects with their last reference; only cycles among the objects that exist now are never freed.
    """
    global _exempt  # noqa: PLW0603  (of the process, as the collector is)
    if len(sys.modules) > _exempt:
        _exempt = len(sys.modules)
        gc.collect()
        gc.freeze()


@contextmanager
def loading_modules() -> Iterator[None]:
    """Load modules in this block without garbage collections, and exempt all objects from later ones."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
    exempt_modules()


class PromptInTasks:
    """Base class of readers and writers that Spark pickles into tasks.

    When a task unpickles one, a part of the task's input has not arrived yet, so it requests quick TCP
    acknowledgements.
    """

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge_at_once()
