"""`streamgroup.dead_letters()`: set records aside that a parser cannot read, and go on with the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (Spark's own habit)
from pyspark.storagelevel import StorageLevel

from streamgroup.driver.log_output import log_warnings_to_stderr
from streamgroup.errors import ConfigError, DeadLetterError, StreamGroupError
from streamgroup.logline import render
from streamgroup.net.schema_registry import SchemaRegistryClient
from streamgroup.options.parse_sink import parse_sink
from streamgroup.parsing.framing import UNKNOWN_ID, id_in_error
from streamgroup.parsing.limit import NO_DEAD_LETTERS, DeadLetterLimit, FirstDeadLetter, text_above_limit
from streamgroup.parsing.parser import ERROR, Parser
from streamgroup.spark.dead_letter_counts import COUNTS
from streamgroup.spark.letter_targets import RECORD, LetterTarget, PathTarget, TopicTarget
from streamgroup.spark.parsed_rows import with_parsed
from streamgroup.spark.queries import documents_in_flight, driver_context, query_id_of_thread, query_name
from streamgroup.spark.writer_schemas import WriterSchemas

log = logging.getLogger("streamgroup")

Write = Callable[[DataFrame, int], None]
"""Writes the rows of a batch, which it gets with the batch's number."""
MOST_IDS = 1000
"""Schema ids that the driver asks the registry for in one batch."""
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

    `write` gets the batch with the column `parsed` and without the dead letters, and its number. The dead letters go to
    a `topic`, written with `options` of `format("streamgroup")`, or as Parquet files below `path`. They are written
    before the others. Above `max_records`, or above `max_share` of the batch, it raises DeadLetterError and writes
    nothing, as it does for any dead letter without topic and path.

    Raises ConfigError for arguments that cannot work.
    """
    log_warnings_to_stderr()
    if topic is not None and path is not None:
        raise ConfigError("topic and path of dead letters are both set. Keep one of them")
    if options and topic is None:
        raise ConfigError("options of dead letters are options of a write to Kafka, and no topic is set. Set topic")
    limit = DeadLetterLimit(max_records, max_share)
    if topic is not None:
        parse_sink({**(options or {}), "topic": topic})
        return DeadLetters(parser, write, TopicTarget(topic, options or {}), limit)
    if path is not None:
        return DeadLetters(parser, write, PathTarget(path), limit)
    if limit != DeadLetterLimit():
        raise ConfigError("a limit of dead letters is set, but no topic or path for them. Set one of them")
    return DeadLetters(parser, write, None, NO_DEAD_LETTERS)


class DeadLetters:
    """A function for `foreachBatch`. `error` is the last StreamGroupError that it has raised."""

    def __init__(self, parser: Parser, write: Write, target: LetterTarget | None, limit: DeadLetterLimit) -> None:
        self.parser = parser
        self._write = write
        self._target = target
        self._limit = limit
        registry = parser.registry
        self._schemas = None if registry is None else WriterSchemas(SchemaRegistryClient(registry), parser.format)
        self.error: StreamGroupError | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write the dead letters of a batch, then its other rows."""
        try:
            self._take(frame, batch_id)
        except StreamGroupError as error:
            self.error = error
            raise

    def _take(self, frame: DataFrame, batch_id: int) -> None:
        check_columns(frame)
        # Read once: the records may be gone from Kafka, or differ in order, when they are read a second time.
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
    """Raise ConfigError for rows that lack a column of a record."""
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
    """Return the schema ids that dead letters have and the driver did not know: the most frequent `MOST_IDS`.

    Garbage behind a zero byte may have any number of ids, and the registry is asked for each that is returned.
    """
    # Other reasons differ from record to record, so none of them may reach the driver.
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
    """Return the name of the query whose batch this thread writes, or else its id."""
    query_id = require_query_id()
    return query_name(driver_context("dead_letters"), query_id) or query_id


def groups_in_flight() -> list[str]:
    """Return the groups of the query whose batch this thread writes, as far as Spark shows them."""
    context = driver_context("dead_letters")
    documents = documents_in_flight(context, require_query_id()) or []
    return sorted({str(value["group"]) for value in documents if value.get("group")})
