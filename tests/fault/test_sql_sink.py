"""Faults under `streamgroup.sql_sink`: no record is lost and none is stored twice, whatever ends the query.

Each repetition uses a new topic, group and table. Tasks write the rows of partition 0 to staging tables and return the
rows of partition 1 to the driver. Spark's JDBC sink is struck at the same points, for contrast.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest
import sqlalchemy as sa

from streamgroup.sql.database import open_engine, url_of
from streamgroup.sql.offset_table import OffsetTable
from streamgroup.sql.staging import prefix_of, staging_tables
from streamgroup.testing import KafkaServer, PostgresServer
from streamgroup.testing.flow import End, Fault
from streamgroup.testing.jars import resolve
from streamgroup.testing.ports import LOOPBACK
from streamgroup.testing.proxy import Direction, Proxy, Which
from tests.bring_jars import JDBC
from tests.conftest import MakeTopic
from tests.fault.applications import Application, Group, Job
from tests.fault.pool import Pool
from tests.hooks.named_points import (
    ADDED,
    BEGUN,
    COMMITTED,
    COMMITTING,
    COORDINATOR,
    DRIVER,
    FAIL,
    HOLD,
    JVM,
    LOADED,
    LOADING,
    PAUSE,
    READ,
    SELF,
    STAGED,
    STORED,
    TOGETHER,
)
from tests.spark.standalone import standalone_cluster
from tests.spark.support import Load, committed
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(3600)]

RECORDS, BATCH = 3000, 1000
SESSION_S = 8
"""Longer than a machine is busy that starts an application beside others."""
LONGEST_S = 180.0
TABLE = OffsetTable()


@dataclass
class Trial:
    """One repetition: a topic, a group and a table; what is there must be every record once."""

    load: Load
    name: str
    home: Path
    url: sa.URL
    engine: sa.Engine
    format: str = "sql_sink"
    through: int = 0
    """The port by which the sink reaches the database, if it is not the database's."""

    def job(self, name: str = "one", batch: int = BATCH, **options: str) -> Job:
        """Make the job of a member; `__` in an option's name is a dot."""
        place = self.url
        plain = sa.URL.create("postgresql", host=place.host, port=place.port, database=place.database)
        access = {"user": str(self.url.username), "password": str(self.url.password)}
        given = {"kafka.session.timeout.ms": str(1000 * SESSION_S)}
        given |= {option.replace("__", "."): value for option, value in options.items()}
        if self.format == "sql_sink":
            given |= {f"offsets.store.{name}": value for name, value in access.items()}
            given["offsets.store"] = plain.render_as_string()
        sink = plain.set(port=self.through or plain.port).render_as_string()
        table = {"format": self.format, "url": sink, "dbtable": self.name, **access}
        return Job(f"{self.name}-{name}", self.load, self.name, self.home, batch, given, table)

    def count(self) -> int:
        with self.engine.connect() as connection:
            return int(connection.execute(sa.text(f"SELECT count(*) FROM {self.name}")).scalar_one())

    def has(self, count: int) -> bool:
        """Whether there are `count` records or more."""
        return self.count() >= count

    def await_count(self, application: Application, job: Job, count: int, timeout: float = LONGEST_S) -> None:
        """Wait until a job of `application` has stored records, so that there are `count`."""
        application.await_sunk(job, lambda: self.has(count), f"{count} records", timeout)

    def finish(self, application: Application, job: Job, stragglers: int = 0) -> Outcome:
        """Wait until all is stored and committed, stop the query, and count.

        So many copies of tasks of the last batch may have made a staging table after the batch was stored.
        """
        ends = {number: len(self.load.sent[number :: self.load.partitions]) for number in range(self.load.partitions)}
        self.await_count(application, job, len(self.load.sent))
        application.await_sunk(
            job, lambda: committed(self.load.server, self.name, self.load.topic) == ends, "all is committed", LONGEST_S
        )
        application.stop(job)
        with self.engine.connect() as connection:
            found = Counter(connection.execute(sa.text(f"SELECT value FROM {self.name}")).scalars())
            stored = {tp.partition: row.next_offset for tp, row in TABLE.read(connection, self.name).items()}
            leftovers = [one.name for one in staging_tables(connection) if one.query == query_of(job)]
            connection.exec_driver_sql(f"DROP TABLE {self.name}")
        sent = {value * (200 if value.split("-")[-2] == "0" else 10) for value in self.load.sent}
        assert found.keys() <= sent, "values that were never sent"
        if self.format == "sql_sink":
            assert stored == ends
            assert len(leftovers) <= stragglers, leftovers
        return Outcome(1, len(sent), len(sent - found.keys()), found.total() - len(found))


