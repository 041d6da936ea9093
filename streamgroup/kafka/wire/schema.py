"""The base classes of messages, and readers and writers that are compiled from the declared fields.

Each class and version has its own reader and writer, which are compiled once. Decoding gives a field that the version
lacks its default. Encoding another value into such a version raises UnsupportedVersionError unless the field is
ignorable: the broker would not do what the request asks for.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar, cast, get_args

from streamgroup.errors import DecodeError, EncodeError, Truncated, UnsupportedVersionError
from streamgroup.kafka.wire.fields import FieldSpec, Struct, Versions, specs_of
from streamgroup.kafka.wire.primitives import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    Bytes,
    Reader,
    append_compact_length,
    append_length,
    append_tags,
    append_uuid,
    encoded_text,
)

Read = Callable[[Reader], Any]
Write = Callable[[bytearray, Any], None]
Put = Callable[[Any, Any], None]

# Bounded by the messages and versions that are declared.
_READERS: dict[tuple[type[Struct], int, bool], tuple[Read, int]] = {}
_WRITERS: dict[tuple[type[Struct], int, bool], Write] = {}


class Message(Struct):
    """Base class of request and response bodies. `versions` and `flexible` are class arguments and are not inherited.

    `SCHEMA` holds the declared versions. `VERSIONS` is the first and last version that the client uses. With
    `latest_unused` the client does not use the last declared one: Kafka marks it as unstable, or it replaces topic
    names by topic ids. `FLEXIBLE` is the first version with compact types and tagged fields (KIP-482), or None.
    """

    __slots__ = ()
    NAME: ClassVar[str]
    SCHEMA: ClassVar[Versions]
    VERSIONS: ClassVar[tuple[int, int]]
    FLEXIBLE: ClassVar[int | None]

    def __init_subclass__(
        cls, *, versions: str = "", flexible: int | None = None, latest_unused: bool = False, **rest: Any
    ) -> None:
        super().__init_subclass__(**rest)
        if versions:  # absent when `slots=True` makes the class a second time: its dict has the attributes already
            cls.NAME = cls.__name__
            cls.SCHEMA = Versions.parse(versions)
            cls.VERSIONS = (cls.SCHEMA.first, cls.SCHEMA.last - latest_unused)
            cls.FLEXIBLE = flexible

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Return whether `version` has compact types and tagged fields (KIP-482)."""
        return cls.FLEXIBLE is not None and version >= cls.FLEXIBLE


M = TypeVar("M", bound=Message)
R = TypeVar("R", bound=Message)


