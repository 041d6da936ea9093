"""Bugs to plant where the offsets are committed in transactions of Kafka (R38). See `bugs.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from streamgroup.coordinator.run.spark_calls import SparkCalls
from streamgroup.coordinator.run.steps import NOW
from streamgroup.errors import FencedError, TransactionAbortedError
from streamgroup.group.offsets.transaction import TransactionOffsetStore
from streamgroup.kafka.producer.batch import NO_IDENTITY
from streamgroup.kafka.producer.transaction import (
    AskCoordinator,
    Dialogue,
    Ended,
    GroupMember,
    GroupOffsets,
    Pause,
    Transaction,
    TransactionalProducer,
)
from streamgroup.kafka.wire.messages.transactions import EndTxnRequest
from streamgroup.model import Document, OffsetRange
from tests.sim import checker as words
from tests.sim.bugs import Bug, replace
from tests.sim.clock import Steps
from tests.sim.settings import Kind
from tests.sim.transactions import Held, SimTransactions, SimTransactionSink


def tell_unstable_offsets(stack: ExitStack) -> None:
    """Offsets are fetched without `require_stable`."""
    replace(stack, SimTransactions, "unstable", lambda self: set())


def take_no_answer_for_an_abort(stack: ExitStack) -> None:
    """An EndTxn without an answer counts as an abort, without a look at the group's offsets."""

    real = TransactionalProducer._end

    def end(self: TransactionalProducer) -> Dialogue[Ended]:
        steps, answer = real(self), None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as over:
                ended: Ended = over.value
                return ended
            answer = yield step
            if isinstance(step, AskCoordinator) and answer is None:
                self._expected = NO_IDENTITY
                raise TransactionAbortedError("no answer")

    replace(stack, TransactionalProducer, "_end", end)


def take_a_refusal_for_a_commit(stack: ExitStack) -> None:
    """An EndTxn that is refused counts as carried out."""
    real = TransactionalProducer._end

    def end(self: TransactionalProducer) -> Dialogue[Ended]:
        yield from real(self)
        return Ended.COMMITTED

    replace(stack, TransactionalProducer, "_end", end)


def write_a_second_attempt(stack: ExitStack) -> None:
    """A task that is run again writes, too, in the same transaction."""

    def run_again(self: SimTransactionSink, transaction: Transaction, one: OffsetRange, error: Exception) -> Steps:
        if isinstance(error, FencedError):
            raise TransactionAbortedError(str(error))
        yield from self.run_task(transaction, one)

    replace(stack, SimTransactionSink, "run_again", run_again)


def commit_for_no_member(stack: ExitStack) -> None:
    """The offsets are added without a member id and a generation."""
    real = TransactionalProducer._offset_request

    def offset_request(self: TransactionalProducer, one: GroupOffsets, member: GroupMember) -> Callable[[int], Any]:
        return real(self, one, GroupMember("", -1))

    replace(stack, TransactionalProducer, "_offset_request", offset_request)


def accept_old_generations(stack: ExitStack) -> None:
    """Offsets are accepted of whatever member and generation, and the sink does not ask who holds the partitions."""

    def member(self: SimTransactionSink, held: Held) -> Steps:
        yield from self._query.point("held")
        return held.member

    replace(stack, SimTransactions, "refusal_of_member", lambda self, request: 0)
    replace(stack, SimTransactionSink, "member", member)


def write_replays(stack: ExitStack) -> None:
    """A replay reads all of its document, and writes it without a look at the group's offsets."""
    real = SparkCalls._adopt

    def adopt(self: SparkCalls, start: Document, end: Document) -> Any:
        yield from real(self, start, end)
        now = yield NOW
        held = self._ledger.positions()
        ranges = tuple(one for one in end.ranges if one.partition in held)
        return ranges, self._member.adopted(start, end, ranges, now)

    def is_stored(self: SimTransactionSink, moving: Sequence[OffsetRange]) -> Steps:
        yield from self._query.point("judged")
        return False

    replace(stack, SparkCalls, "_adopt", adopt)
    replace(stack, SimTransactionSink, "is_stored", is_stored)


