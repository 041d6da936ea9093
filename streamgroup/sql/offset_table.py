"""The offset table in a database, by SQLAlchemy: what `table_rows` decides, on rows that the transaction has locked.

`batch_transaction` is the transaction of a batch: its rows and the ends of its ranges become visible together, or not
at all. The table is `streamgroup_offsets`, with one row for each partition of a group. Each method runs in the
transaction of the connection that it is given. Rows are locked in the order of their partitions, so two transactions
never wait for each other. READ COMMITTED is enough: a decision rests on locked rows only.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from streamgroup.errors import ConfigError, FencedError, OffsetStoreError
from streamgroup.frozen import frozen
from streamgroup.group.offsets import table_rows
from streamgroup.group.offsets.table_rows import BatchPart, Claimant, Judgement, StoredOffset
from streamgroup.model import CommittedOffset, TopicPartition
from streamgroup.sql.database import (
    MARIADB_COLLATION,
    is_lost,
    is_mariadb,
    mariadb_code,
    reason_of,
    shown,
    translated,
    wait_to_connect,
)

TABLE = "streamgroup_offsets"
LONGEST_GROUP = 255
"""Characters of a group id. Kafka takes longer ones, and databases limit the size of a key."""
_LONGEST_TOPIC = 249
_PARTITIONS_AT_ONCE = 500
"""Rows that one statement locks. SQLite takes 32 766 parameters; MariaDB may not look up 1000 rows by their key."""
_KEYS_ONLY = "FORCE INDEX (PRIMARY)"
"""InnoDB locks each row that it reads. With this hint it reads only the rows of the given partitions."""
_TIME = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mariadb", "mysql")
_FIELDS = tuple(field.name for field in fields(StoredOffset))

Rows = Mapping[TopicPartition, StoredOffset]


class OffsetTable:
    """The offset table of one database. The methods raise SQLAlchemy's errors."""

    def __init__(self) -> None:
        self.table = sa.Table(
            TABLE,
            sa.MetaData(),
            sa.Column("group_id", sa.String(LONGEST_GROUP), primary_key=True),
            sa.Column("topic", sa.String(_LONGEST_TOPIC), primary_key=True),
            sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("next_offset", sa.BigInteger),
            sa.Column("claim", sa.BigInteger, nullable=False),
            sa.Column("lineage", sa.String(64), nullable=False),
            sa.Column("member", sa.String(64), nullable=False),
            sa.Column("leader_epoch", sa.Integer, nullable=False),
            sa.Column("metadata", sa.Text, nullable=False),
            sa.Column("updated_at", _TIME, nullable=False),
            mariadb_engine="InnoDB",
            mariadb_row_format="DYNAMIC",  # for keys of more than 767 bytes
            mariadb_charset="utf8mb4",
            mariadb_collate=MARIADB_COLLATION,
        )

    def create(self, connection: sa.Connection) -> None:
        """Create the table if the database lacks it. Two members may do so at the same time.

        Run it in a separate transaction, because MariaDB commits all earlier statements. Raises OffsetStoreError if
        a table that exists in MariaDB has no transactions, or a collation that takes different groups for one.
        """
        if is_mariadb(connection):
            if not sa.inspect(connection).has_table(TABLE):
                connection.execute(sa.schema.CreateTable(self.table, if_not_exists=True))
            _require_options(connection)
            return
        if sa.inspect(connection).has_table(TABLE):
            return
        try:
            with connection.begin_nested():
                self.table.create(connection)
        except (sa.exc.IntegrityError, sa.exc.ProgrammingError, sa.exc.OperationalError):
            if not sa.inspect(connection).has_table(TABLE):
                raise

    def read(self, connection: sa.Connection, group: str) -> dict[TopicPartition, StoredOffset]:
        """Return all rows of the group, without a lock."""
        return self._rows(connection, self._select(group))

    def insert_missing(self, connection: sa.Connection, group: str, partitions: Collection[TopicPartition]) -> None:
        """Insert rows for partitions that have none. Call it in a separate transaction, before one that locks rows.

        A transaction that inserts a row waits for another one that inserts the same. If it had locked rows before, the
        two could wait for each other.
        """
        if len(group) > LONGEST_GROUP:
            raise ConfigError(
                f"cannot store offsets of a group with an id of {len(group)} characters: the offset table takes "
                f"{LONGEST_GROUP}. Give the group a shorter id"
            )
        missing = sorted(set(partitions) - self.read(connection, group).keys())
        if is_mariadb(connection) and missing:  # a deadlock ends the savepoint, and the error of that would hide it
            statement = mysql.insert(self.table).on_duplicate_key_update(claim=self.table.c.claim)
            connection.execute(statement, [self._values(group, tp, StoredOffset()) for tp in missing])
            return
        for tp in missing:
            with suppress(sa.exc.IntegrityError), connection.begin_nested():  # another member has inserted it
                connection.execute(sa.insert(self.table), self._values(group, tp, StoredOffset()))

    def lock(
        self, connection: sa.Connection, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, StoredOffset]:
        """Lock the rows of these partitions until the transaction ends, and return them.

        A partition without a row has one without a claim, which is not locked.
        """
        return {**dict.fromkeys(partitions, StoredOffset()), **self._locked(connection, group, partitions)}

    def claim(
        self,
        connection: sa.Connection,
        group: str,
        claimant: Claimant,
        partitions: Collection[TopicPartition],
        found: Mapping[TopicPartition, CommittedOffset],
    ) -> dict[TopicPartition, StoredOffset]:
        """Claim partitions that `claimant` has gained; return their rows. `found` are the group's commits in Kafka.

        The partitions have rows.
        """
        rows = self.lock(connection, group, partitions)
        mine = {tp: table_rows.after_claim(row, claimant, found.get(tp)) for tp, row in rows.items()}
        self._update(connection, group, mine)
        return mine

    def judge(self, connection: sa.Connection, group: str, parts: Collection[BatchPart]) -> tuple[Judgement, Rows]:
        """Lock the rows of a batch; return whether its records must be added, and the rows.

        Raises as `table_rows.judge`.
        """
        rows = self.lock(connection, group, [part.range.partition for part in parts])
        return table_rows.judge(group, parts, rows), rows

    def add(self, connection: sa.Connection, group: str, parts: Iterable[BatchPart], rows: Rows) -> None:
        """Store the ends of a batch's ranges, which the transaction has judged to be new. `judge` returned `rows`."""
        moved = [part for part in parts if len(part.range)]
        self._update(
            connection,
            group,
            {part.range.partition: table_rows.after_batch(rows[part.range.partition], part) for part in moved},
        )

    def commit(
        self,
        connection: sa.Connection,
        group: str,
        claims: Mapping[TopicPartition, StoredOffset],
        offsets: Mapping[TopicPartition, CommittedOffset],
    ) -> dict[TopicPartition, StoredOffset | None]:
        """Commit offsets outside a batch, as `table_rows.after_commit`. Returns the rows, None for fenced partitions.

        `claims` has the owner's rows of these partitions, as it knows them.
        """
        rows = self.lock(connection, group, offsets)
        after = {
            tp: table_rows.after_commit(rows[tp], claims[tp].claim, claims[tp].next_offset, offset)
            for tp, offset in offsets.items()
        }
        self._update(connection, group, {tp: row for tp, row in after.items() if row is not None and row != rows[tp]})
        return after

    def reset(self, connection: sa.Connection, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the offsets of rows as an operator does. A batch that was planned before is refused."""
        rows = self.lock(connection, group, offsets)
        self._update(
            connection,
            group,
            {tp: replace(StoredOffset(next_offset=offset), claim=rows[tp].claim + 1) for tp, offset in offsets.items()},
        )

    def delete(self, connection: sa.Connection, group: str) -> None:
        """Delete the rows of the group."""
        connection.execute(sa.delete(self.table).where(self.table.c.group_id == group))

    def _select(self, group: str) -> sa.Select[Any]:
        columns = self.table.c
        return sa.select(self.table).where(columns.group_id == group).order_by(columns.topic, columns.partition)

    def _locked(
        self, connection: sa.Connection, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, StoredOffset]:
        key = sa.tuple_(self.table.c.topic, self.table.c.partition)
        if connection.dialect.name == "sqlite":  # it has no FOR UPDATE: the first write takes the lock of the database
            connection.execute(
                sa.update(self.table).where(self.table.c.group_id == group).values(claim=self.table.c.claim)
            )
        wanted, rows = sorted(set(partitions)), dict[TopicPartition, StoredOffset]()
        for first in range(0, len(wanted), _PARTITIONS_AT_ONCE):
            some = [tuple(tp) for tp in wanted[first : first + _PARTITIONS_AT_ONCE]]
            select = self._select(group).where(key.in_(some)).with_for_update()
            for name in ("mariadb", "mysql"):
                select = select.with_hint(self.table, _KEYS_ONLY, name)
            rows |= self._rows(connection, select)
        return rows

    def _rows(self, connection: sa.Connection, select: sa.Select[Any]) -> dict[TopicPartition, StoredOffset]:
        return {
            TopicPartition(row["topic"], row["partition"]): StoredOffset(**{name: row[name] for name in _FIELDS})
            for row in connection.execute(select).mappings()
        }

    def _values(self, group: str, tp: TopicPartition, row: StoredOffset) -> dict[str, Any]:
        return {
            "group_id": group,
            "topic": tp.topic,
            "partition": tp.partition,
            "updated_at": datetime.now(UTC),
            **asdict(row),
        }

    def _update(self, connection: sa.Connection, group: str, rows: Mapping[TopicPartition, StoredOffset]) -> None:
        if not rows:
            return
        columns = self.table.c
        statement = (
            sa.update(self.table)
            .where(
                columns.group_id == sa.bindparam("of_group"),
                columns.topic == sa.bindparam("of_topic"),
                columns.partition == sa.bindparam("of_partition"),
            )
            .values({name: sa.bindparam(name) for name in (*_FIELDS, "updated_at")})
        )
        connection.execute(
            statement,
            [
                {
                    "of_group": group,
                    "of_topic": tp.topic,
                    "of_partition": tp.partition,
                    "updated_at": datetime.now(UTC),
                    **asdict(row),
                }
                for tp, row in rows.items()
            ],
        )


def _require_options(connection: sa.Connection) -> None:
    """Raise OffsetStoreError if the table in MariaDB is not in InnoDB, or has another collation."""
    options = {name.partition("_")[2]: value for name, value in sa.inspect(connection).get_table_options(TABLE).items()}
    engine, collation = options.get("engine"), options.get("collate")
    if (engine, collation) != ("InnoDB", MARIADB_COLLATION):
        raise OffsetStoreError(
            f"cannot store offsets in MariaDB: the table {TABLE} has the engine {engine} and the collation {collation}."
            f" Run: ALTER TABLE {TABLE} ENGINE=InnoDB, CONVERT TO CHARACTER SET utf8mb4 COLLATE {MARIADB_COLLATION}"
        )


log = logging.getLogger("streamgroup")

LOOK_AGAIN_S = 300.0
"""How long the outcome of a transaction is looked for after the answer to its COMMIT was lost."""
_PAUSE_S = 1.0
_LOCK_TIMEOUT_MS = 5_000


@frozen
class GroupBatch:
    """The part of a batch that one source has read for its group."""

    group: str
    parts: Sequence[BatchPart]

    @property
    def first(self) -> TopicPartition:
        """Its first partition with records."""
        return min(part.range.partition for part in self.moving)

    @property
    def moving(self) -> list[BatchPart]:
        """The parts with records."""
        return [part for part in self.parts if len(part.range)]


@frozen
class Transaction:
    """The open transaction of a batch: whatever is written by `connection` is stored with the offsets.

    If `is_replay`, an earlier transaction has stored the batch: write nothing.
    """

    connection: sa.Connection
    is_replay: bool


@contextmanager
def batch_transaction(
    engine: sa.Engine, table: OffsetTable, batches: Collection[GroupBatch], *, look_again_s: float = LOOK_AGAIN_S
) -> Iterator[Transaction]:
    """Open the transaction that stores a batch of one or more groups. It commits at the end of the `with` block.

    An exception in the block rolls it back. Raises FencedError if another member has claimed a partition, and
    OffsetStoreError if the offsets of the table are not those of the batch; in both cases nothing is stored. If the
    answer to COMMIT is lost, the table is read until the outcome is known. If it cannot be read for `look_again_s`
    seconds, OffsetStoreError says so; a replay of the batch finds out.
    """
    # Two members of one group lock their rows in the order of their partitions.
    ordered = sorted((batch for batch in batches if batch.moving), key=lambda batch: (batch.group, batch.first))
    with ExitStack() as stack:
        with _statements(engine):
            connection = stack.enter_context(wait_to_connect(engine))
            transaction = connection.begin()
            stack.callback(_close, transaction)
            try:
                judgement, rows = _judge(connection, table, ordered)
            except sa.exc.DBAPIError as error:
                if not _lacks_table(error):
                    raise
                raise OffsetStoreError(
                    f"cannot store the batch in {shown(engine.url)}: it has no table {TABLE}. Nothing was stored. "
                    "Write into the database that the option offsets.store of the source names"
                ) from None
            if ordered and _commits_statements(connection):
                raise ConfigError(
                    f"cannot store the batch in {shown(engine.url)}: the engine's isolation level is AUTOCOMMIT, so "
                    "rows and offsets would not change together. Create the engine without it"
                )
            connection.exec_driver_sql(f"SAVEPOINT {_GUARD}")
        yield Transaction(connection, judgement is Judgement.REPLAY)
        with _statements(engine):
            _require_guard(connection)
            if judgement is Judgement.NEW:
                for batch in ordered:
                    table.add(connection, batch.group, batch.moving, rows[batch.group])
            try:
                transaction.commit()
            except sa.exc.DBAPIError as error:
                if not is_lost(error):
                    raise
                lost = error
            else:
                return
    log.warning(
        "the answer to the COMMIT of a batch in %s was lost: %s. Looking whether it is stored",
        shown(engine.url),
        reason_of(lost),
    )
    _find_out(engine, table, ordered, lost, time.monotonic() + look_again_s)


def _close(transaction: sa.RootTransaction) -> None:
    """Roll back, unless the transaction has ended. A lost connection cannot: the error that ends the block says why."""
    with suppress(sa.exc.SQLAlchemyError):
        transaction.close()


def _statements(engine: sa.Engine) -> AbstractContextManager[None]:
    """Translate errors of our own statements. The caller handles errors of the statements in the `with` block."""
    return translated(
        "store the batch",
        engine.url,
        "Nothing was stored. Correct the cause and start the query again: it repeats the batch",
    )


_GUARD = "streamgroup_batch"
"""A savepoint after the locks of a batch. It is gone once the transaction has ended."""


def _require_guard(connection: sa.Connection) -> None:
    """Raise OffsetStoreError if the transaction has ended since its rows were locked.

    The caller may have committed it. In MariaDB a deadlock rolls it back, and CREATE TABLE commits it. Later statements
    belong to another transaction, which has not locked the offsets: rows would be lost or stored twice.
    """
    try:
        connection.exec_driver_sql(f"RELEASE SAVEPOINT {_GUARD}")
    except sa.exc.InvalidRequestError:
        pass  # Connection.commit or rollback was called, and SQLAlchemy accepts no statement
    except sa.exc.DBAPIError as error:
        if not _lacks_savepoint(error):
            raise
    else:
        return
    raise OffsetStoreError(
        f"cannot store the batch in {shown(connection.engine.url)}: the transaction has ended in the block. A "
        "statement commits or rolls back, in MariaDB also as CREATE TABLE and TRUNCATE do, or after a deadlock. The "
        "offsets are not stored, but rows may be. Leave COMMIT to the transaction, create tables before it, and do not "
        "catch errors of its statements"
    ) from None


def _lacks_table(error: sa.exc.DBAPIError) -> bool:
    state = getattr(error.orig, "sqlstate", None)
    is_sqlites = isinstance(error.orig, sqlite3.Error) and "no such table" in str(error.orig)
    return mariadb_code(error) == _NO_TABLE or state == _UNDEFINED_TABLE or is_sqlites


def _lacks_savepoint(error: sa.exc.DBAPIError) -> bool:
    state = getattr(error.orig, "sqlstate", None)
    is_sqlites = isinstance(error.orig, sqlite3.Error) and "no such savepoint" in str(error.orig)
    return mariadb_code(error) == _NO_SAVEPOINT or state in _OUTSIDE or is_sqlites


_NO_SAVEPOINT = 1305
_NO_TABLE = 1146
_UNDEFINED_TABLE = "42P01"
_OUTSIDE = ("3B001", "25P01")
"""PostgreSQL's codes for a savepoint that does not exist, and for a statement that needs a transaction."""


def _commits_statements(connection: sa.Connection) -> bool:
    """Return whether each statement is committed at once. SQLAlchemy shows the server's isolation level even then."""
    driver: Any = connection.connection.dbapi_connection
    if connection.dialect.name == "sqlite":
        return not driver.in_transaction
    return connection.dialect.detect_autocommit_setting(driver)


def _judge(
    connection: sa.Connection, table: OffsetTable, batches: Sequence[GroupBatch]
) -> tuple[Judgement, dict[str, Rows]]:
    """Return whether the batch is new to all of its groups or a replay to all of them, and its rows by group."""
    judged, rows = list[tuple[str, Judgement]](), dict[str, Rows]()
    for batch in batches:
        judgement, locked = table.judge(connection, batch.group, batch.moving)
        judged.append((batch.group, judgement))
        rows[batch.group] = {**rows.get(batch.group, {}), **locked}
    found = {judgement for _, judgement in judged} or {Judgement.NEW}
    if len(found) > 1:
        stored = ", ".join(group for group, one in judged if one is Judgement.REPLAY)
        groups = ", ".join(group for group, _ in judged)
        raise OffsetStoreError(
            f"cannot store the batch of groups {groups}: the records of {stored} are stored already, the records of "
            "the others are not. Nothing was stored. Another query stores one of these groups: give each query its own "
            "groups"
        )
    return found.pop(), rows


def _find_out(
    engine: sa.Engine, table: OffsetTable, batches: Sequence[GroupBatch], lost: sa.exc.DBAPIError, deadline: float
) -> None:
    """Return if the transaction has taken effect. Raises OffsetStoreError if it has not, or if that stays unknown.

    The rows are locked to be read, so a COMMIT that the server is still carrying out is awaited.
    """
    reason = reason_of(lost)
    while batches:
        try:
            with engine.connect() as connection, connection.begin():
                if connection.dialect.name == "postgresql":  # the lost session may hold the locks for hours
                    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_LOCK_TIMEOUT_MS}")
                if is_mariadb(connection):
                    connection.detach()  # the setting would stay with a connection of the pool
                    connection.exec_driver_sql(f"SET SESSION max_statement_time = {_LOCK_TIMEOUT_MS / 1000}")
                is_stored = _judge(connection, table, batches)[0] is Judgement.REPLAY
        except (FencedError, OffsetStoreError) as error:
            reason = str(error)
            break
        except sa.exc.SQLAlchemyError as error:
            if not is_lost(error):
                raise
            reason = reason_of(error)
            if time.monotonic() + _PAUSE_S >= deadline:
                break
            time.sleep(_PAUSE_S)
            continue
        if is_stored:
            log.warning("the batch is stored in %s", shown(engine.url))
            return
        raise OffsetStoreError(
            f"cannot store the batch in {shown(engine.url)}: the connection was lost at COMMIT, and nothing is stored: "
            f"{reason_of(lost)}. Start the query again: it repeats the batch"
        ) from None
    raise OffsetStoreError(
        f"unknown whether the batch is stored in {shown(engine.url)}: the connection was lost at COMMIT: {reason}. "
        "Start the query again: it finds out, and repeats the batch only if it is not stored"
    ) from None
