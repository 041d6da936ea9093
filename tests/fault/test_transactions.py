"""Faults under `streamgroup.exactly_once`: consumers of `read_committed` see each record once, whatever ends the query.

Each repetition uses a new topic, group and target. `format("streamgroup")` is struck at the same point, for contrast.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.fault.applications import Application, Job
from tests.fault.pool import Pool
from tests.fault.test_sql_sink import (
    BATCH,
    LONGEST_S,
    PARTS,
    RECORDS,
    SESSION_S,
    SPECULATES,
    Outcome,
    is_in_no_batch,
    of,
    own_pool,
    strike,
    survivor,
)
from tests.hooks.named_points import (
    COORDINATOR,
    DRIVER,
    ENDED,
    FAIL,
    HOLD,
    JVM,
    OFFSETS_ADDED,
    PAUSE,
    SELF,
    STORED,
    TASK_DONE,
    TOGETHER,
    WRITTEN,
)
from tests.live.transacting import read_committed
from tests.spark.standalone import standalone_cluster
from tests.spark.support import Load, committed

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(3600)]


SLOW_S = 3.0
"""So long a task is slow, where one that takes 0.2 s longer than others gets a copy."""


@dataclass
class Trial:
    """One repetition: a topic, a group and a target, which must have every record once."""

    load: Load
    group: str
    target: str
    home: Path
    format: str = "exactly_once"

    def job(self, name: str = "one", batch: int = BATCH, member: str = "") -> Job:
        """Make the job of a member; `member` tells members of one application apart."""
        options = {"kafka.session.timeout.ms": str(1000 * SESSION_S)}
        if member:
            options["group.member"] = member
        if self.format == "exactly_once":
            options["offsets.store"] = "transaction"
        sink = {
            "format": self.format,
            "topic": self.target,
            "kafka.bootstrap.servers": self.load.server.bootstrap_servers,
        }
        return Job(f"{self.group}-{name}", self.load, self.group, self.home, batch, options, sink)

    def done(self) -> int:
        """How many records the group has committed."""
        return sum(committed(self.load.server, self.group, self.load.topic).values())

    def is_done(self) -> bool:
        return self.done() >= len(self.load.sent)

    def await_count(self, application: Application, job: Job, count: int) -> None:
        application.await_sunk(job, lambda: self.done() >= count, f"{count} records", LONGEST_S)

    def finish(self, application: Application, job: Job) -> Outcome:
        """Wait until all is committed, stop the query, and count."""
        self.await_count(application, job, len(self.load.sent))
        application.stop(job)
        found, sent = Counter(read_committed(self.load.server, self.target)), set(self.load.sent)
        assert found.keys() <= sent, "values that were never sent"
        return Outcome(1, len(sent), len(sent - found.keys()), found.total() - len(found))


class Bench:
    """The server and applications of one test, and the outcomes of its repetitions."""

    def __init__(self, pool: Pool, kafka: KafkaServer, make_topic: MakeTopic, home: Path) -> None:
        self.pool, self.kafka, self.make_topic, self.home = pool, kafka, make_topic, home
        self.total = Outcome()
        self.used: list[Application] = []

    def trial(self, kind: str = "exactly_once", partitions: int = 2) -> Trial:
        """Begin a repetition."""
        topic, target = self.make_topic(self.kafka, partitions), self.make_topic(self.kafka, 3)
        home = self.home / topic
        home.mkdir()
        return Trial(Load(self.kafka, topic, partitions), f"{topic}-group", target, home, kind)

    def take(self) -> Application:
        self.used.append(self.pool.take())
        return self.used[-1]

    def add(self, outcome: Outcome, what: str, application: Application) -> None:
        """Count the outcome of a repetition; fail if it is not exactly once, with the end of the log."""
        self.total += outcome
        assert (outcome.lost, outcome.duplicated) == (0, 0), f"{what}: {outcome}\n{application.log_end()}"


@pytest.fixture
def bench(pool: Pool, kafka4: KafkaServer, make_topic: MakeTopic, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(pool, kafka4, make_topic, tmp_path)
    yield made
    for application in made.used:
        print(f"--- {application.log}\n{application.log_end()}")
    pool.reclaim()


KILLS: dict[str, Sequence[str]] = {
    TASK_DONE: (SELF, TOGETHER, COORDINATOR, DRIVER),
    WRITTEN: PARTS,
    OFFSETS_ADDED: PARTS,
    ENDED: PARTS,
    STORED: PARTS,
}
SHORT = {ENDED}
"""The point in the test command: the transaction is committed, and no process of the query knows it."""


@pytest.mark.parametrize("point", [pytest.param(p, marks=[] if p in SHORT else [pytest.mark.long]) for p in KILLS])
def test_the_query_killed_at(point: str, bench: Bench, repeats: int, report: Callable[[str], None]) -> None:
    application = bench.take()
    for number, stroke in of(KILLS[point], repeats):
        bench.pool.prepare(0 if stroke in (COORDINATOR, SELF) else 1)  # gets warm meanwhile
        trial = bench.trial()
        job = trial.job()
        strike(trial, application, job, point, stroke, later=number % 2 == 1)
        application = survivor(bench, application, job, stroke)
        application.start(job)
        bench.add(trial.finish(application, job), f"{stroke} at {point}", application)
    report(f"exactly_once killed at {point}: {bench.total}")


@pytest.mark.long
def test_a_new_checkpoint_after_a_kill(bench: Bench, repeats: int, report: Callable[[str], None]) -> None:
    """The transaction that the killed run has left open ends by its timeout, or has committed."""
    application = bench.take()
    for number, point in of((STORED, ENDED), repeats):
        bench.pool.prepare()
        trial = bench.trial()
        job, another = trial.job(), trial.job("another")
        strike(trial, application, job, point, TOGETHER, later=number % 2 == 1)
        application = survivor(bench, application, job, TOGETHER)
        application.start(another)
        bench.add(trial.finish(application, another), f"killed at {point}", application)
    report(f"exactly_once killed, then a new checkpoint: {bench.total}")


@pytest.mark.long
def test_stopped_in_the_transaction(bench: Bench, repeats: int, report: Callable[[str], None]) -> None:
    application = bench.take()
    for number, point in of((ENDED, STORED, OFFSETS_ADDED, WRITTEN), repeats):
        trial = bench.trial()
        job = trial.job()
        strike(trial, application, job, point, HOLD, later=number % 2 == 1)
        with application.held():
            ended = application.begin_stop(job)
        application.await_stopped(job, ended)
        application.start(job)
        bench.add(trial.finish(application, job), f"stopped at {point}", application)
    report(f"exactly_once stopped by query.stop(): {bench.total}")


@pytest.mark.long
def test_held_in_the_transaction_while_another_member_joins(
    bench: Bench, repeats: int, report: Callable[[str], None]
) -> None:
    application = bench.take()
    for number, point in of((WRITTEN, OFFSETS_ADDED), repeats):
        bench.pool.prepare()
        trial = bench.trial()
        job = trial.job()
        strike(trial, application, job, point, HOLD, later=number % 2 == 1)
        successor = bench.take()
        with application.held():
            another = trial.job("another")
            successor.start(another)
        error = application.failure_or(job, trial.is_done)
        bench.add(trial.finish(successor, another), f"paused at {point}: {error[:200]}", successor)
        application.end_queries()
    report(f"exactly_once held while another member joins: {bench.total}")


@pytest.mark.long
def test_a_zombie_commits_nothing(bench: Bench, repeats: int, report: Callable[[str], None]) -> None:
    """SIGSTOP of all of an application. Another one of the group has committed all before SIGCONT."""
    zombie, other = bench.take(), bench.take()
    fenced = 0
    for number, point in of((WRITTEN, TASK_DONE, OFFSETS_ADDED), repeats):
        trial = bench.trial()
        paused, another = trial.job("paused"), trial.job("other")
        strike(trial, zombie, paused, point, PAUSE, later=number % 2 == 1)
        try:
            other.start(another)
            if point != OFFSETS_ADDED:  # else the group's offsets are unstable until the transaction ends
                trial.await_count(other, another, RECORDS)
        finally:
            zombie.signal(signal.SIGCONT)
        if error := zombie.failure_or(paused, partial(is_in_no_batch, paused)):
            assert "FencedError" in error or "PRODUCER_FENCED" in error, error
            fenced += 1
        zombie.end_queries()
        bench.add(trial.finish(other, another), f"paused at {point}", zombie)
    report(f"exactly_once paused beyond its session: {bench.total}, fenced: {fenced}")


@pytest.mark.long
def test_members_come_and_go_while_there_is_a_backlog(
    bench: Bench, repeats: int, report: Callable[[str], None]
) -> None:
    first, second = bench.take(), bench.take()
    for number in range(repeats):
        trial = bench.trial(partitions=4)
        one, two, three = (trial.job(name, 400, name) for name in ("one", "two", "three"))
        trial.load.send(4 * RECORDS)
        first.start(one)
        trial.await_count(first, one, 400)
        for joining in (two, three):
            second.start(joining)
            trial.await_count(second, joining, min(4 * RECORDS, trial.done() + 800))
        leaving, stays, application = (two, one, first) if number % 2 else (one, two, second)
        (second if leaving is two else first).stop(leaving)
        trial.await_count(application, stays, min(4 * RECORDS, trial.done() + 800))
        second.stop(three)
        bench.add(trial.finish(application, stays), f"repetition {number}", application)
    report(f"exactly_once while members come and go: {bench.total}")


@pytest.mark.long
def test_tasks_that_fail_and_are_retried(
    bench: Bench, repeats: int, report: Callable[[str], None], tmp_path: Path
) -> None:
    """The second attempt refuses to write, and the batch is written again in another transaction."""
    with own_pool(bench, tmp_path, {"spark.master": "local[2,4]"}):
        application = bench.take()
        for number, stroke in of((FAIL, SELF), repeats):
            trial = bench.trial()
            job = trial.job()
            strike(trial, application, job, TASK_DONE, stroke, later=number % 2 == 1)
            bench.add(trial.finish(application, job), stroke, application)
    report(f"exactly_once whose first attempts fail when they have written: {bench.total}")


@pytest.mark.long
def test_speculation(bench: Bench, repeats: int, report: Callable[[str], None], tmp_path: Path) -> None:
    """A task that has written its rows is slow to end, and Spark starts a copy of it, which must not write."""
    with (
        standalone_cluster(tmp_path / "cluster") as cluster,
        own_pool(bench, tmp_path, {"spark.master": cluster.url, **SPECULATES}),
    ):
        application = bench.take()
        for number in range(repeats):
            trial = bench.trial()
            job = trial.job()
            strike(trial, application, job, TASK_DONE, HOLD, later=number % 2 == 1)
            with application.held():
                time.sleep(SLOW_S)
            bench.add(trial.finish(application, job), f"repetition {number}", application)
    report(f"exactly_once whose slow tasks have speculative copies: {bench.total}")


@pytest.mark.long
def test_the_plain_sink_killed_at(bench: Bench, repeats: int, report: Callable[[str], None]) -> None:
    """For contrast: the records of a batch that was written and not committed are there twice."""
    application = bench.take()
    for number, stroke in of((TOGETHER, DRIVER, JVM), repeats):
        bench.pool.prepare(1)
        trial = bench.trial("plain")
        job = trial.job()
        strike(trial, application, job, STORED, stroke, later=number % 2 == 1)
        application = survivor(bench, application, job, stroke)
        application.start(job)
        outcome = trial.finish(application, job)
        assert outcome.lost == 0
        bench.total += outcome
    assert bench.total.duplicated > 0
    report(f"format('streamgroup') killed at {STORED}: {bench.total}")
