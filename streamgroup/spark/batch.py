"""`spark.read.format("streamgroup")`: ranges between two sets of offsets. Never joins a group, never commits."""

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
    "Spark plans a DataFrame of a batch read at its first action and reads the same offsets in all later ones: call "
    "load() again to read what the logs hold by now"
)


class GroupBatchReader(DataSourceReader):
    """Plans in one connection to the cluster, reads in tasks.

    Spark asks for the partitions once for all actions on what one `load()` has returned, and keeps the answer. So these
    actions read the same ranges. Tasks must not look for the ends of the logs themselves: a task that Spark repeats
    after others have read its output would read other records than before.
    """

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
        """Return one task's rows; taking them raises DataLossError where records of the plan are gone."""
        return _with_advice(read_task(partition, self._options))


def _with_advice(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from rows
    except DataLossError as error:
        raise DataLossError(f"{error}. {_PLANNED_ONCE}") from error
