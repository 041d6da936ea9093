"""What becomes of a batch whose COMMIT has no answer, or whose transaction ends in the block."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from streamgroup.errors import OffsetStoreError
from streamgroup.group.offsets.table_rows import BatchPart, Claimant
from streamgroup.model import CommittedOffset, OffsetRange, TopicPartition
from streamgroup.sql.database import open_engine, url_of
from streamgroup.sql.offset_table import GroupBatch, OffsetTable, batch_transaction

A = TopicPartition("t", 0)
TABLE = OffsetTable()
LOST = psycopg.OperationalError("server closed the connection unexpectedly")


class Server:
    """The driver of a database whose answers to COMMIT may be lost."""

    def __init__(self, engine: sa.Engine) -> None:
        self.commit = engine.dialect.do_commit
        self.fates: list[str] = []
        """Of the next COMMITs: `answered`, `stored` (its answer is lost) or `lost` (it never arrives)."""

    def do_commit(self, connection: Any) -> None:
        fate = self.fates.pop(0) if self.fates else "answered"
        if fate != "lost":
            self.commit(connection)
        if fate != "answered":
            raise LOST


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sa.Engine]:
    made = open_engine(url_of(f"sqlite:///{tmp_path}/offsets.db"))
    # SQLAlchemy takes only the errors of this driver for errors of the database.
    monkeypatch.setattr(made.dialect.dbapi, "Error", (made.dialect.dbapi.Error, psycopg.Error))  # type: ignore[union-attr]
    with made.begin() as connection:
        TABLE.create(connection)
        TABLE.insert_missing(connection, "g", [A])
    with made.begin() as connection:
        TABLE.claim(connection, "g", Claimant("checkpoint", "run"), [A], {A: CommittedOffset(10)})
    yield made
    made.dispose()


@pytest.fixture
def server(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server(engine)
    monkeypatch.setattr(engine.dialect, "do_commit", made.do_commit)
    return made


def store(engine: sa.Engine, look_again_s: float = 60.0) -> bool:
    """Store [10, 20); return whether it was new."""
    part = BatchPart(OffsetRange(A, 10, 20), 1, CommittedOffset(20))
    with batch_transaction(engine, TABLE, [GroupBatch("g", [part])], look_again_s=look_again_s) as transaction:
        return not transaction.is_replay


def offset(engine: sa.Engine) -> int | None:
    with engine.connect() as connection:
        return TABLE.read(connection, "g")[A].next_offset


def test_a_batch_that_is_stored_is_done_although_the_answer_was_lost(
    engine: sa.Engine, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "streamgroup")
    server.fates = ["stored"]
    assert store(engine)
    assert offset(engine) == 20
    lost, found = (record.getMessage() for record in caplog.records)
    assert lost.startswith("the answer to the COMMIT of a batch in sqlite://")
    assert found.startswith("the batch is stored in sqlite://")


def test_a_batch_whose_commit_never_arrived_is_an_error_and_is_stored_by_its_replay(
    engine: sa.Engine, server: Server
) -> None:
    server.fates = ["lost"]
    with pytest.raises(OffsetStoreError, match="the connection was lost at COMMIT, and nothing is stored"):
        store(engine)
    assert offset(engine) == 10
    assert (store(engine), store(engine)) == (True, False)


def test_an_outcome_that_cannot_be_learned_is_unknown_until_the_replay(engine: sa.Engine, server: Server) -> None:
    server.fates = ["stored", "lost"]
    with pytest.raises(OffsetStoreError, match=r"^unknown whether the batch is stored"):
        store(engine, look_again_s=0.0)
    assert not store(engine)


def test_a_batch_without_records_has_no_outcome_to_learn(engine: sa.Engine, server: Server) -> None:
    server.fates = ["lost"]
    with pytest.raises(OffsetStoreError, match=r"^unknown"), batch_transaction(engine, TABLE, []):
        pass


def test_an_error_is_not_hidden_by_the_rollback_that_a_lost_connection_cannot_do(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rollback(_: Any) -> None:
        raise LOST

    def fail() -> None:
        part = BatchPart(OffsetRange(A, 10, 20), 1, CommittedOffset(20))
        with batch_transaction(engine, TABLE, [GroupBatch("g", [part])]):
            monkeypatch.setattr(engine.dialect, "do_rollback", rollback)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    monkeypatch.undo()
    assert offset(engine) == 10


def test_a_transaction_that_the_caller_ends_is_an_error(engine: sa.Engine) -> None:
    part = BatchPart(OffsetRange(A, 10, 20), 1, CommittedOffset(20))
    for end in (sa.Connection.commit, sa.Connection.rollback):
        with (
            pytest.raises(OffsetStoreError, match="the transaction has ended in the block"),
            batch_transaction(engine, TABLE, [GroupBatch("g", [part])]) as transaction,
        ):
            end(transaction.connection)
        assert offset(engine) == 10
