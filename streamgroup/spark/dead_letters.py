"""`streamgroup.dead_letters()`: writes records that a parser cannot read elsewhere, and continues with the others."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (Spark's own habit)
from pyspark.storagelevel import StorageLevel

from streamgroup.coordinator.log_output import log_warnings_to_stderr
from streamgroup.errors import ConfigError, DeadLetterError, StreamGroupError
from streamgroup.logline import render
from streamgroup.options.parse import parse_sink
from streamgroup.spark.parsed_rows import with_parsed
from streamgroup.spark.parsing import avro, protobuf
from streamgroup.spark.parsing.framing import UNKNOWN_ID, id_in_error
from streamgroup.spark.parsing.limit import NO_DEAD_LETTERS, DeadLetterLimit, FirstDeadLetter, text_above_limit
from streamgroup.spark.parsing.parser import AVRO, ERROR, PROTOBUF, Parser
from streamgroup.spark.queries import documents_in_flight, driver_context, query_id_of_thread, query_name
from streamgroup.spark.schema_registry import RegisteredSchema, SchemaRegistryClient

log = logging.getLogger("streamgroup")

Write = Callable[[DataFrame, int], None]
"""Writes the rows of a batch. The second argument is the batch's number."""
MOST_IDS = 1000
"""Maximum number of schema ids that the driver requests from the registry in one batch."""
IS_READ = f"{ERROR} IS NULL"
IS_DEAD = f"{ERROR} IS NOT NULL"


def dead_letters(
    parser: Parser,
    write: Write,
    *,
    topic: str | None = None,
    path: str | None = None,
    options: Mapping[str, str] | None = None,
    max_records: int | None = None,
    max_share: float | None = None,
) -> DeadLetters:
    """Return a function for `foreachBatch` that parses the values of a batch and sets unreadable records aside.

    `write(rows, batch_id)` gets the parsed rows, with the column `parsed` and without the dead letters. Before that,
    the function writes the dead letters: to a `topic`, with `options` of `format("streamgroup")`, or as Parquet files
    below `path`. Above `max_records`, or above `max_share` of the batch, it raises DeadLetterError and writes nothing.
    Without topic and path it does so for any dead letter.

    Raises ConfigError for arguments that cannot work.
    """
    log_warnings_to_stderr()
    if topic is not None and path is not None:
        raise ConfigError("cannot write dead letters to both topic and path. Set only one of them")
    if options and topic is None:
        raise ConfigError(
            "cannot use options of dead letters without a topic: they are options of a write to Kafka. Set topic"
        )
    limit = DeadLetterLimit(max_records, max_share)
    if topic is not None:
        parse_sink({**(options or {}), "topic": topic})
        return DeadLetters(parser, write, TopicTarget(topic, options or {}), limit)
    if path is not None:
        return DeadLetters(parser, write, PathTarget(path), limit)
    if limit != DeadLetterLimit():
        raise ConfigError("cannot limit dead letters without a topic or path for them. Set one of them")
    return DeadLetters(parser, write, None, NO_DEAD_LETTERS)


