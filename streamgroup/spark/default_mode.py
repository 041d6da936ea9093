"""`streamgroup.default_mode(spark, "off")`: let all streams of a session read alone, as with Spark's own source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgroup.options.default_mode import MODE_FUNCTION, parse_default_mode
from streamgroup.options.types import GroupMode
from streamgroup.spark.source import StreamGroupDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class AloneByDefault(StreamGroupDataSource):
    """The source of a session whose streams read alone unless they set `group.mode`."""

    default_mode = GroupMode.OFF


def default_mode(spark: SparkSession, mode: str) -> None:
    """Set the default of `group.mode` for the streams with a group id that this session starts from now on.

    `off` lets each of them read all partitions and commit nothing, as with Spark's own source. `member` takes that
    back. The option of a query takes precedence. Raises ConfigError for another mode.

    Spark has no setting that reaches a source in Python. So this function registers another source of the same name in
    the session, and Spark logs a warning that it replaces the one that it has found.
    """
    is_off = parse_default_mode(mode, f"the mode of {MODE_FUNCTION}") is GroupMode.OFF
    spark.dataSource.register(AloneByDefault if is_off else StreamGroupDataSource)
