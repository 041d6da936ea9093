"""Reads the ranges of a Spark task: fetches them from the brokers and returns the records as Arrow batches.

The plan contains the leader, the topic id and the leader epoch of each range. A task reads the cluster's metadata only
if a leader has moved or cannot be reached. A task delivers each range completely and exactly once, or fails (R14).
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from heapq import nsmallest

import pyarrow as pa

from streamgroup.advice import OffsetLocation, StoredIn, how_to_step_to
from streamgroup.errors import (
    DecodeError,
    TransportError,
)
from streamgroup.executor.pools import POOL
from streamgroup.executor.read.cursor import Cursor
from streamgroup.executor.read.kafka import KAFKA_READ_FORMAT
from streamgroup.executor.read.read_format import (
    Fetched,
    FetchProtocol,
    Portion,
    ReadFormat,
)
from streamgroup.executor.read.read_replicas import ReadReplicas
from streamgroup.executor.read.recovery import Recovery
from streamgroup.kafka.net.connection import Connection
from streamgroup.kafka.net.handshake import RELEASE_MEMORY
from streamgroup.kafka.records.columns import unfit_timestamps
from streamgroup.kafka.records.damage import DamagedBatch, damaged_batch
from streamgroup.kafka.records.decode import Decoded, DecodeOptions, record_batches
from streamgroup.logline import render
from streamgroup.model import Broker, Dialect, FetchTask, TopicPartition
from streamgroup.options.types import ClientOptions, FetchOptions, Isolation
from streamgroup.text import host_ports

log = logging.getLogger(__name__)

MOST_PARTITIONS = 100
"""The most partitions of one request: small ranges of one leader share a round trip."""
_PAUSE_S = 0.02
"""The pause after a response without records, which a broker sends after `fetch.max.wait.ms` unless it throttles."""


def read(
    task: FetchTask,
    client: ClientOptions,
    fetch: FetchOptions,
    *,
    fail_on_data_loss: bool = True,
    group: str | None = None,
    stored_in: StoredIn = StoredIn.KAFKA,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of `task`'s ranges, in order within each range, in the schema of Spark's own Kafka source.

    `group` and `stored_in` (the location of its offsets) are for error messages only: tasks never use the group. At
    most `fetch.prefetch` + 1 responses are in memory. `clock` returns seconds.

    If planned records are lost, raises DataLossError; without `fail_on_data_loss` the lost records are skipped with a
    warning. Raises DecodeError for a batch that cannot be read: the message has the command that skips it. Raises
    TransportError after `poll_timeout_ms` without progress, and BrokerError if a broker refuses a request. With
    `fetch.include_damaged_batches`, a damaged batch becomes a row if its end is certain. A timestamp that does not fit
    its column is null.
    """
    RELEASE_MEMORY.learn(task.releases)
    servers = dict.fromkeys((*client.bootstrap_servers, *task.brokers))
    read_format = _read_format_of(task.dialect)
    client = replace(client, bootstrap_servers=tuple(servers))
    location = OffsetLocation(group or "", stored_in)
    reader = RangeReader(read_format, client, fetch, location, fail_on_data_loss=fail_on_data_loss, clock=clock)
    try:
        yield from reader.rows([Cursor.of(planned, read_format.log_format) for planned in task.ranges])
    finally:
        reader.close()


def _read_format_of(dialect: Dialect) -> ReadFormat:
    if dialect is Dialect.KAFKA:
        return KAFKA_READ_FORMAT
    # Most tasks never need it, and start faster if they do not import it.
    from streamgroup.executor.read.kafka07 import KAFKA07_READ_FORMAT  # noqa: PLC0415

    return KAFKA07_READ_FORMAT


class _FetchAgainError(DecodeError):
    """The task must fetch again, beginning after the last record that it has delivered.

    A damaged batch was fetched for the first time, or the task has skipped a damaged batch and no undamaged batch
    follows in the response.
    """


