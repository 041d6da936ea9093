"""The doctor's look at the brokers' clocks: it reads timestamps of `__consumer_offsets`, and writes nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from streamgroup.errors import AuthorizationError, BrokerAuthorizationError, StreamGroupError
from streamgroup.kafka.cluster.interface import kafka_of, open_cluster
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.wire.messages.log import ListOffsetsRequest
from streamgroup.model import TopicPartition
from streamgroup.options.types import ClientOptions, Isolation
from streamgroup.spark_home import spark_submit
from streamgroup.text import counted, first_of

WATCH_S = 6.0
"""Java's consumers commit every 5 s by default."""
_EVERY_S = 0.25
_OFFSETS_TOPIC = "__consumer_offsets"
_MAX_TIMESTAMP = -3
"""The timestamp of ListOffsets that asks for the record with the newest one, from version 7 on (Kafka 3.0, KIP-734)."""
_SINCE = 7
_SUBJECT = "clocks"


def of_clocks(
    options: ClientOptions, *, now: Callable[[], float] = time.time, watch_s: float = WATCH_S
) -> Iterator[Finding]:
    """Compare the clock of each broker that keeps groups with `now`, in seconds since 1970, for up to `watch_s`."""
    try:
        with closing(open_cluster(options)) as cluster:
            kafka = kafka_of(cluster, cluster.deadline())
            yield from _watched(kafka, now, min(watch_s, options.default_api_timeout_ms / 1000))
    except AuthorizationError as error:
        missing = error.missing if isinstance(error, BrokerAuthorizationError) else str(error)
        yield Finding(_SUBJECT, CheckVerdict.WARN, f"not compared with this machine's: {missing}")
    except StreamGroupError as error:
        yield Finding(_SUBJECT, CheckVerdict.WARN, f"not compared with this machine's: {error}")


def _watched(cluster: KafkaCluster, now: Callable[[], float], watch_s: float) -> Iterator[Finding]:
    deadline = cluster.deadline()
    if cluster.newest_version(ListOffsetsRequest, deadline) < _SINCE:
        yield Finding(
            _SUBJECT, CheckVerdict.OK, "not compared: brokers before Kafka 3.0 do not show their newest timestamp"
        )
        return
    snapshot = cluster.snapshot([_OFFSETS_TOPIC], deadline)
    topic = snapshot.topics.get(_OFFSETS_TOPIC)
    if topic is None:
        yield Finding(
            _SUBJECT, CheckVerdict.OK, f"not compared: {_OFFSETS_TOPIC} does not exist before a group commits"
        )
        return
    leaders = {
        TopicPartition(_OFFSETS_TOPIC, info.partition): info.leader
        for info in topic.partitions
        if info.leader in snapshot.brokers
    }
    watch = ClockWatch()
    nodes = sorted(set(leaders.values()))
    until = cluster.clock() + watch_s
    while True:
        sent = _ms(now())
        wanted = dict.fromkeys(leaders, _MAX_TIMESTAMP)
        listed = cluster.list_offsets(wanted, Isolation.READ_UNCOMMITTED, cluster.deadline())
        newest = {tp: found.timestamp for tp, found in listed.items()}
        watch.see(newest, leaders, sent=sent, received=_ms(now()))
        if watch.has_measured(nodes) or cluster.clock() >= until:
            break
        time.sleep(_EVERY_S)
    yield from (watch.finding(node, watch_s) for node in nodes)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


APPEND_MS = 1_000
"""The time allowed from a record's timestamp until ListOffsets shows it: it is written, and replicated, in between."""
TOLERANCE_MS = 1_000
"""Clocks that NTP synchronizes differ by less."""
_SYNCHRONIZE = "Synchronize the clocks of both machines (NTP)"


@dataclass(frozen=True, slots=True)
class Skew:
    """The bounds of a broker's clock minus this machine's, in milliseconds. `at_most` is None for old records."""

    at_least: int
    at_most: int | None = None

    def intersect(self, other: Skew) -> Skew:
        """Return the bounds that hold where those of both do."""
        uppers = [upper for upper in (self.at_most, other.at_most) if upper is not None]
        return Skew(max(self.at_least, other.at_least), min(uppers, default=None))


