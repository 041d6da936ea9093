"""The configuration of the ingest job: one TOML file, which is checked before Spark starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamgroup.errors import ConfigError
from streamgroup.jobs.job_file import JobFileReader, Metrics, SparkSettings, StopSettings, Trigger, read_toml
from streamgroup.jobs.keys import DEAD_LETTERS, PARSER, SECTIONS, SOURCE
from streamgroup.jobs.parsing_sections import DAMAGED_BATCHES, DeadLetterSettings, read_dead_letters, read_parser
from streamgroup.options.parse import parse_source
from streamgroup.options.rows import Scope
from streamgroup.options.source import SOURCE as SOURCE_OPTIONS
from streamgroup.options.types import SourceOptions
from streamgroup.parsing.parser import Parser

FILE_FORMATS = frozenset({"parquet", "orc", "json", "csv", "text", "avro"})
"""Formats of Spark's file sink, which logs the numbers of its batches in the directory's `_spark_metadata`."""

NOT_INTO_FILES = (
    "Spark knows the batches in its files by their numbers, so the rows of a second member would be lost. Use path, or "
    "a table of another format, such as delta or iceberg"
)
"""Why a job writes into no table of a file format."""

STREAM_ONLY_FORMATS = frozenset({"iceberg", "memory"})
"""Formats that recognise a repeated batch only in a stream, or have no batch write."""

OUTPUT_MODES = ("append", "update", "complete")


@dataclass(frozen=True, slots=True)
class Sink:
    """The sink of the query."""

    format: str
    path: str | None = None
    checkpoint: str | None = None
    columns: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    output_mode: str = "append"
    options: Mapping[str, str] = field(default_factory=dict)
    table: str | None = None
    """The name of a table, which a catalog of the session keeps."""

    @property
    def target(self) -> str:
        """Return the format and where it writes, for people."""
        where = f"table {self.table}" if self.table is not None else self.path
        return self.format if where is None else f"{self.format} in {where}"

    @property
    def writes_files(self) -> bool:
        """Return whether the sink is Spark's file sink."""
        return self.format.lower() in FILE_FORMATS


@dataclass(frozen=True, slots=True)
class JobConfig:
    """A job file. `source` holds the options of `format("streamgroup")`."""

    file: Path
    member: str | None
    source: Mapping[str, str] = field(repr=False)  # may hold secrets
    sink: Sink = field(repr=False)
    spark: SparkSettings = field(repr=False)
    trigger: Trigger = field(default_factory=Trigger)
    stop: StopSettings = field(default_factory=StopSettings)
    parser: Parser | None = None
    """How the values are read. None: the sink gets them as they are."""
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
    """The file of an ingest job while it is read."""

    def __init__(self, file: Path, member: str | None, environment: Mapping[str, str]) -> None:
        of_options = {SOURCE: (SOURCE_OPTIONS, Scope.STREAM)}
        super().__init__(file, member, environment, sections=SECTIONS, of_options=of_options)

    def job(self, document: Mapping[str, Any]) -> JobConfig:
        self.check_member()
        sections = self.sections(document)
        plain = [name for name in SECTIONS if name not in (PARSER, DEAD_LETTERS)]
        values = {name: self.values(name, sections.get(name, {})) for name in plain}
        source, parsed = self._source(sections.get(SOURCE))
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

    def _source(self, content: Mapping[str, Any] | None) -> tuple[dict[str, str], SourceOptions | None]:
        """Return the options of the source, and the same as values; None where these have problems."""
        options = self.options(SOURCE, content, 'the options of format("streamgroup")')
        if options:
            try:
                return options, parse_source(options, streaming=True, strict=True)
            except ConfigError as error:
                self.problems.append(f"[source]: {error}")
        return options, None

    def _check_sink(self, sink: dict[str, Any]) -> None:
        kind = str(sink.get("format", "")).lower()
        self.check_placeholders("sink", sink, ("path", "checkpoint"))
        self.check_target(sink)
        if kind in FILE_FORMATS and "table" in sink:
            self.problems.append(f"cannot use [sink] table with format {kind!r}: {NOT_INTO_FILES}")
        elif kind in FILE_FORMATS and "path" not in sink:
            self.problems.append(f"[sink] path is required for format {kind!r}, which writes files")
        if kind and kind != "console" and "checkpoint" not in sink:
            self.problems.append("[sink] checkpoint is required. Without it a restart would not know its last batch")
        own = ("checkpoint", "path") if kind in FILE_FORMATS else ("checkpoint",)
        self.check_paths_of_members("sink", sink, own)
        if sink.get("output_mode", "append") not in OUTPUT_MODES:
            self.problems.append(f"invalid value for [sink] output_mode: expected one of {', '.join(OUTPUT_MODES)}")
        self.check_options_of_sink(sink, {"path": "path", "checkpointlocation": "checkpoint"})

    def _check_sink_of_parsed(self, sink: Mapping[str, Any]) -> None:
        """Check that the sink takes the batches that are left after dead letters are set aside."""
        if sink.get("output_mode", "append") != "append":
            self.problems.append("[sink] output_mode must be append with [parser]. Aggregate in a query of your own")
        if str(sink.get("format", "")).lower() in STREAM_ONLY_FORMATS:
            self.problems.append(
                f"cannot use [sink] format {sink['format']} with [parser]: a batch that is written again would repeat "
                "its rows. Write delta or files, or use streamgroup.dead_letters in a query of your own"
            )
