"""The configuration of the backfill job: one TOML file, which is checked before Spark starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamgroup.errors import ConfigError
from streamgroup.jobs.config import FILE_FORMATS, Sink
from streamgroup.jobs.job_file import JobFileReader, SparkSettings, read_toml
from streamgroup.jobs.keys import BATCH_SINK, COMMON, LARGE_COUNT, SOURCE, TEXT, Key
from streamgroup.options.parse import parse_source
from streamgroup.options.rows import Scope
from streamgroup.options.source import SOURCE as SOURCE_OPTIONS

RANGE_OPTIONS = frozenset(
    {
        *("subscribe", "subscribepattern", "assign"),
        *("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp"),
        *("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp"),
    }
)
"""The options that choose the offsets to read, in lower case. The plan replaces them."""
DEFAULT_OFFSETS_PER_STEP = 1_000_000


@dataclass(frozen=True, slots=True)
class BackfillConfig:
    """A backfill's file. `source` holds the options of a batch read by `format("streamgroup")`."""

    file: Path
    source: Mapping[str, str] = field(repr=False)  # may hold secrets
    sink: Sink = field(repr=False)
    progress: str
    spark: SparkSettings = field(repr=False)
    offsets_per_step: int = DEFAULT_OFFSETS_PER_STEP

    @property
    def purpose(self) -> dict[str, str]:
        """Return the settings that must not change between two runs of one backfill."""
        chosen = {name.lower(): value for name, value in self.source.items() if name.lower() in RANGE_OPTIONS}
        return {**chosen, "sink": self.sink.target, "columns": ", ".join(self.sink.columns) or "*"}

    @property
    def connection(self) -> dict[str, str]:
        """Return the options of the source without those that choose the offsets."""
        return {name: value for name, value in self.source.items() if name.lower() not in RANGE_OPTIONS}


def load(file: Path, member: str | None = None, environment: Mapping[str, str] | None = None) -> BackfillConfig:
    """Return the backfill of `file`. Raises ConfigError that names all problems of the file together."""
    return _BackfillReader(file, member, os.environ if environment is None else environment).backfill(read_toml(file))


def effective(file: Path, member: str | None = None, environment: Mapping[str, str] | None = None) -> list[str]:
    """Return the configuration that `load` makes as lines of TOML, each value with its origin and no secret."""
    reader = _BackfillReader(file, member, os.environ if environment is None else environment)
    reader.backfill(read_toml(file))
    return reader.effective()


class _BackfillReader(JobFileReader):
    """The file of a backfill while it is read."""

    def __init__(self, file: Path, member: str | None, environment: Mapping[str, str]) -> None:
        of_options = {SOURCE: (SOURCE_OPTIONS, Scope.BATCH)}
        super().__init__(file, member, environment, sections=SECTIONS, of_options=of_options)

    def backfill(self, document: Mapping[str, Any]) -> BackfillConfig:
        self.check_member()
        sections = self.sections(document)
        values = {name: self.values(name, sections.get(name, {})) for name in SECTIONS}
        source = self._source(sections.get(SOURCE))
        self._check_sink(values["sink"])
        self.check_placeholders("backfill", values["backfill"], ("progress",))
        self.check_spark(values["spark"])
        self.raise_problems()
        return BackfillConfig(
            file=self.file,
            source=source,
            sink=Sink(**values["sink"]),
            spark=SparkSettings(**{"app_name": self.file.stem, **values["spark"]}),
            **values["backfill"],
        )

    def _source(self, content: Mapping[str, Any] | None) -> dict[str, str]:
        options = self.options(SOURCE, content, 'the options of a batch read by format("streamgroup")')
        if options:
            try:
                parse_source(options, streaming=False)
            except ConfigError as error:
                self.problems.append(f"[source]: {error}")
        return options

    def _check_sink(self, sink: Mapping[str, Any]) -> None:
        kind = str(sink.get("format", "")).lower()
        self.check_placeholders("sink", sink, ("path",))
        self.check_target(sink)
        if kind in FILE_FORMATS and "path" not in sink and "table" not in sink:
            self.problems.append(f"[sink] path or table is required for format {kind!r}, which writes files")
        self.check_options_of_sink(sink, {"path": "path"})


SECTIONS: Mapping[str, tuple[Key, ...]] = {
    "backfill": (
        Key(
            "progress",
            TEXT,
            "Directory of the plan and of the steps that are done. A new directory begins a new backfill.",
            required=True,
        ),
        Key(
            "offsets_per_step",
            LARGE_COUNT,
            "About how many offsets one step reads. A step that a failure has cut short is read again.",
            default="1000000",
        ),
    ),
    "sink": BATCH_SINK,
    "spark": COMMON["spark"],
}
"""The keys of all sections but `source`, whose keys are the options of a batch read by `format("streamgroup")`."""