def query_of(job: Job) -> str:
    """Return the beginning of the id of a job's query, as in the names of its staging tables."""
    found = re.search(r'"id":"([^"]+)"', (job.checkpoint / "metadata").read_text())
    assert found is not None
    return prefix_of(found[1]).split("_")[2]


@dataclass(frozen=True)
class Outcome:
    times: int = 0
    records: int = 0
    lost: int = 0
    duplicated: int = 0

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(
            self.times + other.times,
            self.records + other.records,
            self.lost + other.lost,
            self.duplicated + other.duplicated,
        )

    def __str__(self) -> str:
        return f"times={self.times} records={self.records} lost={self.lost} duplicated={self.duplicated}"


class Bench:
    """The servers and applications of one test, and the outcomes of its repetitions."""

    def __init__(
        self, pool: Pool, kafka: KafkaServer, postgres: PostgresServer, make_topic: MakeTopic, home: Path
    ) -> None:
        self.pool, self.kafka, self.postgres, self.make_topic, self.home = pool, kafka, postgres, make_topic, home
        self.engine = open_engine(url_of(postgres.url))
        self.total = Outcome()
        self.used: list[Application] = []
        self._numbers = itertools.count(1)

    def trial(self, partitions: int = 2, through: int = 0, format: str = "sql_sink") -> Trial:  # noqa: A002
        """Begin a repetition."""
        topic = self.make_topic(self.kafka, partitions)
        name = f"{re.sub('[^a-z0-9]', '_', topic)}_{next(self._numbers)}"
        with self.engine.begin() as connection:
            connection.exec_driver_sql(f"CREATE TABLE {name} (value TEXT)")
        home = self.home / name
        home.mkdir()
        load = Load(self.kafka, topic, partitions)
        return Trial(load, name, home, url_of(self.postgres.url), self.engine, format, through)

    def take(self) -> Application:
        return self.use(self.pool.take())

    def use(self, application: Application) -> Application:
        if application not in self.used:
            self.used.append(application)
        return application

    def add(self, outcome: Outcome, of: str, application: Application) -> None:
        """Count the outcome of a repetition; fail if it is not exactly once, with the end of the log."""
        self.total += outcome
        assert (outcome.lost, outcome.duplicated) == (0, 0), f"{of}: {outcome}\n{application.log_end()}"

    def close(self) -> None:
        self.engine.dispose()
        for application in self.used:
            print(f"--- {application.log}\n{application.log_end()}")


@pytest.fixture
def bench(
    *, pool: Pool, kafka4: KafkaServer, streamgroup_postgres: PostgresServer, make_topic: MakeTopic, tmp_path: Path
) -> Iterator[Bench]:
    made = Bench(pool, kafka4, streamgroup_postgres, make_topic, tmp_path)
    yield made
    made.close()
    pool.reclaim()


def of(strokes: Sequence[str], repeats: int) -> Iterator[tuple[int, str]]:
    """Number the strokes of so many repetitions."""
    return enumerate(itertools.islice(itertools.cycle(strokes), repeats))


class Struck(Protocol):
    """A repetition of any sink."""

    load: Load

    def await_count(self, application: Application, job: Job, count: int) -> None: ...


class Taking(Protocol):
    """A bench of any sink."""

    pool: Pool

    def take(self) -> Application: ...


