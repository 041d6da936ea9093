"""The functions that declare the fields of messages: one per type, called in the body of a dataclass.

    @message
    class FindCoordinatorRequest(Request[FindCoordinatorResponse], api_key=10, versions="0-6", flexible=3):
        key: str = string("0-3")
        key_type: int = int8("1+")
        coordinator_keys: tuple[str, ...] = array("string", "4+")

The arguments are those of Kafka's own JSON definitions. `versions` have the field. In `nullable` versions it may be
None. In `tagged` versions it travels in the tagged section under `tag`. A version that lacks an `ignorable` field drops
its value silently. A field without `default` defaults to zero, empty or `""`.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, ClassVar, Literal, NoReturn, TypeVar, dataclass_transform, overload

from streamgroup.frozen import frozen
from streamgroup.kafka.wire.primitives import Bytes
from streamgroup.model import NO_TOPIC_ID

S = TypeVar("S", bound="Struct")
LAST_VERSION = 2**15 - 1
_SPEC = "spec"


@frozen
class Versions:
    """An inclusive range of versions. `Versions.parse` reads `"0"`, `"2-7"`, `"4+"` and `"none"`."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        if text == "none":
            return NEVER
        if text.endswith("+"):
            return cls(int(text[:-1]), LAST_VERSION)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


NEVER = Versions(0, -1)


class Struct:
    """The base class of messages and their parts. Instances are frozen and compared by value.

    All classes share these methods. `dataclass` would compile new ones for each class, which would take every process a
    tenth of a second.
    """

    __slots__ = ()
    _DEFAULTS: ClassVar[dict[str, Any]] = {}

    def __init__(self, **values: Any) -> None:
        defaults = self._DEFAULTS
        if not values.keys() <= defaults.keys():
            unknown = ", ".join(sorted(values.keys() - defaults.keys()))
            raise TypeError(f"{type(self).__name__} has no field {unknown}")
        for name, value in (defaults | values).items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, _: object) -> NoReturn:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._DEFAULTS)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self._DEFAULTS))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._DEFAULTS)
        return f"{type(self).__qualname__}({values})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **{name: getattr(self, name) for name in self._DEFAULTS}), ()


@frozen
class FieldSpec:
    """The declaration of one field. `type` is a primitive's name or a Struct class.

    If `is_array`, it is an array of it.
    """

    name: str
    type: str | type[Struct]
    is_array: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int | None
    default: Any
    ignorable: bool


@dataclass_transform(frozen_default=True, kw_only_default=True)
def message(cls: type[S]) -> type[S]:
    """Class decorator: turn the declared fields of a Struct into a slotted dataclass with the methods of Struct."""
    made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    made._DEFAULTS = {field.name: field.default for field in dataclasses.fields(made)}  # type: ignore[arg-type]
    return made


def specs_of(cls: type[Struct]) -> tuple[FieldSpec, ...]:
    """Return the declared fields of `cls` in wire order."""
    rows = dataclasses.fields(cls)  # type: ignore[arg-type]
    return tuple(dataclasses.replace(row.metadata[_SPEC], name=row.name) for row in rows)


def _declare(
    type_: str | type[Struct],
    versions: str,
    default: Any,
    *,
    is_array: bool = False,
    nullable: str = "none",
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str = "none",
) -> Any:
    if (tag is None) != (tagged == "none"):
        raise ValueError("invalid field declaration: `tag` and `tagged` must be given together")
    spec = FieldSpec(
        name="",
        type=type_,
        is_array=is_array,
        versions=Versions.parse(versions),
        nullable=Versions.parse(nullable),
        tagged=Versions.parse(tagged),
        tag=tag,
        default=default,
        ignorable=ignorable,
    )
    return dataclasses.field(default=default, metadata={_SPEC: spec})


def boolean(
    versions: str, *, default: bool = False, ignorable: bool = False, tag: int | None = None, tagged: str = "none"
) -> bool:
    """Declare a boolean of one byte; any byte but 0 is read as true."""
    return _declare("bool", versions, default, ignorable=ignorable, tag=tag, tagged=tagged)  # type: ignore[no-any-return]


