"""Decodes Protobuf values into Arrow columns, by a descriptor from the user."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import pyarrow as pa

from streamgroup.errors import ConfigError
from streamgroup.spark.parsing.framing import (
    UnreadableError,
    reason_of,
    split_message_index,
    split_schema_id,
    unknown_id_error,
)
from streamgroup.spark.parsing.parser import ValueReader

Convert = Callable[[Any], Any]
"""Makes the value of an Arrow column from one of the package protobuf."""

_MAKE = "Make it with protoc --include_imports --descriptor_set_out"
_MOST_NAMES = 10
_MICROS, _NANOS = 10**6, 10**9
_TIMESTAMP = "google.protobuf.Timestamp"
_UINT64 = pa.decimal128(20, 0)
_PLAIN = {
    "BOOL": pa.bool_(),
    "INT32": pa.int32(),
    "SINT32": pa.int32(),
    "SFIXED32": pa.int32(),
    "UINT32": pa.int64(),
    "FIXED32": pa.int64(),
    "INT64": pa.int64(),
    "SINT64": pa.int64(),
    "SFIXED64": pa.int64(),
    "UINT64": _UINT64,
    "FIXED64": _UINT64,
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BYTES": pa.binary(),
}
"""The columns of scalar fields. Those of unsigned ones are wider, so that each number has its own value."""


class ProtobufReader(ValueReader):
    """Reads Protobuf messages into columns.

    `file_set` is a serialized FileDescriptorSet, `message` the full name of a message in it. With `schema_ids`, each
    value begins with the prefix of a schema registry and a message index, which must select `message`: in the schema of
    the id among `writers`, or, if that is None, in the descriptor. Spark pickles this object into tasks.

    Raises ConfigError for a message that has no columns in Spark, or without the package protobuf.
    """

    def __init__(
        self, file_set: bytes, message: str, *, schema_ids: bool = False, writers: Mapping[int, str] | None = None
    ) -> None:
        self._state = {"file_set": file_set, "message": message, "schema_ids": schema_ids, "writers": writers}
        self._message = message
        self._schema_ids = schema_ids
        self._writers = writers
        protobuf = _protobuf()
        try:
            self._make, self._tree = _loaded(protobuf, file_set, message)
            self.type, self._convert = _Columns(protobuf).of(self._make.DESCRIPTOR)
        except ConfigError:
            raise
        except Exception as error:  # protobuf has three implementations, which raise different errors
            raise ConfigError(
                f"cannot read the Protobuf descriptor of the parser: {reason_of(error)}. {_MAKE}"
            ) from None
        self._right_indexes: set[tuple[int | None, tuple[int, ...]]] = set()

    def __getstate__(self) -> dict[str, Any]:
        return self._state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def read(self, value: bytes) -> Any:
        """Return the fields of a value. Raises UnreadableError with the reason."""
        if self._schema_ids:
            schema_id, value = split_schema_id(value)
            index, value = split_message_index(value)
            key = None if self._writers is None else schema_id, index
            if key not in self._right_indexes:
                self._check_index(*key)
                self._right_indexes.add(key)
        message = self._make()
        try:
            message.ParseFromString(value)
            if not message.IsInitialized():
                missing = ", ".join(message.FindInitializationErrors()[:_MOST_NAMES])
                raise UnreadableError(f"the value lacks required fields: {missing}")
            return self._convert(message)
        except UnreadableError:
            raise
        except Exception as error:  # as above
            raise UnreadableError(f"the value is not a message {self._message}: {reason_of(error)}") from None

    def _check_index(self, schema_id: int | None, index: tuple[int, ...]) -> None:
        if schema_id is None or self._writers is None:
            tree, where = self._tree, "the descriptor"
        elif schema_id not in self._writers:
            raise UnreadableError(unknown_id_error("Protobuf", schema_id))
        else:
            tree, where = messages_in(self._writers[schema_id]), f"schema {schema_id}"
        if (names := tree.names_at(index)) != {self._message}:
            found = " or ".join(sorted(names)) or "not a message"
            raise UnreadableError(f"the message index {[*index]} in {where} is {found}, not {self._message}")


def is_proto(text: str) -> bool:
    """Return whether a text is that of a .proto file with a message in it."""
    return bool(messages_in(text).inner)


def _loaded(protobuf: Any, file_set: bytes, message: str) -> tuple[Any, MessageTree]:
    """Return the class of a message, and the messages of its file."""
    files = protobuf.descriptor_pb2.FileDescriptorSet.FromString(file_set).file
    pool = protobuf.descriptor_pool.DescriptorPool()
    for one in files:
        pool.Add(one)
    try:
        found = pool.FindMessageTypeByName(message)
    except KeyError:
        names = [f"{one.package}.{each.name}".lstrip(".") for one in files for each in one.message_type]
        raise ConfigError(
            f"the Protobuf descriptor of the parser has no message {message!r}. Set the full name of one that it has, "
            f"such as {', '.join(names[:_MOST_NAMES]) or 'none at present'}"
        ) from None
    (file,) = (one for one in files if one.name == found.file.name)
    return protobuf.message_factory.GetMessageClass(found), MessageTree(
        file.package, inner=[*map(_tree, file.message_type)]
    )


def _tree(message: Any) -> MessageTree:
    groups = {
        one.type_name.rpartition(".")[2] for one in (*message.field, *message.extension) if one.type == one.TYPE_GROUP
    }
    inner = [_tree(one) for one in message.nested_type]
    for one in inner:
        one.is_implicit |= one.name in groups
    return MessageTree(message.name, is_implicit=message.options.map_entry, inner=inner)


class _Columns:
    """Determines the columns of a message's fields. `within` are the messages around a field, to detect recursion."""

    def __init__(self, protobuf: Any) -> None:
        self._unknown_fields = protobuf.unknown_fields.UnknownFieldSet
        number = protobuf.descriptor_pb2.FieldDescriptorProto.Type.Value
        self._plain = {number(f"TYPE_{name}"): of for name, of in _PLAIN.items()}

    def of(self, root: Any) -> tuple[pa.StructType, Convert]:
        """Return the columns of a message, and the conversion to their values."""
        found = self._message(root, "", ())
        if found is None:
            raise ConfigError(f"cannot read the Protobuf message {root.full_name}: it has no field to make a column of")
        return found

    def _message(self, message: Any, path: str, within: tuple[str, ...]) -> tuple[pa.StructType, Convert] | None:
        """Return the struct of a message, or None if it has no fields: Spark writes no empty structs."""
        if message.full_name in within:
            raise ConfigError(
                f"cannot read field {path} of the Protobuf message: its type {message.full_name} contains itself, "
                "which no column can. Leave the field out of the .proto file of the descriptor"
            )
        columns, getters = [], []
        for one in message.fields:
            place = f"{path}.{one.name}".lstrip(".")
            if (found := self._field(one, place, (*within, message.full_name))) is not None:
                columns.append(pa.field(one.name, found[0]))
                getters.append((one.name, found[1]))
        if not columns:
            return None
        unknown_fields = self._unknown_fields
        by_number = message.fields_by_number

        def convert(one: Any) -> dict[str, Any]:
            # The package treats a field of another wire type as an unknown one, and leaves its own field empty. It does
            # so for a number that a closed enum lacks, too.
            for unknown in unknown_fields(one):
                if (field := by_number.get(unknown.field_number)) is not None:
                    raise UnreadableError(f"field {field.full_name} has a value that its type does not have")
            return {name: get(one) for name, get in getters}

        return pa.struct(columns), convert

    def _field(self, field: Any, path: str, within: tuple[str, ...]) -> tuple[pa.DataType, Convert] | None:
        """Return the column of a field, and what gets its value from a message. None if it has no column."""
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            column = self._map(field.message_type.fields_by_name, path, within)
        else:
            column = self._one(field, path, within)
        if column is None:
            return None
        name, (of, convert) = field.name, column
        if field.is_repeated and not isinstance(of, pa.MapType):
            of, convert = pa.list_(of), _each(convert)
        get: Convert = attrgetter(name) if convert is None else (lambda message: convert(getattr(message, name)))
        if field.has_presence:
            return of, lambda message: get(message) if message.HasField(name) else None
        return of, get

    def _map(self, entry: Any, path: str, within: tuple[str, ...]) -> tuple[pa.DataType, Convert | None] | None:
        key, value = self._one(entry["key"], path, within), self._one(entry["value"], path, within)
        if key is None or value is None:
            return None
        of, convert = pa.map_(key[0], value[0]), value[1]
        if convert is None:
            return of, lambda found: [*found.items()]
        return of, lambda found: [(key, convert(one)) for key, one in found.items()]

    def _one(self, field: Any, path: str, within: tuple[str, ...]) -> tuple[pa.DataType, Convert | None] | None:
        """Return the Arrow type of one value of a field, and what makes it where that of the package is another."""
        if field.message_type is not None:
            if field.message_type.full_name == _TIMESTAMP:
                return pa.timestamp("us", "UTC"), _micros
            return self._message(field.message_type, path, within)
        if field.enum_type is not None:
            names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
            return pa.string(), lambda number: names.get(number) or str(number)
        return self._plain[field.type], None


