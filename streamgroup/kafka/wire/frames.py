"""Frames of requests and responses: a 4-byte length, a header and a body.

A request header holds API key, version, correlation id and client id (v1), and for flexible versions a tagged section
(v2). The client id keeps its 2-byte length in flexible versions: every broker must read the header of every ApiVersions
request. A response header holds the correlation id (v0), and for flexible versions a tagged section (v1). ApiVersions
responses always have header v0, since the client must read them before it has negotiated a version (KIP-511).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from streamgroup.errors import EncodeError, ErrorCode
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest
from streamgroup.kafka.wire.primitives import INT16, INT32, MAX_BYTES, Bytes, Reader, append_length, encoded_text
from streamgroup.kafka.wire.schema import Message, Pieces, Request, append, decode

R = TypeVar("R", bound=Message)
_HEADER = struct.Struct(">hhi")


def encode_request(request: Request[Any], version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Return one request as a whole frame, its 4-byte length included. Raises as `schema.encode` does."""
    return b"".join(request_pieces(request, version, correlation_id, client_id))


def request_pieces(request: Request[Any], version: int, correlation_id: int, client_id: str | None) -> Sequence[Bytes]:
    """Return the frame of `encode_request` in pieces. Large values of the request are among them, and not copied."""
    return _framed(type(request), version, correlation_id, client_id, lambda out: append(out, request, version))


def encode_body(
    api: type[Request[Any]], version: int, correlation_id: int, client_id: str | None, body: Bytes
) -> bytes:
    """Return a frame as `encode_request` does, around a `body` that is already encoded."""
    return b"".join(_framed(api, version, correlation_id, client_id, lambda out: out.extend(body)))


def _framed(
    api: type[Request[Any]],
    version: int,
    correlation_id: int,
    client_id: str | None,
    write: Callable[[bytearray], None],
) -> list[Bytes]:
    out = Pieces(INT32.size)
    out += _HEADER.pack(api.API_KEY, version, correlation_id)
    name = None if client_id is None else encoded_text(client_id)
    append_length(out, None if name is None else len(name), INT16)
    out += name or b""
    if api.is_flexible(version):
        out.append(0)
    write(out)
    size = out.size - INT32.size
    if size > MAX_BYTES:
        raise EncodeError(f"cannot send {api.NAME} v{version}: it has {size} bytes, a frame has at most {MAX_BYTES}")
    INT32.pack_into(out, 0, size)
    return out.pieces()


def correlation_id_of(frame: Bytes) -> int:
    """Return the correlation id in `frame` (without its length). Raises Truncated below 4 bytes."""
    return Reader(frame).int32()


def decode_response(request_type: type[Request[R]], version: int, frame: Bytes) -> tuple[int, R]:
    """Return the correlation id and the response in `frame` (without its length), which answers a request of `version`.

    A broker that does not support the version of an ApiVersions request answers in v0 with error 35. From 2.4 on that
    response lists the versions of ApiVersions that the broker supports. Raises as `schema.decode` does.
    """
    reader = Reader(frame)
    correlation_id = reader.int32()
    if issubclass(request_type, ApiVersionsRequest):
        if version > 0 and reader.remaining >= INT16.size and _error_code(reader) == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
    elif request_type.is_flexible(version):
        reader.skip_tags()
    response = decode(request_type.RESPONSE, reader.take(reader.remaining), version)
    return correlation_id, cast(R, response)


def _error_code(reader: Reader) -> int:
    code: int = INT16.unpack_from(reader.data, reader.position)[0]
    return code
