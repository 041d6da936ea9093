"""Bugs to plant where the offsets are in a table of a database (R37). See `bugs.py`."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from typing import Any

from streamgroup.group import events as ev
from streamgroup.group import ledger as ledger_module
from streamgroup.group import start_positions
from streamgroup.group.ledger import Ledger
from streamgroup.group.offsets import table_rows
from streamgroup.group.offsets.store import OffsetsFetched, Outcome
from streamgroup.group.offsets.table import RowsClaimed, TableOffsetStore
from streamgroup.group.offsets.table_rows import BatchPart, Claimant, Judgement, StoredOffset
from streamgroup.model import CommittedOffset, Document, OffsetRange, TopicPartition
from tests.fakes.offset_table import OpenTransaction
from tests.sim import checker as words
from tests.sim import table
from tests.sim.bugs import Bug, replace
from tests.sim.clock import Steps
from tests.sim.settings import Kind


def claim_does_not_count(stack: ExitStack) -> None:
    """A claim writes its member into the row, and leaves the claim as it is."""
    real = table_rows.after_claim

    def after_claim(row: StoredOffset, *others: Any) -> StoredOffset:
        return dataclasses.replace(real(row, *others), claim=max(row.claim, 1))

    replace(stack, table_rows, "after_claim", after_claim)


def accept_old_claims(stack: ExitStack) -> None:
    """A batch is stored under whatever claim it has."""
    real = table_rows.judge

    def judge(group: str, parts: Collection[BatchPart], rows: Mapping[Any, StoredOffset]) -> Judgement:
        current = [dataclasses.replace(part, claim=rows[part.range.partition].claim) for part in parts]
        return real(group, current, rows)

    replace(stack, table_rows, "judge", judge)


def claim_the_generation(stack: ExitStack) -> None:
    """The claim is the generation of the group, which begins at 1 again when the group has expired."""
    real_claim, real_follow = OpenTransaction.claim, TableOffsetStore.follow
    generations: dict[str, int] = {}

    def follow(self: TableOffsetStore, action: Any) -> Any:
        if isinstance(action, ev.Assigned):
            generations[self._claimant().member] = action.generation
        return real_follow(self, action)

    def claim(self: OpenTransaction, claimant: Claimant, *others: Any) -> Any:
        claimed = real_claim(self, claimant, *others)
        for tp in claimed if claimant.member in generations else ():
            claim_of_it = dataclasses.replace(claimed[tp], claim=generations[claimant.member])
            claimed[tp] = self.rows[tp] = claim_of_it
        return claimed

    replace(stack, TableOffsetStore, "follow", follow)
    replace(stack, OpenTransaction, "claim", claim)


def store_replays(stack: ExitStack) -> None:
    """A batch that is in the database already is added once more."""
    real = table.judge

    def judge(*args: Any) -> Steps:
        yield from real(*args)
        return False

    replace(stack, table, "judge", judge)


def offsets_before_rows(stack: ExitStack) -> None:
    """The offsets are committed before the rows, in a transaction of their own."""

    def write(
        query: Any, connection: table.Connection, parts: Collection[BatchPart], ranges: Collection[OffsetRange]
    ) -> Steps:
        yield from connection.ask(lambda tx: tx.store(parts), commits=True)
        yield from query.point("stored")
        yield from table.write_rows(query, connection, ranges)

    replace(stack, table, "write", write)


def write_again_after_a_lost_answer(stack: ExitStack) -> None:
    """A COMMIT without an answer counts as failed: the rows are written again, without a look at the table."""

    def find_out(
        query: Any, process: Any, transaction: Any, parts: Collection[BatchPart], ranges: Collection[OffsetRange]
    ) -> Steps:
        connection = table.connect(query, process)
        yield from connection.ask(lambda tx: tx.lock(table.partitions_of(parts)), locks=table.partitions_of(parts))
        yield from table.write(query, connection, parts, ranges)
        yield from connection.ask(lambda tx: None, commits=True)

    replace(stack, table, "find_out", find_out)


def fail_after_a_lost_answer(stack: ExitStack) -> None:
    """A COMMIT without an answer counts as failed: the query fails, though the batch may be stored."""

    def find_out(query: Any, process: Any, transaction: Any, *others: Any) -> Steps:
        yield from query.point("sunk")
        raise table.NotStored("nothing is stored", transaction)

    replace(stack, table, "find_out", find_out)


def commit_undoes_a_batch(stack: ExitStack) -> None:
    """A commit of the member sets the offset, also where a batch was stored since."""
    real = table_rows.after_commit

    def after_commit(row: StoredOffset, claim: int, known: int | None, offset: CommittedOffset) -> StoredOffset | None:
        return real(row, claim, row.next_offset, offset)

    replace(stack, table_rows, "after_commit", after_commit)


def commit_under_an_old_claim(stack: ExitStack) -> None:
    """A commit of the member is carried out under whatever claim it has."""
    real = table_rows.after_commit

    def after_commit(row: StoredOffset, claim: int, *others: Any) -> StoredOffset | None:
        return real(row, row.claim, *others)

    replace(stack, table_rows, "after_commit", after_commit)


def kafka_before_the_table(stack: ExitStack) -> None:
    """The commits in Kafka count, also where the table has another offset."""
    real = TableOffsetStore._claimed

    def claimed(self: TableOffsetStore, event: RowsClaimed) -> Outcome:
        found = self._fetching.get(event.token, {})
        outcome = real(self, event)
        answers = tuple(
            dataclasses.replace(each, offsets={**each.offsets, **found})
            for each in outcome.answers
            if isinstance(each, OffsetsFetched)
        )
        return dataclasses.replace(outcome, answers=answers)

    replace(stack, TableOffsetStore, "_claimed", claimed)


def checkpoint_before_the_table(stack: ExitStack) -> None:
    """A start is determined as without a table: the checkpoint may be ahead."""
    real = start_positions.start_of

    def start_of(*args: Any, **kwargs: Any) -> Any:
        return real(*args, **{**kwargs, "with_rows": False})

    replace(stack, ledger_module, "start_of", start_of)


def leave_out_what_is_claimed(stack: ExitStack) -> None:
    """A replay of a query that is not a member leaves out what another query has claimed, as a member's does."""
    real = table_rows.is_claimed_by_another_query

    def is_claimed_by_another_query(row: StoredOffset, claimant: Claimant) -> bool:
        return real(row, dataclasses.replace(claimant, is_alone=False))

    replace(stack, table_rows, "is_claimed_by_another_query", is_claimed_by_another_query)


