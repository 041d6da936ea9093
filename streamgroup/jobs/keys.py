"""The table of a job file's keys: what each holds, and one line of what it does.

The names are also those of the fields in `streamgroup.jobs.config`;
`docs/jobs.md` and `conf/ingest.toml` name them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Kind:
    """What a TOML value may be: `read` raises ValueError with what was expected."""

    name: str
    read: Callable[[object], Any]


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a section; a required one has no default."""

    name: str
    kind: Kind
    doc: str
    required: bool = False


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"a text in quotes is expected, not {_named(value)}")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"true or false is expected, without quotes, not {_named(value)}")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(v, str) and v.strip() for v in value):
        raise ValueError(f'a list of texts is expected, such as ["a", "b"], not {_named(value)}')
    return tuple(value)


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 86_400:
        raise ValueError(f"a number of seconds above 0 and up to 86400 is expected, not {_named(value)}")
    return float(value)


def _options(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError(f"a table of options is expected, not {_named(value)}")
    flat = list(_flattened(value, ()))
    names = [name for name, _ in flat]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{twice[0]} is given twice, once in quotes and once without")
    return dict(flat)


def _flattened(table: Mapping[str, object], above: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """`kafka.group.id = "g"` without quotes is a table in a table to TOML; to the user it is one key with dots."""
    for name, value in table.items():
        path = (*above, name)
        match value:
            case Mapping():
                yield from _flattened(value, path)
            case bool():
                yield ".".join(path), str(value).lower()
            case str() | int() | float():
                yield ".".join(path), str(value)
            case list():
                raise ValueError(f'{".".join(path)} is a list; write one text with commas, such as "a,b"')
            case _:
                raise ValueError(f"{'.'.join(path)} is {_named(value)}; a text, a number, true or false is expected")


def _named(value: object) -> str:
    """What a value is, never the value: it may be a secret."""
    names = {str: "a text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a table"}
    return "an empty text" if value == "" else names.get(type(value), "a date or a time")


TEXT = Kind("text", _text)
FLAG = Kind("true or false", _flag)
TEXTS = Kind("list of texts", _texts)
SECONDS = Kind("seconds", _seconds)
OPTIONS = Kind("table", _options)

SECTIONS: Mapping[str, tuple[Key, ...]] = {
    "trigger": (
        Key("processing_time", TEXT, 'A batch at most this often, such as "5 seconds".'),
        Key("available_now", FLAG, "Read what is there now, in as many batches as the limits ask for, then end."),
        Key("once", FLAG, "Read what is there now in one batch, then end."),
    ),
    "sink": (
        Key("format", TEXT, "`parquet`, `console`, or any other format that Spark can stream into.", required=True),
        Key("path", TEXT, "The directory of the rows; required by the file formats. May hold `{member}`."),
        Key("checkpoint", TEXT, "The query's checkpoint; required but for `console`. May hold `{member}`."),
        Key("columns", TEXTS, 'What to write, in SQL: `["CAST(value AS STRING) AS value"]`. All columns unless given.'),
        Key("partition_by", TEXTS, "The columns that make up subdirectories."),
        Key("output_mode", TEXT, "`append` (the default), `update` or `complete`."),
        Key("options", OPTIONS, "Options of the sink's format."),
    ),
    "spark": (
        Key("app_name", TEXT, "The application's name in Spark's pages. The job file's name unless given."),
        Key("conf", OPTIONS, "Spark's settings, names in full: `spark.sql.shuffle.partitions = 4`."),
    ),
    "stop": (
        Key("timeout_seconds", SECONDS, "How long the batch in flight may take to finish on SIGTERM. 60 unless given."),
    ),
}
"""All sections but `source`, whose keys are the options of `format("streamgroup")`."""

SOURCE = "source"
