"""Members in processes of their own, each with its JVM and its coordinator: SIGTERM, kill -9, a restart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from streamgroup.cli._group_tables import assigned_to
from streamgroup.net.admin import describe_groups
from streamgroup.net.cluster import Cluster
from streamgroup.options.kinds import SERVERS
from streamgroup.options.types import ClientOptions
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.spark import job_process
from tests.spark.support import Load, Sunk, committed, log_ends, repeated, under_load, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live]

PARTITIONS = 7
BATCH = 150


class Application:
    """A Spark application as a process group; `Sunk` reads what it wrote."""

    def __init__(self, load: Load, group: str, home: Path, name: str) -> None:
        self.name = name
        self.sunk = Sunk(None, home / f"{name}-out")
        self.log = home / f"{name}.log"
        arguments = [load.server.bootstrap_servers, load.topic, group, str(home), name, str(BATCH)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, job_process.__file__, *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def signal_group(self, number: signal.Signals) -> None:
        """Signal the driver, its JVM and the coordinator at once."""
        os.killpg(self.process.pid, number)

    def signal_driver(self, number: signal.Signals) -> None:
        """Signal the driver alone."""
        self.process.send_signal(number)

    def values(self) -> list[str]:
        """What it has sunk."""
        return self.sunk.values()


@pytest.fixture
def applications() -> Iterator[list[Application]]:
    started: list[Application] = []
    yield started
    for application in started:
        try:
            application.signal_group(signal.SIGKILL)
        except ProcessLookupError:
            continue
        application.process.wait(20)


def holders(server: KafkaServer, group: str) -> dict[str, list[int]]:
    """Which partitions each member holds, by client id, as the brokers tell."""
    with closing(Cluster(ClientOptions(SERVERS.parse(server.bootstrap_servers)))) as cluster:
        described = describe_groups(cluster, [group], cluster.deadline(20_000))[group]
    return {m.client_id: sorted(tp.partition for tp in assigned_to(m) or ()) for m in described.members}


def shared_by(server: KafkaServer, group: str, *names: str) -> bool:
    """Whether exactly these members hold all partitions, each partition once."""
    held = holders(server, group)
    return sorted(held) == sorted(names) and sorted(p for h in held.values() for p in h) == list(range(PARTITIONS))


@pytest.mark.timeout(300)
def test_sigterm_kill_9_and_a_restart_lose_nothing(
    applications: list[Application], kafka41: KafkaServer, make_topic: MakeTopic, tmp_path: Path
) -> None:
    load = Load(kafka41, make_topic(kafka41, PARTITIONS), PARTITIONS)
    group = "processes"
    a = Application(load, group, tmp_path, "a")
    applications.append(a)
    with under_load(load):
        wait_until(lambda: shared_by(kafka41, group, "a"), "a alone", 60)
        b = Application(load, group, tmp_path, "b")
        applications.append(b)
        wait_until(lambda: shared_by(kafka41, group, "a", "b"), "a and b share", 60)
        wait_until(b.values, "b has sunk a batch", 60)

        # The JVM, the driver and the coordinator at once: nobody says good-bye, the session has to expire.
        b.signal_group(signal.SIGKILL)
        wait_until(lambda: shared_by(kafka41, group, "a"), "a has all after b's session", 6 + 15)
        after_kill = repeated(a.values() + b.values())
        assert sum(count - 1 for count in after_kill.values()) <= BATCH

        again = Application(load, group, tmp_path, "b")
        applications.append(again)
        wait_until(lambda: shared_by(kafka41, group, "a", "b"), "b is back", 60)
        before = len(b.values())
        wait_until(lambda: len(b.values()) > before, "b goes on", 60)

        # SIGTERM to everything: the coordinator commits what is proven and leaves, without waiting for its session.
        again.signal_group(signal.SIGTERM)
        wait_until(lambda: shared_by(kafka41, group, "a"), "a has all at once", 3 + 3)
    ends = log_ends(kafka41, load.topic, PARTITIONS)
    wait_until(lambda: committed(kafka41, group, load.topic) == ends, "all committed", 60)
    everything = a.values() + b.values()
    assert set(everything) == set(load.sent)
    # The batch in flight at each of the two ends: by who took over, and by the replay of the restart.
    assert sum(count - 1 for count in repeated(everything).values()) <= 3 * BATCH


@pytest.mark.timeout(240)
def test_a_drained_application_repeats_nothing(
    applications: list[Application], kafka39: KafkaServer, make_topic: MakeTopic, tmp_path: Path
) -> None:
    load = Load(kafka39, make_topic(kafka39, PARTITIONS), PARTITIONS)
    with under_load(load):
        a, b = (Application(load, "drained", tmp_path, name) for name in ("a", "b"))
        applications += [a, b]
        wait_until(lambda: shared_by(kafka39, "drained", "a", "b"), "a and b share", 60)
        wait_until(lambda: a.values() and b.values(), "both have sunk", 60)
        b.signal_driver(signal.SIGUSR1)
        wait_until(lambda: "drained: True" in b.log.read_text(), "b is drained", 40)
        wait_until(lambda: shared_by(kafka39, "drained", "a"), "a has all", 10)
        assert b.process.wait(30) == 0
    ends = log_ends(kafka39, load.topic, PARTITIONS)
    wait_until(lambda: committed(kafka39, "drained", load.topic) == ends, "all committed", 60)
    assert sorted(a.values() + b.values()) == sorted(load.sent)


def jvm_of(application: Application) -> int:
    """The driver's JVM: the child of the driver that is java."""
    children = Path(f"/proc/{application.process.pid}/task/{application.process.pid}/children").read_text().split()
    return next(int(pid) for pid in children if "java" in Path(f"/proc/{pid}/cmdline").read_text())


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize("victim", ["jvm", "coordinator"])
def test_the_jvm_or_the_coordinator_killed_alone_loses_nothing(
    applications: list[Application], kafka41: KafkaServer, make_topic: MakeTopic, tmp_path: Path, victim: str
) -> None:
    load = Load(kafka41, make_topic(kafka41, PARTITIONS), PARTITIONS)
    group = f"killed-{victim}"
    with under_load(load):
        a, b = (Application(load, group, tmp_path, name) for name in ("a", "b"))
        applications += [a, b]
        wait_until(lambda: shared_by(kafka41, group, "a", "b"), "a and b share", 60)
        wait_until(b.values, "b has sunk a batch", 60)
        jvm = jvm_of(b)
        if victim == "jvm":
            # The coordinator sees the end of its conversation: it commits and leaves, no session has to expire.
            os.kill(jvm, signal.SIGKILL)
            wait_until(lambda: shared_by(kafka41, group, "a"), "a has all before b's session ends", 5)
        else:
            coordinators = [
                int(pid)
                for thread in Path(f"/proc/{jvm}/task").iterdir()
                for pid in (thread / "children").read_text().split()
                if "python_streaming_source_runner" in Path(f"/proc/{pid}/cmdline").read_text()
            ]
            assert len(coordinators) == 1
            os.kill(coordinators[0], signal.SIGKILL)
            assert b.process.wait(60) != 0, "the query of a dead coordinator fails"
            wait_until(lambda: shared_by(kafka41, group, "a"), "a has all after b's session", 6 + 15)
    ends = log_ends(kafka41, load.topic, PARTITIONS)
    wait_until(lambda: committed(kafka41, group, load.topic) == ends, "all committed", 60)
    everything = a.values() + b.values()
    assert set(everything) == set(load.sent)
    assert sum(count - 1 for count in repeated(everything).values()) <= BATCH
