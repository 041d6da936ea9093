"""`format("streamgroup")`: what Spark finds by that name."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, NoReturn

import pyspark
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from streamgroup.errors import ConfigError
from streamgroup.options.parse import check_source, parse_source
from streamgroup.options.secrets import is_secret
from streamgroup.options.types import SourceOptions
from streamgroup.spark.schema import row_schema

OLDEST_PYSPARK = (4, 2)
_NO_SINK = "streamgroup reads and has no sink yet: write to Kafka with format('kafka'), Spark's own connector"


def require_pyspark(version: str) -> None:
    """Raise ConfigError where PySpark is too old for Python sources with admission control."""
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_PYSPARK:
        raise ConfigError(
            f"streamgroup needs PySpark 4.2 or newer (this is {version}): older ones cannot limit a batch"
        )


class StreamGroupDataSource(DataSource):
    """Kafka consumer groups as a source.

    Spark makes instances of this class in several processes, so neither `__init__` nor the readers' constructors
    connect to anything.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._has_reader = False
        require_pyspark(pyspark.__version__)

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "streamgroup"

    def schema(self) -> StructType:
        """Return the rows' schema. Raise ConfigError for wrong options, as early as Spark lets: in `load()`."""
        check_source(self.options)
        return row_schema(self._includes("includeHeaders"), self._includes("includeInnerIndex"))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of `spark.read`."""
        from streamgroup.spark.batch import GroupBatchReader  # noqa: PLC0415  (tasks import one reader, not both)

        return GroupBatchReader(self._parse(schema, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        """Return the reader of `spark.readStream`; where the options are wrong, one whose first call raises.

        An error that leaves this method is lost: PySpark's runner then stops a reader that it does not have, and its
        UnboundLocalError is the last line that the user sees.
        """
        from streamgroup.spark.stream import GroupStreamReader, RefusedStreamReader  # noqa: PLC0415

        try:
            return GroupStreamReader(self._parse(schema, streaming=True))
        except ConfigError as error:
            return RefusedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """There is no sink: raises ConfigError, which Spark shows."""
        raise ConfigError(_NO_SINK)

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: N802
        """There is no sink: raises ConfigError, which Spark shows."""
        raise ConfigError(_NO_SINK)

    def __getstate__(self) -> dict[str, Any]:
        """Who has made a reader travels on with it, into every task, where nobody needs a secret."""
        state = dict(self.__dict__)
        if self._has_reader:
            state["options"] = {name: value for name, value in self.options.items() if not is_secret(name)}
        return state

    def _includes(self, option: str) -> bool:
        return str(self.options.get(option, "false")).strip().lower() == "true"

    def _parse(self, schema: StructType, *, streaming: bool) -> SourceOptions:
        parsed = parse_source(self.options, streaming=streaming)
        self._has_reader = True
        expected = row_schema(parsed.fetch.include_headers, parsed.fetch.include_inner_index)
        if [(f.name, f.dataType) for f in schema.fields] != [(f.name, f.dataType) for f in expected.fields]:
            raise ConfigError(
                "streamgroup has a fixed schema, as Spark's own Kafka source has: leave out .schema(...) and select "
                f"and cast columns instead. Its columns are {expected.simpleString()}"
            )
        return parsed
