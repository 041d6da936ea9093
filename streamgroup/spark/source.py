"""`format("streamgroup")`: the data source that Spark finds by this name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from streamgroup.coordinator.planning.document import to_value
from streamgroup.errors import ConfigError, DataLossError
from streamgroup.model import INITIAL_DOCUMENT, FetchTask
from streamgroup.options.default_mode import (
    MODE_FUNCTION,
    MODE_VARIABLE,
    parse_default_mode,
    with_default_mode,
)
from streamgroup.options.parse import OPTIONS, SINK_OPTIONS, check_source, parse_sink, parse_source
from streamgroup.options.secrets import is_secret
from streamgroup.options.types import GroupMode, LimitOptions, SinkOptions, SourceOptions
from streamgroup.spark.tables import read_options, require_write_options, table_options, with_table_options
from streamgroup.spark.tasks import PromptInTasks, TaskPartition, loading_modules, read_task, task_options
from streamgroup.spark_home import minor_version

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from streamgroup.coordinator.coordinator import Coordinator

OLDEST_PYSPARK = (4, 2)


def require_pyspark(version: str) -> None:
    """Raise ConfigError if PySpark is too old for Python sources with admission control."""
    if minor_version(version) < OLDEST_PYSPARK:
        raise ConfigError(
            f"cannot limit batches with PySpark {version}: streamgroup needs PySpark 4.2 or newer. Upgrade PySpark"
        )


class StreamGroupDataSource(DataSource):
    """The data source `streamgroup`: reads from Kafka, also as a member of a consumer group, and writes to Kafka.

    Spark creates instances of this class in several processes, so neither `__init__` nor the readers' constructors open
    a connection.
    """

    default_mode: GroupMode | None = None
    """The default of `group.mode` in a session where `streamgroup.default_mode` has set it."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._is_parsed = False
        # Of the driver's JVM. A process that unpickles this object may have another environment.
        self._mode_variable = os.environ.get(MODE_VARIABLE, "").strip()
        require_pyspark(pyspark.__version__)

    @classmethod
    def name(cls) -> str:
        return "streamgroup"

    def schema(self) -> StructType:
        """Return the schema of the rows. Raises ConfigError for invalid options.

        Spark calls this in `load()`, and for `CREATE TABLE` without a list of columns.
        """
        of_table = table_options(self.options, self.name())
        options = self.options if of_table is None else of_table
        if of_table != {}:  # a table without options gets them with each statement
            check_source(options)
        schema = row_schema(*(_is_true(options, name) for name in _WITH_COLUMNS))
        return schema if of_table is None else with_table_options(schema, of_table)

    def reader(self, schema: StructType) -> DataSourceReader:
        return GroupBatchReader(self._parse(schema, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        """Return the reader of `spark.readStream`. With invalid options, the reader raises the error at its first call.

        An error raised by this method itself would be lost: PySpark's runner then stops a reader that does not exist,
        and the user sees only its UnboundLocalError.
        """

        try:
            return GroupStreamReader(self._parse(schema, streaming=True))
        except ConfigError as error:
            return RefusedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of `df.write`. Raises ConfigError for invalid options or columns, and for `overwrite`."""
        from streamgroup.spark.sink import GroupBatchWriter, check_write, refuse_overwrite  # noqa: PLC0415

        if overwrite:
            refuse_overwrite()
        options = self._parse_write()
        check_write(schema, options)
        return GroupBatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Return the writer of `df.writeStream`. Raises ConfigError for invalid options or columns.

        With the output mode complete (`overwrite`) every batch writes all rows of the result, as Spark's own sink does.
        """
        from streamgroup.spark.sink import GroupStreamWriter, check_write  # noqa: PLC0415

        options = self._parse_write()
        check_write(schema, options)
        return GroupStreamWriter(options)

    def _parse_write(self) -> SinkOptions:
        require_write_options(self.options)
        options = parse_sink(self.options)
        self._is_parsed = True
        return options

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without secrets. Spark sends this object with its reader to every task, which needs none.

        An unknown option may be a secret of another source.
        """
        state = dict(self.__dict__)
        if self._is_parsed:
            state["options"] = {name: value for name, value in self.options.items() if _may_travel(name)}
        return state

    def _with_default_mode(
        self, options: Mapping[str, str], *, streaming: bool
    ) -> tuple[dict[str, str], tuple[str, ...]]:
        if streaming and self.default_mode is not None:
            return with_default_mode(options, self.default_mode, MODE_FUNCTION)
        if not streaming or not self._mode_variable:
            return dict(options), ()
        default = parse_default_mode(self._mode_variable, f"the environment variable {MODE_VARIABLE} of the driver")
        return with_default_mode(options, default, MODE_VARIABLE)

    def _parse(self, schema: StructType, *, streaming: bool) -> SourceOptions:
        options, notes = self._with_default_mode(read_options(schema, self.options), streaming=streaming)
        parsed = parse_source(options, streaming=streaming)
        parsed = replace(parsed, notes=(*parsed.notes, *notes))
        self._is_parsed = True
        fetch = parsed.fetch
        expected = row_schema(fetch.include_headers, fetch.include_inner_index, fetch.include_damaged_batches)
        if [(f.name, f.dataType) for f in schema.fields] != [(f.name, f.dataType) for f in expected.fields]:
            raise ConfigError(
                "cannot use another schema for format('streamgroup'): it has the fixed schema "
                f"{expected.simpleString()}. Remove .schema(...), and select and cast columns in the query"
            )
        return parsed


def _is_true(options: Mapping[str, str], name: str) -> bool:
    given = {key.lower(): text for key, text in options.items()}
    return str(given.get(name.lower(), "false")).strip().lower() == "true"


_PLANNED_ONCE = (
    "Spark plans the DataFrame of a batch read at its first action and reads the same offsets in all later actions. "
    "Call load() again to read up to the current log ends"
)


class GroupBatchReader(PromptInTasks, DataSourceReader):
    """The reader of `spark.read`: it plans in the driver and reads in tasks.

    Spark calls `partitions` once for all actions on the DataFrame of one `load()`, so all these actions read the same
    ranges. Tasks must not look up the log ends themselves: Spark may repeat a task after other tasks have read its
    output, and the repeated task would read other records.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": task_options(self._options)}

    def partitions(self) -> Sequence[InputPartition]:
        from streamgroup.coordinator.batch_read import plan_batch  # noqa: PLC0415  (tasks do not plan)
        from streamgroup.coordinator.log_output import log_to_stderr  # noqa: PLC0415

        log_to_stderr()
        # Without any partition Spark would create one of its own, so an empty read has one empty task.
        return [TaskPartition(task) for task in plan_batch(self._options) or [FetchTask(())]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one task. The iterator raises DataLossError if planned records are lost."""
        return _with_advice(read_task(partition, self._options))


def _may_travel(option: str) -> bool:
    return not is_secret(option) and (option.lower() in OPTIONS or option.lower() in SINK_OPTIONS)


def _with_advice(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from rows
    except DataLossError as error:
        raise DataLossError(f"{error}. {_PLANNED_ONCE}") from error


_FIELDS = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
_HEADERS = StructField(
    "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
)
_INNER = StructField("inner", IntegerType())
_DAMAGE = StructField("damage", StringType())
_WITH_COLUMNS = ("includeHeaders", "includeInnerIndex", "includeDamagedBatches")
"""The options that add columns, in the order of the columns."""


def row_schema(
    include_headers: bool, include_inner_index: bool = False, include_damaged_batches: bool = False
) -> StructType:
    """Return the schema of `spark.read.format("kafka")`. `headers` is null for a record without headers.

    streamgroup adds `inner`, the index of a message within a compressed set of Kafka 0.7, whose messages share one
    offset, and `damage`, the reason if the row is a damaged batch.
    """
    asked = ((_HEADERS, include_headers), (_INNER, include_inner_index), (_DAMAGE, include_damaged_batches))
    return StructType([*_FIELDS, *(field for field, is_asked in asked if is_asked)])


class AloneByDefault(StreamGroupDataSource):
    """The data source of a session in which streams read all partitions alone unless they set `group.mode`."""

    default_mode = GroupMode.OFF


def default_mode(spark: SparkSession, mode: str) -> None:
    """Set the default of `group.mode` for the streams with a group id that this session starts from now on.

    With `off` each of them reads all partitions and commits nothing, as with Spark's own source. `member` restores the
    usual default. The option of a query takes precedence. Raises ConfigError for another mode.

    Spark has no setting that reaches a source in Python. So this function registers another source of the same name in
    the session, and Spark logs a warning that it replaces the one that it has found.
    """
    is_off = parse_default_mode(mode, f"the mode of {MODE_FUNCTION}") is GroupMode.OFF
    spark.dataSource.register(AloneByDefault if is_off else StreamGroupDataSource)


UNLIMITED = 2**63 - 1
"""The default read limit without `maxOffsetsPerTrigger`. It differs from `ReadAllAvailable`, which Spark passes for
Trigger.Once, so that `latestOffset` can recognise that trigger (R11)."""


class GroupStreamReader(PromptInTasks, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of `spark.readStream`. Its query is a member of its group or reads alone (option `group.mode`)."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._coordinator: Coordinator | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": task_options(self._options), "_coordinator": None}

    def _coordinate(self) -> Coordinator:
        if self._coordinator is None:
            with loading_modules():  # the coordinator's hundreds, without garbage collections
                from streamgroup.coordinator.process import start_coordinator  # noqa: PLC0415  (tasks need no coordinator)

            self._coordinator = start_coordinator(self._options)
        return self._coordinator

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return a constant without connecting: Spark calls this again when it replays batch 0 (R2)."""
        return to_value(INITIAL_DOCUMENT)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.limits.max_offsets_per_trigger or UNLIMITED)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember the end offsets of all subscribed partitions, up to which the query reads (R11)."""
        self._coordinate().prepare_available_now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Commit the batch that ends at `start`, and return the end of the next batch, or `start` without new records.

        Spark requests the next batch only after the previous one is completed.
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
        """Return the log end offsets for the query's progress."""
        return self._coordinate().report_latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [TaskPartition(task) for task in self._coordinate().partitions(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: `latestOffset`, which Spark has called before, has committed the batch."""

    def stop(self) -> None:
        """Commit the last completed batch and leave the group."""
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
