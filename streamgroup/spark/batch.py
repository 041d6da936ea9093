"""`spark.read.format("streamgroup")`: ranges between two sets of offsets. Never joins a group, never commits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from streamgroup.model import FetchTask
from streamgroup.options.types import SourceOptions
from streamgroup.spark.tasks import TaskPartition, read_task, task_options

if TYPE_CHECKING:
    import pyarrow as pa


class GroupBatchReader(DataSourceReader):
    """Plans in one connection to the cluster, reads in tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": task_options(self._options)}

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks of this read."""
        from streamgroup.driver.batch import plan_batch  # noqa: PLC0415  (tasks do not plan)

        # Where nothing is to be read there is one task all the same: Spark would make up a partition of its own.
        return [TaskPartition(task) for task in plan_batch(self._options) or [FetchTask(())]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's rows."""
        return read_task(partition, self._options)
