"""Reads a job file: one TOML file whose sections are tables of keys or options of a data source.

A job has its own table of sections. One error names all problems of a file together.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import MISSING, field
from enum import Enum
from pathlib import Path
from typing import Any

from streamgroup.errors import ConfigError
from streamgroup.frozen import frozen
from streamgroup.jobs.keys import OPTIONS, Key
from streamgroup.options import kinds
from streamgroup.options.parse import follows_references
from streamgroup.options.rows import Option, Scope, default_of
from streamgroup.options.secrets import has_secret
from streamgroup.options.settings_reader import SettingsReader, suggestion, together

MEMBER = "{member}"
MEMBER_VARIABLE = "STREAMGROUP_MEMBER"

_PLACEHOLDER = re.compile(r"\{[^{}]*\}")
_MEMBER_NAME = re.compile(r"[A-Za-z0-9._-]{1,120}")
_REFERENCE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")


@frozen
class Trigger:
    """When batches start. At most one field is set. If none is, Spark starts a batch as soon as the one before ends."""

    processing_time: str | None = None
    available_now: bool = False
    once: bool = False


@frozen
class SparkSettings:
    """The application name and the settings of the Spark session."""

    app_name: str
    conf: Mapping[str, str] = field(default_factory=dict)


@frozen
class StopSettings:
    """How long a stop of the job may take."""

    timeout_seconds: float = 60.0
    """Seconds to wait for the batch in flight."""


@frozen
class Metrics:
    """Where the driver's metrics go: to Prometheus at a port, by OpenTelemetry to an endpoint, or nowhere."""

    port: int | None = None
    host: str = "127.0.0.1"
    cluster_name: str = "default"
    otlp_endpoint: str | None = None
    otlp_interval_seconds: float = 60.0


