"""`Reader` for brokers of Kafka 0.7."""

from __future__ import annotations

from collections.abc import Sequence

from streamgroup.errors import DecodeError
from streamgroup.executor.cursor import Cursor
from streamgroup.executor.fetcher import Reader
from streamgroup.executor.fetching import Fetching, Portion
from streamgroup.executor.pipeline07 import Pipeline07
from streamgroup.executor.recovery import Recovery
from streamgroup.executor.recovery07 import Recovery07
from streamgroup.logformat import KAFKA07_LOG, broker_partition
from streamgroup.model import Dialect
from streamgroup.net.connection import Connection
from streamgroup.records.decode import Decoded
from streamgroup.records.messages07 import decode07


class Reader07(Reader):
    """See the module. Offsets are byte positions; a record's is where its outermost message begins."""

    dialect = Dialect.KAFKA07

    def _recovering(self, fail_on_data_loss: bool) -> Recovery:
        return Recovery07(self._client, self._fetch, fail_on_data_loss, self._clock, self._group)

    def _fetching(self, connection: Connection, cursors: Sequence[Cursor]) -> Fetching:
        return Pipeline07(connection, cursors, self._fetch, self._clock)

    def _pass_gaps(self, connection: Connection, cursors: Sequence[Cursor]) -> None:
        self._recovery.pass_gaps(cursors, tiered=False)

    def _decode_from(self, portion: Portion, position: int) -> Decoded:
        return decode07(portion.records[position - portion.start :], position, portion.cursor.until, self._decode)

    def _poisoned(self, cursor: Cursor, error: DecodeError) -> DecodeError:
        """`error` with its place, and with what steps over it."""
        name = "{}-{}".format(*broker_partition(cursor.tp.partition))
        step = (
            "positions of Kafka 0.7 are bytes, and where the next message begins cannot be told here; segments begin "
            "with one (their files are named after it)"
        )
        if error.base_offset is not None and error.next_offset is not None:
            around = self._step_over(cursor.tp.topic, name, error.base_offset, error.next_offset)
            step = f"the next message begins at {error.next_offset}. To step over this one, {around}"
        named = type(error)(f"{KAFKA07_LOG.name(cursor.tp)} (partition {cursor.tp.partition}): {error}; {step}")
        named.base_offset, named.next_offset = error.base_offset, error.next_offset
        return named
