"""The database of an offset table (R37) as processes reach it: connections that break, and transactions that stay open.

`SimTableThread` stands for `TableThread`, `store_batch` for `streamgroup.transaction` in a foreachBatch function with
`batch_transaction` behind it. Where one of these changes, this file changes with it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from streamgroup.coordinator.run.interface import ClaimReplay
from streamgroup.errors import FencedError, OffsetStoreError, StreamGroupError, TransportError
from streamgroup.group.offsets.table import ClaimRows, CommitRows, RowsClaimed, RowsCommitted, TableUnanswered
from streamgroup.group.offsets.table_rows import BatchPart, Judgement
from streamgroup.model import OffsetRange, TopicPartition
from tests.fakes.offset_table import OffsetTableRows, OpenTransaction
from tests.sim.clock import Act, SimulatedClock, Sleep, Steps, Until
from tests.sim.settings import GROUP_ID

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.tablechecker import TableChecker
    from tests.sim.world import Query

RETRY_S = 1.0
"""The pause of a replay's claim, and of the look after a lost COMMIT, before the next attempt."""
LOOK_AGAIN_S = 300.0
LOCK_TIMEOUT_S = 5.0
STATEMENT_TIMEOUT_S = 30.0
LINGER_S = 8.0
"""For so long, at most, the server keeps the transaction of a machine that has vanished."""
LATE_S = 3.0
"""So late, at most, a COMMIT of a broken connection is carried out."""

Work = Callable[[OpenTransaction], Any]


class DatabaseAway(TransportError):
    """A connection is lost or cannot be made."""


class NotStored(OffsetStoreError):
    """The sink reports that the batch of `transaction` is not stored. None: that it cannot know."""

    def __init__(self, text: str, transaction: OpenTransaction | None) -> None:
        super().__init__(text)
        self.transaction = transaction


class SimDatabase(OffsetTableRows):
    """The database, which may be away. The checker sees every commit."""

    def __init__(self, clock: SimulatedClock, checker: TableChecker) -> None:
        super().__init__()
        self.clock = clock
        self.checker = checker
        self.away_until = 0.0
        self.connections: list[Connection] = []
        """Those that the server has."""
        self._waiting: list[Act] = []
        """Actions to retry when a lock is released."""

    @property
    def is_away(self) -> bool:
        return self.clock.now < self.away_until

    def go_away(self, seconds: float) -> None:
        """The server stops: what is not committed is gone. It is back after so many seconds."""
        self.clock.note("database", f"is away for {seconds:.1f} s")
        self.away_until = max(self.away_until, self.clock.now + seconds)
        for connection in list(self.connections):
            connection.end()
            connection.lose()

    def calm_down(self) -> None:
        """It is back."""
        self.away_until = 0.0

    def commit(
        self, transaction: OpenTransaction, process: Process | None, claimed: Collection[TopicPartition]
    ) -> None:
        """Commit a transaction of `process` (None: of an operator), which has claimed these partitions."""
        before, added = dict(self.rows), list(transaction.added)
        transaction.commit()
        self.checker.changed(process, before, self.rows, added, claimed)
        self.released()

    def released(self) -> None:
        """Let those go on that wait for a lock."""
        waiting, self._waiting = self._waiting, []
        for act in waiting:
            self.clock.after(0.0, act)

    def wait(self, act: Act, until: float) -> None:
        """Call `act` when a lock was released, and at `until`."""
        self._waiting.append(act)
        if until < math.inf:
            self.clock.at(until, self.released)

    def reset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """An operator sets offsets while no query runs."""
        transaction = self.begin()
        transaction.reset(offsets)
        self.commit(transaction, None, offsets.keys())


