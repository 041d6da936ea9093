"""`spark.read.format("streamgroup")`: a read between two sets of offsets, which never joins a group or commits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from streamgroup.errors import DataLossError
from streamgroup.model import FetchTask
from streamgroup.options.types import SourceOptions
from streamgroup.spark.tasks import TaskPartition, read_task, task_options

if TYPE_CHECKING:
    import pyarrow as pa

_PLANNED_ONCE = (
    "Spark plans the DataFrame of a batch read at its first action and reads the same offsets in all later actions. "
    "Call load() again to read the current offsets of the logs"
)


class GroupBatchReader(DataSourceReader):
    """The reader of one batch read: it plans in the driver and reads in tasks.

    Spark calls `partitions` once for all actions on the DataFrame of one `load()`, so all these actions read the same
    ranges. Tasks must not look up the ends of the logs themselves. Spark may repeat a task after other tasks have read
    its output, and the repeated task would read other records.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": task_options(self._options)}

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks of this read."""
        from streamgroup.driver.batch import plan_batch  # noqa: PLC0415  (tasks do not plan)

        # Without any partition Spark would create one of its own, so an empty read has one empty task.
        return [TaskPartition(task) for task in plan_batch(self._options) or [FetchTask(())]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one task. The iterator raises DataLossError if planned records are gone."""
        return _with_advice(read_task(partition, self._options))


def _with_advice(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from rows
    except DataLossError as error:
        raise DataLossError(f"{error}. {_PLANNED_ONCE}") from error
