"""What a Spark task runs: fetch planned ranges from their leaders, decode them, hand them out as Arrow batches.

The plan says where each range lies: leader, topic id, leader epoch; a task asks nobody. Only when a leader has moved or
is gone is the cluster's metadata looked up. A range is delivered whole, once, or the task fails (R14).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence

import pyarrow as pa

from streamgroup.errors import DecodeError, TransportError
from streamgroup.executor.cursor import Cursor
from streamgroup.executor.pipeline import Pipeline, Portion
from streamgroup.executor.pool import POOL
from streamgroup.executor.recovery import Recovery
from streamgroup.model import Broker, FetchTask, TopicPartition
from streamgroup.options.types import ClientOptions, FetchOptions, Isolation
from streamgroup.records.decode import DecodeOptions, decode, record_batches
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
) -> Iterator[pa.RecordBatch]:
    """The records of `task`'s ranges in the schema of Spark's own Kafka source; in order within each range.

    `group` is for error messages only: tasks never use the group. At most `fetch.prefetch` + 1 answers are held.
    Raises DataLossError for planned records that are gone (unless `fail_on_data_loss` is off: then they are left out
    with a warning), DecodeError for a batch that cannot be read, with the command that steps over it, TransportError
    after `poll_timeout_ms` without progress, BrokerError for what a broker refuses.
    """
    reader = _Reader(client, fetch, fail_on_data_loss, group)
    try:
        yield from reader.rows([Cursor.of(planned) for planned in task.ranges])
    finally:
        reader.close()


class _Reader:
    def __init__(self, client: ClientOptions, fetch: FetchOptions, fail_on_data_loss: bool, group: str | None) -> None:
        self._client, self._fetch, self._group = client, fetch, group
        self._clock = time.monotonic
        self._cursors: Sequence[Cursor] = ()
        self._recovery = Recovery(client, fetch, fail_on_data_loss, self._clock, group)
        self._decode = DecodeOptions(
            check_crcs=fetch.check_crcs,
            include_headers=fetch.include_headers,
            read_committed=fetch.isolation is Isolation.READ_COMMITTED,
            max_decompressed_bytes=fetch.max_decompressed_bytes,
        )

    def close(self) -> None:
        self._recovery.close()

    def rows(self, cursors: Sequence[Cursor]) -> Iterator[pa.RecordBatch]:
        """Read from leader after leader, until all ranges are done."""
        self._cursors = cursors
        while left := [cursor for cursor in cursors if not cursor.done]:
            for leader in dict.fromkeys(cursor.leader for cursor in left):
                if leader is not None:
                    yield from self._from_leader(leader, [cursor for cursor in left if cursor.leader == leader])
            left = [cursor for cursor in cursors if not cursor.done]
            if left:
                self._recovery.mend(left)

    def _from_leader(self, leader: Broker, cursors: Sequence[Cursor]) -> Iterator[pa.RecordBatch]:
        """Read until the ranges are done or in trouble."""
        try:
            deadline = self._clock() + self._client.connection_setup_timeout_ms / 1000
            connection = POOL.take(leader.host, leader.port, self._client, deadline)
        except TransportError as error:
            _fail(cursors, error, self._clock())
            return
        try:
            pipeline = Pipeline(connection, cursors, self._fetch, self._clock)
            while (portions := self._next(pipeline, cursors)) is not None:
                if not portions:
                    self._recovery.pass_gaps(cursors, tiered=connection.versions.highest(ListOffsetsRequest) >= _TIERED)
                    time.sleep(_PAUSE_S)
                while portions:  # which are let go one by one: the next answer needs the memory
                    yield from self._decoded(portions.pop(0), pipeline)
                    self._recovery.progress(self._cursors)
                self._recovery.check_patience(cursors)
        finally:
            POOL.give_back(connection)

    def _next(self, pipeline: Pipeline, cursors: Sequence[Cursor]) -> list[Portion] | None:
        try:
            return pipeline.next()
        except TransportError as error:
            _fail(cursors, error, self._clock())
            return None

    def _decoded(self, portion: Portion, pipeline: Pipeline) -> Iterator[pa.RecordBatch]:
        """Decode `portion`, in several steps where it would be too large decompressed at once."""
        cursor = portion.cursor
        position, end = portion.start, portion.ahead
        while position < end:
            try:
                decoded = decode(portion.records, position, cursor.until, self._decode, portion.aborted)
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
            step = f"the next batch begins at offset {error.next_offset}. To step over this one, " + (
                _read_around(cursor.tp, error.base_offset, error.next_offset)
                if self._group is None
                else self._reset(self._group, cursor.tp, error.base_offset, error.next_offset)
            )
        named = type(error)(f"{cursor.tp}: {error}; {step}")
        named.base_offset, named.next_offset = error.base_offset, error.next_offset
        return named

    def _reset(self, group: str, tp: TopicPartition, base: int, after: int) -> str:
        """What to do where a group's offset says where to go on."""
        servers = ",".join(f"{host}:{port}" for host, port in self._client.bootstrap_servers)
        return (
            f"stop the query and run: kafka-consumer-groups.sh --bootstrap-server {servers} --group {group} --topic "
            f"{tp.topic}:{tp.partition} --reset-offsets --to-offset {after} --execute (records before offset {base} "
            "that have not sunk yet are stepped over, too: fetch them with spark.read, from the group's committed "
            f"offset to endingOffsets {base})"
        )


def _read_around(tp: TopicPartition, base: int, after: int) -> str:
    """What to do in a batch read, which has no group."""
    before, behind = (json.dumps({tp.topic: {str(tp.partition): offset}}) for offset in (base, after))
    return (
        f"read in two parts: up to it with endingOffsets {before}, behind it with startingOffsets {behind} (with the "
        "other partitions listed besides)"
    )


def _fail(cursors: Sequence[Cursor], error: TransportError, now: float) -> None:
    for cursor in cursors:
        if not cursor.done:
            cursor.fails(error, now)
