"""One run of the soak: applications, load, events and samples. The judgement is elsewhere (`judgement.py`)."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import streamgroup
from streamgroup.errors import StreamGroupError
from streamgroup.testing import KafkaServer
from tests.fault.applications import Application, Group, Job, Struck
from tests.fault.jobs_checker import Checker, InFlight, in_flight
from tests.hooks.named_points import READ
from tests.releases import Release, package_of
from tests.soak.announcements import Announcements
from tests.soak.judgement import Measured
from tests.soak.processes import processes_of
from tests.soak.sample import LagSample, ProcessSample
from tests.soak.schedule import Event, Kind, schedule
from tests.spark.class_archive import class_archive
from tests.spark.support import Load, committed
from tests.waiting import repeatedly

MEMBERS = ("a", "b", "c")
PARTITIONS = 6
BATCH = 600
SESSION_MS = 10_000
"""Longer than a broker restart, so that the group keeps its members over it."""
SEND_EVERY_S = 0.5
SAMPLE_EVERY_S = 5.0
BROKER_AWAY_S = 2.0
REJOIN_S = 120.0
COMMIT_S = 300.0
_OPTIONS = {
    "kafka.session.timeout.ms": str(SESSION_MS),
    "kafka.heartbeat.interval.ms": "1000",
    "kafka.request.timeout.ms": "5000",
}
PATIENT = {"message.timeout.ms": 120_000, "log_level": 0}
"""The producer outlives the broker's restarts."""
Say = Callable[[dict[str, Any]], None]
"""Writes one JSON line."""