def strike(trial: Struck, application: Application, job: Job, point: str, stroke: str, *, later: bool) -> None:
    """Start a job and have it struck in its first batch with records, or in a later one."""
    if later:
        trial.load.send(BATCH)
        application.start(job)
        trial.await_count(application, job, BATCH)
        application.arm(point, stroke)
        trial.load.send(RECORDS - BATCH)
    else:
        trial.load.send(RECORDS)
        application.arm(point, stroke)
        application.start(job)
    application.await_struck(LONGEST_S)


def survivor(bench: Taking, application: Application, job: Job, stroke: str) -> Application:
    """Return the application for the next start: where only a part of it has died, the same one."""
    if stroke in (COORDINATOR, SELF):
        application.await_failure(job)
        return application
    application.await_jvm_gone()
    return bench.take()


# --- kills ------------------------------------------------------------------------------------------------------------

PARTS = (TOGETHER, DRIVER, JVM, COORDINATOR)
KILLS = {
    LOADING: (SELF, TOGETHER, COORDINATOR, DRIVER),
    LOADED: (SELF, TOGETHER, COORDINATOR, DRIVER),
    STAGED: PARTS,
    BEGUN: PARTS,
    ADDED: PARTS,
    STORED: PARTS,
    COMMITTING: PARTS,
    COMMITTED: PARTS,
}
SHORT = {STORED}
"""The point in the test command: the batch is stored, and neither Spark nor the group knows it."""


@pytest.mark.parametrize("point", [pytest.param(p, marks=[] if p in SHORT else [pytest.mark.long]) for p in KILLS])
def test_the_sink_killed_at(point: str, bench: Bench, repeats: int, report: Callable[[str], None]) -> None:
    application = bench.take()
    for number, stroke in of(KILLS[point], repeats):
        bench.pool.prepare(0 if stroke in (COORDINATOR, SELF) else 1)  # gets warm meanwhile
        trial = bench.trial()
        job = trial.job()
        strike(trial, application, job, point, stroke, later=number % 2 == 1)
        application = survivor(bench, application, job, stroke)
        application.start(job)
        bench.add(trial.finish(application, job), f"{stroke} at {point}", application)
    report(f"sql_sink killed at {point}: {bench.total}")


@pytest.mark.long
def test_a_new_checkpoint_after_a_kill(bench: Bench, repeats: int, report: Callable[[str], None]) -> None:
    application = bench.take()
    for number, point in of((STORED, ADDED, COMMITTING, STAGED), repeats):
        bench.pool.prepare()
        trial = bench.trial()
        job, another = trial.job(), trial.job("another")
        strike(trial, application, job, point, TOGETHER, later=number % 2 == 1)
        application = survivor(bench, application, job, TOGETHER)
        application.start(another)
        bench.add(trial.finish(application, another), f"killed at {point}", application)
    report(f"sql_sink killed, then a new checkpoint: {bench.total}")


@pytest.mark.long
def test_stopped_in_the_transaction(bench: Bench, repeats: int, report: Callable[[str], None]) -> None:
    application = bench.take()
    for number, point in of((ADDED, STORED, BEGUN, STAGED, LOADED), repeats):
        trial = bench.trial()
        job = trial.job()
        strike(trial, application, job, point, HOLD, later=number % 2 == 1)
        with application.held():
            ended = application.begin_stop(job)
        application.await_stopped(job, ended)
        application.start(job)
        bench.add(trial.finish(application, job), f"stopped at {point}", application)
    report(f"sql_sink stopped by query.stop(): {bench.total}")


# --- the answer to COMMIT is lost -------------------------------------------------------------------------------------

CUT, NEVER_SENT, RESTART = "cut", "never sent", "database restart"


