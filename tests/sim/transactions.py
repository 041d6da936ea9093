"""Transactions of Kafka (R38): their coordinator, the logs that tasks write to, and a sink that commits offsets there.

The producer's dialogues and the offset store are real. The states of an id come from the unit tests' coordinator
(`tests/fakes/`), which has a clock here. `write_batch` stands for `_TransactionWriter` in
`streamgroup/spark/exactly_once.py`, `converse` for `TransactionRunner`. Where one of these changes, this file changes
with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from streamgroup.errors import ErrorCode as E
from streamgroup.errors import FencedError, StreamGroupError, TransactionAbortedError, TransportError, may_succeed_later
from streamgroup.kafka.producer.transaction import (
    AskCoordinator,
    Dialogue,
    Ended,
    FindMember,
    GroupMember,
    GroupOffsets,
    Pause,
    Reply,
    Role,
    Transaction,
    TransactionalId,
    TransactionalProducer,
    add_partitions,
)
from streamgroup.kafka.wire.messages import transactions as wire
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest
from streamgroup.kafka.wire.messages.produce import InitProducerIdRequest
from streamgroup.model import CommittedOffset, OffsetRange, TopicPartition
from tests.fakes.transactions import Coordinator, added_answer, committed_answer
from tests.sim.clock import Sleep, Steps, Until
from tests.sim.lines import GroupLines
from tests.sim.settings import GROUP_ID, QUESTION_S
from tests.sim.table import befall

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.transactionchecker import TransactionChecker
    from tests.sim.world import World

BACKOFF_S = 0.1
REQUEST_S = 4.0
"""`request.timeout.ms`."""
LATE_S = 3.0
"""So late, at most, a request of a broken connection is carried out."""
MARKERS_S = 0.5
"""So long, at most, a transaction that was decided waits for its markers."""
MOST_ATTEMPTS = 4
"""As `_MOST_ATTEMPTS` of the sink."""
PARTS = 2
"""A task sends so many requests for a range."""


class NoAnswer(TransportError):
    """The coordinator did not answer before the deadline."""


class TaskFailed(Exception):
    """A task has failed, and Spark runs it again."""


class Held(NamedTuple):
    """The answer to `ranges` on the control channel, as the sink reads it."""

    sequence: int
    ranges: tuple[OffsetRange, ...]
    id: TransactionalId
    member: GroupMember
    is_held: bool | None
    after: Mapping[TopicPartition, CommittedOffset]


# -- the brokers -------------------------------------------------------------------------------------------------------


class SimTransactionalId(Coordinator):
    """One transactional id: its coordinator's state, and what its open transaction has written."""

    def __init__(self, brokers: SimTransactions, timeout_s: float) -> None:
        super().__init__(brokers.is_v2)
        self._brokers = brokers
        self._clock = brokers.world.clock
        self.timeout_s = timeout_s
        self.process: Process | None = None
        """The process whose request is carried out."""
        self.raised_by: Process | None = None
        """The process whose InitProducerId has raised the epoch last; None: the timeout has, or a late request."""
        self.is_ending = False
        """Whether the markers are not written yet."""
        self.written: dict[TopicPartition, list[OffsetRange]] = {}
        self.offsets: dict[TopicPartition, CommittedOffset] = {}
        self._committer: tuple[Process, str, int] | None = None
        """The process, member id and generation that have added the offsets."""

    def answer(self, request: Any, version: int) -> Any:
        epoch = self.epoch
        response = super().answer(request, version)
        match request:
            case InitProducerIdRequest() if self.epoch != epoch:
                self.raised_by = None if self._brokers.is_late else self.process
            case wire.TxnOffsetCommitRequest() if not _codes(response):
                assert self.process is not None
                self._committer = (self.process, request.member_id, request.generation_id)
                for topic in request.topics:
                    for row in topic.partitions:
                        offset = CommittedOffset(
                            row.committed_offset, row.committed_metadata or "", row.committed_leader_epoch
                        )
                        self.offsets[TopicPartition(topic.name, row.partition_index)] = offset
        return response

    def write(self, epoch: int, part: OffsetRange, sequence: int) -> int:
        """A task's request for one part of a range. Returns its error code.

        The broker takes a number of a partition once: what comes again under it counts as there already.
        """
        code = self._added(epoch) if self.is_v2 else self._verified(epoch)
        written = self.written.setdefault(part.partition, [])
        if not code and sequence > len(written):
            code = E.OUT_OF_ORDER_SEQUENCE_NUMBER
        if not code and sequence == len(written):
            written.append(part)
        return code

    def _verified(self, epoch: int) -> int:
        """The check of a write with transactions V1: the coordinator is asked (Kafka 3.6 and later)."""
        if epoch != self.epoch:
            return E.INVALID_PRODUCER_EPOCH
        return 0 if self.state == "Ongoing" and not self.is_ending else E.INVALID_TXN_STATE

    def _is_busy(self) -> bool:
        return self.is_ending

    def _added(self, epoch: int) -> int:
        was_open = self.state == "Ongoing"
        code = super()._added(epoch)
        if not code and not was_open:
            self._clock.after(self.timeout_s, partial(self._expire, epoch))
        return code

    def _expire(self, epoch: int) -> None:
        """The transaction is open for too long: it is aborted, and its producer is refused."""
        if self.state == "Ongoing" and self.epoch == epoch:
            self._clock.note("transactions", f"epoch {epoch} has timed out")
            self.epoch += 1
            self.raised_by = None
            self._decide(is_committed=False)

    def _refusal_of_member(self, request: wire.TxnOffsetCommitRequest) -> int:
        return self._brokers.refusal_of_member(request)

    def _decide(self, *, is_committed: bool) -> None:
        self.state, self.is_ending = "Committed" if is_committed else "Aborted", True
        self._clock.after(MARKERS_S * self._brokers.world.chance.random(), partial(self._complete, is_committed))

    def _complete(self, is_committed: bool) -> None:
        """The markers are written: what was committed becomes visible."""
        written, offsets, committer = self.written, self.offsets, self._committer
        self.written, self.offsets, self._committer = {}, {}, None
        self._pending.clear()
        self.is_ending = False
        if is_committed:
            self._brokers.committed(committer, {tp: parts for tp, parts in written.items() if parts}, offsets)


