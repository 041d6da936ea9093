"""Decodes Avro values into Arrow columns: by the writer's schema, into the columns of the reader's schema."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from decimal import Decimal
from graphlib import CycleError, TopologicalSorter
from io import BytesIO
from typing import Any

import pyarrow as pa

from streamgroup.errors import ConfigError
from streamgroup.spark.parsing.framing import UnreadableError, reason_of, split_schema_id, unknown_id_error
from streamgroup.spark.parsing.parser import ValueReader

Convert = Callable[[Any], Any]
"""Makes the value of an Arrow column from one that fastavro has read."""

_PLAIN = {
    "null": pa.null(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_UTC, _LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
_TIMES: Mapping[tuple[str, str], tuple[pa.DataType, Convert | None]] = {
    ("int", "date"): (pa.date32(), None),
    ("long", "timestamp-millis"): (_UTC, lambda n: n * 1000),
    ("long", "timestamp-micros"): (_UTC, None),
    ("long", "local-timestamp-millis"): (_LOCAL, lambda n: n * 1000),
    ("long", "local-timestamp-micros"): (_LOCAL, None),
}
_MOST_DIGITS = 38


class AvroReader(ValueReader):
    """Reads Avro values into columns. `schema` is the reader's schema as JSON; its root is a record.

    With `schema_ids`, each value begins with the prefix of a schema registry. `writers` are the schemas by id; with
    None all values are read by `schema`. Spark pickles this object into tasks.

    Raises ConfigError for a schema that has no columns in Spark, or without the package fastavro.
    """

    def __init__(self, schema: str, *, schema_ids: bool = False, writers: Mapping[int, str] | None = None) -> None:
        self._schema = schema
        self._schema_ids = schema_ids
        self._writers = writers
        self.type, self._convert = arrow_type(schema)
        self._parsed: dict[int | None, Any] = {}
        self._recursive: set[int] = set()
        """The ids of schemas with a type that contains itself."""

    def __getstate__(self) -> dict[str, Any]:
        return {"schema": self._schema, "schema_ids": self._schema_ids, "writers": self._writers}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def read(self, value: bytes) -> Any:
        """Return the fields of a value. Raises UnreadableError with the reason."""
        writer: int | None = None
        if self._schema_ids:
            writer, value = split_schema_id(value)
            if self._writers is None:
                writer = None
            elif writer not in self._writers:
                raise UnreadableError(unknown_id_error("Avro", writer))
        source = BytesIO(value)
        try:
            schemas = self._of(writer), None if writer is None else self._of(None)
            # The compiled reader recurses into any depth of a value, and a full stack ends the process.
            read = _fastavro().schemaless_reader if writer not in self._recursive else _read_in_python
            found = read(source, *schemas)
            if rest := len(value) - source.tell():
                raise UnreadableError(f"{rest} bytes follow the Avro value")
            return found if self._convert is None else self._convert(found)
        except (ConfigError, UnreadableError):
            raise
        except RecursionError:
            raise UnreadableError("the value, or its schema in the registry, nests too deep") from None
        except Exception as error:  # invalid bytes make fastavro raise nearly any error
            raise UnreadableError(f"the value is not Avro of its schema: {reason_of(error)}") from None

    def _of(self, writer: int | None) -> Any:
        """Return the schema of a writer for fastavro; of the reader for None.

        It has no logical types: those of the reader's schema define the meaning of a number, as in Java.
        """
        if writer not in self._parsed:
            text = self._schema if writer is None or self._writers is None else self._writers[writer]
            parsed = _parsed(text)
            if writer is not None:
                types = _named_types(parsed)
                if _has_empty_items(parsed, types):
                    raise UnreadableError(f"schema {writer} has an array of items that take no bytes. {_EMPTY_ITEMS}")
                if _is_recursive(types):
                    self._recursive.add(writer)
            self._parsed[writer] = parsed
        return self._parsed[writer]


def is_schema(text: str) -> bool:
    """Return whether a text is an Avro schema."""
    try:
        _parsed(text)
    except ConfigError:
        raise
    except Exception:  # fastavro raises nearly any error
        return False
    return True


def arrow_type(schema: str) -> tuple[pa.StructType, Convert | None]:
    """Return the columns of a schema, and what makes their values. Raises ConfigError for one that has none."""
    fastavro = _fastavro()
    try:
        expanded = fastavro.schema.expand_schema(json.loads(schema))
    except Exception as error:  # fastavro raises nearly any error
        raise ConfigError(f"invalid Avro schema of the parser: {type(error).__name__} {error}. Correct it") from None
    if not isinstance(expanded, dict) or expanded.get("type") != "record":
        raise ConfigError("invalid Avro schema of the parser: its root must be a record; its fields become columns")
    return _type(expanded, "")


def _type(schema: Any, path: str) -> tuple[pa.DataType, Convert | None]:
    """Return the Arrow type of an expanded schema, and what makes its values where fastavro's are others."""
    kind = schema.get("type") if isinstance(schema, dict) else schema
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if isinstance(schema, list):
        found = _union(schema, path)
    elif not isinstance(kind, str):
        found = _type(kind, path)
    elif kind in _NESTED:
        found = _NESTED[kind](schema, path)
    elif logical == "decimal" and kind in ("bytes", "fixed"):
        found = _decimal(schema, path)
    elif (kind, logical) in _TIMES:
        found = _TIMES[kind, str(logical)]
    elif kind == "boolean":
        found = pa.bool_(), _boolean
    elif kind in _PLAIN:
        found = _PLAIN[kind], None
    else:
        raise ConfigError(
            f"cannot read field {path} of the Avro schema: its type {kind} contains itself, which no column can. Leave "
            "the field out of the parser's schema. Values that nest too deep in it are then dead letters"
        )
    return found