@pytest.mark.long
def test_the_answer_to_commit_is_lost(bench: Bench, repeats: int, report: Callable[[str], None]) -> None:
    found_out = 0
    application = bench.take()
    with Proxy((LOOPBACK, bench.postgres.port)) as proxy:
        for number, stroke in of((CUT, TOGETHER, NEVER_SENT, DRIVER, JVM), repeats):
            bench.pool.prepare(0 if stroke in (CUT, NEVER_SENT) else 1)
            trial = bench.trial(through=proxy.port)
            job = trial.job()
            strike(trial, application, job, ADDED, HOLD, later=number % 2 == 1)
            before = trial.count()
            if stroke == NEVER_SENT:
                proxy.set(Fault(end=End.HALF_OPEN), Direction.TO_SERVER, Which.OPEN)
                with application.held():
                    pass
                proxy.cut()
                assert "nothing is stored" in application.await_failure(job)
                application.start(job)
            else:
                proxy.set(Fault(end=End.STALL), Direction.TO_CLIENT, Which.OPEN)
                with application.held():
                    pass
                wait_until(partial(trial.has, before + 1), "COMMIT has taken effect")
                if stroke == CUT:
                    proxy.cut()
                    found_out += 1
                else:
                    kill(application, stroke)
                    application = survivor(bench, application, job, stroke)
                    application.start(job)
            bench.add(trial.finish(application, job), stroke, application)
    report(f"sql_sink whose answer to COMMIT is lost: {bench.total}, found out without a restart: {found_out}")


def kill(application: Application, part: str) -> None:
    """Kill an application or a part of it (SIGKILL). Unlike `strike`, do not wait for a named point."""
    if part == TOGETHER:
        application.signal(signal.SIGKILL)
        return
    os.kill(application.process.pid if part == DRIVER else application.jvm, signal.SIGKILL)


# --- zombies and members ----------------------------------------------------------------------------------------------

FENCED = "another run has claimed|has claimed .* since|FencedError"


@pytest.mark.long
def test_a_zombie_stores_nothing(bench: Bench, repeats: int, report: Callable[[str], None]) -> None:
    """SIGSTOP of all of an application. Another one of the group has stored all before SIGCONT.

    The paused batch is fenced, or it is a replay if the other's last batch was the same.
    """
    zombie, other = bench.take(), bench.take()
    fenced = 0
    for number, point in of((STAGED, LOADED, COMMITTING, STORED), repeats):
        trial = bench.trial()
        paused, another = trial.job("paused"), trial.job("other")
        strike(trial, zombie, paused, point, PAUSE, later=number % 2 == 1)
        try:
            other.start(another)
            trial.await_count(other, another, RECORDS)
        finally:
            zombie.signal(signal.SIGCONT)
        if error := zombie.failure_or(paused, partial(is_in_no_batch, paused)):
            assert re.search(FENCED, error), error
            fenced += 1
        zombie.end_queries()
        bench.add(trial.finish(other, another), f"paused at {point}", zombie)
    report(f"sql_sink paused beyond its session: {bench.total}, fenced: {fenced}")


def is_in_no_batch(job: Job) -> bool:
    """Whether the checkpoint has all batches as completed."""
    planned, completed = (
        {path.name for path in (job.checkpoint / name).glob("[0-9]*")} for name in ("offsets", "commits")
    )
    return planned == completed


