"""The prefix of a schema registry: a zero byte and the id of the schema as a big-endian int32."""

from __future__ import annotations

PLAIN, SCHEMA_ID = "plain", "schema_id"
FRAMINGS = (PLAIN, SCHEMA_ID)

_SIZE = 5
_MAGIC = 0
_UNKNOWN = "the registry has no Avro schema with id "


class UnreadableError(ValueError):
    """The value of a record cannot be read. Its text is the reason."""


def split_schema_id(value: bytes) -> tuple[int, bytes]:
    """Return the schema id and the bytes behind the prefix. Raises UnreadableError for a value without a prefix."""
    if len(value) < _SIZE:
        raise UnreadableError(f"the value has {len(value)} bytes, too few for the prefix of a schema registry")
    if value[0] != _MAGIC:
        raise UnreadableError(f"the value begins with byte {value[0]}, not with the byte 0 of a schema registry")
    return int.from_bytes(value[1:_SIZE], "big", signed=True), value[_SIZE:]


def unknown_id_error(schema_id: int) -> str:
    """Return the reason of a dead letter whose schema nobody knows."""
    return f"{_UNKNOWN}{schema_id}"


def id_in_error(error: str) -> int | None:
    """Return the id of an `unknown_id_error`, or None for any other reason."""
    return int(error.removeprefix(_UNKNOWN)) if error.startswith(_UNKNOWN) else None