_LONGEST_NUMBER = 10
_EMPTY_ITEMS = "A few damaged bytes could announce any number of them"


def _takes_no_bytes(schema: Any, empty: Collection[str] = ()) -> bool:
    """Return whether a value of a schema has no bytes in Avro. `empty` are the names of types without bytes."""
    match schema:
        case "null" | {"type": "fixed", "size": 0}:
            return True
        case str():
            return schema in empty
        case {"type": "record" | "error", "fields": [*fields]}:
            return all(_takes_no_bytes(one["type"], empty) for one in fields)
        case {"type": inner}:
            return _takes_no_bytes(inner, empty)
    return False  # a union has the number of its branch


def _parts(schema: Any) -> list[Any]:
    """Return the schemas within a schema, without those behind a name."""
    match schema:
        case [*branches]:
            return branches
        case {"type": "record" | "error", "fields": [*fields]}:
            return [one["type"] for one in fields]
        case {"type": "array", "items": inner} | {"type": "map", "values": inner} | {"type": {} | [*_] as inner}:
            return [inner]
    return []


def _within(schema: Any) -> Iterator[Any]:
    """Yield a schema and all schemas within it.

    Names are not expanded: a few types that contain each other twice would take all memory.
    """
    left = [schema]
    while left:
        yield (one := left.pop())
        left += _parts(one)


def _named_types(schema: Any) -> dict[str, Any]:
    """Return the types that a parsed schema defines, by their full names."""
    return {one["name"]: one for one in _within(schema) if isinstance(one, dict) and "name" in one}


def _is_recursive(types: Mapping[str, Any]) -> bool:
    """Return whether one of the types contains itself, so that a value may have any depth."""
    uses = {}
    for name, schema in types.items():
        inner = (one.get("name") if isinstance(one, dict) else one for part in _parts(schema) for one in _within(part))
        uses[name] = {one for one in inner if isinstance(one, str) and one in types}
    try:
        TopologicalSorter(uses).prepare()
    except CycleError:
        return True
    return False


def _has_empty_items(schema: Any, types: Mapping[str, Any]) -> bool:
    """Return whether a parsed schema, which defines `types`, has an array of items that take no bytes."""
    empty: set[str] = set()
    while more := {name for name, one in types.items() if name not in empty and _takes_no_bytes(one, empty)}:
        empty |= more
    return any(
        _takes_no_bytes(one["items"], empty)
        for one in _within(schema)
        if isinstance(one, dict) and one.get("type") == "array"
    )


def _array(schema: Mapping[str, Any], path: str) -> tuple[pa.DataType, Convert | None]:
    if _takes_no_bytes(schema["items"]):
        raise ConfigError(
            f"cannot read field {path} of the Avro schema: the items of its array take no bytes. {_EMPTY_ITEMS}. Leave "
            "the field out of the parser's schema"
        )
    of, convert = _type(schema["items"], path)
    return pa.list_(of), None if convert is None else (lambda found: [convert(one) for one in found])


def _map(schema: Mapping[str, Any], path: str) -> tuple[pa.DataType, Convert | None]:
    of, convert = _type(schema["values"], path)
    if convert is None:
        return pa.map_(pa.string(), of), lambda found: list(found.items())
    return pa.map_(pa.string(), of), lambda found: [(key, convert(one)) for key, one in found.items()]


def _record(schema: Mapping[str, Any], path: str) -> tuple[pa.DataType, Convert | None]:
    found = {one["name"]: _type(one["type"], f"{path}.{one['name']}".lstrip(".")) for one in schema["fields"]}
    converts = {name: convert for name, (_, convert) in found.items() if convert is not None}
    struct = pa.struct([pa.field(name, of) for name, (of, _) in found.items()])
    if not converts:
        return struct, None

    def convert(record: dict[str, Any]) -> dict[str, Any]:
        return {**record, **{name: one(record[name]) for name, one in converts.items()}}

    return struct, convert