class Soak:
    """Three jobs of one group under load, until the schedule is over. They begin with `old` and are upgraded."""

    def __init__(self, server: KafkaServer, topic: str, home: Path, *, old: Release, rate: float, say: Say) -> None:
        self._server = server
        self._home = home
        self._rate = rate
        self._say = say
        self._load = Load(server, topic, PARTITIONS, PATIENT)
        self._group = Group(server, "soak", PARTITIONS)
        self._jobs = {name: Job(name, self._load, self._group.name, home, BATCH, _OPTIONS) for name in MEMBERS}
        self._runs: dict[str, Application] = {}
        self._used: list[Application] = []
        self._releases: dict[str, str] = {}
        """The version of each application, by its name."""
        self._old: Release | None = old
        """The release of new applications. None: this version."""
        self._flags = (f"-XX:SharedArchiveFile={class_archive()}",)
        self._struck: list[InFlight] = []
        self._announced = Announcements()
        self._processes: list[ProcessSample] = []
        self._lags: list[LagSample] = []
        self._committed = 0
        self._happened: Counter[str] = Counter()
        self._began = time.monotonic()

    # --- the run -----------------------------------------------------------------------------------------------------

    def run(self, seed: int, seconds: float, warm_s: float, bin_s: float) -> Measured:
        """Carry the schedule out and return the measurements."""
        events = schedule(seed, seconds, MEMBERS)
        for name in MEMBERS:
            self._start(name)
        self._group.await_shared_by(*MEMBERS, within=REJOIN_S)
        self._began = time.monotonic()
        with repeatedly(self._send, SEND_EVERY_S), repeatedly(self._sample, SAMPLE_EVERY_S):
            for event in events:
                self._wait_until(event.at_s)
                self._carry_out(event)
            self._wait_until(seconds)
        took = self._now  # longer than wanted where the events have taken their time
        lost, repeats, wrong = self._check()
        self._look_at_logs()
        return Measured(
            seconds=took,
            rate=self._rate,
            warm_s=warm_s,
            bin_s=bin_s,
            release=streamgroup.__version__,
            processes=self._processes,
            lags=self._lags,
            sent=len(self._load.sent),
            lost=lost,
            repeats=repeats,
            licensed=sum(map(len, (*self._struck, *self._announced.repeats))),
            wrong=[*wrong, *self._announced.unknown],
            planned=dict(Counter(event.kind.value for event in events)),
            happened=dict(self._happened),
            losses=len(self._announced.losses),
            unrecorded=len(self._announced.unrecorded),
        )

    def close(self) -> None:
        """End all applications."""
        self._group.close()
        for application in self._used:
            application.kill()

    def _wait_until(self, at_s: float) -> None:
        time.sleep(max(0.0, self._began + at_s - time.monotonic()))

    @property
    def _now(self) -> float:
        return time.monotonic() - self._began

    # --- load and samples, each from a thread of its own -------------------------------------------------------------

    def _send(self) -> None:
        """Send as many records as the rate wants by now: a broker that was away is caught up on."""
        due = int(self._now * self._rate) - len(self._load.sent)
        if due > 0:
            self._load.send(due)

    def _sample(self) -> None:
        now = self._now
        processes = [sample for name in MEMBERS for sample in self._processes_of(name, now)]
        with suppress(StreamGroupError):  # the broker is away: then nothing is committed either
            self._committed = sum(committed(self._server, self._group.name, self._load.topic).values())
        sent = len(self._load.sent)
        lag = LagSample(now, sent, max(0, sent - self._committed))
        self._processes += processes
        self._lags.append(lag)
        self._look_at_logs()
        shown = [
            {
                "process": p.process,
                "role": p.role,
                "release": p.release,
                "cpu_s": p.cpu_s,
                "rss_mib": round(p.rss_mib, 1),
                "handles": p.handles,
                "threads": p.threads,
            }
            for p in processes
        ]
        self._say({"event": "sample", "at": round(now, 1), "sent": sent, "lag": lag.lag, "processes": shown})

    def _processes_of(self, name: str, now: float) -> list[ProcessSample]:
        application = self._runs.get(name)
        if application is None or not application.alive:
            return []
        note = application.home / "coordinator"
        coordinator = int(note.read_text() or 0) if note.exists() else None
        release = self._releases[application.home.name]
        return [
            ProcessSample(
                now, f"{p.role}-{p.pid}-{p.started}", p.role, release, p.cpu_s, p.rss_mib, p.handles, p.threads
            )
            for p in processes_of(application.process.pid, coordinator)
        ]

    def _look_at_logs(self) -> None:
        self._announced.look(list(self._used), list(self._jobs.values()), self._now)

    # --- events ------------------------------------------------------------------------------------------------------

    def _carry_out(self, event: Event) -> None:
        self._say({"event": "begins", "at": round(self._now, 1), "kind": event.kind.value, "member": event.member})
        match event.kind:
            case Kind.SIGKILL:
                self._end(event.member, signal.SIGKILL)
                self._start(event.member)
            case Kind.SIGTERM:
                self._end(event.member, signal.SIGTERM)
                self._start(event.member)
            case Kind.PAUSE:
                self._pause(event.member)
            case Kind.BROKER:
                (broker,) = self._server.brokers
                broker.kill()
                time.sleep(BROKER_AWAY_S)  # how long it is away: batches are planned and committed meanwhile
                broker.restart()
            case Kind.UPGRADE:
                self._upgrade()
        took = self._group.await_shared_by(*MEMBERS, within=REJOIN_S)
        for name in MEMBERS:
            self._await_another_batch(name)
        self._happened[event.kind.value] += 1
        self._say({"event": "over", "at": round(self._now, 1), "kind": event.kind.value, "shared_after_s": round(took)})

    def _start(self, name: str) -> None:
        """Start a member in an application of its own, which goes on with the member's checkpoint."""
        version = streamgroup.__version__ if self._old is None else self._old.version
        home = self._home / f"{name}-{len(self._used)}"
        package = None if self._old is None else package_of(self._old)
        application = Application(home, self._flags, package)
        self._releases[home.name] = version
        self._used.append(application)
        application.await_ready().start(self._jobs[name])
        self._runs[name] = application

    def _end(self, name: str, number: signal.Signals) -> None:
        application = self._runs[name]
        at = time.monotonic()
        if number is signal.SIGKILL:
            application.kill()
        else:
            application.signal(number)
            application.await_jvm_gone()
            application.kill()
        self._struck.append(in_flight(self._jobs[name], Struck(READ, number.name, at)))

    def _pause(self, name: str) -> None:
        """Stop a member's processes for two sessions. The others take its partitions over."""
        application = self._runs[name]
        application.signal(signal.SIGSTOP)
        try:
            self._struck.append(in_flight(self._jobs[name], Struck(READ, "SIGSTOP", time.monotonic())))
            others = [each for each in MEMBERS if each != name]
            self._group.await_shared_by(*others, within=REJOIN_S)
            time.sleep(SESSION_MS / 1000)  # the members go on without it for another session
        finally:
            application.signal(signal.SIGCONT)

    def _upgrade(self) -> None:
        """Drain each member and go on with this version, one after the other."""
        self._old = None
        for name in MEMBERS:
            application = self._runs[name]
            assert application.drain(self._jobs[name]), f"{name} was not drained"
            application.kill()
            self._start(name)
            self._group.await_shared_by(*MEMBERS, within=REJOIN_S)
            self._await_another_batch(name)

    def _await_another_batch(self, name: str) -> None:
        application, job = self._runs[name], self._jobs[name]
        application.await_batches(job, application.batches(job) + 1, REJOIN_S)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _check(self) -> tuple[int, int, list[str]]:
        """Return lost and repeated records, and what the checker of the fault runs says against the run."""
        checker = Checker(self._load, self._home)
        wrong: list[str] = []
        try:
            checker.await_all_committed(self._group.name, COMMIT_S)
            self._look_at_logs()
            checker.check(self._used, [*self._struck, *self._announced.repeats])
        except AssertionError as error:
            wrong.append(" ".join(str(error).split())[:300])
        delivered = checker.deliveries()
        lost = len(set(self._load.sent) - set(delivered))
        return lost, sum(len(times) - 1 for times in delivered.values()), wrong