class DeadLetters:
    """The function for `foreachBatch` that `dead_letters` returns.

    `error` is the last StreamGroupError that it has raised.
    """

    def __init__(self, parser: Parser, write: Write, target: LetterTarget | None, limit: DeadLetterLimit) -> None:
        self.parser = parser
        self._write = write
        self._target = target
        self._limit = limit
        registry = parser.registry
        self._schemas = None if registry is None else WriterSchemas(SchemaRegistryClient(registry), parser.format)
        self.error: StreamGroupError | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        try:
            self._take(frame, batch_id)
        except StreamGroupError as error:
            self.error = error
            raise

    def _take(self, frame: DataFrame, batch_id: int) -> None:
        check_columns(frame)
        # Read once: a second read may find records gone from Kafka, or in another order.
        parsed = self._parsed(frame)
        try:
            records, dead = counts(parsed)
            if dead and self._schemas is not None and self._schemas.learn(unknown_ids(parsed.filter(IS_DEAD))):
                parsed.unpersist()
                parsed = self._parsed(frame)
                records, dead = counts(parsed)
            if dead > self._limit.allowed(records):
                self._refuse(parsed, batch_id, dead, records)
            if dead and self._target is not None:
                query_id = require_query_id()
                self._target.write(parsed.filter(IS_DEAD), query_id, batch_id)
                self._say(batch_id, dead, records)
                COUNTS.add(query_id, dead)
            self._write(parsed.filter(IS_READ).drop(ERROR), batch_id)
        finally:
            parsed.unpersist()

    def _say(self, batch_id: int, dead: int, records: int) -> None:
        assert self._target is not None, "dead letters have been written"
        query, groups = query_in_flight(), groups_in_flight()
        words = f"query {query}: batch {batch_id}: {dead} of {records} records are dead letters in "
        fields = {"query": query, "group": ",".join(groups) or None, "batch": batch_id, "count": dead, "of": records}
        log.warning("%s", render(words + self._target.describe(), "dead_letters", **fields))

    def _parsed(self, frame: DataFrame) -> DataFrame:
        known = None if self._schemas is None else self._schemas.known
        return with_parsed(frame, self.parser, known).persist(StorageLevel.MEMORY_AND_DISK)

    def _refuse(self, parsed: DataFrame, batch_id: int, dead: int, records: int) -> None:
        first = first_of_partitions(parsed.filter(IS_DEAD))
        groups = groups_in_flight()
        text = text_above_limit(batch_id, groups, dead=dead, records=records, limit=self._limit, first=first)
        raise DeadLetterError(text)


def check_columns(frame: DataFrame) -> None:
    """Raise ConfigError if the rows lack a column of a record."""
    if missing := [name for name in RECORD if name not in frame.columns]:
        raise ConfigError(
            f"cannot set dead letters aside: the rows lack {', '.join(missing)}. Use the rows of format('streamgroup') "
            "before any select, and select columns in the function that writes"
        )


def counts(parsed: DataFrame) -> tuple[int, int]:
    """Return the numbers of all records and of dead letters."""
    row: Any = parsed.agg(F.count(F.lit(1)), F.count(ERROR)).first()
    return int(row[0]), int(row[1])


def first_of_partitions(dead: DataFrame) -> list[FirstDeadLetter]:
    """Return the number and the first dead letter of each topic-partition, in order."""
    found = dead.groupBy("topic", "partition").agg(F.count(F.lit(1)), F.min("offset"), F.min_by(ERROR, "offset"))
    return [FirstDeadLetter(*row) for row in found.orderBy("topic", "partition").collect()]


def unknown_ids(dead: DataFrame) -> list[int]:
    """Return the most frequent `MOST_IDS` schema ids of dead letters that the driver did not know.

    Random bytes may look like any number of ids, and the driver asks the registry for each id in the result.
    """
    # Other reasons may differ for each record, so the driver must not collect them.
    named = dead.filter(F.col(ERROR).startswith(UNKNOWN_ID)).groupBy(ERROR).count()
    found = (id_in_error(row[0]) for row in named.orderBy(F.desc("count")).limit(MOST_IDS).collect())
    return [one for one in found if one is not None]


def require_query_id() -> str:
    """Return the id of the query whose batch this thread writes. Raises ConfigError outside of foreachBatch."""
    query_id = query_id_of_thread(driver_context("dead_letters"))
    if not query_id:
        raise ConfigError(
            "cannot set dead letters aside: this thread writes no batch. Pass the function to foreachBatch"
        )
    return query_id


def query_in_flight() -> str:
    """Return the name of the query whose batch this thread writes, or its id without a name."""
    query_id = require_query_id()
    return query_name(driver_context("dead_letters"), query_id) or query_id