def checkpoint_before_a_replay(stack: ExitStack) -> None:
    """Without a membership the checkpoint before a replayed batch counts, also where an operator has reset it since."""
    real = start_positions.start_of

    def start_of(partition: TopicPartition, *, checkpoint: Document, **others: Any) -> Any:
        if partition in checkpoint.positions:
            others["begun"] = None
        return real(partition, checkpoint=checkpoint, **others)

    replace(stack, ledger_module, "start_of", start_of)


def found_by_the_generation(stack: ExitStack) -> None:
    """The founding generation is known by its number alone, and the numbers begin again."""
    real = Ledger.assigned

    def assigned(self: Ledger, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        self._epoch = self.generation
        for held in self.held.values():
            held.epoch = self.generation

    replace(stack, Ledger, "assigned", assigned)


def leave_the_group_behind(stack: ExitStack) -> None:
    """The group does not follow a batch that an earlier process has stored and not committed."""
    real = TableOffsetStore._claimed

    def claimed(self: TableOffsetStore, event: RowsClaimed) -> Outcome:
        outcome = real(self, event)
        answers = tuple(
            dataclasses.replace(each, outdated=frozenset())
            for each in outcome.answers
            if isinstance(each, OffsetsFetched)
        )
        return dataclasses.replace(outcome, answers=answers)

    replace(stack, TableOffsetStore, "_claimed", claimed)


_TABLE = Kind.TABLE

TABLE_BUGS: Mapping[str, Bug] = {
    "r37-uncounted-claim": Bug(
        "R37",
        "a claim leaves the claim of the row as it is",
        claim_does_not_count,
        frozenset({words.UNFENCED}),
        known=(7, 8, 9),
        kind=_TABLE,
    ),
    "r37-old-claim": Bug(
        "R37",
        "a batch is stored under whatever claim it has",
        accept_old_claims,
        frozenset({words.UNFENCED}),
        known=(7, 9, 12),
        kind=_TABLE,
    ),
    "r37-generation-as-claim": Bug(
        "R37",
        "the claim is the generation, which begins at 1 again when the group expires",
        claim_the_generation,
        frozenset({words.UNFENCED}),
        known=(8, 21, 35),
        kind=_TABLE,
    ),
    "r37-replay-added": Bug(
        "R37",
        "a batch that is in the database is added again",
        store_replays,
        frozenset({words.DUPLICATE}),
        known=(16,),
        kind=_TABLE,
    ),
    "r37-offsets-first": Bug(
        "R37",
        "offsets are committed before the rows, in their own transaction",
        offsets_before_rows,
        frozenset({words.UNSTORED}),
        known=(0, 1),
        kind=_TABLE,
    ),
    "r37-lost-answer-repeated": Bug(
        "R37",
        "a COMMIT without an answer counts as failed, and the batch is written again as new",
        write_again_after_a_lost_answer,
        frozenset({words.DUPLICATE}),
        known=(3, 8, 9),
        kind=_TABLE,
    ),
    "r37-lost-answer-fails": Bug(
        "R37",
        "a COMMIT without an answer counts as failed, and the query fails",
        fail_after_a_lost_answer,
        frozenset({words.FAILED}),
        known=(1, 2, 3),
        kind=_TABLE,
    ),
    "r37-batch-undone": Bug(
        "R37",
        "a commit sets the offset back to before a batch that was stored since",
        commit_undoes_a_batch,
        frozenset({words.UNSTORED}),
        known=(36, 27, 3),
        kind=_TABLE,
    ),
    "r37-old-commit": Bug(
        "R37",
        "a commit is carried out under whatever claim it has",
        commit_under_an_old_claim,
        frozenset({words.UNFENCED}),
        known=(8, 21, 35),
        kind=_TABLE,
    ),
    "r37-kafka-counts": Bug(
        "R37",
        "the commits in Kafka count, not the table",
        kafka_before_the_table,
        frozenset({words.DUPLICATE, words.UNSTORED}),
        known=(1, 2, 3),
        kind=_TABLE,
    ),
    "r37-checkpoint-counts": Bug(
        "R37",
        "a checkpoint that is ahead of the table counts",
        checkpoint_before_the_table,
        frozenset({words.UNSTORED, words.SKIPPED, words.DUPLICATE}),
        known=(8, 21, 23),
        kind=_TABLE,
    ),
    "r37-left-out-alone": Bug(
        "R37",
        "a replay of a query that is not a member leaves out what another has claimed",
        leave_out_what_is_claimed,
        frozenset({words.UNSTORED}),
        known=(3356, 3632),
        kind=_TABLE,
    ),
    "r37-reset-undone-alone": Bug(
        "R37",
        "without a membership a replay after a reset goes back to the checkpoint before it",
        checkpoint_before_a_replay,
        frozenset({words.UNSTORED}),
        known=(949,),
        kind=_TABLE,
    ),
    "r37-group-not-following": Bug(
        "R37",
        "the group does not follow a batch that was stored before a restart",
        leave_the_group_behind,
        frozenset({words.STUCK}),
        known=(52,),
        kind=_TABLE,
    ),
    "r7-same-generation": Bug(
        "R7",
        "an expired group is taken for a new one in a generation of the same number",
        found_by_the_generation,
        frozenset({words.BEYOND_SUNK, words.SKIPPED, words.LOST}),
        scenario="expired-group",
    ),
}
