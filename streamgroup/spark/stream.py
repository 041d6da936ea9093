"""`spark.readStream.format("streamgroup")`: the reader that passes Spark's calls to the coordinator.

Spark keeps one instance for each run of a query, in a process of its own. The first call that needs a coordinator
starts it there. Spark pickles a second instance to the executors, which only read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from streamgroup.errors import ConfigError
from streamgroup.model import INITIAL_DOCUMENT
from streamgroup.options.types import LimitOptions, SourceOptions
from streamgroup.planning.document import to_value
from streamgroup.spark.tasks import PromptInTasks, TaskPartition, loading_modules, read_task, task_options

if TYPE_CHECKING:
    import pyarrow as pa

    from streamgroup.driver.coordinator import Coordinator

UNLIMITED = 2**63 - 1
"""The default read limit without `maxOffsetsPerTrigger`. It differs from `ReadAllAvailable`, which Spark passes for
Trigger.Once, so that `latestOffset` can recognise that trigger (R11)."""


class GroupStreamReader(PromptInTasks, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one query, which is a member of its group or reads alone (`group.mode`)."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._coordinator: Coordinator | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": task_options(self._options), "_coordinator": None}

    def _coordinate(self) -> Coordinator:
        if self._coordinator is None:
            with loading_modules():  # the hundreds of a coordinator, without collections amid them
                from streamgroup.driver.process import start_coordinator  # noqa: PLC0415  (tasks need no coordinator)

            self._coordinator = start_coordinator(self._options)
        return self._coordinator

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return a constant without connecting: Spark asks again when it replays batch 0 (R2)."""
        return to_value(INITIAL_DOCUMENT)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return `maxOffsetsPerTrigger` as Spark's read limit."""
        return ReadMaxRows(self._options.limits.max_offsets_per_trigger or UNLIMITED)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember the end offsets of all subscribed partitions, up to which the query reads (R11)."""
        self._coordinate().prepare_available_now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Commit the batch that ends at `start`, and return the end of the next batch, or `start` without new records.

        Spark asks for the next batch only after the one before has sunk.
        """
        match limit:
            case ReadAllAvailable():
                return self._coordinate().latest_offset(start, limits=LimitOptions(), once=True)
            case ReadMaxRows(max_rows=rows):
                limits = replace(self._options.limits, max_offsets_per_trigger=None if rows == UNLIMITED else rows)
                return self._coordinate().latest_offset(start, limits=limits)
        raise ConfigError(
            f"cannot plan a batch for the read limit {limit!r}: streamgroup limits batches by rows only. Set "
            "maxOffsetsPerTrigger instead"
        )

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the end offsets of the logs for the query's progress."""
        return self._coordinate().report_latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of the batch that `end` describes."""
        return [TaskPartition(task) for task in self._coordinate().partitions(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one task. It runs in an executor."""
        return read_task(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: `latestOffset`, which Spark has called before, has committed the batch."""

    def stop(self) -> None:
        """Commit the sunk batch and leave the group."""
        if self._coordinator is not None:
            self._coordinator.stop()
            self._coordinator = None


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a stream with invalid options: Spark's first call raises the error."""

    def __init__(self, error: ConfigError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        raise self._error

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raise the error. A restart with an uncommitted batch calls this method first."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._error