class Connection:
    """A connection of one process to the database: one request at a time, all in one transaction.

    `hear` calls an act in the process: now, after its pause, or never.
    """

    def __init__(self, process: Process, hear: Callable[[Act], None]) -> None:
        self._database = process.world.table
        self._process = process
        self._network = process.network
        self._clock = process.clock
        self._hear = hear
        self.transaction = self._database.begin()
        self.fragile = False
        """Whether it breaks with the next request, before that is carried out or after."""
        self._is_open = True
        """Whether the client can send, and hears of answers."""
        self._is_served = True
        """Whether the server has its transaction still."""
        self._done: Callable[[Any], None] | None = None
        self._commits = False
        """Whether the request under way ends with a commit."""
        self._late_s: float | None = None
        """How late the server carries out the COMMIT that was under way when the connection broke; None: never."""
        self._database.connections.append(self)

    # -- the client's side --------------------------------------------------------------------------------------------

    def request(
        self,
        work: Work,
        done: Callable[[Any], None],
        *,
        locks: Collection[TopicPartition] = (),
        claims: Collection[TopicPartition] = (),
        timeout: float = math.inf,
        commits: bool = False,
    ) -> None:
        """Have `work` done in the transaction, and `done` called with its result or its error.

        `locks` are the rows that it locks: it waits for them, `timeout` seconds at most. With `commits` the transaction
        is committed then; `claims` are the partitions that it has claimed.
        """
        self._done, self._commits = done, commits
        if not self._is_open:
            self._clock.after(self._network.latency(), partial(self._tell, DatabaseAway("the connection is lost")))
            return
        breaks, self.fragile = self.fragile, False
        breaks_after = breaks and self._network.chance() < 0.6
        if breaks and not breaks_after:
            self._clock.after(2 * self._network.latency() * self._network.chance(), self.lose)
        until = self._clock.now + timeout

        def carry_out() -> None:
            if not self._is_served:
                return
            if self.transaction.is_blocked(locks):
                if self._clock.now >= until:
                    self._commits = False
                    self._answer(DatabaseAway("the lock timeout is over"))
                else:
                    self._database.wait(carry_out, until)
                return
            try:
                result = work(self.transaction)
            except StreamGroupError as error:
                result = error
            else:
                if commits:
                    self._database.commit(self.transaction, self._process, claims)
            self._commits = False
            if breaks_after:
                self.lose()
            elif self._is_open:
                self._clock.after(self._network.latency(), partial(self._answer, result))
            elif commits:
                self.end()

        self._clock.after(self._network.latency(), partial(self._arrive, carry_out))

    def ask(self, work: Work, **how: Any) -> Steps:
        """The same for Spark's thread; raises the error."""
        answers: list[Any] = []
        self.request(work, answers.append, **how)
        yield Until(lambda: bool(answers), math.inf)
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]

    def close(self, *, linger_s: float = 0.0) -> None:
        """The client is gone, and the server notices it so many seconds later. A COMMIT may be under way."""
        if self._is_open:
            self._is_open, self._done = False, None
            self._leave(linger_s)

    # -- the network and the server -----------------------------------------------------------------------------------

    def lose(self) -> None:
        """The connection breaks: the client hears of it."""
        if self._is_open:
            self._is_open = False
            self._tell(DatabaseAway("the connection is lost"))
            self._leave(0.0)

    def _leave(self, linger_s: float) -> None:
        if self._commits and self._network.chance() < 0.5:
            self._late_s = self._network.chance() * LATE_S
        elif linger_s:
            self._clock.after(linger_s, self.end)
        else:
            self.end()

    def end(self) -> None:
        """The server ends the session: what is not committed is gone."""
        if self._is_served:
            self._is_served = False
            self.transaction.rollback()
            self._database.connections.remove(self)
            self._database.released()

    def _arrive(self, carry_out: Act) -> None:
        if not self._is_open:
            if self._commits and self._late_s is not None:
                self._clock.after(self._late_s, carry_out)
        elif self._clock.now < self._network.cut_until:
            self._clock.at(self._network.cut_until, partial(self._arrive, carry_out))
        elif self._database.is_away:
            self.lose()
        else:
            carry_out()

    def _answer(self, result: Any) -> None:
        if self._is_open and self._clock.now < self._network.cut_until:
            self._clock.at(self._network.cut_until, partial(self._answer, result))
        elif self._is_open:
            self._tell(result)

    def _tell(self, result: Any) -> None:
        done, self._done = self._done, None
        if done is not None:
            self._hear(partial(done, result))


