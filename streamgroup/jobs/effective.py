"""The effective configuration of a job as TOML: each value with its origin, and none of its secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass
from enum import Enum
from typing import Any

from streamgroup.options import kinds
from streamgroup.options.rows import Option, Scope, default_of
from streamgroup.options.secrets import has_secret

DEFAULT = "default"
"""The origin of a value that nobody has set."""
HIDDEN = "[hidden]"

_WIDTH = 60
"""The column of the origins at most. A longer value pushes only its own origin to the right."""

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_REFERENCE = re.compile(r"(env|file):\S+")


@dataclass(frozen=True, slots=True)
class Setting:
    """A value as TOML, and its origin in a few words."""

    text: str
    origin: str

    @classmethod
    def of(cls, name: str, value: Any, origin: str, *, is_secret: bool = False) -> Setting:
        """Return the setting of a value. A secret is hidden unless it is a reference.

        As in Spark, a value is secret by its name or by what is in it. Each value of a list counts alone.
        """
        is_secret = is_secret or has_secret(name)

        def shown(one: Any) -> Any:
            text = str(one)
            return HIDDEN if (is_secret or has_secret(text)) and not _REFERENCE.fullmatch(text) else one

        return cls(_toml([*map(shown, value)] if isinstance(value, list | tuple) else shown(value)), origin)


def defaults(options: Iterable[Option], scope: Scope) -> dict[str, Setting]:
    """Return the defaults of the options that take effect in `scope`, but for those that depend on other options."""
    return {option.name: Setting(text, DEFAULT) for option in options if (text := _default(option, scope)) is not None}


def _default(option: Option, scope: Scope) -> str | None:
    if option.kind is kinds.SECRET or option.default or not option.scope & scope:
        return None
    value = default_of(option)
    if value is MISSING or value is None or value in ("", ()):
        return None
    return _toml(value)


def lines(sections: Mapping[str, Mapping[str, Setting]]) -> list[str]:
    """Return the sections as lines of TOML. A comment behind each value tells its origin."""
    result: list[str] = []
    for section, settings in sections.items():
        if not settings:
            continue
        entries = {f"{_key(name)} = {setting.text}": setting.origin for name, setting in settings.items()}
        width = min(max(map(len, entries)), _WIDTH)
        result += ["", f"[{section}]", *(f"{entry:{width}}  # {origin}" for entry, origin in entries.items())]
    return result[1:]


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name)


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
