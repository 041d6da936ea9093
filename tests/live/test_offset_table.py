"""The offset table and the transaction of a batch in real databases."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from streamgroup.errors import ConfigError, FencedError, OffsetStoreError
from streamgroup.group.offsets.table_rows import BatchPart, Claimant, StoredOffset
from streamgroup.model import CommittedOffset, OffsetRange, TopicPartition
from streamgroup.sql import database, offset_table
from streamgroup.sql.database import is_lost, open_engine, reason_of, url_of
from streamgroup.sql.offset_table import GroupBatch, OffsetTable, batch_transaction
from streamgroup.testing import Authority, Direction, End, Fault, MariaDbServer, Proxy, Which, write_pem

pytestmark = pytest.mark.live

A, B = TopicPartition("Orders", 0), TopicPartition("orders", 0)
ME, OTHER = Claimant("checkpoint", "run"), Claimant("another", "other")
NAME = sa.String(249).with_variant(mysql.VARCHAR(249, collation="utf8mb4_bin"), "mariadb", "mysql")
RECORDS = sa.Table("records", sa.MetaData(), sa.Column("topic", NAME), sa.Column("at", sa.BigInteger))


@pytest.fixture(params=["sqlite", "sqlite of a user", "postgresql", "mariadb", "mariadb of a user"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    """The engine of streamgroup, or one as a user makes it."""
    kind = request.param
    if "sqlite" in kind:
        url = url_of(f"sqlite:///{tmp_path}/a b.db")
    else:
        server = "streamgroup_mariadb" if "mariadb" in kind else "streamgroup_postgres"
        url = url_of(request.getfixturevalue(server).url)
    made = made_by_a_user(url) if "user" in kind else open_engine(url)
    with made.begin() as connection:
        table.table.drop(connection, checkfirst=True)
        RECORDS.drop(connection, checkfirst=True)
        RECORDS.create(connection)
    with open_engine(url).begin() as connection:
        table.create(connection)
    yield made
    made.dispose()


def made_by_a_user(url: sa.URL) -> sa.Engine:
    """Return an engine as SQLAlchemy's pages make it: MariaDB's has the dialect of MySQL, and REPEATABLE READ."""
    if url.get_backend_name() == "sqlite":
        return sa.create_engine(url, connect_args={"timeout": 60})
    return sa.create_engine(url.set(drivername="mysql+pymysql"))


servers = pytest.mark.parametrize("engine", ["postgresql", "mariadb", "mariadb of a user"], indirect=True)
mariadb = pytest.mark.parametrize("engine", ["mariadb", "mariadb of a user"], indirect=True)
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


def store(
    engine: sa.Engine, *parts: BatchPart, group: str = "g", before: Callable[[sa.Connection], None] = lambda _: None
) -> bool:
    """Store a batch with one row for each record, after `before`; return whether it was new."""
    with batch_transaction(engine, table, [GroupBatch(group, parts)]) as transaction:
        before(transaction.connection)
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
    ours = open_engine(engine.url.set(drivername="mariadb+pymysql")) if engine.name == "mysql" else engine

    def create() -> None:
        together.wait()
        with ours.begin() as connection:
            table.create(connection)

    with ThreadPoolExecutor(4) as pool:
        for made in [pool.submit(create) for _ in range(4)]:
            made.result()
    assert rows(engine) == {}


@pytest.mark.parametrize("engine", ["sqlite", "postgresql", "mariadb"], indirect=True)
def test_more_partitions_than_one_statement_locks(engine: sa.Engine) -> None:
    partitions = [TopicPartition("many", number) for number in range(2500)]
    mine = claim(engine, ME, *partitions)
    assert mine.keys() == set(partitions)
    assert store(engine, *(part(tp, 0, 1, mine[tp]) for tp in partitions))
    assert {row.next_offset for row in rows(engine).values()} == {1}


def test_groups_whose_ids_differ_in_case_accents_or_a_blank_are_apart(engine: sa.Engine) -> None:
    groups = ["a", "A", "a ", "\N{LATIN SMALL LETTER A WITH ACUTE}", "a" * 255, "\N{GRINNING FACE}" * 255]
    for offset, group in enumerate(groups):
        claim_in(engine, group, ME, [A, B], {A: CommittedOffset(offset)})
    assert [rows(engine, group)[A].next_offset for group in groups] == list(range(len(groups)))


@servers
def test_a_batch_locks_its_own_rows_only(engine: sa.Engine) -> None:
    """Also those that the database could read by an index of the whole group."""
    partitions = [TopicPartition("t", number) for number in range(10)]
    mine = claim(engine, ME, *partitions)
    others = GroupBatch("g", [part(tp, 0, 1, mine[tp]) for tp in partitions[1:]])
    with ThreadPoolExecutor(1) as pool, batch_transaction(engine, table, [others]):
        assert pool.submit(store, engine, part(partitions[0], 0, 1, mine[partitions[0]])).result(20)


def test_a_database_without_the_offset_table_is_not_that_of_the_source(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        table.table.drop(connection)
    wrong = r"it has no table streamgroup_offsets\. Nothing was stored\. Write into the database that the option"
    with pytest.raises(OffsetStoreError, match=wrong):
        store(engine, BatchPart(OffsetRange(A, 0, 3), 1, CommittedOffset(3)))
    assert stored(engine) == []


@pytest.mark.parametrize("engine", ["sqlite of a user", "postgresql", "mariadb", "mariadb of a user"], indirect=True)
def test_an_engine_that_commits_each_statement_is_refused(engine: sa.Engine) -> None:
    mine = claim(engine, ME, A)
    with pytest.raises(ConfigError, match="AUTOCOMMIT"):
        store(engine.execution_options(isolation_level="AUTOCOMMIT"), part(A, 0, 3, mine[A]))
    assert stored(engine) == []


@pytest.mark.parametrize("how", ["commit()", "rollback()", "COMMIT"])
def test_a_transaction_that_ends_in_the_block_is_an_error_and_the_offsets_stay(engine: sa.Engine, how: str) -> None:
    require_refusal(engine, how)


@mariadb
def test_a_truncate_ends_the_transaction_in_mariadb(engine: sa.Engine) -> None:
    require_refusal(engine, "TRUNCATE records")


def require_refusal(engine: sa.Engine, how: str) -> None:
    """Require an error, and unchanged offsets, if the transaction ends in the block in this way."""
    mine = claim(engine, ME, A)

    def end(connection: sa.Connection) -> None:
        if how.endswith("()"):
            getattr(connection, how[:-2])()
        else:
            connection.exec_driver_sql(how)

    with pytest.raises(OffsetStoreError, match="the transaction has ended in the block"):
        store(engine, part(A, 0, 3, mine[A]), before=end)
    assert rows(engine)[A].next_offset == 0
    if (engine.dialect.name, how) != ("sqlite", "COMMIT"):  # SQLite may commit each row from then on
        assert stored(engine) == []


@mariadb
def test_a_deadlock_that_the_block_hides_stores_nothing(engine: sa.Engine) -> None:
    """MariaDB rolls the whole transaction back, and takes the next statement for the first of another one."""
    mine = claim(engine, ME, A)
    number = sa.Column("id", sa.Integer, primary_key=True, autoincrement=False)
    some = sa.Table("some", sa.MetaData(), number, sa.Column("n", sa.Integer))
    with engine.begin() as connection:
        some.drop(connection, checkfirst=True)
        some.create(connection)
        connection.execute(sa.insert(some), [{"id": one, "n": 0} for one in range(50)])
    has_more = threading.Event()

    def other() -> None:
        with engine.begin() as connection:
            connection.execute(sa.update(some).where(some.c.id > 0).values(n=1))  # so that this one is not given up
            has_more.set()
            connection.execute(sa.update(some).where(some.c.id == 0).values(n=1))

    def collide(connection: sa.Connection) -> None:
        with ThreadPoolExecutor(1) as pool:
            connection.execute(sa.update(some).where(some.c.id == 0).values(n=2))
            done = pool.submit(other)
            assert has_more.wait(20)
            with pytest.raises(sa.exc.OperationalError, match="Deadlock"):
                connection.execute(sa.update(some).where(some.c.id == 1).values(n=2))
            done.result(20)

    with pytest.raises(OffsetStoreError, match="the transaction has ended in the block"):
        store(engine, part(A, 0, 3, mine[A]), before=collide)
    assert (stored(engine), rows(engine)[A].next_offset) == ([], 0)


@mariadb
@pytest.mark.parametrize("change", ["ENGINE=Aria", "CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"])
def test_a_table_in_mariadb_that_cannot_keep_offsets_is_refused(engine: sa.Engine, change: str) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER TABLE streamgroup_offsets {change}")
    with engine.begin() as connection, pytest.raises(OffsetStoreError, match=r"Run: (ALTER TABLE .*)") as caught:
        table.create(connection)
    with engine.begin() as connection:
        connection.exec_driver_sql(str(caught.value).partition("Run: ")[2])
        table.create(connection)


@mariadb
def test_the_time_of_a_row_has_microseconds(engine: sa.Engine) -> None:
    columns = {column["name"]: column["type"] for column in sa.inspect(engine).get_columns("streamgroup_offsets")}
    assert columns["updated_at"].fsp == 6


@servers
def test_an_answer_to_commit_that_the_network_loses_is_looked_for(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = claim(engine, ME, A)
    with Proxy((str(engine.url.host), engine.url.port or 0)) as proxy:
        through = sa.create_engine(engine.url.set(port=proxy.port))
        commit = through.dialect.do_commit

        def lose(connection: Any) -> None:
            monkeypatch.setattr(through.dialect, "do_commit", commit)
            proxy.set(Fault(end=End.FIN), Direction.TO_CLIENT, Which.OPEN)
            commit(connection)

        monkeypatch.setattr(through.dialect, "do_commit", lose)
        assert store(through, part(A, 0, 3, mine[A]))
        through.dispose()
    assert (stored(engine), rows(engine)[A].next_offset) == ([0, 1, 2], 3)
    assert not store(engine, part(A, 0, 3, mine[A]))


@servers
def test_rows_that_a_lost_session_holds_are_asked_for_again_and_again(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_table, "_LOCK_TIMEOUT_MS", 200)
    monkeypatch.setattr(offset_table, "_PAUSE_S", 0.01)
    mine = claim(engine, ME, A)
    of_lost_session = engine.connect()

    def lose(connection: Any) -> None:
        connection.rollback()
        table.lock(of_lost_session, "g", [A])
        raise engine.dialect.loaded_dbapi.OperationalError(2013, "Lost connection")

    began = time.monotonic()
    with monkeypatch.context() as patched:
        patched.setattr(engine.dialect, "do_commit", lose)
        batch = GroupBatch("g", [part(A, 0, 3, mine[A])])
        with (
            pytest.raises(OffsetStoreError, match=r"^unknown whether .*(timeout|max_statement_time)"),
            batch_transaction(engine, table, [batch], look_again_s=0.5),
        ):
            pass
    assert time.monotonic() - began < 25, "an attempt has waited for the limit of other statements"
    of_lost_session.close()
    with ExitStack() as stack:  # no connection of the pool has the short limit
        for connection in [stack.enter_context(engine.begin()) for _ in range(5)]:
            if engine.name != "postgresql":
                limit = connection.exec_driver_sql("SELECT @@max_statement_time").scalar()
                assert limit == (30 if engine.name == "mariadb" else 0)
    assert store(engine, part(A, 0, 3, mine[A]))


def test_a_silent_or_absent_mariadb_is_lost_and_a_wrong_password_is_final(
    streamgroup_mariadb: MariaDbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_STATEMENT_TIMEOUT_MS", 500)
    monkeypatch.setattr(database, "_CONNECT_TIMEOUT_S", 1)
    url = url_of(streamgroup_mariadb.url)
    with Proxy((str(url.host), url.port or 0)) as proxy:
        engine = open_engine(url.set(port=proxy.port))
        with engine.connect() as connection:
            assert failure(connection, "SELECT sleep(60)") == (
                True,
                "Query execution was interrupted (max_statement_time exceeded) (error 1969)",
            )
            proxy.set(Fault(end=End.STALL), Direction.TO_CLIENT)
            assert failure(connection, "SELECT 1") == (
                True,
                "Lost connection to MySQL server during query (timed out) (error 2013)",
            )
        engine.dispose()
    assert failure(engine, "SELECT 1")[0]
    lost, reason = failure(open_engine(url.set(password="wrong")), "SELECT 1")
    assert (lost, reason[:22]) == (False, "Access denied for user")
    lost, reason = failure(open_engine(url.set(database="another")), "SELECT 1")
    assert (lost, reason[-12:]) == (False, "(error 1044)")
    lost, reason = failure(open_engine(url), "SELECT 1 FROM secret WHERE id = = 'secret'")
    assert (lost, "secret" in reason, reason[-12:]) == (False, False, "(error 1064)")


def test_a_mariadb_that_requires_tls_is_checked_against_an_authority(tmp_path: Path) -> None:
    authority = Authority.create()
    (tmp_path / "ca.pem").write_bytes(authority.certificate_pem())
    (tmp_path / "other.pem").write_bytes(Authority.create().certificate_pem())
    identity = str(write_pem(tmp_path / "server.pem", authority.issue()))
    with MariaDbServer(
        settings={"ssl-cert": identity, "ssl-key": identity, "require-secure-transport": "ON"}
    ) as server:
        engine = open_engine(url_of(f"{server.url}?ssl_ca={tmp_path}/ca.pem"))
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SHOW STATUS LIKE 'Ssl_version'").one()[1].startswith("TLS")
        engine.dispose()
        lost, reason = failure(open_engine(url_of(f"{server.url}?ssl_ca={tmp_path}/other.pem")), "SELECT 1")
        assert (lost, "certificate verify failed" in reason) == (False, True)


def failure(place: sa.Engine | sa.Connection, statement: str) -> tuple[bool, str]:
    """Run a statement that fails; return whether the database is lost, and the reason."""
    try:
        with nullcontext(place) if isinstance(place, sa.Connection) else place.connect() as connection:
            connection.exec_driver_sql(statement)
    except sa.exc.DBAPIError as error:
        return is_lost(error), reason_of(error)
    raise AssertionError(f"no error of {statement}")


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
