"""`streamgroup.Parser`: how the values of records are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamgroup.errors import ConfigError

PARSED = "parsed"
"""The column with the fields of a record."""
ERROR = "error"
"""The column of a dead letter with the reason why its value cannot be read."""

TEXT_FORMATS = ("json", "csv")
FORMATS = TEXT_FORMATS
KEEP, DEAD_LETTER = "keep", "dead_letter"
NULL_VALUES = (KEEP, DEAD_LETTER)

_OURS = {
    "mode": "an unreadable record is a dead letter or stops the query",
    "columnnameofcorruptrecord": "a dead letter has the value itself",
}
"""Options of Spark's parsers that would change what is a dead letter."""


@dataclass(frozen=True, slots=True)
class Parser:
    """How the values of records are read.

    `format` is `json` or `csv`, and `schema` Spark's DDL: `id BIGINT, name STRING`. `options` are those of Spark's
    `from_json` or `from_csv`. `null_values` says what a record without a value is (a tombstone): `keep` passes it on
    without fields, `dead_letter` makes it a dead letter.

    Raises ConfigError for a parser that cannot work. Spark checks the schema when the query starts.
    """

    format: str
    schema: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    null_values: str = KEEP

    def __post_init__(self) -> None:
        """Raise ConfigError that names all problems together."""
        if problems := [*self._problems()]:
            raise ConfigError("; ".join(problems))

    def _problems(self) -> list[str]:
        if self.format not in FORMATS:
            return [f"unknown format {self.format!r} of a parser: expected one of {', '.join(FORMATS)}"]
        problems = []
        if not self.schema.strip():
            problems.append(f"format {self.format} requires a schema, for example 'id BIGINT, name STRING'")
        if self.null_values not in NULL_VALUES:
            problems.append(f"unknown value {self.null_values!r} for null_values: expected {' or '.join(NULL_VALUES)}")
        problems += [
            f"cannot set option {n} of a parser: {_OURS[n.lower()]}" for n in self.options if n.lower() in _OURS
        ]
        return problems
