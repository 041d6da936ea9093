"""What a Spark task runs: fetch planned ranges from their leaders, decode them, hand them out as Arrow batches.

The plan says where each range lies: leader, topic id, leader epoch; a task asks nobody. Only when a leader has moved or
is gone is the cluster's metadata looked up. A range is delivered whole, once, or the task fails (R14).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from streamgroup.errors import DecodeError, TransportError
from streamgroup.executor.cursor import Cursor
from streamgroup.executor.fetching import Fetching, Portion
from streamgroup.executor.pipeline import Pipeline
from streamgroup.executor.pool import POOL
from streamgroup.executor.recovery import Recovery
from streamgroup.model import Broker, Dialect, FetchTask
from streamgroup.net.connection import Connection
from streamgroup.net.releases import RELEASE_MEMORY
from streamgroup.options.types import ClientOptions, FetchOptions, Isolation
from streamgroup.records.decode import Decoded, DecodeOptions, decode, record_batches
from streamgroup.remediation import OffsetLocation, StoredIn, how_to_step_to
from streamgroup.wire.messages.log import ListOffsetsRequest

_TIERED = 8
"""The first version of ListOffsets that tells local from tiered storage."""
_PAUSE_S = 0.02
"""After an answer without records: a broker waits `fetch.max.wait.ms` by itself, but not one that throttles."""


def read(
    task: FetchTask,
    client: ClientOptions,
    fetch: FetchOptions,
    *,
    fail_on_data_loss: bool = True,
    group: str | None = None,
    stored_in: StoredIn = StoredIn.KAFKA,
) -> Iterator[pa.RecordBatch]:
    """The records of `task`'s ranges in the schema of Spark's own Kafka source; in order within each range.

    `group` and the `stored_in` of its offsets are for error messages only: tasks never use the group. At most
    `fetch.prefetch` + 1 answers are held.

    Raises DataLossError for planned records that are gone (unless `fail_on_data_loss` is off: then they are left out
    with a warning), DecodeError for a batch that cannot be read, with the command that steps over it, TransportError
    after `poll_timeout_ms` without progress, BrokerError for what a broker refuses.
    """
    RELEASE_MEMORY.learn(task.releases)
    servers = dict.fromkeys((*client.bootstrap_servers, *task.brokers))
    kind = _reader07() if task.dialect is Dialect.KAFKA07 else Reader
    reader = kind(
        replace(client, bootstrap_servers=tuple(servers)),
        fetch,
        fail_on_data_loss,
        OffsetLocation(group or "", stored_in),
    )
    try:
        yield from reader.rows([Cursor.of(planned) for planned in task.ranges])
    finally:
        reader.close()


def _reader07() -> type[Reader]:
    from streamgroup.executor.reader07 import Reader07  # noqa: PLC0415  (most tasks never need it, and start faster)

    return Reader07


class Reader:
    """Reads one task's ranges; `Reader07` does where the brokers speak Kafka 0.7."""

    dialect = Dialect.KAFKA

    def __init__(
        self, client: ClientOptions, fetch: FetchOptions, fail_on_data_loss: bool, location: OffsetLocation
    ) -> None:
        self._client, self._fetch, self._location, self._group = client, fetch, location, location.group or None
        self._clock = time.monotonic
        self._recovery = self._recovering(fail_on_data_loss)
        self._decode = DecodeOptions(
            check_crcs=fetch.check_crcs,
            include_headers=fetch.include_headers,
            include_inner_index=fetch.include_inner_index,
            read_committed=fetch.isolation is Isolation.READ_COMMITTED,
            max_decompressed_bytes=fetch.max_decompressed_bytes,
        )

    def _recovering(self, fail_on_data_loss: bool) -> Recovery:
        return Recovery(self._client, self._fetch, fail_on_data_loss, self._clock, self._group)

    def _fetching(self, connection: Connection, cursors: Sequence[Cursor]) -> Fetching:
        return Pipeline(connection, cursors, self._fetch, self._clock)

    def close(self) -> None:
        """Close what was opened for recovery."""
        self._recovery.close()

    def rows(self, cursors: Sequence[Cursor]) -> Iterator[pa.RecordBatch]:
        """Read from leader after leader, until all ranges are done."""
        while left := [cursor for cursor in cursors if not cursor.done]:
            for leader in dict.fromkeys(cursor.leader for cursor in left):
                if leader is not None:
                    yield from self._from_leader(leader, [cursor for cursor in left if cursor.leader == leader])
            left = [cursor for cursor in cursors if not cursor.done]
            for cursor in left:
                if cursor.leader is None:
                    cursor.waits(self._clock())
            if left:
                self._recovery.mend(left)

    def _from_leader(self, leader: Broker, cursors: Sequence[Cursor]) -> Iterator[pa.RecordBatch]:
        """Read until the ranges are done or in trouble."""
        try:
            deadline = self._clock() + self._client.connection_setup_timeout_ms / 1000
            connection = POOL.take(leader.host, leader.port, self._client, deadline, self.dialect)
        except TransportError as error:
            _fail(cursors, error, self._clock())
            return
        try:
            pipeline = self._fetching(connection, cursors)
            while (portions := self._next(pipeline, cursors)) is not None:
                if not portions:
                    self._pass_gaps(connection, cursors)
                    time.sleep(_PAUSE_S)
                while portions:  # which are let go one by one: the next answer needs the memory
                    yield from self._decoded(portions.pop(0), pipeline)
                    self._recovery.progress()
                self._recovery.check_patience(cursors)
        finally:
            POOL.give_back(connection)

    def _pass_gaps(self, connection: Connection, cursors: Sequence[Cursor]) -> None:
        self._recovery.pass_gaps(cursors, tiered=connection.versions.highest(ListOffsetsRequest) >= _TIERED)

    def _next(self, pipeline: Fetching, cursors: Sequence[Cursor]) -> list[Portion] | None:
        try:
            return pipeline.next()
        except TransportError as error:
            _fail(cursors, error, self._clock())
            return None

    def _decode_from(self, portion: Portion, position: int) -> Decoded:
        return decode(portion.records, position, portion.cursor.until, self._decode, portion.aborted)

    def _decoded(self, portion: Portion, pipeline: Fetching) -> Iterator[pa.RecordBatch]:
        """Decode `portion`, in several steps where it would be too large decompressed at once."""
        cursor = portion.cursor
        position, end = portion.start, portion.ahead
        while position < end:
            try:
                decoded = self._decode_from(portion, position)
            except DecodeError as error:
                raise self._poisoned(cursor, error) from error
            for batch in record_batches(decoded, cursor.tp.topic, cursor.tp.partition):
                yield batch
                pipeline.pump()
            if decoded.next_offset <= position:
                raise DecodeError(f"{cursor.tp}: nothing could be decoded of the offsets [{position}, {end})")
            position = decoded.next_offset
        cursor.delivered(position)

    def _poisoned(self, cursor: Cursor, error: DecodeError) -> DecodeError:
        """`error` with its place, and with what steps over it."""
        step = "where the next batch begins cannot be told; kafka-dump-log.sh shows the batches of a log segment"
        if error.base_offset is not None and error.next_offset is not None:
            around = self._step_over(cursor.tp.topic, str(cursor.tp.partition), error.base_offset, error.next_offset)
            step = f"the next batch begins at offset {error.next_offset}. To step over this one, {around}"
        named = type(error)(f"{cursor.tp}: {error}; {step}")
        named.base_offset, named.next_offset = error.base_offset, error.next_offset
        return named

    def _step_over(self, topic: str, name: str, base: int, after: int) -> str:
        """What leaves out [`base`, `after`) of the partition that its cluster calls `name`.

        Where a group goes on its offset says, where another read does its options.
        """
        if not self._location.group:
            return _read_around(topic, name, base, after)
        servers = ",".join(f"{host}:{port}" for host, port in self._client.bootstrap_servers)
        step = how_to_step_to(self._location, topic, name, after, servers)
        return (
            f"{step} (records before offset {base} that have not sunk "
            "yet are stepped over, too: fetch them with spark.read, from the group's committed offset to endingOffsets "
            f"{base})"
        )


def _read_around(topic: str, name: str, base: int, after: int) -> str:
    """What to do where no group says where to go on."""
    before, behind = (json.dumps({topic: {name: offset}}) for offset in (base, after))
    return (
        f"read in two parts: up to it with endingOffsets {before}, behind it with startingOffsets {behind} (with the "
        "other partitions listed besides; a stream goes on behind it with a new checkpointLocation)"
    )


def _fail(cursors: Sequence[Cursor], error: TransportError, now: float) -> None:
    for cursor in cursors:
        if not cursor.done:
            cursor.fails(error, now)