class RangeReader:
    """Reads the ranges of one task. It reads from one broker at a time."""

    def __init__(
        self,
        read_format: ReadFormat,
        client: ClientOptions,
        fetch: FetchOptions,
        location: OffsetLocation,
        *,
        fail_on_data_loss: bool,
        clock: Callable[[], float],
    ) -> None:
        self._format = read_format
        self._client, self._fetch, self._location = client, fetch, location
        self._clock = clock
        lookup = read_format.lookup(client, fetch, clock)
        self._recovery = Recovery(
            lookup, client, fetch, fail_on_data_loss=fail_on_data_loss, clock=clock, group=location.group or None
        )
        self._seen_damaged: set[tuple[TopicPartition, int]] = set()
        """The damaged batches that have been fetched once, by partition and base offset."""
        self._seen_unfit: set[TopicPartition] = set()
        """The partitions with a record whose timestamp does not fit its column."""
        self._replicas = ReadReplicas(lookup, client, fetch, clock)
        self._decode = DecodeOptions(
            check_crcs=fetch.check_crcs,
            include_headers=fetch.include_headers,
            include_inner_index=fetch.include_inner_index,
            timestamps_in_ms=fetch.timestamps_in_ms,
            read_committed=fetch.isolation is Isolation.READ_COMMITTED,
            max_decompressed_bytes=fetch.max_decompressed_bytes,
        )

    def close(self) -> None:
        self._recovery.close()

    def rows(self, cursors: Sequence[Cursor]) -> Iterator[pa.RecordBatch]:
        """Yield the records of all ranges as Arrow batches, broker by broker."""
        self._replicas.begin(cursors)
        while left := [cursor for cursor in cursors if not cursor.done]:
            for source, leader_only in dict.fromkeys((cursor.source, cursor.is_leader_only) for cursor in left):
                if source is not None:
                    its = [c for c in left if c.source == source and c.is_leader_only == leader_only]
                    yield from self._from_broker(source, its, left)
            left = [cursor for cursor in cursors if not cursor.done]
            for cursor in left:
                if cursor.source is None:
                    cursor.mark_waiting(self._clock())
            if failed := self._replicas.settle(left):
                self._recovery.mend(failed)

    def _from_broker(
        self, broker: Broker, cursors: Sequence[Cursor], left: Sequence[Cursor]
    ) -> Iterator[pa.RecordBatch]:
        """Read until each range is done, has failed, or must be read from another broker.

        `left` are all cursors of the task that are not done.
        """
        try:
            deadline = self._clock() + self._client.connection_setup_timeout_ms / 1000
            connection = POOL.take(broker.host, broker.port, self._client, deadline, self._format.dialect)
        except TransportError as error:
            _fail(cursors, error, self._clock())
            return
        try:
            protocol = self._format.fetch_protocol(connection, cursors, self._fetch)
            pipeline = Pipeline(connection, protocol, cursors, self._fetch.prefetch, self._clock)
            while (portions := self._next(pipeline, cursors)) is not None:
                self._replicas.leave(cursors, self._recovery)
                if not portions and any(cursor.wants_more for cursor in cursors):
                    self._recovery.pass_gaps(cursors, connection)
                    time.sleep(_PAUSE_S)
                while portions:  # each is released before the next one is decoded: the next response needs the memory
                    yield from self._decoded(portions.pop(0), pipeline)
                    self._recovery.note_progress()
                # After the progress, which restarts the waits.
                if throttled_s := pipeline.take_throttled_s():
                    self._recovery.note_throttled(left, throttled_s)
                self._recovery.check_timeouts(cursors)
        except _FetchAgainError:
            for cursor in cursors:
                if not cursor.done:
                    cursor.move_to(cursor.leader, cursor.leader_epoch)
        except DecodeError as error:
            if all(cursor.replica is None for cursor in cursors):
                raise
            _fail(cursors, error, self._clock())  # the leader's copy may be sound
        finally:
            POOL.give_back(connection)

    def _next(self, pipeline: Pipeline, cursors: Sequence[Cursor]) -> list[Portion] | None:
        try:
            return pipeline.next()
        except TransportError as error:
            _fail(cursors, error, self._clock())
            return None

    def _decoded(self, portion: Portion, pipeline: Pipeline) -> Iterator[pa.RecordBatch]:
        """Decode `portion`, in several steps if it would be too large when decompressed at once."""
        cursor = portion.cursor
        position, end = portion.start, portion.ahead
        while position < end:
            try:
                decoded = self._format.decode(portion, position, self._decode)
            except DecodeError as error:
                if cursor.replica is not None:  # the leader's copy may be sound, so nothing is skipped
                    raise
                damaged = self._damaged(portion, error)
                if damaged is None:
                    raise self._poisoned(cursor, error) from error
                yield from self._decoded(portion._replace(start=position, frames=damaged.before(position)), pipeline)
                yield self._row_of(damaged, cursor)
                position = damaged.next_offset
                cursor.mark_delivered(position)
                if not damaged.is_followed:
                    raise _FetchAgainError(str(error)) from error
                portion = portion._replace(start=position, frames=damaged.behind())
                continue
            with_damage = self._fetch.include_damaged_batches
            self._warn_of_unfit(decoded, cursor.tp)
            for batch in record_batches(decoded, cursor.tp.topic, cursor.tp.partition, with_damage=with_damage):
                yield batch
                pipeline.pump()
            if decoded.next_offset <= position:
                raise DecodeError(f"{cursor.tp}: no record could be decoded at the offsets [{position}, {end})")
            position = decoded.next_offset
            cursor.mark_delivered(position)

    def _warn_of_unfit(self, decoded: Decoded, tp: TopicPartition) -> None:
        """Warn of the first record of a partition whose timestamp does not fit its column."""
        if not decoded.timestamp.null_count or tp in self._seen_unfit:
            return
        self._seen_unfit.add(tp)
        row, reason = next(unfit_timestamps(decoded.timestamp))
        result = "is set aside as a row" if self._fetch.include_damaged_batches else "is a row without a timestamp"
        rest = "This task does not log later records like it"
        log.warning("%s: the record at offset %d %s: %s. %s", tp, decoded.offset[row].as_py(), result, reason, rest)

    def _damaged(self, portion: Portion, error: DecodeError) -> DamagedBatch | None:
        """Return the batch to set aside, or None if `error` must end the read.

        Raises _FetchAgainError the first time: the bytes may have been damaged on the network.
        """
        if not self._fetch.include_damaged_batches:
            return None
        damaged = damaged_batch(portion.frames, error, self._decode, portion.aborted)
        if damaged is not None and (place := (portion.cursor.tp, damaged.base_offset)) not in self._seen_damaged:
            self._seen_damaged.add(place)
            raise _FetchAgainError(str(error)) from error
        return damaged

    def _row_of(self, damaged: DamagedBatch, cursor: Cursor) -> pa.RecordBatch:
        words = f"{cursor.tp}: set aside as a row: {damaged.reason}"
        fields = {"group": self._location.group or None, "partition": cursor.tp, "from": damaged.base_offset}
        log.warning("%s", render(words, "damaged_batch", **fields, to=damaged.next_offset, reason=damaged.reason))
        return damaged.row(cursor.tp.topic, cursor.tp.partition, include_headers=self._fetch.include_headers)

    def _poisoned(self, cursor: Cursor, error: DecodeError) -> DecodeError:
        """Return `error` with the partition and the command that steps over the damaged frame."""
        log_format, tp = self._format.log_format, cursor.tp
        step = self._format.next_frame_unknown
        if error.base_offset is not None and error.next_offset is not None:
            name = log_format.partition_name(tp.partition)
            around = self._step_over(tp.topic, name, error.base_offset, error.next_offset)
            begins = f"the next {self._format.frame_noun} begins at {log_format.offset_noun} {error.next_offset}"
            step = f"{begins}. To skip this {self._format.frame_noun}, {around}"
        where = log_format.name(tp)
        if log_format.partition_label(tp.partition) != tp.partition:
            where += f" (partition {tp.partition})"  # as the column `partition` has it
        named = type(error)(f"cannot read {where}: {error}; {step}")
        named.base_offset, named.next_offset = error.base_offset, error.next_offset
        return named

    def _step_over(self, topic: str, name: str, base: int, after: int) -> str:
        """Return how to leave out [`base`, `after`) of the partition that its cluster calls `name`.

        A group continues at its offset; a read without a group continues where its options say.
        """
        if not self._location.group:
            return _read_around(topic, name, base, after)
        servers = host_ports(self._client.bootstrap_servers)
        step = how_to_step_to(self._location, topic, name, after, servers)
        return (
            f"{step} (records before offset {base} that are not written yet are skipped, too: fetch them with "
            f"spark.read, from the group's committed offset to endingOffsets {base})"
        )


