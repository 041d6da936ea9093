"""How tasks read the logs of Kafka 0.8 and everything after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

from streamgroup.executor.cursor import Cursor
from streamgroup.executor.exchange import Exchange
from streamgroup.executor.kafka.exchange import KafkaExchange
from streamgroup.executor.kafka.lookup import KafkaLookup
from streamgroup.executor.lookup import LogLookup
from streamgroup.executor.pipeline import Portion
from streamgroup.executor.read_format import ReadFormat
from streamgroup.model import Dialect
from streamgroup.net.connection import Connection
from streamgroup.options.types import ClientOptions, FetchOptions
from streamgroup.records.batches import Frames
from streamgroup.records.decode import Decoded, DecodeOptions, decode


class KafkaReadFormat(ReadFormat):
    """Record batches (magic 2) and messages (magic 0 and 1) by offsets."""

    dialect = Dialect.KAFKA
    frame_noun = "batch"
    next_frame_unknown = (
        "where the next batch begins cannot be told. kafka-dump-log.sh shows the batches of a log segment"
    )

    def exchange(self, connection: Connection, cursors: Sequence[Cursor], options: FetchOptions) -> Exchange:
        """Return the Fetch requests of one connection."""
        return KafkaExchange(connection, cursors, options)

    def lookup(self, client: ClientOptions, fetch: FetchOptions, clock: Callable[[], float]) -> LogLookup:
        """Return what asks the cluster's metadata and the ends of logs."""
        return KafkaLookup(client, fetch, clock)

    def decode(self, portion: Portion, position: int, options: DecodeOptions) -> Decoded:
        """Decode the frames that were walked when they arrived. Raises DecodeError."""
        return decode(cast("Frames", portion.frames), position, options, portion.aborted)


KAFKA_READ_FORMAT: Final = KafkaReadFormat()