class ClockWatch:
    """The clocks of the leaders of `__consumer_offsets`, as successive looks at the newest timestamps show them."""

    def __init__(self) -> None:
        self._seen: dict[TopicPartition, tuple[int, int]] = {}
        """The newest timestamp of each partition, and when the last request was sent whose response showed it."""
        self._old: dict[int, Skew] = {}
        self._new: dict[int, Skew] = {}

    def see(
        self, newest: Mapping[TopicPartition, int], leaders: Mapping[TopicPartition, int], *, sent: int, received: int
    ) -> None:
        """Take one look: the newest timestamp of each partition, -1 for none, and the broker that leads it.

        `sent` and `received` are this machine's milliseconds since 1970. The first record that a partition shows may be
        old: the earlier looks may have come before its replication. So it is not a record of the watch.
        """
        for tp, timestamp in newest.items():
            node = leaders.get(tp)
            if timestamp < 0 or node is None:
                continue
            before = self._seen.get(tp)
            if before is not None and timestamp < before[0]:
                continue  # the newest record is gone or not replicated: the next looks show more
            self._seen[tp] = timestamp, sent
            lower = timestamp - received
            if before is None:
                _narrow(self._old, node, Skew(lower))
            elif timestamp > before[0]:
                _narrow(self._new, node, Skew(lower, timestamp - before[1] + APPEND_MS))

    def has_measured(self, nodes: Iterable[int]) -> bool:
        """Return whether each of `nodes` has stamped a record during the watch."""
        return all(node in self._new for node in nodes)

    def finding(self, node: int, watched_s: float) -> Finding:
        """Return the finding about the clock of one broker after a watch of `watched_s` seconds."""
        subject = f"clock of broker {node}"
        new = self._new.get(node)
        if new is not None and new.at_most is not None:
            return Finding(subject, *_measured(new.at_least, new.at_most))
        old = self._old.get(node)
        if old is not None and old.at_least > TOLERANCE_MS:
            text = (
                f"ahead now or earlier: a record of __consumer_offsets that this broker or an earlier leader has "
                f"stamped is {_seconds(old.at_least)} s from this machine's time. {_SYNCHRONIZE}"
            )
            return Finding(subject, CheckVerdict.WARN, text)
        text = f"not measured: no group has committed at this broker within {watched_s:.0f} s. Check while one commits"
        return Finding(subject, CheckVerdict.OK, text)


def _narrow(bounds: dict[int, Skew], node: int, more: Skew) -> None:
    bounds[node] = bounds[node].intersect(more) if node in bounds else more


def _measured(at_least: int, at_most: int) -> tuple[CheckVerdict, str]:
    between = f"{_seconds(at_least)} to {_seconds(at_most)} s from this machine's, by commits during the check"
    if at_least > TOLERANCE_MS:
        return CheckVerdict.WARN, f"ahead: {between}. {_SYNCHRONIZE}"
    if at_most < -TOLERANCE_MS:
        return CheckVerdict.WARN, f"behind: {between}. {_SYNCHRONIZE}"
    return CheckVerdict.OK, between


def _seconds(ms: int) -> str:
    return f"{ms / 1000:+.1f}"


START_AND_STOP_S = 30.0
"""Added to the timeout of the tasks, for the JVM before them and the end of the session after them."""
_EXECUTORS = "executors"
_MOST_HOSTS = 5
_PROGRAM = "from streamgroup.jobs.executors import main\n\nmain()\n"
_NOT_VERSIONS = ("host", "parent", "python", "python_version")


def of_executors(master: str, conf: Sequence[str], timeout_s: float) -> Iterator[Finding]:
    """Run a task on each executor that `master` gives an application with the settings `conf` (NAME=VALUE)."""
    try:
        report = _report(master, conf, timeout_s)
    except StreamGroupError as error:
        yield Finding(_EXECUTORS, CheckVerdict.FAIL, str(error))
    else:
        yield from findings_of(report, timeout_s)