# -- the coordinator process ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Request:
    """An action of the member's store, or the claims of a replay, and what takes the result."""

    name: str
    work: Work
    locks: Collection[TopicPartition]
    claims: Collection[TopicPartition]
    done: Callable[[Any], None]


class SimTableThread:
    """`TableThread` of one process: it handles one request at a time, each in a separate transaction."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._clock = process.clock
        self._queue: deque[_Request] = deque()
        self._connection: Connection | None = None
        self.fragile = False
        """Whether the connection of the next request breaks."""

    def carry_out(self, action: ClaimRows | CommitRows) -> None:
        """As `TableThread.carry_out`."""
        stored = self._process.world.table.rows

        def claim(transaction: OpenTransaction) -> RowsClaimed:
            assert isinstance(action, ClaimRows)
            claimed = transaction.claim(action.claimant, action.partitions, action.found)
            return RowsClaimed(action.token, {**stored, **claimed})

        def commit(transaction: OpenTransaction) -> RowsCommitted:
            assert isinstance(action, CommitRows)
            rows = transaction.commit_offsets(action.claims, action.offsets)
            self._process.world.table.checker.refused(self._process, [tp for tp, row in rows.items() if row is None])
            return RowsCommitted(action.token, rows)

        def done(result: Any) -> None:
            if isinstance(result, DatabaseAway):
                result = TableUnanswered(action.token, str(result))
            self._process.post(result)

        if isinstance(action, ClaimRows):
            self._add(_Request("ClaimRows", claim, action.partitions, action.partitions, done))
        else:
            self._add(_Request("CommitRows", commit, action.offsets, (), done))

    def claim_for_replay(self, question: ClaimReplay) -> Steps:
        """As `TableThread.claim_for_replay`."""
        deadline = self._clock.now + question.timeout
        partitions = [one.partition for one in question.ranges]
        while True:
            answers: list[Any] = []
            mine: list[TopicPartition] = []  # known when the rows are locked

            def claim(transaction: OpenTransaction, mine: list[TopicPartition] = mine) -> Any:
                claimed = transaction.claim_replay(question)
                mine += claimed
                return claimed

            self._add(_Request("ClaimRows", claim, partitions, mine, answers.append))
            yield Until(partial(bool, answers), deadline - self._clock.now)
            if not answers:
                raise DatabaseAway("the database did not answer in time")
            if not isinstance(answers[0], DatabaseAway):
                return answers[0]
            if self._clock.now + RETRY_S >= deadline:
                raise answers[0]
            yield Sleep(RETRY_S)

    def close(self) -> None:
        """The process is gone."""
        self._queue.clear()
        if self._connection is not None:
            self._connection.close()

    def _add(self, request: _Request) -> None:
        self._queue.append(request)
        if self._connection is None:
            self._next()

    def _next(self) -> None:
        request = self._queue.popleft()
        self._connection = Connection(self._process, self._process.hear)
        self._connection.fragile, self.fragile = self.fragile, False
        befall(self._process, request.name)
        self._connection.request(
            request.work,
            partial(self._finish, request),
            locks=request.locks,
            claims=request.claims,
            timeout=STATEMENT_TIMEOUT_S,
            commits=True,
        )

    def _finish(self, request: _Request, result: Any) -> None:
        assert self._connection is not None
        self._connection.close()
        self._connection = None
        request.done(result)
        if self._queue and self._connection is None:
            self._next()


def befall(process: Process, name: str) -> None:
    """Let the fault happen that waits for this request, while it is under way."""
    what = process.query.armed.pop(name, None)
    if what is not None:
        process.clock.after(3 * process.network.latency() * process.network.chance(), what)


# -- the sink ---------------------------------------------------------------------------------------------------------


def store_batch(query: Query, process: Process, ranges: Collection[OffsetRange]) -> Steps:
    """Store the rows of a batch and its offsets in one transaction, as the function of foreachBatch does."""
    if query.settings.collects_rows:
        for _ in ranges:
            yield Sleep(query.task_s())
            yield from query.point("task")
    parts = [part for part in (yield from process.call(process.batch_parts())) if len(part.range)]
    connection = connect(query, process)
    is_replay = yield from judge(connection, parts)
    yield from query.point("begun")
    if not is_replay:
        yield from write(query, connection, parts, ranges)
    yield from commit(query, process, connection, parts, ranges)
    close(query)


def judge(connection: Connection, parts: Collection[BatchPart]) -> Steps:
    """Lock the rows of the batch; return whether an earlier transaction has stored it."""
    judgement = yield from connection.ask(lambda tx: tx.judge(GROUP_ID, parts), locks=partitions_of(parts))
    return judgement is Judgement.REPLAY


def write(query: Query, connection: Connection, parts: Collection[BatchPart], ranges: Collection[OffsetRange]) -> Steps:
    """Add the rows in the open transaction, then the ends of the ranges."""
    yield from write_rows(query, connection, ranges)
    yield from connection.ask(lambda tx: tx.store(parts))
    yield from query.point("stored")


def write_rows(query: Query, connection: Connection, ranges: Collection[OffsetRange]) -> Steps:
    """Add the rows of one range after the other. They come from tasks, unless they were collected before."""
    for range_ in ranges:
        if not query.settings.collects_rows:
            yield Sleep(query.task_s())
        yield from connection.ask(partial(OpenTransaction.add, ranges=[range_]))
        yield from query.point("row")


def commit(
    query: Query,
    process: Process,
    connection: Connection,
    parts: Collection[BatchPart],
    ranges: Collection[OffsetRange],
) -> Steps:
    """COMMIT. If the answer is lost, the table is read."""
    connection.fragile |= query.loses_commit
    query.loses_commit = False
    befall(process, "COMMIT")
    try:
        yield from connection.ask(lambda tx: None, commits=True)
    except DatabaseAway:
        process.clock.note(query.name, "the answer to COMMIT is lost")
        yield from find_out(query, process, connection.transaction, parts, ranges)


def find_out(
    query: Query,
    process: Process,
    transaction: OpenTransaction,
    parts: Collection[BatchPart],
    ranges: Collection[OffsetRange],
) -> Steps:
    """As `_find_out` of `batch_transaction`: return if the batch is stored, else raise an error."""
    deadline = process.clock.now + LOOK_AGAIN_S
    while True:
        connection = connect(query, process)
        try:
            judgement = yield from connection.ask(
                lambda tx: tx.judge(GROUP_ID, parts), locks=partitions_of(parts), timeout=LOCK_TIMEOUT_S
            )
        except (FencedError, OffsetStoreError) as error:
            raise NotStored(f"unknown whether the batch is stored: {error}", None) from None
        except DatabaseAway:
            if process.clock.now + RETRY_S >= deadline:
                raise
            yield Sleep(RETRY_S)
            continue
        if judgement is Judgement.NEW:
            raise NotStored("nothing is stored", transaction)
        process.clock.note(query.name, "the batch is stored")
        return


def close(query: Query, *, linger_s: float = 0.0) -> None:
    """The connection of the sink is closed, if there is one."""
    if query.connection is not None:
        query.connection.close(linger_s=linger_s)
        query.connection = None


def connect(query: Query, process: Process) -> Connection:
    """Open the sink's connection in place of the one before."""
    close(query)

    def hear(act: Act) -> None:
        query.gate(act)
        query.gate(query.look)

    query.connection = Connection(process, hear)
    return query.connection


def partitions_of(parts: Collection[BatchPart]) -> list[TopicPartition]:
    return [part.range.partition for part in parts]