def _read_around(topic: str, name: str, base: int, after: int) -> str:
    """Return how to read past [`base`, `after`) without a group."""
    before, behind = (json.dumps({topic: {name: offset}}) for offset in (base, after))
    return (
        f"read in two parts: the records before it with endingOffsets {before}, the records after it with "
        f"startingOffsets {behind} (list the other partitions too; a stream needs a new checkpointLocation)"
    )


def _fail(cursors: Sequence[Cursor], error: TransportError | DecodeError, now: float) -> None:
    for cursor in cursors:
        if not cursor.done:
            cursor.mark_failed(error, now)


class Pipeline:
    """Fetches the ranges of `cursors` over `connection` ahead of decoding. No other code uses the connection.

    While one response is decoded, up to `prefetch` further responses are requested or in memory. When a response
    arrives, its batch headers are read: they show the offset of the next request before any record is decoded. `clock`
    returns seconds.
    """

    def __init__(
        self,
        connection: Connection,
        protocol: FetchProtocol,
        cursors: Sequence[Cursor],
        prefetch: int,
        clock: Callable[[], float],
    ) -> None:
        self._connection = connection
        self._protocol = protocol
        self._cursors = cursors
        self._prefetch = prefetch
        self._clock = clock
        self._asked: list[Cursor] = []
        """The cursors of the pending request."""
        self._ready: deque[list[Portion]] = deque()
        self._failure: TransportError | DecodeError | None = None
        self._answers = 0
        self._throttled_s = 0.0

    def next(self) -> list[Portion] | None:
        """Return the records of the next response, by range. None if nothing is left to fetch.

        The list is empty if the response had no records. Waits up to the protocol's `timeout_s` for the response. A
        cursor that fails gets a `failure` and is not fetched from then on. Raises TransportError, DecodeError.
        """
        if not self._ready:
            if self._failure is not None:
                raise self._failure
            if not self._asked and not self._ask():
                return None
            self._receive()
        portions = self._ready.popleft()
        if portions:
            self.pump()
        return portions

    def take_throttled_s(self) -> float:
        """Return the sum of the throttle times of the responses since the last call, in seconds.

        The broker delays the next requests by this time.
        """
        throttled_s, self._throttled_s = self._throttled_s, 0.0
        return throttled_s

    def pump(self) -> None:
        """Take a response that has arrived and send the next request, without waiting. Call it while decoding.

        Raises nothing: `next` raises the error when all earlier records are delivered.
        """
        if self._failure is not None:
            return
        try:
            if self._asked and self._connection.arrived():
                self._receive()
            if not self._asked and len(self._ready) < self._prefetch:
                self._ask()
        except (TransportError, DecodeError) as error:
            self._failure = error

    def _ask(self) -> bool:
        """Send the next request and return True, or return False if nothing is left to fetch."""
        # A cursor that fails stays out of this pipeline: `Recovery` resolves the failure for a later one.
        self._cursors = [cursor for cursor in self._cursors if cursor.wants_more]
        wanted = nsmallest(MOST_PARTITIONS, self._cursors, key=lambda cursor: cursor.last_served)
        if not wanted:
            return False
        fetch = self._protocol.ask(wanted)
        self._asked = fetch.cursors
        self._connection.send(fetch.request, fetch.version)
        return True

    def _receive(self) -> None:
        """Wait for the response and append its portions to `_ready`. Raises TransportError, DecodeError."""
        try:
            timeout_s = self._protocol.timeout_s + self._connection.throttled_s
            answer = self._connection.receive(self._clock() + timeout_s)
        except (TransportError, DecodeError) as error:
            raise type(error)(f"{error} (for {', '.join(map(str, self._asked))})") from error
        self._answers += 1
        asked, self._asked = self._asked, []
        self._throttled_s += answer.throttle_s
        answered = self._protocol.read(answer.response, asked)
        if len(answered) < len(asked):
            found = {id(fetched.cursor) for fetched in answered}
            for missing in asked:
                if id(missing) not in found:
                    missing.mark_waiting(self._clock())
        portions = (self._portion(fetched) for fetched in answered)
        self._ready.append([portion for portion in portions if portion is not None])

    def _portion(self, fetched: Fetched) -> Portion | None:
        """Update the cursor, and return the records, or None without a complete frame."""
        cursor, frames = fetched.cursor, fetched.frames
        if fetched.error is not None:
            cursor.mark_failed(fetched.error, self._clock())
            cursor.named_leader = fetched.leader if cursor.replica is None else None
            return None
        assert frames is not None
        if cursor.replica is None:
            cursor.high_watermark = fetched.high_watermark
        start = cursor.ahead
        if fetched.read_replica is not None:
            cursor.mark_redirected(fetched.read_replica)
        if frames.next_offset > start:
            cursor.mark_fetched(frames.next_offset, frames.size)
            cursor.last_served = self._answers
            return Portion(cursor, start, frames, fetched.aborted)
        if not cursor.is_moving:  # a leader that names a follower sends no records, whatever its log holds
            self._protocol.note_no_progress(fetched, self._clock())
        return None