def groups_in_flight() -> list[str]:
    """Return the groups of the query whose batch this thread writes, if Spark shows them."""
    context = driver_context("dead_letters")
    documents = documents_in_flight(context, require_query_id()) or []
    return sorted({str(value["group"]) for value in documents if value.get("group")})


RECORD = ("topic", "partition", "offset", "timestamp", "key", "value")
"""The columns of a record that its dead letter has."""
_OPTIONAL = ("inner", "headers")
"""Columns that only some reads have."""
HEADER = "dead_letter."
"""The beginning of the names of the headers that a dead letter gets in a topic."""


class LetterTarget(Protocol):
    """Writes the dead letters of one batch."""

    def write(self, dead: DataFrame, query_id: str, batch_id: int) -> None:
        """Write the rows, which have the columns of a record and `error`."""

    def describe(self) -> str:
        """Return where the dead letters go, for a log line."""


class PathTarget:
    """Writes dead letters as Parquet files. Each batch of a query has a directory, which its replay overwrites."""

    def __init__(self, path: str) -> None:
        self._path = path

    def write(self, dead: DataFrame, query_id: str, batch_id: int) -> None:
        """Write the rows into the directory of this batch, and replace those of an earlier attempt."""
        columns = [*RECORD, *(name for name in _OPTIONAL if name in dead.columns), ERROR]
        dead.select(*columns).write.mode("overwrite").parquet(f"{self._path}/query={query_id}/batch={batch_id}")

    def describe(self) -> str:
        return f"path {self._path}"


class TopicTarget:
    """Writes dead letters to a topic.

    A dead letter has the key, value and headers of its record, and more headers for the record's place and error.
    """

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
        return f"topic {self._topic}"


_HEADERS = "array<struct<key: string, value: binary>>"


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(HEADER + name).alias("key"), value.cast("string").cast("binary").alias("value"))


_KINDS = {AVRO: ("AVRO", avro.is_schema), PROTOBUF: ("PROTOBUF", protobuf.is_proto)}
"""The name of a parser's format in the registry, and whether a text is a schema of it."""


class SchemaLookup(Protocol):
    """Looks up schemas by their ids, for example in a schema registry."""

    def schemas(self, ids: Iterable[int]) -> Mapping[int, RegisteredSchema]:
        """Return the schemas that the registry has, by id."""


class WriterSchemas:
    """Caches the schemas that the driver has fetched for a parser, by id.

    They are kept while the query runs, because the schema of an id never changes.
    """

    def __init__(self, registry: SchemaLookup, parser_format: str) -> None:
        self._registry = registry
        self._kind, self._is_schema = _KINDS[parser_format]
        self.known: dict[int, str] = {}

    def learn(self, ids: Iterable[int]) -> bool:
        """Fetch the schemas of unknown ids. Return whether the registry has any of them.

        The next batch asks again for an id without a schema. Raises as the client of the registry, and ConfigError for
        an Avro schema that refers to others.
        """
        found = {}
        unknown = sorted(set(ids) - self.known.keys())
        if not unknown:
            return False
        for one, schema in self._registry.schemas(unknown).items():
            if schema.kind != self._kind:
                continue
            if schema.has_references and self._kind != _KINDS[PROTOBUF][0]:
                raise ConfigError(
                    f"cannot read records by schema {one} of the registry: it refers to other schemas. Register it "
                    "with these types in it, or parse the values in a query of your own"
                )
            if self._is_schema(schema.text):
                found[one] = schema.text
        self.known |= found
        return bool(found)


class DeadLetterCounts:
    """Counts dead letters by the id of their query. A batch that runs again counts again."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, query_id: str, records: int) -> None:
        with self._lock:
            self._counts[query_id] = self._counts.get(query_id, 0) + records

    def of(self, query_id: str) -> int | None:
        """Return how many records of the query were set aside; None if none was."""
        with self._lock:
            return self._counts.get(query_id)


COUNTS = DeadLetterCounts()
"""The counts of this process. The function of `foreachBatch` adds to them, the metrics read them."""
