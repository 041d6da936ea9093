"""A job's configuration: one TOML file, every key of it known and checked before Spark starts."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamgroup.errors import ConfigError
from streamgroup.jobs.keys import OPTIONS, SECTIONS, SOURCE
from streamgroup.options.parse import follows_references, parse_source

MEMBER = "{member}"
MEMBER_VARIABLE = "STREAMGROUP_MEMBER"
FILE_FORMATS = frozenset({"parquet", "orc", "json", "csv", "text", "avro"})
"""Formats that Spark's file sink writes: it numbers batches per directory, in `_spark_metadata`."""

OUTPUT_MODES = ("append", "update", "complete")

_PLACEHOLDER = re.compile(r"\{[^{}]*\}")
_MEMBER_NAME = re.compile(r"[A-Za-z0-9._-]{1,120}")
_REFERENCE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")


@dataclass(frozen=True, slots=True)
class Trigger:
    """When batches start; at most one is set, and without any Spark starts the next when the last has ended."""

    processing_time: str | None = None
    available_now: bool = False
    once: bool = False


@dataclass(frozen=True, slots=True)
class Sink:
    """Where the rows go."""

    format: str
    path: str | None = None
    checkpoint: str | None = None
    columns: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    output_mode: str = "append"
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def writes_files(self) -> bool:
        """Whether Spark's file sink writes it."""
        return self.format.lower() in FILE_FORMATS


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The session's name and settings."""

    app_name: str
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stop:
    """How the job ends when asked to."""

    timeout_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class JobConfig:
    """A job as its file describes it. `source` holds the options of `format("streamgroup")`."""

    file: Path
    member: str | None
    source: Mapping[str, str] = field(repr=False)  # may hold secrets
    sink: Sink = field(repr=False)
    spark: SparkSettings = field(repr=False)
    trigger: Trigger = Trigger()
    stop: Stop = Stop()


def load(file: Path, member: str | None = None, environment: Mapping[str, str] | None = None) -> JobConfig:
    """The job that `file` describes, for `member` (else STREAMGROUP_MEMBER).

    Raises ConfigError that tells of all problems of the file together.
    """
    environment = os.environ if environment is None else environment
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}; name the job's file with --config") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8, which TOML must be: byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not TOML: {error}. Texts stand in quotes") from None
    return _Reading(file, member or environment.get(MEMBER_VARIABLE) or None, environment).job(document)


