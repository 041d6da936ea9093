"""Reads the prefix of a schema registry before a value: a zero byte and the schema id as a big-endian int32.

For Protobuf the message index follows: a count and as many positions, as zigzag varints. It is the place of the message
in its file: [1, 0] is the first message within the second one. A single byte 0 means [0].
"""

from __future__ import annotations

import re
from dataclasses import field
from urllib.parse import urlsplit

from streamgroup.errors import ConfigError
from streamgroup.frozen import frozen

PLAIN, SCHEMA_ID = "plain", "schema_id"
FRAMINGS = (PLAIN, SCHEMA_ID)

_LONGEST = 200
_PLACES = re.compile(r"( from)? <[^<>]* at 0x[0-9a-f]+>")
"""Objects in the message of a library, whose addresses would make the reasons of equal errors differ."""
_SIZE = 5
_MAGIC = 0
UNKNOWN_ID = "the registry has no "
"""The beginning of each `unknown_id_error`."""
_UNKNOWN = re.compile(UNKNOWN_ID + r"\w+ schema with id (-?\d+)")
_VARINT_SIZE = 5


class UnreadableError(ValueError):
    """The value of a record cannot be read. The message is the reason."""


def reason_of(error: Exception, *, named: bool = True) -> str:
    """Return the message of a library's error as one short line, after the name of its class if `named`."""
    words = _PLACES.sub("", str(error)).split()
    return " ".join([type(error).__name__, *words] if named else words)[:_LONGEST]


def split_schema_id(value: bytes) -> tuple[int, bytes]:
    """Return the schema id and the bytes after the prefix. Raises UnreadableError for a value without a prefix."""
    if len(value) < _SIZE:
        raise UnreadableError(f"the value has {len(value)} bytes, too few for the prefix of a schema registry")
    if value[0] != _MAGIC:
        raise UnreadableError(f"the value begins with byte {value[0]}, not with a schema registry's magic byte 0")
    return int.from_bytes(value[1:_SIZE], "big", signed=True), value[_SIZE:]


def split_message_index(value: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return the message index and the bytes after it. Raises UnreadableError for a value without one."""
    count, at = _zigzag(value, 0)
    # Each position takes a byte at least.
    if not 0 <= count <= len(value) - at:
        raise UnreadableError(
            f"the message index of the value has {count} positions, and {len(value) - at} bytes follow"
        )
    index = []
    for _ in range(count):
        position, at = _zigzag(value, at)
        if position < 0:
            raise UnreadableError(f"the message index of the value has the position {position}")
        index.append(position)
    return tuple(index) or (0,), value[at:]


def _zigzag(value: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag varint of 32 bits and where it ends."""
    found = 0
    for n, byte in enumerate(value[at : at + _VARINT_SIZE]):
        found |= (byte & 0x7F) << 7 * n
        if byte < 0x80:
            if found >> 32:
                break
            return (found >> 1) ^ -(found & 1), at + n + 1
    raise UnreadableError("the message index of the value is not a list of varints")


def unknown_id_error(kind: str, schema_id: int) -> str:
    """Return the reason of a dead letter whose schema is unknown. `kind` is one word."""
    return f"{UNKNOWN_ID}{kind} schema with id {schema_id}"


def id_in_error(error: str) -> int | None:
    """Return the id of an `unknown_id_error`, or None for any other reason."""
    found = _UNKNOWN.fullmatch(error)
    return None if found is None else int(found[1])


@frozen
class SchemaRegistry:
    """The address and credentials of a schema registry. `password` may be `env:NAME` or `file:/path`.

    `ca` is a PEM file of authorities to trust instead of those of the system. The driver reads password and `ca` again
    for each batch with new ids.
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError for invalid settings."""
        try:
            parts = urlsplit(self.url)
            is_valid = self.url.startswith(("http://", "https://")) and bool(parts.hostname) and not parts.query
            # A list of URLs would pass as one, and the client would send the password to each.
            is_valid = is_valid and "," not in self.url and (parts.port is None or parts.port > 0)
        except ValueError:
            is_valid = False
        if not is_valid:
            raise ConfigError("invalid URL of the schema registry: expected, for example, https://registry:8081")
        if parts.username is not None or parts.password is not None:
            raise ConfigError("cannot use credentials in the URL of the schema registry. Set user and password instead")
        if (self.user is None) != (self.password is None):
            raise ConfigError("cannot use a schema registry with only a user or only a password. Set both or none")
        if self.ca is not None and parts.scheme != "https":
            raise ConfigError("cannot use ca with the schema registry: its URL is not https. Correct the URL")
