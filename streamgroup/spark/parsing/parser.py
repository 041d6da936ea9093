"""`streamgroup.Parser`: defines how the values of records are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

import pyarrow as pa

from streamgroup.errors import ConfigError
from streamgroup.frozen import frozen
from streamgroup.spark.parsing.framing import FRAMINGS, PLAIN, SCHEMA_ID, SchemaRegistry, UnreadableError, reason_of

PARSED = "parsed"
"""The column with the fields of a record."""
ERROR = "error"
"""The column of a dead letter with the reason why its value cannot be read."""

AVRO, PROTOBUF = "avro", "protobuf"
BINARY = (AVRO, PROTOBUF)
FORMATS = ("json", "csv", *BINARY)
KEEP, DEAD_LETTER = "keep", "dead_letter"
NULL_VALUES = (KEEP, DEAD_LETTER)

_OURS = {
    "mode": "an unreadable record is a dead letter or stops the query",
    "columnnameofcorruptrecord": "a dead letter has the value itself",
}
"""Options of Spark's parsers that would change what is a dead letter."""


@frozen
class Parser:
    """Defines how the values of records are read.

    `format` is `json` or `csv`, and `schema` Spark's DDL: `id BIGINT, name STRING`. `options` are those of Spark's
    `from_json` or `from_csv`. A record without a value (a tombstone) becomes a row without fields with
    `null_values="keep"`, and a dead letter with `null_values="dead_letter"`.

    For `avro`, `schema` is an Avro schema in JSON, whose fields become the columns. It requires the package fastavro.
    `framing` is `plain`, or `schema_id` for values with the prefix of a schema registry: a zero byte and an int32. With
    a `registry`, values are read by the schemas of their ids and resolved to `schema`.

    For `protobuf`, `message` is the full name of a message, and its fields become the columns. `descriptor` is a
    serialized FileDescriptorSet with this message, as `protoc --include_imports --descriptor_set_out` writes it. It
    requires the package protobuf. With `framing="schema_id"`, the message index after the prefix must select `message`:
    in the schema that the `registry` has for the id, or in the descriptor if there is no registry.

    Raises ConfigError for settings that cannot work. Spark checks the schema when the query starts.
    """

    format: str
    schema: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    null_values: str = KEEP
    framing: str = PLAIN
    registry: SchemaRegistry | None = None
    message: str = ""
    descriptor: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        """Raise ConfigError that names all problems together."""
        if problems := [*self._problems()]:
            raise ConfigError("; ".join(problems))

    @property
    def packages(self) -> tuple[str, ...]:
        """The optional packages that a task imports to read values."""
        return {AVRO: ("fastavro",), PROTOBUF: ("google.protobuf",)}.get(self.format, ())

    def _problems(self) -> list[str]:
        if self.format not in FORMATS:
            return [f"unknown format {self.format!r} of a parser: expected one of {', '.join(FORMATS)}"]
        problems = self._problems_of_columns() + self._problems_of_framing()
        if self.null_values not in NULL_VALUES:
            problems.append(f"unknown value {self.null_values!r} for null_values: expected {' or '.join(NULL_VALUES)}")
        if self.options and self.format in BINARY:
            problems.append(
                f"cannot set options with format {self.format}: they are options of Spark's from_json and from_csv"
            )
        problems += [
            f"cannot set option {n} of a parser: {_OURS[n.lower()]}" for n in self.options if n.lower() in _OURS
        ]
        return problems

    def _problems_of_columns(self) -> list[str]:
        if self.format == PROTOBUF:
            problems = [] if self.message and self.descriptor else ["format protobuf requires message and descriptor"]
            if self.schema:
                problems.append("cannot set a schema with format protobuf: the descriptor has it")
            return problems
        problems = []
        if not self.schema.strip():
            example = "the JSON of a record" if self.format == AVRO else "for example 'id BIGINT, name STRING'"
            problems.append(f"format {self.format} requires a schema, {example}")
        if self.message or self.descriptor:
            problems.append(f"cannot use message or descriptor with format {self.format}: they are for protobuf")
        return problems

    def _problems_of_framing(self) -> list[str]:
        if self.framing not in FRAMINGS:
            return [f"unknown value {self.framing!r} for framing: expected {' or '.join(FRAMINGS)}"]
        if self.format not in BINARY:
            if self.framing == PLAIN and self.registry is None:
                return []
            return [f"cannot use framing or a registry with format {self.format}: they are for avro and protobuf"]
        if self.registry is not None and self.framing != SCHEMA_ID:
            return [f"a registry requires framing {SCHEMA_ID}: its ids are in the prefix. Set it"]
        return []


class ValueReader(ABC):
    """Reads values into Arrow columns. `type` is the struct of these columns."""

    type: pa.StructType

    @abstractmethod
    def read(self, value: bytes) -> Any:
        """Return the fields of a value. Raises UnreadableError with the reason."""

    def columns(self, values: Iterable[bytes | None]) -> tuple[pa.Array, list[str | None]]:
        """Return the fields of the values, and for each value the reason why it cannot be read, or None."""
        fields: list[Any] = []
        errors: list[str | None] = []
        for value in values:
            found, error = None, None
            if value is not None:
                try:
                    found = self.read(value)
                except UnreadableError as unreadable:
                    error = str(unreadable)
            fields.append(found)
            errors.append(error)
        try:
            return pa.array(fields, self.type), errors
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            return self._one_by_one(fields, errors)

    def _one_by_one(self, fields: list[Any], errors: list[str | None]) -> tuple[pa.Array, list[str | None]]:
        """Find the values that do not fit the columns, such as a timestamp after the year 290 000."""
        for n, found in enumerate(fields):
            try:
                pa.array([found], self.type)
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                fields[n], errors[n] = None, f"a field does not fit its column: {reason_of(error, named=False)}"
        return pa.array(fields, self.type), errors
