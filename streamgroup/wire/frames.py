"""Requests and responses with their headers, as they travel in one frame each.

A frame is a 4-byte length and so many bytes. Request header: API key, version, correlation id, client id (v1), and a
tagged section (v2) for flexible versions; the client id keeps its old 2-byte length, so that every broker can read the
header of every ApiVersions request. Response header: correlation id (v0), and a tagged section (v1) for flexible
versions, save for ApiVersions, whose answer must be readable before a version is agreed on (KIP-511).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeVar, cast

from streamgroup.errors import EncodeError, ErrorCode
from streamgroup.wire.messages.cluster import ApiVersionsRequest
from streamgroup.wire.primitives import INT16, INT32, MAX_BYTES, Bytes, Reader, append_length, encoded_text
from streamgroup.wire.schema import Message, Request, append, decode

R = TypeVar("R", bound=Message)
_HEADER = struct.Struct(">hhi")


def encode_request(request: Request[Any], version: int, correlation_id: int, client_id: str | None) -> bytes:
    """One request as a whole frame, its 4-byte length included. Raises as `schema.encode` does."""
    return _framed(type(request), version, correlation_id, client_id, lambda out: append(out, request, version))


def encode_body(
    api: type[Request[Any]], version: int, correlation_id: int, client_id: str | None, body: Bytes
) -> bytes:
    """A frame as `encode_request` makes it, around a body that no message of `api` has."""
    return _framed(api, version, correlation_id, client_id, lambda out: out.extend(body))


def _framed(
    api: type[Request[Any]],
    version: int,
    correlation_id: int,
    client_id: str | None,
    write: Callable[[bytearray], None],
) -> bytes:
    out = bytearray(INT32.size)
    out += _HEADER.pack(api.API_KEY, version, correlation_id)
    name = None if client_id is None else encoded_text(client_id)
    append_length(out, None if name is None else len(name), INT16)
    out += name or b""
    if api.is_flexible(version):
        out.append(0)
    write(out)
    size = len(out) - INT32.size
    if size > MAX_BYTES:
        raise EncodeError(f"{api.NAME} v{version}: a request of {size} bytes, a frame has at most {MAX_BYTES}")
    INT32.pack_into(out, 0, size)
    return bytes(out)


def correlation_id_of(frame: Bytes) -> int:
    """The id of the request that `frame` (without its length) answers. Raises Truncated below 4 bytes."""
    return Reader(frame).int32()


def decode_response(request_type: type[Request[R]], version: int, frame: Bytes) -> tuple[int, R]:
    """The correlation id and the response in `frame` (without its length), the answer to a request of `version`.

    A broker that does not know the version of an ApiVersions request answers in v0 with error 35, and from 2.4 on with
    the versions of ApiVersions that it knows: that is what is returned then. Raises as `schema.decode` does.
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
