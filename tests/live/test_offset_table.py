"""The offset table and the transaction of a batch in real databases."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from streamgroup.errors import ConfigError, FencedError, OffsetStoreError
from streamgroup.group.offsets.table_rows import BatchPart, Claimant, StoredOffset
from streamgroup.model import CommittedOffset, OffsetRange, TopicPartition
from streamgroup.sql.database import open_engine, url_of
from streamgroup.sql.offset_table import GroupBatch, OffsetTable, batch_transaction

pytestmark = pytest.mark.live

A, B = TopicPartition("Orders", 0), TopicPartition("orders", 0)
ME, OTHER = Claimant("checkpoint", "run"), Claimant("another", "other")
RECORDS = sa.Table("records", sa.MetaData(), sa.Column("topic", sa.String(249)), sa.Column("at", sa.BigInteger))


@pytest.fixture(params=["sqlite", "sqlite of a user", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    """The engine of streamgroup, or one as a user makes it."""
    kind = request.param
    url = url_of(
        f"sqlite:///{tmp_path}/a b.db" if "sqlite" in kind else request.getfixturevalue("streamgroup_postgres").url
    )
    made = sa.create_engine(url, connect_args={"timeout": 60}) if "user" in kind else open_engine(url)
    with made.begin() as connection:
        table.table.drop(connection, checkfirst=True)
        RECORDS.drop(connection, checkfirst=True)
        RECORDS.create(connection)
        table.create(connection)
    yield made
    made.dispose()


table = OffsetTable()


def part(tp: TopicPartition, start: int, until: int, row: StoredOffset) -> BatchPart:
    return BatchPart(OffsetRange(tp, start, until), row.claim, CommittedOffset(until, f"until {until}", 4))


def claim(
    engine: sa.Engine, by: Claimant, *partitions: TopicPartition, start: int | None = 0
) -> dict[Any, StoredOffset]:
    found = {} if start is None else dict.fromkeys(partitions, CommittedOffset(start))
    return claim_in(engine, "g", by, partitions, found)


def claim_in(engine: sa.Engine, group: str, by: Claimant, partitions: Any, found: Any) -> dict[Any, StoredOffset]:
    with engine.begin() as connection:
        table.insert_missing(connection, group, partitions)
    with engine.begin() as connection:
        return table.claim(connection, group, by, partitions, found)


def store(engine: sa.Engine, *parts: BatchPart, group: str = "g") -> bool:
    """Store a batch with one row for each record; return whether it was new."""
    with batch_transaction(engine, table, [GroupBatch(group, parts)]) as transaction:
        if not transaction.is_replay:
            values = [
                {"topic": one.range.partition.topic, "at": at}
                for one in parts
                for at in range(one.range.start, one.range.until)
            ]
            transaction.connection.execute(sa.insert(RECORDS), values)
    return not transaction.is_replay


def stored(engine: sa.Engine, topic: str = "Orders") -> list[int]:
    with engine.connect() as connection:
        found = connection.execute(sa.select(RECORDS.c.at).where(RECORDS.c.topic == topic))
        return sorted(found.scalars())


def rows(engine: sa.Engine, group: str = "g") -> dict[TopicPartition, StoredOffset]:
    with engine.connect() as connection:
        return table.read(connection, group)


def test_rows_and_offsets_of_a_batch_change_together(engine: sa.Engine) -> None:
    mine = claim(engine, ME, A, B)
    assert store(engine, part(A, 0, 3, mine[A]), part(B, 0, 2, mine[B]))
    assert (stored(engine), stored(engine, "orders")) == ([0, 1, 2], [0, 1])
    assert rows(engine)[A] == StoredOffset(3, 1, ME.lineage, ME.member, 4, "until 3")
    assert rows(engine)[B].next_offset == 2


def test_a_replay_adds_nothing(engine: sa.Engine) -> None:
    mine = claim(engine, ME, A)
    batch = part(A, 0, 3, mine[A])
    assert (store(engine, batch), store(engine, batch)) == (True, False)
    assert stored(engine) == [0, 1, 2]


def test_an_exception_in_the_block_stores_nothing(engine: sa.Engine) -> None:
    mine = claim(engine, ME, A)

    def fail() -> None:
        with batch_transaction(engine, table, [GroupBatch("g", [part(A, 0, 3, mine[A])])]) as transaction:
            transaction.connection.execute(sa.insert(RECORDS), {"topic": "Orders", "at": 0})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (stored(engine), rows(engine)[A].next_offset) == ([], 0)


def test_a_zombie_is_fenced_by_the_claim_of_its_successor(engine: sa.Engine) -> None:
    mine = claim(engine, ME, A)
    successor = claim(engine, OTHER, A)
    with pytest.raises(FencedError, match="run other"):
        store(engine, part(A, 0, 3, mine[A]))
    assert store(engine, part(A, 0, 2, successor[A]))
    assert stored(engine) == [0, 1]


def test_a_commit_outside_a_batch_moves_only_what_its_owner_knows(engine: sa.Engine) -> None:
    mine = claim(engine, ME, A, B, start=None)
    with engine.begin() as connection:
        after = table.commit(connection, "g", mine, {A: CommittedOffset(5), B: CommittedOffset(0)})
    assert after[A] is not None
    store(engine, part(A, 5, 9, after[A]))
    with engine.begin() as connection:  # at a stop: the owner does not know yet that the batch is stored
        table.commit(connection, "g", {A: after[A]}, {A: CommittedOffset(5)})
    assert rows(engine)[A].next_offset == 9
    claim(engine, OTHER, A)
    with engine.begin() as connection:
        assert table.commit(connection, "g", {A: after[A]}, {A: CommittedOffset(5)}) == {A: None}


def test_a_reset_refuses_the_batch_in_flight(engine: sa.Engine) -> None:
    mine = claim(engine, ME, A)
    with engine.begin() as connection:
        table.reset(connection, "g", {A: 0})
    with pytest.raises(FencedError, match="an operator"):
        store(engine, part(A, 0, 3, mine[A]))


def test_groups_and_partitions_are_apart(engine: sa.Engine) -> None:
    mine = claim(engine, ME, A)
    others = claim_in(engine, "G", ME, [A], {A: CommittedOffset(7)})
    assert rows(engine).keys() == {A}
    store(engine, part(A, 7, 8, others[A]), group="G")
    assert (rows(engine)[A].next_offset, rows(engine, "G")[A].next_offset, mine[A].next_offset) == (0, 8, 0)
    with engine.begin() as connection:
        table.delete(connection, "G")
    assert (rows(engine, "G"), rows(engine).keys()) == ({}, {A})


def test_a_batch_of_two_groups_is_one_transaction(engine: sa.Engine) -> None:
    mine = claim(engine, ME, A)
    others = claim_in(engine, "h", ME, [A], {A: CommittedOffset(0)})
    batches = [GroupBatch("h", [part(A, 0, 2, others[A])]), GroupBatch("g", [part(A, 0, 3, mine[A])])]
    with batch_transaction(engine, table, batches) as transaction:
        assert not transaction.is_replay
    assert (rows(engine)[A].next_offset, rows(engine, "h")[A].next_offset) == (3, 2)
    with batch_transaction(engine, table, batches) as transaction:
        assert transaction.is_replay
    later = [GroupBatch("h", [part(A, 0, 2, others[A])]), GroupBatch("g", [part(A, 3, 4, mine[A])])]
    with (
        pytest.raises(OffsetStoreError, match="records of h are stored already"),
        batch_transaction(engine, table, later),
    ):
        pass
    assert rows(engine)[A].next_offset == 3


def test_two_members_create_the_table_at_the_same_time(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        table.table.drop(connection)
    together = threading.Barrier(4)

    def create() -> None:
        together.wait()
        with engine.begin() as connection:
            table.create(connection)

    with ThreadPoolExecutor(4) as pool:
        for made in [pool.submit(create) for _ in range(4)]:
            made.result()
    assert rows(engine) == {}


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"], indirect=True)
def test_more_partitions_than_one_statement_locks(engine: sa.Engine) -> None:
    partitions = [TopicPartition("many", number) for number in range(2500)]
    mine = claim(engine, ME, *partitions)
    assert mine.keys() == set(partitions)
    assert store(engine, *(part(tp, 0, 1, mine[tp]) for tp in partitions))
    assert {row.next_offset for row in rows(engine).values()} == {1}


@pytest.mark.parametrize("engine", ["sqlite of a user", "postgresql"], indirect=True)
def test_an_engine_that_commits_each_statement_is_refused(engine: sa.Engine) -> None:
    mine = claim(engine, ME, A)
    with pytest.raises(ConfigError, match="AUTOCOMMIT"):
        store(engine.execution_options(isolation_level="AUTOCOMMIT"), part(A, 0, 3, mine[A]))
    assert stored(engine) == []


def test_members_that_fight_for_partitions_store_each_record_once(engine: sa.Engine) -> None:
    """Each thread is a member that claims two partitions by chance, and stores batches until another claims them."""
    topics = [TopicPartition(f"t{number}", 0) for number in range(3)]
    refused = []
    together = threading.Barrier(4)

    def member(number: int) -> None:
        rng, by = random.Random(number), Claimant(f"checkpoint {number}", f"run {number}")
        for _ in range(12):
            together.wait(60)
            held = claim(engine, by, *rng.sample(topics, 2))
            together.wait(60)  # each has claimed two of three partitions, so some are fenced
            for _ in range(rng.randrange(3)):
                batch = [part(tp, row.next_offset or 0, (row.next_offset or 0) + 2, row) for tp, row in held.items()]
                try:
                    store(engine, *batch)
                except (FencedError, OffsetStoreError) as error:
                    refused.append(error)
                    break
                held = {tp: rows(engine)[tp] for tp in held}

    run(member, 4)
    assert refused
    for tp in topics:
        assert stored(engine, tp.topic) == list(range(rows(engine)[tp].next_offset or 0))


def run(target: Callable[[int], None], threads: int) -> None:
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(target, number) for number in range(threads)]:
            done.result()