class SimTransactions:
    """The transaction coordinators of the cluster."""

    def __init__(self, world: World, checker: TransactionChecker) -> None:
        self.world = world
        self.checker = checker
        self.is_v2 = world.settings.transactions_v2
        self.ids: dict[str, SimTransactionalId] = {}
        self.is_crashed = False
        self.is_late = False
        """Whether the request that is carried out is one that its process has given up."""
        self.loaded_at = 0.0
        """When the broker that is the coordinator now has loaded its log."""

    def of(self, name: str) -> SimTransactionalId:
        if name not in self.ids:
            self.ids[name] = SimTransactionalId(self, self.world.settings.transaction_timeout_s)
        return self.ids[name]

    def unstable(self) -> set[TopicPartition]:
        """The partitions with an offset in a transaction that is not over."""
        return {tp for each in self.ids.values() for tp in each.offsets}

    def move(self, *, crash: bool, load_s: float) -> None:
        """Another broker becomes the coordinator. Requests to a crashed one are not answered."""
        clock = self.world.clock
        self.loaded_at = max(self.loaded_at, clock.now + load_s)
        if crash:
            self.is_crashed = True
            clock.after(load_s, self.calm_down)

    def calm_down(self) -> None:
        self.is_crashed = False

    def carry_out(self, process: Process, ask: AskCoordinator) -> Reply | None:
        """Answer a request that has arrived. None: the broker is down."""
        version = min(ask.kind.VERSIONS[1], 99 if ask.ceiling is None else ask.ceiling)
        request = cast("Any", ask.make(version))
        broker, clock = self.world.broker, self.world.clock
        is_crashed, loaded_at = self.is_crashed, self.loaded_at
        if isinstance(request, wire.TxnOffsetCommitRequest):
            is_crashed, loaded_at = broker.node in broker.crashed, broker.loaded_at
        if is_crashed:
            return None
        if clock.now < loaded_at:
            return Reply(version, _refusal(request, E.COORDINATOR_LOAD_IN_PROGRESS))
        one = self.of(ask.key if ask.role is Role.TRANSACTION else request.transactional_id)
        one.process = process
        response = one.answer(request, version)
        clock.note("transactions", f"{ask.kind.NAME} of {process.name}: {one.state}, epoch {one.epoch}")
        return Reply(version, response)

    def refusal_of_member(self, request: wire.TxnOffsetCommitRequest) -> int:
        """The checks of the group's coordinator, as for an OffsetCommit."""
        commit = OffsetCommitRequest(
            group_id=GROUP_ID,
            generation_id_or_member_epoch=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            topics=(),
        )
        partitions = [
            TopicPartition(topic.name, row.partition_index) for topic in request.topics for row in topic.partitions
        ]
        return self.world.broker.refusal_in_transaction(commit, partitions)

    def committed(
        self,
        committer: tuple[Process, str, int] | None,
        written: Mapping[TopicPartition, Sequence[OffsetRange]],
        offsets: Mapping[TopicPartition, CommittedOffset],
    ) -> None:
        """A transaction is visible."""
        self.checker.visible(committer, written, {tp: one.offset for tp, one in offsets.items()})
        self.world.broker.offsets |= offsets