def int8(versions: str, *, default: int = 0, ignorable: bool = False) -> int:
    return _declare("int8", versions, default, ignorable=ignorable)  # type: ignore[no-any-return]


def int16(
    versions: str, *, default: int = 0, ignorable: bool = False, tag: int | None = None, tagged: str = "none"
) -> int:
    return _declare("int16", versions, default, ignorable=ignorable, tag=tag, tagged=tagged)  # type: ignore[no-any-return]


def int32(versions: str, *, default: int = 0, ignorable: bool = False) -> int:
    return _declare("int32", versions, default, ignorable=ignorable)  # type: ignore[no-any-return]


def int64(
    versions: str, *, default: int = 0, ignorable: bool = False, tag: int | None = None, tagged: str = "none"
) -> int:
    return _declare("int64", versions, default, ignorable=ignorable, tag=tag, tagged=tagged)  # type: ignore[no-any-return]


def uuid(versions: str, *, ignorable: bool = False, tag: int | None = None, tagged: str = "none") -> str:
    """Declare a uuid of 16 bytes, held as canonical text; the zero id is NO_TOPIC_ID."""
    return _declare("uuid", versions, NO_TOPIC_ID, ignorable=ignorable, tag=tag, tagged=tagged)  # type: ignore[no-any-return]


@overload
def string(versions: str, *, ignorable: bool = False) -> str: ...
@overload
def string(
    versions: str,
    *,
    nullable: str,
    default: str | None = "",
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str = "none",
) -> str | None: ...
def string(versions: str, *, nullable: str = "none", default: str | None = "", **rest: Any) -> Any:
    """Declare a string of at most 32 767 bytes of UTF-8."""
    return _declare("string", versions, default, nullable=nullable, **rest)


@overload
def byte_string(versions: str) -> Bytes: ...
@overload
def byte_string(versions: str, *, nullable: str, default: Bytes | None = b"") -> Bytes | None: ...
def byte_string(versions: str, *, nullable: str = "none", default: Bytes | None = b"") -> Any:
    """Declare a byte string; decoding returns a view of the frame."""
    return _declare("bytes", versions, default, nullable=nullable)


def records(versions: str, *, nullable: str) -> Bytes | None:
    """Declare record batches or a message set in the format of the log; decoding returns a view of the frame."""
    return _declare("records", versions, None, nullable=nullable)  # type: ignore[no-any-return]


@overload
def struct(type_: type[S], versions: str, *, tag: int | None = None, tagged: str = "none") -> S: ...
@overload
def struct(type_: type[S], versions: str, *, nullable: str) -> S | None: ...
def struct(type_: type[S], versions: str, *, nullable: str = "none", **rest: Any) -> Any:
    """Declare a field that is a struct. Its default is None if it is nullable, else the defaults of all its fields."""
    return _declare(type_, versions, type_() if nullable == "none" else None, nullable=nullable, **rest)


@overload
def array(type_: Literal["int32", "int64"], versions: str, *, ignorable: bool = False) -> tuple[int, ...]: ...
@overload
def array(type_: Literal["string"], versions: str, *, ignorable: bool = False) -> tuple[str, ...]: ...
@overload
def array(
    type_: Literal["string"], versions: str, *, nullable: str, default: None = None
) -> tuple[str, ...] | None: ...
@overload
def array(
    type_: type[S], versions: str, *, ignorable: bool = False, tag: int | None = None, tagged: str = "none"
) -> tuple[S, ...]: ...
@overload
def array(
    type_: type[S], versions: str, *, nullable: str, default: None = None, ignorable: bool = False
) -> tuple[S, ...] | None: ...
def array(type_: Any, versions: str, *, default: tuple[Any, ...] | None = (), **rest: Any) -> Any:
    """Declare an array, held as a tuple."""
    return _declare(type_, versions, default, is_array=True, **rest)
