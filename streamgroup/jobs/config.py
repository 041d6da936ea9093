"""The configuration of the ingest job: one TOML file, which is checked before Spark starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from streamgroup.coordinator.planning.subscription import is_subscribed
from streamgroup.errors import ConfigError
from streamgroup.frozen import frozen
from streamgroup.jobs.job_file import DEFAULT, JobFileReader, Metrics, SparkSettings, StopSettings, Trigger, read_toml
from streamgroup.jobs.keys import AT_LEAST_ONCE, DEAD_LETTERS, EXACTLY_ONCE, PARSER, SECTIONS, SINK, SOURCE
from streamgroup.model import TopicPartition
from streamgroup.options.client import CLIENT
from streamgroup.options.database import FORMAT, parse_database
from streamgroup.options.parse import SINK_OPTIONS, parse_sink, parse_source
from streamgroup.options.rows import Scope
from streamgroup.options.source import SOURCE as SOURCE_OPTIONS
from streamgroup.options.types import SourceOptions
from streamgroup.options.zookeeper import CONNECT, ZOOKEEPER
from streamgroup.spark.parsing.framing import SCHEMA_ID, SchemaRegistry
from streamgroup.spark.parsing.limit import DEFAULT_SHARE
from streamgroup.spark.parsing.parser import KEEP, Parser

DAMAGED_BATCHES = "includeDamagedBatches"
"""The option of the source that `damaged_batches` sets."""
OPTIONS_SECTION = f"{DEAD_LETTERS}.options"
_ADDRESSES = ("kafka.bootstrap.servers", CONNECT)
_CONNECTION = frozenset(
    option.name.lower()
    for option in (*CLIENT, *ZOOKEEPER)
    if (row := SINK_OPTIONS.get(option.name.lower())) is not None and row.scope & Scope.WRITE
)
"""Options of a connection that reads and writes share."""


@frozen
class DeadLetterSettings:
    """Where dead letters are written: to `topic`, with `options` of a write, or to `path`.

    Neither is set without the section.

    With `damaged_batches` the source creates rows from damaged batches, which become dead letters.
    """

    topic: str | None = None
    path: str | None = None
    max_records: int | None = None
    max_share: float | None = None
    damaged_batches: bool = False
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets


def read_parser(reader: JobFileReader, content: Mapping[str, Any] | None) -> Parser | None:
    """Return the parser of [parser], or None without the section or with problems in it."""
    if content is None:
        return None
    values = reader.values(PARSER, content)
    if "null_values" not in values:
        reader.note(PARSER, {"null_values": KEEP}, origin=DEFAULT)
    if "format" not in values:
        reader.problems.append("[parser] format is required. Set json, csv, avro or protobuf")
        return None
    of_registry = {name: values.pop(f"registry_{name}", None) for name in ("url", "user", "password", "ca")}
    try:
        registry = None
        if of_registry["url"] is not None:
            registry = SchemaRegistry(**of_registry)
            values.setdefault("framing", SCHEMA_ID)
        elif given := [f"registry_{name}" for name, value in of_registry.items() if value is not None]:
            raise ConfigError(f"{', '.join(given)} requires registry_url. Set it")
        if "descriptor" in values:
            values["descriptor"] = _content(values["descriptor"])
        return Parser(**values, registry=registry)
    except ConfigError as error:
        reader.problems.append(f"[parser]: {error}")
        return None


def _content(descriptor: str) -> bytes:
    try:
        return Path(descriptor).read_bytes()
    except (OSError, ValueError) as error:  # a ValueError for a path with a null character
        cause = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read descriptor {descriptor}: {cause}. Set the path of a file") from None


def read_dead_letters(
    reader: JobFileReader,
    content: Mapping[str, Any] | None,
    source: Mapping[str, str],
    parsed: SourceOptions | None,
    *,
    has_parser: bool,
) -> DeadLetterSettings:
    """Return the settings of [dead_letters]. Adds problems to the reader. `parsed` is `source` as values."""
    if content is None:
        return DeadLetterSettings()
    keys = dict(content)
    given = keys.pop("options", {})
    values = reader.values(DEAD_LETTERS, keys)
    options = reader.options(OPTIONS_SECTION, given, "options of a write") if given else {}
    if not has_parser:
        reader.problems.append("[dead_letters] requires [parser], which defines how values are read. Add it")
    if ("topic" in values) == ("path" in values):
        reader.problems.append("[dead_letters] requires topic or path, and not both. Set one of them")
        return DeadLetterSettings()
    reader.check_placeholders(DEAD_LETTERS, values, ("path", "topic"))
    if not {"max_records", "max_share"} & values.keys():
        reader.note(DEAD_LETTERS, {"max_share": DEFAULT_SHARE}, origin=DEFAULT)
    if "topic" in values:
        options = _write_options(reader, values["topic"], options, source, parsed)
    elif options:
        reader.problems.append("[dead_letters.options] are options of a write to Kafka, and no topic is set")
    return DeadLetterSettings(**values, options=options)


def _write_options(
    reader: JobFileReader,
    topic: str,
    given: Mapping[str, str],
    source: Mapping[str, str],
    parsed: SourceOptions | None,
) -> dict[str, str]:
    """Return the options of the write: those given and, unless they name a cluster, the connection of the source."""
    options = dict(given)
    names = {name.lower() for name in given}
    if names.isdisjoint(_ADDRESSES):
        inherited = {name: v for name, v in source.items() if name.lower() in _CONNECTION and name.lower() not in names}
        reader.note(OPTIONS_SECTION, inherited, origin=f"[{SOURCE}]")
        options |= inherited
        if parsed is not None and is_subscribed(parsed.subscription, TopicPartition(topic, 0)):
            reader.problems.append(
                f"[dead_letters] topic {topic!r} is among the topics that [source] reads: the job would read its own "
                "dead letters. Choose another topic"
            )
    if "topic" in names:
        reader.problems.append("cannot set topic in [dead_letters.options]. Write it as 'topic' below [dead_letters]")
    elif source:
        try:
            parse_sink({**options, "topic": topic}, strict=True)
        except ConfigError as error:
            reader.problems.append(f"[dead_letters.options]: {error}")
    return options


FILE_FORMATS = frozenset({"parquet", "orc", "json", "csv", "text", "avro"})
"""Formats of Spark's file sink, which logs the numbers of its batches in the directory's `_spark_metadata`."""

NOT_INTO_FILES = (
    "Spark identifies batches in its files by their numbers, so the rows of a second member would be lost. Use path or "
    "a table of another format, such as delta or iceberg"
)
"""Why a job writes into no table of a file format."""

STREAM_ONLY_FORMATS = frozenset({"iceberg", "memory"})
"""Formats that recognize a repeated batch only in a stream, or have no batch write."""

OUTPUT_MODES = ("append", "update", "complete")

_OF_STORE = {"url": "offsets.store", "user": "offsets.store.user", "password": "offsets.store.password"}
"""The options of a write into a database, by which the source finds the offsets in the same database."""


def read_database(
    reader: JobFileReader, sink: Mapping[str, Any], given: Mapping[str, Any] | None, source: dict[str, str]
) -> dict[str, str]:
    """Return the options of a sink in a database.

    Adds the options of the offset table to `source`, and problems to the reader.

    Rows and offsets change in one transaction, so both are in one database.
    """
    options = reader.options(
        f"{SINK}.options", given, f'the options of format("{FORMAT}"): url and dbtable', keeps={"password"}
    )
    for key in ("path", "table", "partition_by"):
        if key in sink:
            reader.problems.append(
                f"cannot use [sink] {key} with format {FORMAT!r}: dbtable in [sink.options] names its table. Remove it"
            )
    if not options:
        return options
    try:
        database = parse_database(options)
        url = _url(database.url)
    except ConfigError as error:
        reader.problems.append(f"[sink.options]: {error}")
        return options
    mode = sink.get("output_mode", "append")
    if mode == "complete" or (mode == "update" and not database.key_columns):
        reader.problems.append(
            f"cannot use [sink] output_mode {mode} with format {FORMAT!r}: it would add the rows of earlier batches "
            "again. Set update, and in [sink.options] the keyColumns of the rows to replace"
        )
    names = {name.lower(): name for name in source}
    if _OF_STORE["url"] not in names:
        values = {name.lower(): value for name, value in options.items()}
        inherited = {to: values[name] for name, to in _OF_STORE.items() if name in values and to not in names}
        reader.note(SOURCE, inherited, origin="[sink.options]")
        source |= inherited
        return options
    try:
        of_source = _url(source[names[_OF_STORE["url"]]])
    except ConfigError as error:
        reader.problems.append(f"[source] offsets.store: {error}")
        return options
    if of_source != url:
        reader.problems.append(
            f"[source] offsets.store and [sink.options] url name two databases, {of_source} and {url}, but rows and "
            "offsets are stored in one transaction. Remove offsets.store from [source]"
        )
    return options


def _url(text: str) -> str:
    """Return the URL of a database without the user. Raises ConfigError if it cannot be used."""
    try:
        from streamgroup.sql.database import open_engine, url_of  # noqa: PLC0415  (needs the extra)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"cannot write into a database: the Python package {error.name} is not installed. Install streamgroup[sql] "
            "for the Python of driver and executors"
        ) from None
    url = url_of(text)
    open_engine(url).dispose()  # it has not connected, but it has found its driver
    return url._replace(username=None, password=None).render_as_string()


KAFKA_FORMAT = "streamgroup"


@frozen
class Sink:
    """Where the job writes: the settings of section [sink]."""

    format: str
    path: str | None = None
    checkpoint: str | None = None
    columns: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    output_mode: str = "append"
    options: Mapping[str, str] = field(default_factory=dict)
    table: str | None = None
    """The name of a table in a catalog of the session."""
    guarantee: str = AT_LEAST_ONCE

    @property
    def target(self) -> str:
        """Return the format and its path or table, for a log line."""
        if self.writes_database:
            return f"{self.format} in table {parse_database(self.options).table}"
        where = f"table {self.table}" if self.table is not None else self.path
        return self.format if where is None else f"{self.format} in {where}"

    @property
    def writes_files(self) -> bool:
        return self.format.lower() in FILE_FORMATS

    @property
    def writes_database(self) -> bool:
        """Whether its function for `foreachBatch` stores rows and offsets in one transaction."""
        return self.format.lower() == FORMAT

    @property
    def in_transaction(self) -> bool:
        """Whether its function for `foreachBatch` writes records and offsets in one transaction of Kafka."""
        return self.guarantee == EXACTLY_ONCE and self.format.lower() == KAFKA_FORMAT

    @property
    def packages(self) -> tuple[str, ...]:
        """The optional packages that a task imports to write rows."""
        if not self.writes_database:
            return ()
        driver = _DRIVERS.get(parse_database(self.options).url.partition(":")[0].partition("+")[0])
        return ("sqlalchemy",) if driver is None else ("sqlalchemy", driver)


_DRIVERS = {"postgresql": "psycopg", "mariadb": "pymysql"}


@frozen
class JobConfig:
    """The configuration of an ingest job. `source` contains the options of `format("streamgroup")`."""

    file: Path
    member: str | None
    source: Mapping[str, str] = field(repr=False)  # may hold secrets
    sink: Sink = field(repr=False)
    spark: SparkSettings = field(repr=False)
    trigger: Trigger = field(default_factory=Trigger)
    stop: StopSettings = field(default_factory=StopSettings)
    parser: Parser | None = None
    """How the values are read. None: the sink gets them unchanged."""
    dead_letters: DeadLetterSettings = field(default_factory=DeadLetterSettings)
    metrics: Metrics = field(default_factory=Metrics)


def load(file: Path, member: str | None = None, environment: Mapping[str, str] | None = None) -> JobConfig:
    """Return the job of `file` for `member`, or else for the member in STREAMGROUP_MEMBER.

    Raises ConfigError that names all problems of the file together.
    """
    return _Reader(file, member, os.environ if environment is None else environment).job(read_toml(file))


def effective(file: Path, member: str | None = None, environment: Mapping[str, str] | None = None) -> list[str]:
    """Return the configuration that `load` makes as lines of TOML, each value with its origin and no secret."""
    reader = _Reader(file, member, os.environ if environment is None else environment)
    reader.job(read_toml(file))
    return reader.effective()


class _Reader(JobFileReader):
    """Reads the job file of an ingest job, and collects its problems."""

    def __init__(self, file: Path, member: str | None, environment: Mapping[str, str]) -> None:
        of_options = {SOURCE: (SOURCE_OPTIONS, Scope.STREAM)}
        super().__init__(file, member, environment, sections=SECTIONS, of_options=of_options)

    def job(self, document: Mapping[str, Any]) -> JobConfig:
        self.check_member()
        sections = self.sections(document)
        sink = dict(sections.get(SINK, {}))
        in_database = str(sink.get("format", "")).lower() == FORMAT
        of_database = sink.pop("options", None) if in_database else None
        sections[SINK] = sink
        plain = [name for name in SECTIONS if name not in (PARSER, DEAD_LETTERS)]
        values = {name: self.values(name, sections.get(name, {})) for name in plain}
        source = self.options(SOURCE, sections.get(SOURCE), 'the options of format("streamgroup")')
        if in_database:
            values[SINK]["options"] = read_database(self, values[SINK], of_database, source)
        self._check_guarantee(values[SINK], source)
        parsed = self._parsed(source)
        if in_database and parsed is not None and parsed.group is not None and not parsed.group.group_id:
            self.problems.append(
                f"cannot use format {FORMAT!r} without a group: the offsets in the database are a group's. Set "
                "kafka.group.id in [source], and group.mode to member or commit"
            )
        parser = read_parser(self, sections.get(PARSER))
        has_parser = PARSER in sections
        dead_letters = read_dead_letters(self, sections.get(DEAD_LETTERS), source, parsed, has_parser=has_parser)
        self.check_trigger(values["trigger"])
        self._check_sink(values["sink"])
        if has_parser:
            self._check_sink_of_parsed(values["sink"])
        self.check_spark(values["spark"])
        self.check_metrics(values["metrics"])
        self.raise_problems()
        return JobConfig(
            file=self.file,
            member=self.member,
            source={**source, **({DAMAGED_BATCHES: "true"} if dead_letters.damaged_batches else {})},
            trigger=Trigger(**values["trigger"]),
            sink=Sink(**values["sink"]),
            spark=SparkSettings(**{"app_name": self.file.stem, **values["spark"]}),
            stop=StopSettings(**values["stop"]),
            parser=parser,
            dead_letters=dead_letters,
            metrics=Metrics(**values["metrics"]),
        )

    def _parsed(self, source: Mapping[str, str]) -> SourceOptions | None:
        """Return the options of the source as values, or None if they are invalid."""
        if source:
            try:
                return parse_source(source, streaming=True, strict=True)
            except ConfigError as error:
                self.problems.append(f"[source]: {error}")
        return None

    def _check_guarantee(self, sink: Mapping[str, Any], source: dict[str, str]) -> None:
        """Check [sink] guarantee. With transactions of Kafka, add their option to `source`."""
        guarantee, kind = sink.get("guarantee", AT_LEAST_ONCE), str(sink.get("format", "")).lower()
        if guarantee not in {AT_LEAST_ONCE, EXACTLY_ONCE}:
            self.problems.append(f"invalid value for [sink] guarantee: expected {AT_LEAST_ONCE!r} or {EXACTLY_ONCE!r}")
        elif guarantee == EXACTLY_ONCE and kind == KAFKA_FORMAT:
            if "offsets.store" not in {name.lower() for name in source}:
                self.note(SOURCE, {"offsets.store": "transaction"}, origin="[sink] guarantee")
                source["offsets.store"] = "transaction"
            try:
                parse_sink(sink.get("options", {}), strict=True)
            except ConfigError as error:
                self.problems.append(f"[sink.options]: {error}")
        elif guarantee == EXACTLY_ONCE and kind != FORMAT:
            self.problems.append(
                f"cannot use [sink] guarantee {EXACTLY_ONCE!r} with format {kind!r}: only {KAFKA_FORMAT!r} and "
                f"{FORMAT!r} store offsets and rows in one transaction. Use one of them, or leave guarantee out"
            )

    def _check_sink(self, sink: dict[str, Any]) -> None:
        kind = str(sink.get("format", "")).lower()
        self.check_placeholders("sink", sink, ("path", "checkpoint"))
        self.check_target(sink)
        if kind in FILE_FORMATS and "table" in sink:
            self.problems.append(f"cannot use [sink] table with format {kind!r}: {NOT_INTO_FILES}")
        elif kind in FILE_FORMATS and "path" not in sink:
            self.problems.append(f"[sink] path is required for format {kind!r}, which writes files")
        if kind and kind != "console" and "checkpoint" not in sink:
            self.problems.append("[sink] checkpoint is required. Without it a restart would not find its last batch")
        own = ("checkpoint", "path") if kind in FILE_FORMATS else ("checkpoint",)
        self.check_paths_of_members("sink", sink, own)
        if sink.get("output_mode", "append") not in OUTPUT_MODES:
            self.problems.append(f"invalid value for [sink] output_mode: expected one of {', '.join(OUTPUT_MODES)}")
        if kind != FORMAT:
            self.check_options_of_sink(sink, {"path": "path", "checkpointlocation": "checkpoint"})

    def _check_sink_of_parsed(self, sink: Mapping[str, Any]) -> None:
        """Check that the sink accepts the batches without their dead letters."""
        if sink.get("output_mode", "append") != "append":
            self.problems.append("[sink] output_mode must be append with [parser]. Aggregate in a query of your own")
        if str(sink.get("format", "")).lower() in STREAM_ONLY_FORMATS:
            self.problems.append(
                f"cannot use [sink] format {sink['format']} with [parser]: a batch that is written again would repeat "
                "its rows. Write delta or files, or use streamgroup.dead_letters in a query of your own"
            )
