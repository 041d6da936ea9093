"""The configuration of a job: one TOML file, which is checked before Spark starts."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamgroup.errors import ConfigError
from streamgroup.jobs.keys import OPTIONS, SECTIONS, SOURCE, Key
from streamgroup.options.parse import follows_references, parse_source
from streamgroup.options.settings_reader import SettingsReader, suggestion, together

MEMBER = "{member}"
MEMBER_VARIABLE = "STREAMGROUP_MEMBER"
FILE_FORMATS = frozenset({"parquet", "orc", "json", "csv", "text", "avro"})
"""Formats of Spark's file sink, which logs the numbers of its batches in the directory's `_spark_metadata`."""

OUTPUT_MODES = ("append", "update", "complete")

_PLACEHOLDER = re.compile(r"\{[^{}]*\}")
_MEMBER_NAME = re.compile(r"[A-Za-z0-9._-]{1,120}")
_REFERENCE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")


@dataclass(frozen=True, slots=True)
class Trigger:
    """When batches start. At most one field is set. If none is, Spark starts a batch as soon as the one before ends."""

    processing_time: str | None = None
    available_now: bool = False
    once: bool = False


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

    @property
    def writes_files(self) -> bool:
        """Return whether the sink is Spark's file sink."""
        return self.format.lower() in FILE_FORMATS


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The name and the settings of the Spark session."""

    app_name: str
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stop:
    """How the job stops."""

    timeout_seconds: float = 60.0
    """Seconds to wait for the batch in flight."""


@dataclass(frozen=True, slots=True)
class JobConfig:
    """A job file. `source` holds the options of `format("streamgroup")`."""

    file: Path
    member: str | None
    source: Mapping[str, str] = field(repr=False)  # may hold secrets
    sink: Sink = field(repr=False)
    spark: SparkSettings = field(repr=False)
    trigger: Trigger = Trigger()
    stop: Stop = Stop()


def load(file: Path, member: str | None = None, environment: Mapping[str, str] | None = None) -> JobConfig:
    """Return the job of `file` for `member`, or else for the member in STREAMGROUP_MEMBER.

    Raises ConfigError that names all problems of the file together.
    """
    environment = os.environ if environment is None else environment
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read job file {file}: {error.strerror}. Check the path after --config") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"cannot read job file {file}: byte {error.start} is not UTF-8, which TOML requires. Save the file as UTF-8"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"cannot read job file {file}: invalid TOML: {error}. Check that texts are in quotes"
        ) from None
    return _Reading(file, member or environment.get(MEMBER_VARIABLE) or None, environment).job(document)


class _SectionReader(SettingsReader[Key]):
    """Reads the keys of one section."""

    def __init__(self, section: str, problems: list[str]) -> None:
        super().__init__({key.name: key for key in SECTIONS[section]}, problems)
        self._section = section

    def label(self, row: Key) -> str:
        """Return `[section] key`."""
        return f"[{self._section}] {row.name}"

    def unknown(self, key: str) -> str:
        """Return the problem of an unknown key, with the most similar one or all keys of the section."""
        hint = suggestion(key, self.rows) or f". Its keys are {', '.join(self.rows)}"
        return f"unknown key {key!r} in section [{self._section}]{hint}"

    def require(self) -> None:
        """Add a problem for each required key that is not set."""
        self.problems += [
            f"{self.label(key)} is required. {key.doc}"
            for key in self.rows.values()
            if key.required and key.name not in self.given
        ]


class _Reading:
    """A job file while it is read."""

    def __init__(self, file: Path, member: str | None, environment: Mapping[str, str]) -> None:
        self._file = file
        self._member = member
        self._environment = environment
        self._with_member: set[str] = set()
        """The places whose value contains {member}."""
        self.problems: list[str] = []

    def job(self, document: Mapping[str, Any]) -> JobConfig:
        self._check_member()
        sections = self._sections(document)
        values = {name: self._values(name, sections.get(name, {})) for name in SECTIONS}
        source = self._source(sections.get(SOURCE))
        self._check_trigger(values["trigger"])
        self._check_sink(values["sink"])
        self._check_spark(values["spark"])
        if self.problems:
            raise ConfigError(f"invalid job file {self._file}: {together(self.problems, 'problems')}")
        return JobConfig(
            file=self._file,
            member=self._member,
            source=source,
            trigger=Trigger(**values["trigger"]),
            sink=Sink(**values["sink"]),
            spark=SparkSettings(**{"app_name": self._file.stem, **values["spark"]}),
            stop=Stop(**values["stop"]),
        )

    # -- keys and values -----------------------------------------------------------------------------------------------

    def _sections(self, document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        known = (SOURCE, *SECTIONS)
        sections: dict[str, Mapping[str, Any]] = {}
        for name, content in document.items():
            if name not in known:
                homes = [section for section, keys in SECTIONS.items() if name in {key.name for key in keys}]
                hint = f". Move it below [{homes[0]}]" if homes else suggestion(name, known, "[{}]")
                what = f"unknown section [{name}]" if isinstance(content, Mapping) else f"key {name!r} has no section"
                self.problems.append(what + (hint or f". The sections are {', '.join(f'[{k}]' for k in known)}"))
            elif not isinstance(content, Mapping):
                self.problems.append(f"{name!r} is a section, not a key. Write [{name}] on a line of its own")
            else:
                sections[name] = content
        return sections

    def _values(self, section: str, content: Mapping[str, Any]) -> dict[str, Any]:
        reader = _SectionReader(section, self.problems)
        for name, value in content.items():
            reader.take(name, value)
        reader.require()
        return {name: self._filled(f"[{section}] {name}", value) for name, value in reader.values.items()}

    def _source(self, content: Mapping[str, Any] | None) -> dict[str, str]:
        if not content:
            self.problems.append('section [source] is required. Add it with the options of format("streamgroup")')
            return {}
        try:
            options = {name: self._option(name, text) for name, text in OPTIONS.parse(content).items()}
        except ValueError as error:
            self.problems.append(f"[source]: {error}")
            return {}
        try:
            parse_source(options, streaming=True)
        except ConfigError as error:
            self.problems.append(f"[source]: {error}")
        return options

    def _option(self, name: str, text: str) -> str:
        """Return the value of an option, filled in.

        A reference to a secret stays a reference. The driver follows it, so Spark's plan never contains the secret.
        """
        filled = self._filled_text(f"[source] {name}", text)
        keeps = _REFERENCE.fullmatch(text) and follows_references(name)
        return text if keeps else filled

    def _filled(self, place: str, value: Any) -> Any:
        """Return `value` with `{member}` and `env:NAME` replaced in all its texts."""
        match value:
            case str():
                return self._filled_text(place, value)
            case tuple():
                return tuple(self._filled_text(place, item) for item in value)
            case dict():
                return {name: self._filled_text(f"{place} {name}", text) for name, text in value.items()}
            case _:
                return value

    def _filled_text(self, place: str, text: str) -> str:
        if reference := _REFERENCE.fullmatch(text):
            if reference[1] not in self._environment:
                self.problems.append(
                    f"invalid value for {place}: the environment variable {reference[1]} is not set. Set it for the job"
                )
            return self._environment.get(reference[1], "")
        if MEMBER not in text:
            return text
        if self._member is None:
            self.problems.append(
                f"{place} contains {MEMBER}, but the job has no member name. Set --member or {MEMBER_VARIABLE}"
            )
            return text
        self._with_member.add(place)
        return text.replace(MEMBER, self._member)

    # -- keys that must fit together ----------------------------------------------------------------------------------

    def _check_member(self) -> None:
        if self._member is not None and (not _MEMBER_NAME.fullmatch(self._member) or set(self._member) == {"."}):
            self.problems.append(
                f"invalid member name {self._member!r}: expected up to 120 letters, digits, '.', '_' and '-', because "
                "it becomes part of directory names"
            )
            self._member = "member"

    def _check_trigger(self, trigger: dict[str, Any]) -> None:
        given = [name for name, value in trigger.items() if value is not False]
        if len(given) > 1:
            self.problems.append(f"[trigger] accepts one key, but {' and '.join(given)} are set. Keep one of them")

    def _check_sink(self, sink: dict[str, Any]) -> None:
        kind = str(sink.get("format", "")).lower()
        for key in ("path", "checkpoint"):
            for strange in _PLACEHOLDER.findall(sink.get(key, "")):
                if strange != MEMBER:
                    self.problems.append(
                        f"unknown placeholder {strange} in [sink] {key}. The only placeholder is {MEMBER}"
                    )
        if kind in FILE_FORMATS and "path" not in sink:
            self.problems.append(f"[sink] path is required for format {kind!r}, which writes files")
        if kind and kind != "console" and "checkpoint" not in sink:
            self.problems.append("[sink] checkpoint is required. Without it a restart would not know its last batch")
        for key in ("checkpoint", "path") if kind in FILE_FORMATS else ("checkpoint",):
            if self._member is not None and key in sink and f"[sink] {key}" not in self._with_member:
                self.problems.append(
                    f"[sink] {key} does not contain {MEMBER}, but the job is member {self._member!r}. Members that "
                    f"share the same {key} would stop each other. Add {MEMBER} to it, or leave out the member name"
                )
        if sink.get("output_mode", "append") not in OUTPUT_MODES:
            self.problems.append(f"invalid value for [sink] output_mode: expected one of {', '.join(OUTPUT_MODES)}")
        taken = {"path", "checkpointlocation"} & {name.lower() for name in sink.get("options", {})}
        for name in sorted(taken):
            key = "path" if name == "path" else "checkpoint"
            self.problems.append(
                f"cannot use {name} in [sink.options]: the job sets it. Write it as {key!r} below [sink]"
            )

    def _check_spark(self, spark: dict[str, Any]) -> None:
        for name in spark.get("conf", {}):
            if not name.startswith("spark."):
                self.problems.append(
                    f"unknown key {name!r} in [spark.conf]. The names of Spark settings begin with 'spark.'"
                )