class Request(Message, Generic[R]):
    """Base class of requests. `R` is the class of the response. `NAME` is the name of the API, such as `JoinGroup`."""

    __slots__ = ()
    API_KEY: ClassVar[int]
    RESPONSE: ClassVar[type[Message]]

    @property
    def is_answered(self) -> bool:
        """Whether the broker sends a response. Only for a Produce request with acks=0 it does not."""
        return True

    def __init_subclass__(cls, *, api_key: int | None = None, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if api_key is not None:
            cls.API_KEY = api_key
            cls.NAME = cls.__name__.removesuffix("Request")
            (cls.RESPONSE,) = get_args(cls.__orig_bases__[0])  # type: ignore[attr-defined]


def encode(message: Message, version: int) -> bytes:
    """Return the bytes of `message` in `version`.

    Raises UnsupportedVersionError for a version that is not declared or that lacks a field with a non-default value,
    and EncodeError for a value that its field cannot hold.
    """
    out = bytearray()
    append(out, message, version)
    return bytes(out)


def append(out: bytearray, message: Message, version: int) -> None:
    """Append the bytes of `message` in `version` to `out`. Raises as `encode` does."""
    cls = type(message)
    _check_declared(cls, version)
    _writer(cls, version, cls.is_flexible(version))(out, message)


def decode(cls: type[M], data: Bytes, version: int) -> M:
    """Decode the message that fills all of `data`.

    Raises UnsupportedVersionError for a version that is not declared, DecodeError for invalid bytes, and Truncated if
    they end too early.
    """
    reader = Reader(data)
    message = read(cls, reader, version)
    if reader.remaining:
        raise DecodeError(
            f"{cls.__name__} v{version}: {reader.remaining} of {reader.end} bytes are left over after the last field"
        )
    return message


def read(cls: type[M], reader: Reader, version: int) -> M:
    """Decode the message at the reader's position. Later bytes stay unread. Raises as `decode` does."""
    _check_declared(cls, version)
    try:
        return cast(M, _reader(cls, version, cls.is_flexible(version))[0](reader))
    except DecodeError as error:
        raise type(error)(f"{cls.__name__} v{version}: {error}") from None


def _check_declared(cls: type[Message], version: int) -> None:
    if version not in cls.SCHEMA:
        raise UnsupportedVersionError(
            f"{cls.__name__} v{version} is not supported: streamgroup supports versions {cls.SCHEMA}"
        )


def _reader(cls: type[Struct], version: int, flexible: bool) -> tuple[Read, int]:
    made = _READERS.get((cls, version, flexible))
    if made is None:
        made = _READERS[cls, version, flexible] = _compile_reader(cls, version, flexible)
    return made


def _compile_reader(cls: type[Struct], version: int, flexible: bool) -> tuple[Read, int]:
    """Return the reader of a `cls`, and the fewest bytes that one takes."""
    specs = specs_of(cls)
    untagged = [s for s in specs if version in s.versions and version not in s.tagged]
    tagged = {s.tag: s for s in specs if version in s.versions and version in s.tagged}
    steps, least = _read_steps(cls, untagged, version, flexible)
    defaults = tuple((_put(cls, s.name), s.default) for s in specs if s not in untagged)
    readers = {tag: (_put(cls, s.name), _value_reader(s, version, flexible)[0]) for tag, s in tagged.items()}

    def read_struct(reader: Reader) -> Any:
        made = object.__new__(cls)
        for put, default in defaults:
            put(made, default)
        for step in steps:
            step(reader, made)
        if flexible:
            _read_tags(reader, made, readers)
        return made

    return read_struct, least + flexible


def _put(cls: type[Struct], name: str) -> Put:
    """Return the setter of a field's slot, which fills new instances although they are frozen."""
    return cast(Put, cls.__dict__[name].__set__)


def _read_steps(
    cls: type[Struct], specs: list[FieldSpec], version: int, flexible: bool
) -> tuple[list[Callable[[Reader, Any], None]], int]:
    """Return one step per field. Adjacent fields of fixed width share one step, which unpacks them at once."""
    steps: list[Callable[[Reader, Any], None]] = []
    least = 0
    run: list[FieldSpec] = []
    for spec in [*specs, None]:
        if spec is not None and not spec.is_array and spec.type in FIXED:
            run.append(spec)
            continue
        if run:
            layout = struct.Struct(">" + "".join(FIXED[cast(str, s.type)].format[-1] for s in run))
            steps.append(_run_step(layout, tuple(_put(cls, s.name) for s in run)))
            least += layout.size
            run = []
        if spec is not None:
            read_value, size = _value_reader(spec, version, flexible)
            steps.append(_value_step(read_value, _put(cls, spec.name)))
            least += size
    return steps, least


def _run_step(layout: struct.Struct, puts: tuple[Put, ...]) -> Callable[[Reader, Any], None]:
    def step(reader: Reader, made: Any) -> None:
        for put, value in zip(puts, reader.unpack(layout), strict=True):
            put(made, value)

    return step


def _value_step(read_value: Read, put: Put) -> Callable[[Reader, Any], None]:
    def step(reader: Reader, made: Any) -> None:
        put(made, read_value(reader))

    return step


def _value_reader(spec: FieldSpec, version: int, flexible: bool) -> tuple[Read, int]:
    nullable = version in spec.nullable
    if not spec.is_array:
        return _item_reader(spec.type, version, flexible, nullable)
    item, least = _item_reader(spec.type, version, flexible, False)
    return array_reader(item, least, flexible, nullable), 1 if flexible else 4


def _item_reader(type_: str | type[Struct], version: int, flexible: bool, nullable: bool) -> tuple[Read, int]:
    if isinstance(type_, str):
        return reader(type_, flexible, nullable)
    if not nullable:
        return _reader(type_, version, flexible)
    read_struct, _ = _reader(type_, version, flexible)
    return lambda buffer: None if buffer.unpack(INT8)[0] < 0 else read_struct(buffer), INT8.size


def _read_tags(reader: Reader, made: Any, known: dict[int | None, tuple[Put, Read]]) -> None:
    """Read the tagged section and skip unknown tags, which a newer broker sends (KIP-482)."""
    before = -1
    for _ in range(reader.tag_count()):
        tag = reader.uvarint()
        if tag <= before:
            raise DecodeError(f"invalid tag {tag} at byte {reader.position}: expected a tag above {before}")
        before = tag
        payload = reader.take(reader.uvarint())
        if tag in known:
            put, read_value = known[tag]
            within = Reader(payload)
            put(made, read_value(within))
            if within.remaining:
                raise DecodeError(
                    f"tag {tag}: {within.remaining} of {within.end} bytes are left over after the last field"
                )


def _writer(cls: type[Struct], version: int, flexible: bool) -> Write:
    made = _WRITERS.get((cls, version, flexible))
    if made is None:
        made = _WRITERS[cls, version, flexible] = _compile_writer(cls, version, flexible)
    return made


def _compile_writer(cls: type[Struct], version: int, flexible: bool) -> Write:
    specs = specs_of(cls)
    present = [s for s in specs if version in s.versions]
    steps = [_write_step(cls, s, version, flexible) for s in present if version not in s.tagged]
    tagged = sorted((s for s in present if version in s.tagged), key=lambda s: s.tag or 0)
    tags = [
        (s.tag or 0, s.default, operator.attrgetter(s.name), _write_step(cls, s, version, flexible)) for s in tagged
    ]
    absent = [(s.name, s.default) for s in specs if version not in s.versions and not s.ignorable]

    def write_struct(out: bytearray, value: Any) -> None:
        for name, default in absent:
            if getattr(value, name) != default:
                raise UnsupportedVersionError(
                    f"{cls.__name__}.{name} is {getattr(value, name)!r}: version {version} cannot carry it"
                )
        for step in steps:
            step(out, value)
        if flexible:
            append_tags(
                out, ((tag, _payload(step, value)) for tag, default, get, step in tags if get(value) != default)
            )

    return write_struct


def _payload(step: Write, value: Any) -> bytearray:
    out = bytearray()
    step(out, value)
    return out


def _write_step(cls: type[Struct], spec: FieldSpec, version: int, flexible: bool) -> Write:
    get = operator.attrgetter(spec.name)
    write = _value_writer(spec, version, flexible)
    is_nullable = version in spec.nullable

    def step(out: bytearray, owner: Any) -> None:
        value = get(owner)
        if value is None and not is_nullable:
            if spec.nullable.first <= spec.nullable.last:
                raise UnsupportedVersionError(f"{cls.__name__}.{spec.name} is None: version {version} cannot carry it")
            raise EncodeError(f"invalid {cls.__name__}.{spec.name}: None is not allowed")
        try:
            write(out, value)
        except (struct.error, TypeError, AttributeError) as error:
            raise EncodeError(f"{cls.__name__}.{spec.name}: cannot write {value!r}: {error}") from error

    return step


def _value_writer(spec: FieldSpec, version: int, flexible: bool) -> Write:
    item = writer(spec.type, flexible) if isinstance(spec.type, str) else _writer(spec.type, version, flexible)
    if spec.is_array:
        return array_writer(item, flexible)
    is_nullable = not isinstance(spec.type, str) and version in spec.nullable
    return _nullable_struct_writer(item) if is_nullable else item


def _nullable_struct_writer(write_struct: Write) -> Write:
    def write(out: bytearray, value: Any) -> None:
        out += INT8.pack(-1 if value is None else 1)
        if value is not None:
            write_struct(out, value)

    return write


# -- readers and writers of the types ----------------------------------------------------------------------------------

FIXED = {"bool": BOOL, "int8": INT8, "int16": INT16, "int32": INT32, "int64": INT64}
"""The types of fixed width."""


def reader(type_: str, flexible: bool, nullable: bool) -> tuple[Read, int]:
    """Return a function that reads a value of `type_`, and the smallest number of bytes that a value takes."""
    if type_ in FIXED:
        layout = FIXED[type_]
        return lambda r: r.unpack(layout)[0], layout.size
    if type_ == "uuid":
        return Reader.uuid, 16
    is_text = type_ == "string"
    length = _length_reader(flexible, is_text)
    take: Callable[[Reader, int], Any] = Reader.text if is_text else Reader.take

    def read(r: Reader) -> Any:
        size = length(r)
        if size is None:
            if nullable:
                return None
            raise DecodeError(f"unexpected null at byte {r.position}: expected a value of type {type_}")
        return take(r, size)

    return read, 1 if flexible else 2 if is_text else 4


def array_reader(item: Read, least: int, flexible: bool, nullable: bool) -> Read:
    """Return a function that reads an array. Each item takes at least `least` bytes."""
    length = _length_reader(flexible, False)
    least = max(1, least)

    def read(r: Reader) -> Any:
        count = length(r)
        if count is None:
            if nullable:
                return None
            raise DecodeError(f"unexpected null at byte {r.position}: expected an array")
        if count > r.remaining // least:
            raise Truncated(
                f"truncated array at byte {r.position}: it has {count} elements, but only {r.remaining} bytes are left"
            )
        return tuple([item(r) for _ in range(count)])

    return read


def _length_reader(flexible: bool, is_text: bool) -> Callable[[Reader], int | None]:
    if flexible:
        return Reader.compact_length
    layout = INT16 if is_text else INT32
    return lambda r: r.length(layout)


def writer(type_: str, flexible: bool) -> Write:
    """Return a function that writes a value of `type_`, and null for None."""
    if type_ in FIXED:
        pack = FIXED[type_].pack
        return lambda out, value: out.extend(pack(value))
    if type_ == "uuid":
        return append_uuid
    is_text = type_ == "string"
    length = _length_writer(flexible, is_text)

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            length(out, None)
            return
        data = encoded_text(value) if is_text else memoryview(value).cast("B")
        length(out, len(data))
        if len(data) >= LARGE and isinstance(out, Pieces):
            out.keep(data)
        else:
            out += data

    return write


def array_writer(item: Write, flexible: bool) -> Write:
    """Return a function that writes an array, and null for None."""
    length = _length_writer(flexible, False)

    def write(out: bytearray, value: Any) -> None:
        length(out, None if value is None else len(value))
        for element in value or ():
            item(out, element)

    return write


def _length_writer(flexible: bool, is_text: bool) -> Callable[[bytearray, int | None], None]:
    if flexible:
        return append_compact_length
    layout = INT16 if is_text else INT32
    return lambda out, length: append_length(out, length, layout)


# -- large values ------------------------------------------------------------------------------------------------------

LARGE = 32_768
"""A value of at least so many bytes is not copied. To copy a smaller one costs less than another piece."""


class Pieces(bytearray):
    """The bytes of a message while it is being encoded. `keep` adds large values without a copy.

    The owner of such a value must not change it before the message is sent.
    """

    def __init__(self, size: int = 0) -> None:
        super().__init__(size)
        self._kept: list[tuple[int, Bytes]] = []
        """Each large value, with its position among the other bytes."""
        self._kept_size = 0

    @property
    def size(self) -> int:
        """The number of bytes of the message, including large values."""
        return len(self) + self._kept_size

    def keep(self, value: Bytes) -> None:
        self._kept.append((len(self), value))
        self._kept_size += len(value)

    def pieces(self) -> list[Bytes]:
        if not self._kept:
            return [self]
        pieces: list[Bytes] = []
        start, others = 0, memoryview(self)
        for at, value in self._kept:
            pieces += [others[start:at], value]
            start = at
        return [piece for piece in (*pieces, others[start:]) if len(piece)]