def _codes(response: wire.TxnOffsetCommitResponse) -> list[int]:
    return [row.error_code for topic in response.topics for row in topic.partitions if row.error_code]


def _refusal(request: Any, code: int) -> Any:
    """`code` in the shape that this request's answer has."""
    match request:
        case wire.TxnOffsetCommitRequest():
            return committed_answer(request, code)
        case wire.AddPartitionsToTxnRequest():
            return added_answer(request, code)
        case InitProducerIdRequest():
            return InitProducerIdRequest.RESPONSE(error_code=code, producer_id=-1, producer_epoch=-1)
        case _:
            return type(request).RESPONSE(error_code=code)


# -- connections -------------------------------------------------------------------------------------------------------


def ask(process: Process, name: str, work: Callable[[], Any]) -> Steps:
    """Send a request and return its answer; None without one. It may be lost, carried out all the same, or late."""
    query, clock, network = process.query, process.clock, process.network
    answers: list[Any] = []
    gave_up = False
    breaks = (query.loses_commit and name == "EndTxn") or query.breaks_transaction
    if breaks:
        query.loses_commit = query.breaks_transaction = False
    fate = network.chance() if breaks else 1.0
    befall(process, name)

    def deliver(answer: Any) -> None:
        answers.append(answer)
        query.look()

    def carry_out() -> None:
        if clock.now < network.cut_until:
            clock.at(network.cut_until, carry_out)
            return
        brokers = process.world.transactions
        brokers.is_late = gave_up
        answer = work()
        brokers.is_late = False
        if fate >= 0.75:
            clock.after(network.latency(), partial(query.gate, partial(deliver, answer)))

    if fate >= 0.25:
        is_late = 0.5 <= fate < 0.75
        clock.after(network.latency() + (LATE_S * network.chance() if is_late else 0.0), carry_out)
    if fate < 0.75:
        clock.after(2 * network.latency(), partial(query.gate, partial(deliver, None)))
    yield Until(lambda: bool(answers), REQUEST_S)
    gave_up = not answers or fate < 0.75
    return answers[0] if answers else None


def converse(
    process: Process,
    dialogue: Dialogue[Any],
    timeout: float,
    member: Callable[[], Steps] | None = None,
) -> Steps:
    """As `TransactionRunner.run`. Raises NoAnswer after `timeout` seconds."""
    deadline = process.clock.now + timeout
    brokers = process.world.transactions
    answer: Any = None
    while True:
        try:
            step = dialogue.send(answer)
        except StopIteration as end:
            return end.value
        answer = None
        match step:
            case AskCoordinator():
                answer = yield from ask(process, step.kind.NAME, partial(brokers.carry_out, process, step))
            case FindMember():
                assert member is not None
                answer = yield from member()
            case Pause(cause, _):
                if process.clock.now + BACKOFF_S >= deadline:
                    raise NoAnswer(cause)
                yield Sleep(BACKOFF_S)


def end_earlier(process: Process, name: str) -> Steps:
    """As `end_earlier` of `kafka/cluster/transactions.py`."""
    producer = TransactionalProducer(_id(process, name))
    yield from converse(process, producer.begin(is_v2=process.settings.transactions_v2), QUESTION_S)