class _Reading:
    """One file being read: collects what is wrong, so that the user sees it all at once."""

    def __init__(self, file: Path, member: str | None, environment: Mapping[str, str]) -> None:
        self._file = file
        self._member = member
        self._environment = environment
        self._members_own: set[str] = set()  # the places that hold {member}
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
            raise ConfigError(_together(self._file, self.problems))
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
                homes = [f"[{section}]" for section, keys in SECTIONS.items() if name in {key.name for key in keys}]
                hint = f": it belongs below {homes[0]}" if homes else _suggestion(name, known, "[{}]".format)
                what = f"[{name}] is no section" if isinstance(content, Mapping) else f"{name} stands outside a section"
                self.problems.append(what + (hint or f": the sections are {', '.join(f'[{k}]' for k in known)}"))
            elif not isinstance(content, Mapping):
                self.problems.append(f"{name} is a section: write [{name}] on a line of its own")
            else:
                sections[name] = content
        return sections

    def _values(self, section: str, content: Mapping[str, Any]) -> dict[str, Any]:
        keys = {key.name: key for key in SECTIONS[section]}
        values: dict[str, Any] = {}
        for name, value in content.items():
            if name not in keys:
                hint = _suggestion(name, keys) or f": its keys are {', '.join(keys)}"
                self.problems.append(f"[{section}] has no key {name!r}{hint}")
                continue
            try:
                values[name] = self._filled(f"[{section}] {name}", keys[name].kind.read(value))
            except ValueError as error:
                self.problems.append(f"[{section}] {name}: {error}")
        self.problems += [
            f"[{section}] {key.name} is missing. {key.doc}"
            for key in keys.values()
            if key.required and key.name not in content
        ]
        return values

    def _source(self, content: Mapping[str, Any] | None) -> dict[str, str]:
        if not content:
            self.problems.append('[source] is missing: it holds the options of format("streamgroup")')
            return {}
        try:
            options = {name: self._option(name, text) for name, text in OPTIONS.read(content).items()}
        except ValueError as error:
            self.problems.append(f"[source]: {error}")
            return {}
        try:
            parse_source(options, streaming=True)
        except ConfigError as error:
            self.problems.append(f"[source]: {error}")
        return options

    def _option(self, name: str, text: str) -> str:
        """An option's text, filled in. The reference to a secret stays one: the driver follows it, so that the secret
        enters no plan."""
        filled = self._filled_text(f"[source] {name}", text)
        keeps = _REFERENCE.fullmatch(text) and follows_references(name)
        return text if keeps else filled

    def _filled(self, place: str, value: Any) -> Any:
        """`value` with `{member}` and `env:NAME` replaced in all texts of it."""
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
                self.problems.append(f"{place} refers to the environment variable {reference[1]}, which is not set")
            return self._environment.get(reference[1], "")
        if MEMBER not in text:
            return text
        if self._member is None:
            self.problems.append(f"{place} holds {MEMBER}: name the member with --member or {MEMBER_VARIABLE}")
            return text
        self._members_own.add(place)
        return text.replace(MEMBER, self._member)

    # -- what must fit together ----------------------------------------------------------------------------------------

    def _check_member(self) -> None:
        if self._member is not None and (not _MEMBER_NAME.fullmatch(self._member) or set(self._member) == {"."}):
            self.problems.append(
                f"{self._member!r} cannot name a member: it becomes part of directories' names, so letters, digits, "
                "'.', '_' and '-' are allowed, 120 at most"
            )
            self._member = "member"

    def _check_trigger(self, trigger: dict[str, Any]) -> None:
        given = [name for name, value in trigger.items() if value is not False]
        if len(given) > 1:
            self.problems.append(f"[trigger] takes one of its keys: {' and '.join(given)} are given")

    def _check_sink(self, sink: dict[str, Any]) -> None:
        kind = str(sink.get("format", "")).lower()
        for key in ("path", "checkpoint"):
            for strange in _PLACEHOLDER.findall(sink.get(key, "")):
                if strange != MEMBER:
                    self.problems.append(f"[sink] {key} holds {strange}: the one placeholder is {MEMBER}")
        if kind in FILE_FORMATS and "path" not in sink:
            self.problems.append(f"[sink] path is missing: format {kind!r} writes files")
        if kind and kind != "console" and "checkpoint" not in sink:
            self.problems.append("[sink] checkpoint is missing: without one every start would begin anew")
        for key in ("checkpoint", "path") if kind in FILE_FORMATS else ("checkpoint",):
            if self._member is not None and key in sink and f"[sink] {key}" not in self._members_own:
                self.problems.append(
                    f"[sink] {key} does not hold {MEMBER}, and this job is member {self._member!r}: members with one "
                    f"{key} would stop each other. Write {MEMBER} into it, or name no member"
                )
        if sink.get("output_mode", "append") not in OUTPUT_MODES:
            self.problems.append(f"[sink] output_mode is one of {', '.join(OUTPUT_MODES)}")
        taken = {"path", "checkpointlocation"} & {name.lower() for name in sink.get("options", {})}
        for name in sorted(taken):
            key = "path" if name == "path" else "checkpoint"
            self.problems.append(f"[sink.options] {name}: write it as {key!r} below [sink]")

    def _check_spark(self, spark: dict[str, Any]) -> None:
        for name in spark.get("conf", {}):
            if not name.startswith("spark."):
                self.problems.append(f"[spark.conf] {name!r}: Spark's settings begin with 'spark.'")


def _suggestion(name: str, known: Iterable[str], show: Callable[[str], str] = repr) -> str:
    near = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return f": did you mean {show(near[0])}?" if near else ""


def _together(file: Path, problems: list[str]) -> str:
    if len(problems) == 1:
        return f"{file}: {problems[0]}"
    return f"{file}: {len(problems)} problems:" + "".join(f"\n  - {problem}" for problem in problems)