def _each(convert: Convert | None) -> Convert:
    """Return the conversion of a repeated field to a list."""
    return list if convert is None else (lambda found: [convert(one) for one in found])


def _micros(found: Any) -> int:
    """Return the microseconds of a Timestamp, truncated."""
    if not 0 <= found.nanos < _NANOS:
        raise UnreadableError(f"a Timestamp has {found.nanos} nanoseconds")
    return int(found.seconds * _MICROS + found.nanos // (_NANOS // _MICROS))


def _protobuf() -> Any:
    """Return the package with the modules that are used of it."""
    try:
        import google.protobuf.descriptor_pb2  # noqa: PLC0415  (an extra)
        import google.protobuf.descriptor_pool  # noqa: PLC0415
        import google.protobuf.message_factory  # noqa: PLC0415
        import google.protobuf.unknown_fields  # noqa: PLC0415
    except ImportError:
        raise ConfigError(
            "cannot read Protobuf: the package protobuf is not installed. Install streamgroup[protobuf] for the Python "
            "of the driver and of the executors"
        ) from None
    return google.protobuf


_TOKEN = re.compile(
    r"""//[^\n]* | /\*(?:.*?\*/|.*)                  # comments; one without an end takes all
    | "(?:\\.|[^"\\])*"? | '(?:\\.|[^'\\])*'?        # texts
    | [\w.]+ | \S""",
    re.DOTALL | re.VERBOSE,
)
_COMMENTS = ("//", "/*")
_LABELS = ("optional", "required", "repeated")
_VISIBILITIES = ("export", "local")
_TRANSPARENT = ("oneof", "extend")
"""Blocks whose groups are messages of the enclosing block."""


def messages_in(text: str) -> MessageTree:
    """Return the messages of a .proto text, below a tree with the name of its package.

    Any text has a result: one that is not of a .proto file has no messages.
    """
    file = MessageTree("")
    blocks: list[MessageTree | None] = [file]  # None for a block that holds no messages, such as an enum
    statement: list[str] = []
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token.startswith(_COMMENTS):
            continue
        if token not in ("{", "}", ";"):
            statement.append(token)
            continue
        around = blocks[-1]
        if around is not None and statement[:2] == ["map", "<"]:
            around.inner.append(MessageTree("", is_implicit=True))
        if token == "{":
            blocks.append(None if around is None else _block(around, statement))
        elif token == "}" and len(blocks) > 1:
            blocks.pop()
        elif statement[:1] == ["package"]:
            file.name = "".join(statement[1:])
        statement = []
    return file


def _block(around: MessageTree, statement: list[str]) -> MessageTree | None:
    """Return the message that a block adds its messages to, a new one after `message` and `group`."""
    match statement:
        case ["message", name] | [_, "message", name] if len(statement) == 2 or statement[0] in _VISIBILITIES:
            found = MessageTree(name)
        case ["group", name, "=", *_]:
            found = MessageTree(name, is_implicit=True)
        case [label, "group", name, "=", *_] if label in _LABELS:
            found = MessageTree(name, is_implicit=True)
        case [word, *_] if word in _TRANSPARENT:
            return around
        case _:
            return None
    around.inner.append(found)
    return found


@dataclass(slots=True)
class MessageTree:
    """A message and the messages defined within it. A file is a tree without a name, or with the name of its package.

    `is_implicit` marks the messages that a map field and a group define implicitly.
    """

    name: str
    is_implicit: bool = False
    inner: list[MessageTree] = field(default_factory=list)

    def names_at(self, index: Sequence[int]) -> frozenset[str]:
        """Return the full names of the messages that an index may mean: none, one or two.

        Serializers number the messages within a message in two ways: Java's leaves implicit ones out, those of Python
        and Go count them. An implicit message is never the message of a value.
        """
        found = (self._at(index, explicit_only) for explicit_only in (True, False))
        return frozenset(one for one in found if one)

    def _at(self, index: Iterable[int], explicit_only: bool) -> str:
        here, path = self, [self.name]
        for position in index:
            among = [one for one in here.inner if not (explicit_only and one.is_implicit)]
            if position >= len(among):
                return ""
            here = among[position]
            path.append(here.name)
        return "" if here.is_implicit else ".".join(filter(None, path))
