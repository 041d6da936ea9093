"""The thread of the offset table: claims partitions and commits offsets in the database, one request after the other.

It reports each result to the query's inbox. A request that fails because the database is away is reported as
unanswered, and the member asks again; a request that can never succeed ends the query.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import field
from functools import partial
from queue import SimpleQueue

from streamgroup.coordinator.run.interface import ThreadFailed
from streamgroup.coordinator.threads.group_backend import RunInbox
from streamgroup.errors import OffsetStoreError, StreamGroupError, TransportError
from streamgroup.frozen import frozen
from streamgroup.group.offsets.table import ClaimRows, CommitRows, RowsClaimed, RowsCommitted, TableUnanswered
from streamgroup.group.offsets.table_rows import Claimant, StoredOffset, is_claimed_by_another_query
from streamgroup.model import CommittedOffset, OffsetRange, TopicPartition
from streamgroup.options.types import GroupOptions
from streamgroup.sql.database import is_lost, open_engine, reason_of, shown, take_password, url_of
from streamgroup.sql.offset_table import OffsetTable

log = logging.getLogger("streamgroup")


RETRY_PAUSE_S = 1.0


@frozen
class _Replay:
    """The claims of a replay, for which a call of Spark waits."""

    claimant: Claimant
    ranges: tuple[OffsetRange, ...]
    found: Mapping[TopicPartition, CommittedOffset]
    answer: Future[dict[TopicPartition, StoredOffset]] = field(default_factory=Future)


class TableThread:
    """Carries out the actions of a `TableOffsetStore` in the database of `group`. It connects with the first one.

    Raises ConfigError for an invalid URL, or if the driver of the database is not installed.
    """

    def __init__(self, inbox: RunInbox, group: GroupOptions) -> None:
        password = group.store_password
        self._url = url_of(
            group.store_url,
            user=group.store_user,
            password=None if password is None else password.reveal("offsets.store.password"),
        )
        self._engine = open_engine(self._url)
        if password is not None:
            take_password(self._engine, partial(password.reveal, "offsets.store.password"))
        self._table = OffsetTable()
        self._is_created = False
        self._group = group.group_id
        self._inbox = inbox
        self._queue: SimpleQueue[ClaimRows | CommitRows | _Replay | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="streamgroup-table", daemon=True)

    @property
    def where(self) -> str:
        """The URL of the database, without user and password."""
        return shown(self._url)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Carry out what is queued, and end the thread; wait up to `timeout` seconds for it."""
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout)

    def carry_out(self, action: ClaimRows | CommitRows) -> None:
        """Queue an action of the member."""
        self._queue.put(action)

    def claim_for_replay(
        self,
        claimant: Claimant,
        ranges: Collection[OffsetRange],
        found: Mapping[TopicPartition, CommittedOffset],
        timeout: float,
    ) -> dict[TopicPartition, StoredOffset]:
        """Claim the partitions of a replay, but for those that another query has claimed; return their rows (R13).

        A partition that the table does not know starts at `found`, or at the start of its range. Asks again while the
        database is away. Raises TransportError after `timeout` seconds, OffsetStoreError.
        """
        deadline = time.monotonic() + timeout
        while True:
            replay = _Replay(claimant, tuple(ranges), found)
            self._queue.put(replay)
            try:
                return replay.answer.result(max(0.0, deadline - time.monotonic()))
            except FutureTimeoutError:
                text = f"group {self._group}: {shown(self._url)} did not answer within {timeout:g} s"
                raise TransportError(text) from None
            except TransportError as error:
                if time.monotonic() + RETRY_PAUSE_S >= deadline:
                    raise
                log.warning("%s. Trying again in %g s", error, RETRY_PAUSE_S)
                time.sleep(RETRY_PAUSE_S)

    def _run(self) -> None:
        while (action := self._queue.get()) is not None:
            if isinstance(action, _Replay):
                self._answer(action)
                continue
            try:
                self._inbox.post(self._result(action))
            except Exception as error:
                log.exception("group %s: the thread of the offset table has failed", self._group)
                text = f"group {self._group}: the thread of the offset table has failed: {error!r}"
                self._inbox.post(ThreadFailed(StreamGroupError(text)))
        self._engine.dispose()

    def _answer(self, replay: _Replay) -> None:
        try:
            replay.answer.set_result(self._replayed(replay))
        except Exception as error:
            replay.answer.set_exception(self._error(error, "claim the partitions of the replayed batch"))

    def _result(self, action: ClaimRows | CommitRows) -> RowsClaimed | RowsCommitted | TableUnanswered | ThreadFailed:
        what = "claim partitions" if isinstance(action, ClaimRows) else "commit offsets"
        try:
            if isinstance(action, ClaimRows):
                self._prepare(action.partitions)
            with self._engine.begin() as connection:
                if isinstance(action, ClaimRows):
                    self._table.claim(connection, action.group, action.claimant, action.partitions, action.found)
                    result: RowsClaimed | RowsCommitted = RowsClaimed(
                        action.token, self._table.read(connection, action.group)
                    )
                else:
                    result = RowsCommitted(
                        action.token, self._table.commit(connection, action.group, action.claims, action.offsets)
                    )
        except Exception as error:
            translated = self._error(error, what)
            if isinstance(translated, TransportError):
                return TableUnanswered(action.token, str(translated))
            return ThreadFailed(translated)
        return result

    def _replayed(self, replay: _Replay) -> dict[TopicPartition, StoredOffset]:
        partitions = [one.partition for one in replay.ranges]
        starts = {one.partition: CommittedOffset(one.start) for one in replay.ranges}
        self._prepare(partitions)
        with self._engine.begin() as connection:
            rows = self._table.lock(connection, self._group, partitions)
            mine = [tp for tp, row in rows.items() if not is_claimed_by_another_query(row, replay.claimant)]
            return self._table.claim(connection, self._group, replay.claimant, mine, {**starts, **replay.found})

    def _prepare(self, partitions: Collection[TopicPartition]) -> None:
        """Create the table and the rows that are missing."""
        if not self._is_created:
            with self._engine.begin() as connection:
                self._table.create(connection)
            self._is_created = True
        with self._engine.begin() as connection:
            self._table.insert_missing(connection, self._group, partitions)

    def _error(self, error: Exception, what: str) -> StreamGroupError:
        """Return a TransportError if the database is away, else an error that ends the query."""
        if isinstance(error, StreamGroupError):
            return error
        text = f"group {self._group}: cannot {what} in {shown(self._url)}: {reason_of(error)}"
        if is_lost(error):
            return TransportError(text)
        if self._url.get_backend_name() == "sqlite":
            return OffsetStoreError(f"{text}. Check that the directory exists and that this user may write to it")
        return OffsetStoreError(f"{text}. Check the option offsets.store, its user and the user's privileges")