def findings_of(report: Mapping[str, Any], timeout_s: float) -> Iterator[Finding]:
    """Return the findings of a report: one for each set of versions, and one for each thing that is wrong."""
    looks: list[dict[str, str]] = report.get("found", [])
    alike: dict[str, list[str]] = defaultdict(list)
    for look in looks:
        alike[_versions(look)].append(look["host"])
    for versions, hosts in sorted(alike.items()):
        where = first_of(sorted(set(hosts)), _MOST_HOSTS, "host")
        yield Finding(_EXECUTORS, CheckVerdict.OK, f"{counted(len(hosts), 'executor')} on {where}: {versions}")
    if report["problem"] is not None:
        yield Finding(_EXECUTORS, CheckVerdict.FAIL, report["problem"])
    idle = report.get("known", 0) - len(looks)
    if idle > 0:
        text = (
            f"{idle} of {counted(report['known'], 'executor')} ran no task within {timeout_s:.0f} s. Check in the "
            "web UI of the application that its cores are free, or raise --executors-timeout"
        )
        yield Finding(_EXECUTORS, CheckVerdict.WARN, text)


def _versions(look: Mapping[str, str]) -> str:
    packages = [name if v == "unknown" else f"{name} {v}" for name, v in look.items() if name not in _NOT_VERSIONS]
    return ", ".join([f"Python {look['python_version']} ({look['python']})", *packages])


def _report(master: str, conf: Sequence[str], timeout_s: float) -> dict[str, Any]:
    """Return the report of the program. Raises StreamGroupError if it writes none."""
    with tempfile.TemporaryDirectory(prefix="streamgroup-doctor-") as home:
        program, report, log = (Path(home, name) for name in ("program.py", "report.json", "log"))
        program.write_text(_PROGRAM)
        settings = [word for each in conf for word in ("--conf", each)]
        command = [spark_submit(), "--master", master, *settings, str(program), str(report), str(timeout_s)]
        # The driver needs this Python, which has the package. PYSPARK_PYTHON, which the executors run, is the user's.
        environment = {**os.environ, "PYSPARK_DRIVER_PYTHON": sys.executable}
        with log.open("wb") as output:
            ended = _run(command, output.fileno(), environment, timeout_s + START_AND_STOP_S)
        if report.is_file():
            found: dict[str, Any] = json.loads(report.read_text())
            return found
        if not ended:
            after = f"within {timeout_s + START_AND_STOP_S:.0f} s"
            cause = f"it has not ended {after}. Check that the master runs and that this machine reaches it"
        else:
            cause = f"{_last_error(log.read_text(errors='replace'))}. Check the master's address and the settings"
        raise StreamGroupError(f"cannot check the executors of {master}: spark-submit failed: {cause}")


def _run(command: Sequence[str], output: int, environment: Mapping[str, str], timeout_s: float) -> bool:
    """Run a command in a session of its own. Return whether it has ended by itself; nothing of it runs afterwards."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True
    )
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return False
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return True


def _last_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    first = next((line for line in reversed(lines) if "Error" in line or "Exception" in line), None)
    return (first or (lines[-1] if lines else "it printed nothing"))[:300].rstrip(".")


TRIED = ("4.2", "4.3")
"""Minor versions, ascending. The first is the lower bound in pyproject.toml."""


def of_pyspark(version: str) -> Finding:
    """Return whether `version`, such as `4.2.0`, is of a minor version that was tried."""
    if ".".join(version.split(".")[:2]) in TRIED:
        return Finding("pyspark", CheckVerdict.OK, version)
    tried = " and ".join(TRIED)
    text = f"{version}: streamgroup is tested with PySpark {tried}. Install one of these if a query fails"
    return Finding("pyspark", CheckVerdict.WARN, text)


class CheckVerdict(Enum):
    """The verdict of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: its subject, the verdict, and a text with the next step unless the verdict is OK."""

    subject: str
    verdict: CheckVerdict
    text: str