def read_toml(file: Path) -> dict[str, Any]:
    """Return the content of a job file. Raises ConfigError if it cannot be read or is not TOML."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read job file {file}: {error.strerror}. Check the path after --config") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"cannot read job file {file}: byte {error.start} is not UTF-8, which TOML requires. Save the file as UTF-8"
        ) from None
    except ValueError as error:  # TOMLDecodeError, or a number with too many digits for Python
        raise ConfigError(
            f"cannot read job file {file}: invalid TOML: {error}. Check that texts are in quotes"
        ) from None
    except RecursionError:
        raise ConfigError(f"cannot read job file {file}: too many nested levels. Correct the brackets") from None


class _SectionReader(SettingsReader[Key]):
    """Reads the keys of one section."""

    def __init__(self, section: str, keys: tuple[Key, ...], problems: list[str]) -> None:
        super().__init__({key.name: key for key in keys}, problems)
        self._section = section

    def label(self, row: Key) -> str:
        return f"[{self._section}] {row.name}"

    def unknown(self, key: str) -> str:
        """Return the problem of an unknown key, with the most similar one or all keys of the section."""
        hint = suggestion(key, self.rows) or f". Its keys are {', '.join(self.rows)}"
        return f"unknown key {key!r} in section [{self._section}]{hint}"

    def require(self) -> None:
        self.problems += [
            f"{self.label(key)} is required. {key.doc}"
            for key in self.rows.values()
            if key.required and key.name not in self.given
        ]


class JobFileReader:
    """Reads a job file section by section. `problems` collects what is wrong with it.

    `sections` are the tables of keys. `of_options` are the sections with options of `format("streamgroup")`, each with
    the option rows whose defaults `effective` shows, and the scope in which these defaults apply.
    """

    def __init__(
        self,
        file: Path,
        member: str | None,
        environment: Mapping[str, str],
        *,
        sections: Mapping[str, tuple[Key, ...]],
        of_options: Mapping[str, tuple[tuple[Option, ...], Scope]],
    ) -> None:
        self.file = file
        self.member = member or environment.get(MEMBER_VARIABLE) or None
        self._member_origin = "--member" if member else f"environment variable {MEMBER_VARIABLE}"
        self.problems: list[str] = []
        self._environment = environment
        self._tables = sections
        self._of_options = of_options
        self._with_member: set[str] = set()
        """The places (`[sink] path`) whose value contains {member}."""
        self._set: dict[str, dict[str, Setting]] = {}
        """The values that the file sets, by section and name."""

    def raise_problems(self) -> None:
        if self.problems:
            raise ConfigError(f"invalid job file {self.file}: {together(self.problems, 'problems')}")

    def effective(self) -> list[str]:
        """Return the configuration as lines of TOML, with the origin of each value and without secrets."""
        sections: dict[str, dict[str, Setting]] = {}
        for name, (rows, scope) in self._of_options.items():
            given = self._set.get(name, {})
            taken = {key.lower() for key in given}
            unset = {key: row for key, row in defaults(rows, scope).items() if key.lower() not in taken}
            sections[name] = {**given, **unset}
        for name, keys in self._tables.items():
            given = self._set.get(name, {})
            unset = {key.name: Setting(key.default, DEFAULT) for key in keys if key.default and key.name not in given}
            if name == "spark" and "app_name" not in given:
                unset["app_name"] = Setting.of("app_name", self.file.stem, f"{DEFAULT}, the name of the file")
            sections[name] = {**given, **unset}
            sections |= {f"{name}.{key.name}": self._set.get(f"{name}.{key.name}", {}) for key in keys}
        who = "" if self.member is None else f", as member {self.member} ({self._member_origin})"
        return [f"# {self.file}{who}", *lines(sections)]

    # -- keys and values -----------------------------------------------------------------------------------------------

    def sections(self, document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        """Return the sections of the file by name. Unknown ones become problems."""
        known = (*self._of_options, *self._tables)
        sections: dict[str, Mapping[str, Any]] = {}
        for name, content in document.items():
            if name not in known:
                homes = [section for section, keys in self._tables.items() if name in {key.name for key in keys}]
                hint = f". Move it below [{homes[0]}]" if homes else suggestion(name, known, "[{}]")
                what = f"unknown section [{name}]" if isinstance(content, Mapping) else f"key {name!r} has no section"
                self.problems.append(what + (hint or f". The sections are {', '.join(f'[{k}]' for k in known)}"))
            elif not isinstance(content, Mapping):
                self.problems.append(f"{name!r} is a section, not a key. Write [{name}] on a separate line")
            else:
                sections[name] = content
        return sections

    def values(self, section: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a section's keys, filled in. Unknown and missing keys become problems."""
        reader = _SectionReader(section, self._tables[section], self.problems)
        for name, value in content.items():
            reader.take(name, value)
        reader.require()
        for name, value in reader.values.items():
            if isinstance(value, dict):
                self.note(f"{section}.{name}", value)
            else:
                self.note(section, {name: value})
        return {name: self._filled(f"[{section}] {name}", value) for name, value in reader.values.items()}

    def options(
        self, section: str, content: Mapping[str, Any] | None, purpose: str, *, keeps: Collection[str] = ()
    ) -> dict[str, str]:
        """Return the options of a section, which is required. `purpose` names them in an error.

        A reference to a secret stays a reference in the options of the source, and in those that `keeps` names in lower
        case.
        """
        if not content:
            self.problems.append(f"section [{section}] is required. Add it with {purpose}")
            return {}
        try:
            options = OPTIONS.parse(content)
        except ValueError as error:
            self.problems.append(f"[{section}]: {error}")
            return {}
        self.note(section, options)
        return {name: self._option(section, name, text, keeps) for name, text in options.items()}

    def note(self, section: str, values: Mapping[str, Any], origin: str = "") -> None:
        """Note values for `effective`, with the file as their default origin. References to secrets stay references."""
        settings = self._set.setdefault(section, {})
        for name, value in values.items():
            shown, origin_of_file = self._shown(name, value)
            settings[name] = Setting.of(name, shown, origin or origin_of_file, is_secret=follows_references(name))

    def _shown(self, name: str, value: Any) -> tuple[Any, str]:
        """Return a value of the file as `effective` shows it, and its origin."""
        if isinstance(value, str):
            if (reference := _REFERENCE.fullmatch(value)) and not follows_references(name):
                return value, f"environment variable {reference[1]}"
            if MEMBER in value and self.member is not None:
                return value.replace(MEMBER, self.member), f"file, {MEMBER} from {self._member_origin}"
        if isinstance(value, tuple):
            return tuple(self._shown(name, item)[0] for item in value), "file"
        return value, "file"

    def has_member(self, place: str) -> bool:
        """Return whether the value at `place`, such as `[sink] path`, contains {member}."""
        return place in self._with_member

    def _option(self, section: str, name: str, text: str, keeps: Collection[str]) -> str:
        """Return the value of an option, filled in.

        A reference to a secret stays a reference. The driver follows it, so Spark's plan never contains the secret.
        """
        filled = self._filled_text(f"[{section}] {name}", text)
        is_kept = _REFERENCE.fullmatch(text) and (follows_references(name) or name.lower() in keeps)
        return text if is_kept else filled

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
        if self.member is None:
            self.problems.append(
                f"{place} contains {MEMBER}, but the job has no member name. Set --member or {MEMBER_VARIABLE}"
            )
            return text
        self._with_member.add(place)
        return text.replace(MEMBER, self.member)

    # -- keys that every job has --------------------------------------------------------------------------------------

    def check_member(self) -> None:
        """Check the member's name, which becomes part of directory names."""
        if self.member is not None and (not _MEMBER_NAME.fullmatch(self.member) or set(self.member) == {"."}):
            self.problems.append(
                f"invalid member name {self.member!r}: expected up to 120 letters, digits, '.', '_' and '-', because "
                "it becomes part of directory names"
            )
            self.member = "member"

    def check_trigger(self, trigger: Mapping[str, Any]) -> None:
        """Check that at most one key of [trigger] is set."""
        given = [name for name, value in trigger.items() if value is not False]
        if len(given) > 1:
            self.problems.append(f"[trigger] accepts one key, but {' and '.join(given)} are set. Keep one of them")

    def check_placeholders(self, section: str, values: Mapping[str, Any], keys: tuple[str, ...]) -> None:
        """Check that the paths of these keys have no placeholder but {member}."""
        for key in keys:
            for strange in _PLACEHOLDER.findall(values.get(key, "")):
                if strange != MEMBER:
                    self.problems.append(
                        f"unknown placeholder {strange} in [{section}] {key}. The only placeholder is {MEMBER}"
                    )

    def check_paths_of_members(self, section: str, values: Mapping[str, Any], keys: tuple[str, ...]) -> None:
        """Check that the paths of these keys contain {member} where the job has a member name."""
        for key in keys:
            place = f"[{section}] {key}"
            if self.member is not None and key in values and not self.has_member(place):
                self.problems.append(
                    f"{place} does not contain {MEMBER}, but the job is member {self.member!r}. Members that share "
                    f"the same {key} would stop each other. Add {MEMBER} to it, or leave out the member name"
                )

    def check_target(self, sink: Mapping[str, Any]) -> None:
        """Check that the sink has one target at most."""
        if "path" in sink and "table" in sink:
            self.problems.append("[sink] path and table are both set. Keep one of them")

    def check_options_of_sink(self, sink: Mapping[str, Any], keys: Mapping[str, str]) -> None:
        """Check that [sink.options] has none of the options, in lower case, that the job sets by `keys` of its own."""
        for name in sorted(keys.keys() & {name.lower() for name in sink.get("options", {})}):
            self.problems.append(
                f"cannot use {name} in [sink.options]: the job sets it. Write it as {keys[name]!r} below [sink]"
            )

    def check_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Check that [metrics] has a port or an endpoint if it has other keys."""
        if metrics and not metrics.keys() & {"port", "otlp_endpoint"}:
            self.problems.append("[metrics] port or otlp_endpoint is required. Set one, or remove the section")

    def check_spark(self, spark: Mapping[str, Any]) -> None:
        """Check the names of Spark's settings."""
        for name in spark.get("conf", {}):
            if not name.startswith("spark."):
                self.problems.append(
                    f"unknown key {name!r} in [spark.conf]. The names of Spark settings begin with 'spark.'"
                )


