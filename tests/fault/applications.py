"""Spark applications as processes: started warm, commanded, armed at named points, killed, stopped and continued."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamgroup.kafka.cluster.admin import describe_any_group
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.options.kinds import SERVERS
from streamgroup.options.types import ClientOptions
from streamgroup.testing import KafkaServer
from tests.hooks.named_points import signal_together
from tests.processes import is_running
from tests.spark.class_archive import QUICK_JVM
from tests.spark.support import Load
from tests.waiting import wait_until

HERE = Path(__file__).parent
HOOKS = HERE.parent / "hooks"
PROGRAM = HERE / "jobs.py"
START_S = 180.0
"""Long enough for a machine that starts several at a time beside other work."""
SESSION_S = 3.0
"""Three heartbeats fit into it also while another application starts beside it."""
LONGEST_BATCH_S = 40.0
DRAIN_S = 30.0

_QUICK_JVM = (*QUICK_JVM, "-Xshare:auto", "-Xss4m")


@dataclass(frozen=True)
class Job:
    """One query of a group, in whichever application it runs: its name there, its checkpoint, its sink's files."""

    name: str
    load: Load
    group: str
    home: Path
    batch: int = 60
    options: Mapping[str, str] = field(default_factory=dict)
    table: Mapping[str, str] | None = None
    """Its sink, if it writes into a database: `format` (sql_sink or jdbc), and what that takes."""

    @property
    def checkpoint(self) -> Path:
        return self.home / f"{self.name}-checkpoint"

    @property
    def is_consumer(self) -> bool:
        """Whether it joins by the consumer protocol, where the broker sets the interval of heartbeats."""
        return self.options.get("kafka.group.protocol") == "consumer"

    def spark_options(self) -> dict[str, str]:
        """The options of its stream."""
        return {
            "kafka.bootstrap.servers": self.load.server.bootstrap_servers,
            "kafka.group.id": self.group,
            "kafka.client.id": self.name,
            "kafka.session.timeout.ms": str(int(SESSION_S * 1000)),
            **({} if self.is_consumer else {"kafka.heartbeat.interval.ms": "500"}),
            "subscribe": self.load.topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(self.batch),
            **self.options,
        }


@dataclass(frozen=True)
class Struck:
    """An event at a named point: `at` is seconds of time.monotonic, just before."""

    point: str
    stroke: str
    at: float