@pytest.mark.long
@pytest.mark.parametrize("longest", ["until another member waits", "until PostgreSQL has ended it"])
def test_a_zombie_with_an_open_transaction(
    longest: str, bench: Bench, repeats: int, report: Callable[[str], None]
) -> None:
    """The zombie keeps its rows locked. PostgreSQL ends its session after a minute, then the other member continues."""
    zombie, other = bench.take(), bench.take()
    is_ended = longest != "until another member waits"
    points, repeats = ((BEGUN,), -(-repeats // 4)) if is_ended else ((ADDED, BEGUN), repeats)
    for number, point in of(points, repeats):
        trial = bench.trial()
        paused, another = trial.job("paused"), trial.job("other")
        strike(trial, zombie, paused, point, PAUSE, later=number % 2 == 1)
        try:
            other.start(another)
            wait_until(partial(waits_for_a_lock, trial), "the other member waits for the rows", LONGEST_S)
            if is_ended:
                trial.await_count(other, another, RECORDS)
        finally:
            zombie.signal(signal.SIGCONT)
        if is_ended:
            assert "idle-in-transaction timeout" in zombie.await_failure(paused)
        else:
            zombie.failure_or(paused, partial(trial.has, BATCH * (1 + number % 2)))
            zombie.end_queries()
        bench.add(trial.finish(other, another), f"paused at {point}", zombie)
    report(f"sql_sink paused in its transaction, {longest}: {bench.total}")


@pytest.mark.long
def test_a_pause_beyond_the_session_without_a_successor(
    bench: Bench, repeats: int, report: Callable[[str], None]
) -> None:
    application = bench.take()
    errors: Counter[str] = Counter()
    for number, point in of((STAGED, ADDED, LOADED, STORED), repeats):
        trial = bench.trial()
        job = trial.job()
        strike(trial, application, job, point, PAUSE, later=number % 2 == 1)
        try:
            wait_until(partial(has_no_members, trial), "the session has ended", LONGEST_S)
        finally:
            application.signal(signal.SIGCONT)
        if error := application.failure_or(job, partial(trial.has, RECORDS)):
            errors[f"{point}: {cause_of(error)}"] += 1
            application.start(job)
        bench.add(trial.finish(application, job), f"paused at {point}", application)
    report(f"sql_sink paused beyond its session, alone: {bench.total}, errors:")
    for error, count in errors.items():
        report(f"    {count} {error}")


def has_no_members(trial: Trial) -> bool:
    group = Group(trial.load.server, trial.name, trial.load.partitions)
    with closing(group):
        return not group.holders()


def waits_for_a_lock(trial: Trial) -> bool:
    with trial.engine.connect() as connection:
        waiting = sa.text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        return bool(connection.execute(waiting).scalar_one())


@pytest.mark.long
def test_members_come_and_go_while_there_is_a_backlog(
    bench: Bench, repeats: int, report: Callable[[str], None]
) -> None:
    first, second = bench.take(), bench.take()
    for number in range(repeats):
        trial = bench.trial(partitions=4)
        one, two, three = (trial.job(name, 400, group__member=name) for name in ("one", "two", "three"))
        trial.load.send(4 * RECORDS)
        first.start(one)
        trial.await_count(first, one, 400)
        for joining in (two, three):
            second.start(joining)
            trial.await_count(second, joining, trial.count() + 800)
        if number % 2:
            second.stop(two)
            stays, application = one, first
        else:
            first.stop(one)
            stays, application = two, second
        trial.await_count(application, stays, min(4 * RECORDS, trial.count() + 800))
        second.stop(three)
        bench.add(trial.finish(application, stays), f"repetition {number}", application)
    report(f"sql_sink while members come and go: {bench.total}")


# --- the database -----------------------------------------------------------------------------------------------------


@pytest.fixture
def own_postgres(bench: Bench) -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        shared, bench.postgres, bench.engine = bench.engine, server, open_engine(url_of(server.url))
        shared.dispose()
        yield server


UNANSWERED = "unanswered"


@pytest.mark.long
@pytest.mark.parametrize("how", ["kill -9", "fast shutdown"])
def test_the_database_restarts(
    how: str, bench: Bench, own_postgres: PostgresServer, repeats: int, report: Callable[[str], None]
) -> None:
    application = bench.take()
    errors: Counter[str] = Counter()
    with Proxy((LOOPBACK, own_postgres.port)) as proxy:
        for number, point in of((UNANSWERED, STAGED, ADDED, BEGUN, LOADING, LOADED, STORED), repeats):
            trial = bench.trial(through=proxy.port)
            job = trial.job()
            held_at = ADDED if point == UNANSWERED else point
            strike(trial, application, job, held_at, HOLD, later=number % 2 == 1)
            before = trial.count()
            if point == UNANSWERED:
                proxy.set(Fault(end=End.STALL), Direction.TO_CLIENT, Which.OPEN)
                with application.held():
                    pass
                wait_until(partial(trial.has, before + 1), "COMMIT has taken effect")
                end_server(own_postgres, how)
                proxy.cut()
                own_postgres.restart()
            else:
                with application.held():
                    end_server(own_postgres, how)
                    own_postgres.restart()
            if error := application.failure_or(job, partial(trial.has, RECORDS)):
                errors[f"{point}: {cause_of(error)}"] += 1
                application.start(job)
            bench.add(trial.finish(application, job), f"{how} at {point}", application)
    report(f"sql_sink, PostgreSQL ended by {how}: {bench.total}, errors:")
    for error, count in errors.items():
        report(f"    {count} {error}")


def end_server(server: PostgresServer, how: str) -> None:
    """End the server. SIGTERM would wait for its sessions."""
    if how == "kill -9":
        server.kill()
        return
    assert server.pid is not None
    os.kill(server.pid, signal.SIGINT)
    wait_until(lambda: not server.alive, "PostgreSQL has shut down")


def cause_of(error: str) -> str:
    """Return the line of a query's error that the user looks for."""
    lines = [line for line in error.splitlines() if re.search(r"\w+(Error|Exception): ", line)]
    return re.sub(r":\d{4,5}/", "/", lines[-1].strip() if lines else error[-300:])


# --- tasks ------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_tasks_that_fail_and_are_retried(
    bench: Bench, repeats: int, report: Callable[[str], None], tmp_path: Path
) -> None:
    with own_pool(bench, tmp_path, {"spark.master": "local[2,4]"}):
        application = bench.take()
        for number, stroke in of((FAIL, SELF), repeats):
            trial = bench.trial()
            job = trial.job()
            strike(trial, application, job, LOADED, stroke, later=number % 2 == 1)
            bench.add(trial.finish(application, job), stroke, application)
    report(f"sql_sink whose first attempts fail after they have loaded rows: {bench.total}")


SPECULATES = {
    "spark.executor.memory": "512m",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "200ms",
}


@pytest.mark.long
def test_speculation(bench: Bench, repeats: int, report: Callable[[str], None], tmp_path: Path) -> None:
    """An attempt that has loaded its rows is held until its copy has loaded them, too, and the batch is stored."""
    with (
        standalone_cluster(tmp_path / "cluster") as cluster,
        own_pool(bench, tmp_path, {"spark.master": cluster.url, **SPECULATES}),
    ):
        application = bench.take()
        for number in range(repeats):
            trial = bench.trial()
            job = trial.job()
            strike(trial, application, job, LOADED, HOLD, later=number % 2 == 1)
            stored = trial.count()
            with application.held():
                trial.await_count(application, job, stored + BATCH)
            bench.add(trial.finish(application, job, stragglers=2), f"repetition {number}", application)
    report(f"sql_sink whose slow tasks have speculative copies: {bench.total}")


@contextmanager
def own_pool(bench: Taking, home: Path, settings: Mapping[str, str]) -> Iterator[None]:
    """Have the test's applications run with these settings of Spark."""
    shared, bench.pool = bench.pool, Pool(home / "applications", settings)
    try:
        yield
    finally:
        bench.pool.kill()
        bench.pool = shared


# --- Spark's JDBC sink ------------------------------------------------------------------------------------------------

NEXT_READ = "read, second task"


@pytest.mark.long
@pytest.mark.parametrize("point", [NEXT_READ, STORED, COMMITTING, COMMITTED])
def test_the_jdbc_sink_killed_at(
    point: str, bench: Bench, repeats: int, report: Callable[[str], None], tmp_path: Path
) -> None:
    """For contrast: nothing is lost, and records are stored twice."""
    jars = os.pathsep.join(map(str, resolve(*JDBC, transitive=False)))
    with own_pool(bench, tmp_path, {"spark.driver.extraClassPath": jars}):
        application = bench.take()
        for number, stroke in of(PARTS, repeats):
            bench.pool.prepare(0 if stroke == COORDINATOR else 1)
            trial = bench.trial(format="jdbc")
            job = trial.job()
            if point == NEXT_READ:
                strike(trial, application, job, READ, HOLD, later=number % 2 == 1)
                with application.held():
                    application.arm(READ, stroke)
                application.await_struck(LONGEST_S)
            else:
                strike(trial, application, job, point, stroke, later=number % 2 == 1)
            application = survivor(bench, application, job, stroke)
            application.start(job)
            outcome = trial.finish(application, job)
            assert outcome.lost == 0
            bench.total += outcome
    report(f"jdbc killed at {point}: {bench.total}")
