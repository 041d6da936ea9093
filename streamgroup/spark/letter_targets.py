"""Where dead letters go: a topic of Kafka, or Parquet files below a path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (Spark's own habit)

from streamgroup.parsing.parser import ERROR

RECORD = ("topic", "partition", "offset", "timestamp", "key", "value")
"""The columns of a record that its dead letter has."""
_OPTIONAL = ("inner", "headers")
"""Columns that only some reads have."""
HEADER = "dead_letter."
"""The beginning of the names of the headers that a dead letter gets in a topic."""


class LetterTarget(Protocol):
    """Takes the dead letters of one batch."""

    def write(self, dead: DataFrame, query_id: str, batch_id: int) -> None:
        """Write the rows, which have the columns of a record and `error`."""

    def describe(self) -> str:
        """Return where the dead letters go, for people."""


class PathTarget:
    """Parquet files. Each batch of a query has a directory, which its replay overwrites."""

    def __init__(self, path: str) -> None:
        self._path = path

    def write(self, dead: DataFrame, query_id: str, batch_id: int) -> None:
        """Write the rows into the directory of this batch, in place of what an earlier attempt has written."""
        columns = [*RECORD, *(name for name in _OPTIONAL if name in dead.columns), ERROR]
        dead.select(*columns).write.mode("overwrite").parquet(f"{self._path}/query={query_id}/batch={batch_id}")

    def describe(self) -> str:
        """Return the path."""
        return f"path {self._path}"


class TopicTarget:
    """A topic. A dead letter has the key, the value and the headers of its record, and headers with the rest."""

    def __init__(self, topic: str, options: Mapping[str, str]) -> None:
        self._topic = topic
        self._options = {**options, "topic": topic}

    def write(self, dead: DataFrame, query_id: str, batch_id: int) -> None:
        """Write the rows as records, after those of an earlier attempt."""
        described = {
            "topic": F.col("topic"),
            "partition": F.col("partition"),
            "offset": F.col("offset"),
            **({"inner": F.col("inner")} if "inner" in dead.columns else {}),
            "timestamp": F.unix_millis(F.col("timestamp")),
            "error": F.col(ERROR),
        }
        # A record without a timestamp, as in Kafka before 0.10, has no header of it.
        headers = F.filter(
            F.array(*(_header(name, value) for name, value in described.items())), lambda h: ~h.value.isNull()
        )
        if "headers" in dead.columns:
            headers = F.concat(F.coalesce(F.col("headers"), F.array().cast(_HEADERS)), headers)
        rows = dead.select("key", "value", headers.alias("headers"))
        rows.write.format("streamgroup").mode("append").options(**self._options).save()

    def describe(self) -> str:
        """Return the topic's name."""
        return f"topic {self._topic}"


_HEADERS = "array<struct<key: string, value: binary>>"


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(HEADER + name).alias("key"), value.cast("string").cast("binary").alias("value"))