def offsets_before_rows(stack: ExitStack) -> None:
    """The offsets are committed before the rows, in a transaction of their own."""

    def write_all(
        self: SimTransactionSink, transaction: Transaction, held: Held, moving: Sequence[OffsetRange]
    ) -> Steps:
        yield from self.commit(held, moving)
        again = yield from self._converse(self.begin())
        yield from self.write_rows(again, moving)
        yield from self._converse(self._producer.commit([]))

    replace(stack, SimTransactionSink, "write_all", write_all)


def keep_the_epoch(stack: ExitStack) -> None:
    """An abort leaves the epoch as it is: the tasks of the aborted attempt write into the next transaction."""

    real = TransactionalProducer.abort

    def abort(self: TransactionalProducer) -> Dialogue[None]:
        if self._is_v2:  # EndTxn raises the epoch itself
            yield from real(self)
            return
        request = EndTxnRequest(**self._of_producer, committed=False)
        while True:
            reply = yield self.id.ask(EndTxnRequest, lambda _: request, 4)
            if reply is not None:
                self._is_unused = not reply.response.error_code
                return
            yield Pause("no answer")

    replace(stack, TransactionalProducer, "abort", abort)


def commit_the_start_again(stack: ExitStack) -> None:
    """The member commits the start of the batch in flight although the group has its end."""
    real = TransactionOffsetStore.planned

    def planned(self: TransactionOffsetStore, ranges: Iterable[OffsetRange]) -> None:
        real(self, [OffsetRange(one.partition, one.until, one.until) for one in ranges])

    replace(stack, TransactionOffsetStore, "planned", planned)


def _bug(
    what: str, plant: Callable[[ExitStack], None], *caught_as: str, known: tuple[int, ...], rule: str = "R38"
) -> Bug:
    return Bug(rule, what, plant, frozenset(caught_as), known=known, kind=Kind.TRANSACTIONS)


TRANSACTION_BUGS: Mapping[str, Bug] = {
    "r19-unstable-offsets": _bug(
        "offsets are fetched as they were before an open transaction",
        tell_unstable_offsets,
        words.DUPLICATE,
        words.NON_MONOTONIC,
        words.UNSTORED,
        words.LOST,
        known=(1, 3, 4),
        rule="R19",
    ),
    "r38-lost-answer-aborts": _bug(
        "an EndTxn without an answer counts as an abort, and the batch is written again",
        take_no_answer_for_an_abort,
        words.DUPLICATE,
        words.FAILED,
        known=(35,),
    ),
    "r38-refusal-commits": _bug(
        "an EndTxn that is refused counts as carried out",
        take_a_refusal_for_a_commit,
        words.LOST,
        words.SKIPPED,
        words.BEYOND_SUNK,
        known=(212, 216, 340),
    ),
    "r38-second-attempt": _bug(
        "a task that is run again writes in the same transaction",
        write_a_second_attempt,
        words.DUPLICATE,
        words.LOST,
        known=(12, 32, 40),
    ),
    "r38-no-member": _bug(
        "offsets are added without member id and generation",
        commit_for_no_member,
        words.TWO_OWNERS,
        known=(0, 1, 2),
    ),
    "r38-old-generation": _bug(
        "offsets of a former owner are added",
        accept_old_generations,
        words.DUPLICATE,
        words.TWO_OWNERS,
        words.UNSTORED,
        known=(5, 30, 47),
    ),
    "r38-replay-written": _bug(
        "a replay is written whole, also what is in Kafka already",
        write_replays,
        words.DUPLICATE,
        known=(11, 24, 26),
    ),
    "r38-offsets-first": _bug(
        "offsets are committed before the rows, in their own transaction",
        offsets_before_rows,
        words.UNSTORED,
        known=(0, 1, 2),
    ),
    "r38-epoch-kept": _bug(
        "an abort leaves the epoch: tasks of the aborted attempt write into the next transaction",
        keep_the_epoch,
        words.DUPLICATE,
        words.LOST,
        words.UNSTORED,
        known=(165, 325),
    ),
    "r38-start-committed": _bug(
        "the member commits the start of a batch that the sink has committed",
        commit_the_start_again,
        words.NON_MONOTONIC,
        known=(119, 214, 266),
    ),
}