DEFAULT = "default"
"""The origin of a value that the user has not set."""
HIDDEN = "[hidden]"

_WIDTH = 60
"""The last column in which origins begin. A longer value moves only its own origin."""

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_FILE_REFERENCE = re.compile(r"(env|file):\S+")


@frozen
class Setting:
    """A configuration value as TOML, with a short text that says where it comes from."""

    text: str
    origin: str

    @classmethod
    def of(cls, name: str, value: Any, origin: str, *, is_secret: bool = False) -> Setting:
        """Return the setting of a value. A secret is hidden unless it is a reference.

        As in Spark, the name or the text of a value shows that it is secret. Each value of a list is checked alone.
        """
        is_secret = is_secret or has_secret(name)

        def shown(one: Any) -> Any:
            text = str(one)
            return HIDDEN if (is_secret or has_secret(text)) and not _FILE_REFERENCE.fullmatch(text) else one

        return cls(_toml([*map(shown, value)] if isinstance(value, list | tuple) else shown(value)), origin)


def defaults(options: Iterable[Option], scope: Scope) -> dict[str, Setting]:
    """Return the defaults of the options that apply in `scope`, without defaults that depend on other options."""
    return {option.name: Setting(text, DEFAULT) for option in options if (text := _default(option, scope)) is not None}


def _default(option: Option, scope: Scope) -> str | None:
    if option.kind is kinds.SECRET or option.default_text or not option.scope & scope:
        return None
    value = default_of(option)
    if value is MISSING or value is None or value in ("", ()):
        return None
    return _toml(value)


def lines(sections: Mapping[str, Mapping[str, Setting]]) -> list[str]:
    """Return the sections as lines of TOML. A comment after each value names its origin."""
    result: list[str] = []
    for section, settings in sections.items():
        if not settings:
            continue
        entries = {f"{_key(name, settings)} = {setting.text}": setting.origin for name, setting in settings.items()}
        width = min(max(map(len, entries)), _WIDTH)
        result += ["", f"[{section}]", *(f"{entry:{width}}  # {origin}" for entry, origin in entries.items())]
    return result[1:]


def _key(name: str, names: Collection[str]) -> str:
    """Return a name as a key. In TOML without quotes, `a.b` cannot have a value next to `a`."""
    is_bare = _BARE_KEY.fullmatch(name) and not any(name.startswith(f"{other}.") for other in names)
    return name if is_bare else json.dumps(name)


def _toml(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case Enum():
            return json.dumps(str(value.value))
        case list() | tuple():
            return f"[{', '.join(map(_toml, value))}]"
        case _:
            return json.dumps(str(value), ensure_ascii=False)