def _id(process: Process, name: str) -> TransactionalId:
    return TransactionalId(name, int(process.settings.transaction_timeout_s * 1000))


# -- the sink ----------------------------------------------------------------------------------------------------------


class SimTransactionSink:
    """As `_TransactionWriter`: the batches of one start of a query, each in a transaction."""

    def __init__(self, process: Process, id_: TransactionalId) -> None:
        self._query = process.query
        self._process = process
        self._clock = process.clock
        self._producer = TransactionalProducer(id_)
        self._stored: dict[TopicPartition, int] = {}
        self.was_fenced = False
        """Whether another had raised the epoch when the last batch failed: to abort it raises the epoch once more."""
        self._left: list[Callable[[], int]] = []
        """The requests of running tasks that are not sent yet."""

    @property
    def raised_by(self) -> Process | None:
        """The process that has raised the epoch last; None: the timeout has, or a late request."""
        return self._process.world.transactions.of(self._producer.id.name).raised_by

    @property
    def is_fenced(self) -> bool:
        """Whether another process, or the timeout, has raised the epoch since this one has."""
        return self.raised_by is not self._process

    def write(self, held: Held) -> Steps:
        moving = tuple(one for one in held.ranges if len(one))
        if (yield from self.is_stored(moving)):
            self._clock.note(self._query.name, "the batch is in Kafka already")
            return
        for attempt in range(1, MOST_ATTEMPTS + 1):
            try:
                yield from self._write_once(held, moving)
            except TransactionAbortedError as error:
                if attempt == MOST_ATTEMPTS:
                    raise
                self._clock.note(self._query.name, f"writes the batch again: {error}"[:160])
            else:
                return

    def _write_once(self, held: Held, moving: Sequence[OffsetRange]) -> Steps:
        query = self._query
        transaction = yield from self._converse(self.begin())
        yield from query.point("begun")
        try:
            yield from self.write_all(transaction, held, moving)
        except Exception as error:
            self.was_fenced = self.is_fenced
            self.leave_tasks()
            fenced = yield from self._abort()
            if fenced is not None and isinstance(error, TransactionAbortedError):
                raise fenced from error
            raise
        self._stored = {tp: offset.offset for tp, offset in held.after.items()}

    def write_all(self, transaction: Transaction, held: Held, moving: Sequence[OffsetRange]) -> Steps:
        """Write the rows, then commit them with the offsets."""
        yield from self.write_rows(transaction, moving)
        yield from self._query.point("written")
        yield from self.commit(held, moving)

    def begin(self) -> Dialogue[Transaction]:
        return self._producer.begin(is_v2=self._process.settings.transactions_v2)

    def abort(self) -> Dialogue[None]:
        return self._producer.abort()

    def _abort(self) -> Steps:
        try:
            yield from converse(self._process, self.abort(), REQUEST_S)
        except FencedError as error:
            return error
        except StreamGroupError as error:
            self._clock.note(self._query.name, f"cannot abort: {error}"[:160])
        return None

    def commit(self, held: Held, moving: Sequence[OffsetRange]) -> Steps:
        offsets = [GroupOffsets(GROUP_ID, held.after)]
        ended = yield from self._converse(self._producer.commit(offsets), partial(self.member, held))
        yield from self._query.point("ended")
        if ended is Ended.UNKNOWN and not (yield from self.is_stored(moving)):
            raise TransactionAbortedError("the transaction was aborted")

    def member(self, held: Held) -> Steps:
        """As `_member`: the member that commits the batch now."""
        deadline = self._clock.now + QUESTION_S
        while True:
            now = yield from self._process.call(self._process.held())
            is_same = now.sequence == held.sequence and now.ranges == held.ranges
            if is_same and now.is_held:
                return now.member
            if not is_same or now.is_held is False or self._clock.now >= deadline:
                raise FencedError("this member does not hold the partitions of the batch any more")
            yield Sleep(BACKOFF_S)

    def is_stored(self, moving: Sequence[OffsetRange]) -> Steps:
        """As `_is_stored`: whether the group has the ends of all ranges."""
        if all(self._stored.get(one.partition) == one.start for one in moving):
            self._stored = {}
            return False
        lines = self._process.lines
        assert isinstance(lines, GroupLines)
        found = yield from lines.committed([one.partition for one in moving])
        at = {one: found[one.partition].offset if one.partition in found else -1 for one in moving}
        if all(at[one] == one.until for one in moving):
            return True
        elsewhere = [one for one in moving if at[one] > one.start]
        if elsewhere:
            raise FencedError(f"the group has {at[elsewhere[0]]}, and the batch {elsewhere[0]}")
        return False

    def _converse(self, dialogue: Dialogue[Any], member: Callable[[], Steps] | None = None) -> Steps:
        return converse(self._process, dialogue, QUESTION_S, member)

    # -- the tasks ----------------------------------------------------------------------------------------------------

    def write_rows(self, transaction: Transaction, moving: Sequence[OffsetRange]) -> Steps:
        """One task after the other writes a range in two requests. Which rows come first differs with each attempt.

        Raises TransactionAbortedError if a task fails, since Spark runs it again.
        """
        for one in moving:
            try:
                yield from self.run_task(transaction, one)
            except (TaskFailed, StreamGroupError) as error:
                yield from self.run_again(transaction, one, error)
            yield from self._query.point("row")

    def run_again(self, transaction: Transaction, one: OffsetRange, error: Exception) -> Steps:
        """The next attempt of a task refuses to write: what the first one has written is in the transaction."""
        yield Sleep(0.0)
        raise TransactionAbortedError(f"a task has failed: {error}")

    def run_task(self, transaction: Transaction, one: OffsetRange) -> Steps:
        query, process = self._query, self._process
        id_ = process.world.transactions.of(transaction.id.name)
        if not transaction.is_v2:
            yield from self._converse(add_partitions(transaction, [one.partition]))
        parts = _halves(one)
        if query.chance.random() < 0.5:
            parts = parts[::-1]
        fails_at, query.fails_task = (
            (query.chance.randrange(len(parts) + 1), False) if query.fails_task else (-1, False)
        )
        for number, part in enumerate(parts):
            self._left = [
                partial(id_.write, transaction.identity.epoch, later, number + n)
                for n, later in enumerate(parts[number:])
            ]
            if number == fails_at:
                raise TaskFailed("killed")
            yield Sleep(query.task_s() / len(parts))
            yield from self._sent(id_, transaction, part, number)
        self._left = []
        if fails_at == len(parts):
            raise TaskFailed("killed behind its last request")

    def _sent(self, id_: SimTransactionalId, transaction: Transaction, part: OffsetRange, number: int) -> Steps:
        """Send a part until a broker takes it, as the producer does."""
        deadline = self._clock.now + QUESTION_S
        work = partial(id_.write, transaction.identity.epoch, part, number)
        while True:
            code = yield from ask(self._process, "Produce", work)
            if code == 0:
                return
            if code is not None and not may_succeed_later(code):
                raise FencedError(f"a broker refuses {part} in epoch {transaction.identity.epoch}: {E(code).name}")
            if self._clock.now >= deadline:
                raise NoAnswer("the deadline of a task is over")
            yield Sleep(BACKOFF_S)

    def leave_tasks(self) -> None:
        """The driver has ended its tasks or is gone. Their remaining requests may still arrive."""
        left, self._left = self._left, []
        if self._query.chance.random() < 0.5:
            delay = LATE_S * self._query.chance.random()
            for number, send in enumerate(left):
                self._clock.after(delay + 0.01 * number, partial(self._arrived, send))

    def _arrived(self, send: Callable[[], int]) -> None:
        self._clock.note(self._query.name, f"a task that was left sends a request: {E(send()).name}")


def _halves(one: OffsetRange) -> list[OffsetRange]:
    middle = (one.start + one.until + 1) // 2
    bounds = sorted({one.start, middle, one.until})
    return [OffsetRange(one.partition, start, until) for start, until in pairwise(bounds)]


def write_batch(process: Process) -> Steps:
    """Write a batch and its offsets in one transaction, as the function of foreachBatch does."""
    held: Held = yield from process.call(process.held())
    if process.sink is None:
        process.sink = SimTransactionSink(process, held.id)
    yield from process.sink.write(held)
