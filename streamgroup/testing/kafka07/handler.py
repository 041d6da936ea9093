"""The reaction of a 0.7 broker to one request: a response, silence, or a closed connection.

It has no sockets: a frame in, a `Reply` out. An error that FETCH has no code for closes the connection.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from streamgroup.errors import DecodeError
from streamgroup.kafka.wire.kafka07 import (
    EARLIEST_TIME,
    LATEST_TIME,
    ErrorCode07,
    FetchRequest07,
    FetchResponse07,
    MultiFetchRequest07,
    MultiProduceRequest07,
    OffsetsRequest07,
    OffsetsResponse07,
    ProduceRequest07,
    decode_request,
)
from streamgroup.kafka.wire.primitives import Bytes
from streamgroup.testing.kafka07.log import IllegalTopic, Logs, NegativeFetchSize, OffsetOutOfRange, WrongPartition

_HEADER = struct.Struct(">ih")
_ERRORS: dict[type[Exception], ErrorCode07] = {
    OffsetOutOfRange: ErrorCode07.OFFSET_OUT_OF_RANGE,
    WrongPartition: ErrorCode07.WRONG_PARTITION,
    IllegalTopic: ErrorCode07.UNKNOWN,
}


class Reply(NamedTuple):
    """The bytes that the broker sends, and whether it then closes the connection; `why` is for its log."""

    data: bytes = b""
    close: bool = False
    why: str = ""


class RequestHandler:
    """Handles the requests of all connections to one broker. Thread-safe."""

    def __init__(self, logs: Logs) -> None:
        self._logs: Final = logs

    def handle(self, frame: Bytes) -> Reply:
        """Handle `frame`, a request without its size. Raises OSError if the disk fails."""
        try:
            request = decode_request(frame)
            return _HANDLERS[type(request)](self, request)
        except (DecodeError, IllegalTopic, WrongPartition, ValueError) as error:
            return Reply(close=True, why=f"{type(error).__name__}: {error}")

    def _produce(self, request: ProduceRequest07) -> Reply:
        self._logs.find_or_make(request.topic, request.partition).append(request.messages)
        return Reply()

    def _multi_produce(self, request: MultiProduceRequest07) -> Reply:
        for produce in request.produces:
            self._produce(produce)
        return Reply()

    def _fetch(self, request: FetchRequest07) -> Reply:
        try:
            log = self._logs.find(request.topic, request.partition)
            records = b"" if log is None else log.read(request.offset, request.max_size)
        except NegativeFetchSize as error:
            # The broker computes and sends the size of the response before it validates the request.
            return Reply(_HEADER.pack(error.size + 2, ErrorCode07.NO_ERROR), close=True, why=str(error))
        except tuple(_ERRORS) as error:
            return Reply(FetchResponse07(_ERRORS[type(error)]).encode())
        return Reply(FetchResponse07(ErrorCode07.NO_ERROR, records).encode())

    def _multi_fetch(self, request: MultiFetchRequest07) -> Reply:
        """Answer each part in order.

        The size in the header is computed first, as in the real broker, even if it is wrong.
        """
        parts = []
        size = 2
        for fetch in request.fetches:
            part = self._fetch(fetch)
            parts.append(part)
            size += 4 + _HEADER.unpack_from(part.data)[0]
        sent = []
        for part in parts:
            sent.append(part.data)
            if part.close:
                break
        data = _HEADER.pack(size, ErrorCode07.NO_ERROR) + b"".join(sent)
        failed = next((part for part in parts if part.close), Reply())
        return Reply(data, failed.close, failed.why)

    def _offsets(self, request: OffsetsRequest07) -> Reply:
        log = self._logs.find(request.topic, request.partition)
        if log is not None:
            offsets = log.offsets(request.time, request.max_offsets)
        else:
            # Without a log the broker ignores the maximum.
            offsets = [0] if request.time in (LATEST_TIME, EARLIEST_TIME) else []
        return Reply(OffsetsResponse07(tuple(offsets)).encode())


_HANDLERS: dict[type, Callable[[RequestHandler, Any], Reply]] = {
    FetchRequest07: RequestHandler._fetch,
    MultiFetchRequest07: RequestHandler._multi_fetch,
    OffsetsRequest07: RequestHandler._offsets,
    ProduceRequest07: RequestHandler._produce,
    MultiProduceRequest07: RequestHandler._multi_produce,
}