class Application:
    """A Spark application as a process group, and the queries that it was told to run.

    `package` is a directory with the package of another release, which all of its processes import. `settings` are
    settings of Spark.
    """

    def __init__(
        self,
        home: Path,
        jvm_flags: Iterable[str] = (),
        package: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        home.mkdir(parents=True)
        self.home = home
        self.log = home / "log"
        self.sinks: dict[str, list[Path]] = {}
        self._events: list[dict[str, Any]] = []
        self._told = threading.Condition()
        self._began: dict[str, int] = {}
        self._starts = 0
        self._killed = False
        environment = {
            **os.environ,
            "STREAMGROUP_FAULTS": str(home),
            "STREAMGROUP_FAULTS_SETTINGS": json.dumps(dict(settings or {})),
            "STREAMGROUP_FAULTS_JAVA": " ".join((*_QUICK_JVM, *jvm_flags)),
            "PYTHONPATH": os.pathsep.join(map(str, filter(None, (HOOKS, package, os.environ.get("PYTHONPATH"))))),
            # spark-submit starts a JVM only to put a command line together.
            "SPARK_LAUNCHER_OPTS": " ".join(_QUICK_JVM),
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env=environment,
                cwd=home,  # Spark starts workers with `python -m`, which import from the directory first
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._told:
                self._events.append(json.loads(line))
                self._told.notify_all()
        with self._told:
            self._events.append({"event": "gone"})
            self._told.notify_all()

    # --- commands -----------------------------------------------------------------------------------------------------

    def await_ready(self) -> Application:
        """Wait until it is warm."""
        self._await({"event": "ready"}, START_S)
        return self

    def start(self, job: Job, pause_s: float = 0.0) -> None:
        """Start a job's query here; it appends to a sink's file of its own. `pause_s` makes its batches longer."""
        self._starts += 1
        sink = job.home / "sinks" / f"{job.name}.{self.home.name}.{self._starts}.jsonl"
        sink.parent.mkdir(exist_ok=True)
        self.sinks.setdefault(job.name, []).append(sink)
        since = self._began[job.name] = len(self._events)
        self._command(
            "start",
            query=job.name,
            options=job.spark_options(),
            checkpoint=str(job.checkpoint),
            sink=str(sink),
            pause_s=pause_s,
            **({} if job.table is None else {"table": dict(job.table)}),
        )
        self._await({"event": "started", "query": job.name}, START_S, since)

    def drain(self, job: Job) -> bool:
        """Drain a job's query and wait for its end; whether it was drained."""
        since = len(self._events)
        self._command("drain", query=job.name, timeout=DRAIN_S)
        drained = self._await({"event": "drained", "query": job.name}, DRAIN_S + 10, since)
        self._await({"event": "ended", "query": job.name, "error": ""}, 20, since)
        return bool(drained["drained"])

    def stop(self, job: Job) -> None:
        """`query.stop()`, and wait for the end."""
        error = self.await_stopped(job, self.begin_stop(job))
        assert not error, error

    def begin_stop(self, job: Job) -> int:
        """Have `query.stop()` called, without waiting for it; returns what `await_stopped` takes."""
        since = len(self._events)
        self._command("stop", query=job.name)
        self._await({"event": "stopping", "query": job.name}, 20, since)
        return since

    def await_stopped(self, job: Job, since: int) -> str:
        """Wait for the end of a query that is being stopped; the error that it ended with."""
        return str(self._await({"event": "ended", "query": job.name}, 60, since)["error"])

    def await_failure(self, job: Job) -> str:
        """Wait until a job's query has ended with an error, which comes back."""
        ended = self._await({"event": "ended", "query": job.name}, 30, self._began[job.name])
        assert ended["error"], f"{job.name} ended without an error"
        return str(ended["error"])

    def failure_or(self, job: Job, condition: Callable[[], bool], timeout: float = 180.0) -> str:
        """Wait until a job's newest start here has failed, and return its error; empty if `condition` holds first."""

        def over() -> str | None:
            if ended := [event for event in self._events[self._began[job.name] :] if is_end_of(event, job)]:
                return str(ended[-1]["error"])
            return "" if condition() else None

        what = f"{job.name} fails or continues; the log of {self.home.name} ends\n{self.log_end()}"
        found: list[str] = wait_until(lambda: [] if (error := over()) is None else [error], what, timeout)
        return found[0]

    def end_queries(self) -> None:
        """Stop every query that runs."""
        since = len(self._events)
        self._command("end")
        self._await({"event": "idle"}, 30, since)

    def _command(self, command: str, **details: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write((json.dumps({"command": command, **details}) + "\n").encode())
        self.process.stdin.flush()

    def _await(self, wanted: dict[str, Any], timeout: float, since: int = 0) -> dict[str, Any]:
        """The newest event from the `since`th on that has what is wanted; fails where there is none at the deadline."""

        def over() -> dict[str, Any] | None:
            events = self._events[since:]
            found = [event for event in events if wanted.items() <= event.items()]
            broken = [event for event in events if event["event"] in ("failed", "gone")]
            return (found or broken or [None])[-1]

        with self._told:
            event = self._told.wait_for(over, timeout)
        if event is None or not wanted.items() <= event.items():
            told = f"{wanted} within {timeout:.0f} s: {event}"
            raise AssertionError(f"{self.home.name}: {told}; its log ends\n{self.log_end()}")
        return event

    def log_end(self) -> str:
        """The last lines of its log that are not of a Java stack."""
        lines = [line for line in self.log.read_text().splitlines() if not line.startswith("\tat ")]
        return "\n".join(lines[-30:])

    # --- faults -------------------------------------------------------------------------------------------------------

    def arm(self, point: str, stroke: str) -> None:
        """Have `stroke` happen when `point` is passed next."""
        (self.home / "struck").unlink(missing_ok=True)
        new = self.home / "arming"
        new.write_text(stroke)
        new.rename(self.home / f"armed-{point}")

    def await_struck(self, timeout: float = LONGEST_BATCH_S) -> Struck:
        """Wait until the armed point was passed."""
        note = self.home / "struck"
        wait_until(note.exists, f"{self.home.name} passes the armed point; its log ends\n{self.log_end()}", timeout)
        return Struck(**json.loads(note.read_text()))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Wait for the process that is armed to be held; it waits for as long as the block takes."""
        self.await_struck()
        try:
            yield
        finally:
            (self.home / "held").unlink()

    @contextmanager
    def held_in_batch(self, job: Job) -> Iterator[None]:
        """Have the sink of a job, which has sunk before, hold its next batch for as long as the block takes."""
        gate = self.home / f"hold-{job.name}"
        gate.touch()
        try:
            wait_until(lambda: "held" in self.lines(job)[-1], f"{job.name} is in a batch\n{self.log_end()}", 60)
            yield
        finally:
            gate.unlink()

    def signal(self, number: signal.Signals) -> None:
        """Signal driver, JVM and coordinators at once."""
        signal_together(self.process.pid, number)

    def await_jvm_gone(self) -> None:
        """Wait until its JVM has died, by whatever; what the coordinators do then is theirs."""
        wait_until(lambda: not is_running(self.jvm), f"{self.home.name}: its JVM has ended", 20)
        self.process.kill()
        self.process.wait(20)

    def kill(self) -> None:
        """kill -9 to all of it, stopped or not."""
        if not self._killed:
            self._killed = True
            with suppress(ProcessLookupError):
                self.signal(signal.SIGKILL)
            self.process.wait(20)
            self._reader.join(20)

    @property
    def jvm(self) -> int:
        """The id of its JVM's process."""
        return int(json.loads((self.home / "processes").read_text())["jvm"])

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def lines(self, job: Job) -> list[dict[str, Any]]:
        """The records that the sink of a job's newest start here has written."""
        return whole_lines(self.sinks[job.name][-1])

    def batches(self, job: Job) -> int:
        """How many batches a job's newest start here has sunk."""
        return sum("values" in line for line in self.lines(job))

    def await_batches(self, job: Job, count: int, timeout: float = 60.0) -> None:
        """Wait until a job's newest start here has sunk so many batches."""
        self.await_sunk(job, lambda: self.batches(job) >= count, f"{count} batches", timeout)

    def await_records(self, job: Job) -> None:
        """Wait until a job's newest start here has sunk a record. Under load Spark's batch 0 is empty: it is planned
        before the member's first assignment."""
        self.await_sunk(job, lambda: any(line.get("values") for line in self.lines(job)), "a record", 60.0)

    def await_sunk(self, job: Job, condition: Callable[[], bool], what: str, timeout: float = 60.0) -> None:
        """Wait until `condition` of a job's newest start here, which must not end before."""

        def sunk() -> bool:
            told = self._events[self._began[job.name] :]
            ended = [event for event in told if event["event"] == "gone" or is_end_of(event, job)]
            assert not ended, f"{job.name} in {self.home.name}: {ended}"
            return condition()

        wait_until(sunk, f"{what} of {job.name}; the log of {self.home.name} ends\n{self.log_end()}", timeout)

    def packages(self) -> dict[str, Path]:
        """Return the directory of the package that each kind of process has imported, by the kind."""
        return {path.name.removeprefix("package-"): Path(path.read_text()) for path in self.home.glob("package-*")}

    def commits(self) -> list[dict[str, Any]]:
        """The answers to its commits, as `hooks/named_points.py` journals them."""
        return whole_lines(self.home / "commits.jsonl")


def is_end_of(event: Mapping[str, Any], job: Job) -> bool:
    """Whether an event tells that a job's query has ended."""
    return event["event"] == "ended" and event["query"] == job.name


def whole_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON lines of a file that may be written to."""
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


class Group:
    """A group as the brokers tell of it."""

    def __init__(self, server: KafkaServer, group: str, partitions: int) -> None:
        self.name = group
        self._partitions = partitions
        self._cluster = KafkaCluster(ClientOptions(SERVERS.parse(server.bootstrap_servers)))

    def holders(self) -> list[tuple[str, list[int]]]:
        """The members' client ids, each with the partitions it holds; two incarnations of a job are two members."""
        described = describe_any_group(self._cluster, self.name, self._cluster.deadline(20_000))
        return sorted((m.client_id, sorted(tp.partition for tp in m.assigned or ())) for m in described.members)

    def is_shared_by(self, *names: str) -> bool:
        """Whether exactly these members hold all partitions, each partition once."""
        held = self.holders()
        partitions = sorted(p for _, holds in held for p in holds)
        return [name for name, _ in held] == sorted(names) and partitions == list(range(self._partitions))

    def await_shared_by(self, *names: str, since: float | None = None, within: float = 60.0) -> float:
        """Wait until exactly these members share; the seconds since `since` (of time.monotonic), at most `within`."""
        began = time.monotonic() if since is None else since
        left = began + within - time.monotonic()
        try:
            wait_until(lambda: self.is_shared_by(*names), f"{self.name} is shared by {names}", left)
        except AssertionError as error:
            error.add_note(f"its members hold {self.holders()}")
            raise
        return time.monotonic() - began

    def close(self) -> None:
        self._cluster.close()
