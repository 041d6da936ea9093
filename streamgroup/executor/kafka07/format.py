"""How tasks read the logs of Kafka 0.7."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

from streamgroup.executor.cursor import Cursor
from streamgroup.executor.exchange import Exchange
from streamgroup.executor.kafka07.exchange import Kafka07Exchange
from streamgroup.executor.kafka07.lookup import Kafka07Lookup
from streamgroup.executor.lookup import LogLookup
from streamgroup.executor.pipeline import Portion
from streamgroup.executor.read_format import ReadFormat
from streamgroup.model import Dialect
from streamgroup.net.connection import Connection
from streamgroup.options.types import ClientOptions, FetchOptions
from streamgroup.records.decode import Decoded, DecodeOptions
from streamgroup.records.messages07 import Frames07, decode07


class Kafka07ReadFormat(ReadFormat):
    """Messages by byte positions. The offset of a record is where its outermost message begins."""

    dialect = Dialect.KAFKA07
    frame_noun = "message"
    next_frame_unknown = (
        "positions of Kafka 0.7 are bytes, and where the next message begins cannot be told. Each segment begins with "
        "a message: its file is named after the position"
    )

    def exchange(self, connection: Connection, cursors: Sequence[Cursor], options: FetchOptions) -> Exchange:
        """Return the FETCH and MULTIFETCH requests of one connection."""
        return Kafka07Exchange(connection, options)

    def lookup(self, client: ClientOptions, fetch: FetchOptions, clock: Callable[[], float]) -> LogLookup:
        """Return what asks the planned brokers for the ends of logs."""
        return Kafka07Lookup(client, clock)

    def decode(self, portion: Portion, position: int, options: DecodeOptions) -> Decoded:
        """Decode the frames that were walked when they arrived. Raises DecodeError."""
        return decode07(cast("Frames07", portion.frames), position, options)


KAFKA07_READ_FORMAT: Final = Kafka07ReadFormat()