def _union(branches: list[Any], path: str) -> tuple[pa.DataType, Convert | None]:
    others = [branch for branch in branches if branch not in ("null", {"type": "null"})]
    if len(others) > 1:
        raise ConfigError(
            f"cannot read field {path} of the Avro schema: a union of several types has no column. Leave the field out "
            "of the parser's schema, or use a union of one type and null"
        )
    of, convert = _type(others[0], path) if others else (pa.null(), None)
    return of, None if convert is None else (lambda found: None if found is None else convert(found))


def _decimal(schema: Mapping[str, Any], path: str) -> tuple[pa.DataType, Convert | None]:
    precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
    if not 0 < precision <= _MOST_DIGITS or not 0 <= scale <= precision:
        raise ConfigError(
            f"cannot read field {path} of the Avro schema: Spark's decimals have up to {_MOST_DIGITS} digits, and this "
            f"one {precision}, {scale} of them after the decimal point. Leave the field out of the parser's schema"
        )
    return pa.decimal128(precision, scale), lambda found: _scaled(found, precision, scale)


def _boolean(found: bytes | bool) -> bool:
    """Return the boolean of a byte, or a field's default. fastavro takes any byte but 0 for true."""
    if isinstance(found, bool):
        return found
    if found[0] > 1:
        raise UnreadableError(f"a boolean has the byte {found[0]}: expected 0 or 1")
    return bool(found[0])


def _scaled(unscaled: bytes, precision: int, scale: int) -> Decimal:
    """Return the decimal of two's complement bytes. The arithmetic of `decimal` would round to its context."""
    number = int.from_bytes(unscaled, "big", signed=True)
    if abs(number) >= 10**precision:  # Python refuses to write a number of more than 4,300 digits
        raise UnreadableError(f"a decimal has more than the {precision} digits of its schema")
    digits = tuple(map(int, str(abs(number))))
    return Decimal((int(number < 0), digits, -scale))


_NESTED = {"record": _record, "error": _record, "array": _array, "map": _map}


def _parsed(text: str) -> Any:
    """Return a schema for fastavro: without logical types, and with booleans as bytes for `_boolean`."""
    return _fastavro().parse_schema(_plain(json.loads(text), iter((_BYTE_OF_BOOLEAN,))))


_BYTE_OF_BOOLEAN = {"type": "fixed", "name": "streamgroup.Boolean", "size": 1}


def _plain(schema: Any, definition: Iterator[Any]) -> Any:
    """Return a schema as `_parsed` does before fastavro sees it. `definition` has the byte of booleans once."""
    match schema:
        case "boolean" | {"type": "boolean"}:
            return next(definition, _BYTE_OF_BOOLEAN["name"])
        case [*branches]:
            return [_plain(one, definition) for one in branches]
        case {}:
            parts = {name: value for name, value in schema.items() if name != "logicalType"}
            inner = {name: _plain(parts[name], definition) for name in ("type", "items", "values") if name in parts}
            if isinstance(parts.get("fields"), list):
                inner["fields"] = [{**one, "type": _plain(one["type"], definition)} for one in parts["fields"]]
            return {**parts, **inner}
    return schema


def _read_in_python(source: BytesIO, writer: Any, reader: Any) -> Any:
    """Read a value as fastavro's `schemaless_reader` does, by its code in Python, which raises a RecursionError."""
    from fastavro import _read_py  # noqa: PLC0415  (an extra)

    fastavro: Any = _read_py
    names: dict[str, dict[str, Any]] = {"writer": {}, "reader": {}}
    schemas = [_fastavro().parse_schema(one, names[side]) for one, side in ((writer, "writer"), (reader, "reader"))]
    decoder = fastavro.BinaryDecoder(source)
    decoder.read_long = decoder.read_int = functools.partial(_long, source)
    return fastavro.read_data(decoder, schemas[0], names, schemas[1])


def _long(source: BytesIO) -> int:
    """Read a number. fastavro's code in Python has no bound, and takes half a minute for one of a million bytes."""
    number = 0
    for shift in range(0, 7 * _LONGEST_NUMBER, 7):
        byte = source.read(1)
        if not byte:
            raise EOFError
        number |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return (number >> 1) ^ -(number & 1)
    raise ValueError(f"a number has more than {_LONGEST_NUMBER} bytes")


def _fastavro() -> Any:
    try:
        import fastavro  # noqa: PLC0415  (an extra)
        import fastavro.schema  # noqa: PLC0415
    except ImportError:
        raise ConfigError(
            "cannot read Avro: the package fastavro is not installed. Install streamgroup[avro] for the Python of the "
            "driver and of the executors"
        ) from None
    return fastavro
