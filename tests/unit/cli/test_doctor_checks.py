from __future__ import annotations

import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from streamgroup.advice import Operation, refusal
from streamgroup.cli import _doctor_checks as module
from streamgroup.cli._doctor_checks import (
    APPEND_MS,
    TRIED,
    CheckVerdict,
    ClockWatch,
    findings_of,
    of_clocks,
    of_executors,
    of_pyspark,
)
from streamgroup.errors import ConfigError, TransportError
from streamgroup.kafka.cluster.requests import ListedOffset
from streamgroup.model import Broker, ClusterSnapshot, PartitionInfo, TopicInfo, TopicPartition
from streamgroup.options.types import ClientOptions, Isolation
from tests.waiting import soon, wait_until

OPTIONS = ClientOptions((("127.0.0.1", 1),))
OFFSETS = TopicInfo("__consumer_offsets", (PartitionInfo(0, 1), PartitionInfo(1, 2), PartitionInfo(2, -1)))
BROKERS = {1: Broker(1, "one", 9092)}


class Cluster:
    """Brokers of which the second is away, and timestamps, one for each look."""

    def __init__(self, *stamps: int | Exception, version: int = 11, topic: TopicInfo | None = OFFSETS) -> None:
        self.stamps = list(stamps)
        self.version = version
        self.topic = topic
        self.closed = False

    def deadline(self, timeout_ms: int | None = None) -> float:
        return self.clock() + 10

    def clock(self) -> float:
        return time.monotonic()

    def newest_version(self, kind: object, deadline: float) -> int:
        return self.version

    def snapshot(self, topics: list[str], deadline: float) -> ClusterSnapshot:
        return ClusterSnapshot(BROKERS, {} if self.topic is None else {self.topic.name: self.topic})

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation, deadline: float
    ) -> dict[TopicPartition, ListedOffset]:
        assert wanted == {TopicPartition("__consumer_offsets", 0): -3}
        stamp = self.stamps.pop(0)
        if isinstance(stamp, Exception):
            raise stamp
        return {tp: ListedOffset(7, stamp) for tp in wanted}

    def close(self) -> None:
        self.closed = True


def findings(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> list[tuple[str, CheckVerdict, str]]:
    monkeypatch.setattr(module, "open_cluster", lambda _: cluster)
    monkeypatch.setattr(module, "_EVERY_S", 0.0)
    found = [(row.subject, row.verdict, row.text) for row in of_clocks(OPTIONS, now=lambda: 1_000.0)]
    assert cluster.closed
    return found


def test_the_watch_ends_when_every_clock_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(999_000, 999_000, 999_990, 999_995)
    ((subject, verdict, text),) = findings(monkeypatch, cluster)
    assert (subject, verdict) == ("clock of broker 1", CheckVerdict.OK)
    assert "by commits during the check" in text
    assert cluster.stamps == [999_995]


def test_a_user_who_may_not_describe_the_topic_gets_a_warning_with_the_right(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = refusal(29, "cannot list offsets", Operation.DESCRIBE, "__consumer_offsets")
    ((subject, verdict, text),) = findings(monkeypatch, Cluster(refused))
    assert (subject, verdict) == ("clocks", CheckVerdict.WARN)
    assert text.startswith(
        "not compared with this machine's: this user is not allowed the operation Describe on topic "
    )


def test_brokers_that_do_not_answer_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    ((_, verdict, text),) = findings(monkeypatch, Cluster(TransportError("no offsets: timed out")))
    assert (verdict, text) == (CheckVerdict.WARN, "not compared with this machine's: no offsets: timed out")


@pytest.mark.parametrize(
    ("cluster", "said"),
    [(Cluster(version=6), "brokers before Kafka 3.0"), (Cluster(topic=None), "does not exist before a group commits")],
    ids=["old brokers", "no groups"],
)
def test_clusters_without_such_timestamps_are_not_compared(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, said: str
) -> None:
    ((subject, verdict, text),) = findings(monkeypatch, cluster)
    assert (subject, verdict) == ("clocks", CheckVerdict.OK)
    assert text.startswith("not compared: ")
    assert said in text


ONE, TWO = TopicPartition("__consumer_offsets", 0), TopicPartition("__consumer_offsets", 1)
LEADERS = {ONE: 1, TWO: 2}
NOW = 1_800_000_000_000
HOUR = 3_600_000


def look(watch: ClockWatch, at: int, *, rtt: int = 20, one: int = -1, two: int = -1) -> None:
    watch.see({ONE: one, TWO: two}, LEADERS, sent=NOW + at, received=NOW + at + rtt)


def watch_of_a_commit(skew: int) -> ClockWatch:
    """A record from a minute before the watch, and one that is stamped 100 ms after the first look was sent."""
    watch = ClockWatch()
    look(watch, 0, one=NOW - 60_000 + skew)
    look(watch, 250, one=NOW + 100 + skew)
    return watch


@pytest.mark.parametrize("skew", [0, 500, -500])
def test_a_commit_during_the_watch_measures_a_clock(skew: int) -> None:
    watch = watch_of_a_commit(skew)
    finding = watch.finding(1, 6)
    low, high = (skew - 170) / 1000, (skew + 100 + APPEND_MS) / 1000
    assert finding.verdict is CheckVerdict.OK
    assert finding.text == f"{low:+.1f} to {high:+.1f} s from this machine's, by commits during the check"
    assert watch.has_measured([1])
    assert not watch.has_measured([1, 2])


@pytest.mark.parametrize(("skew", "said"), [(HOUR, "ahead: +3599.8 to"), (-HOUR, "behind: -3600.2 to")])
def test_a_clock_that_is_an_hour_off_is_warned_of_in_both_directions(skew: int, said: str) -> None:
    finding = watch_of_a_commit(skew).finding(1, 6)
    assert finding.verdict is CheckVerdict.WARN
    assert finding.text.startswith(said)
    assert finding.text.endswith("Synchronize the clocks of both machines (NTP)")


def test_an_old_record_from_the_future_shows_a_clock_that_is_or_was_ahead() -> None:
    watch = ClockWatch()
    look(watch, 0, one=NOW + 30_000)
    look(watch, 250, one=NOW + 30_000)
    finding = watch.finding(1, 6)
    assert finding.verdict is CheckVerdict.WARN
    assert finding.text.startswith("ahead now or earlier: ")
    assert "+30.0 s" in finding.text


def test_old_records_say_nothing_about_a_clock_that_is_behind() -> None:
    watch = ClockWatch()
    for at in (0, 250, 500):
        look(watch, at, one=NOW - HOUR)
    finding = watch.finding(1, 6)
    assert finding.verdict is CheckVerdict.OK
    assert finding.text.startswith("not measured: no group has committed at this broker within 6 s")


def test_the_first_record_that_a_partition_shows_may_be_old() -> None:
    watch = ClockWatch()
    look(watch, 0)
    look(watch, 250, one=NOW - HOUR)
    assert watch.finding(1, 6).text.startswith("not measured")


def test_a_record_that_was_hidden_for_a_look_is_bounded_by_the_look_before() -> None:
    watch = ClockWatch()
    look(watch, 0, one=NOW - 60_000)
    look(watch, 5_000)  # a record stamped at 100 is not replicated: the response has no offset
    look(watch, 5_250, one=NOW + 100)
    finding = watch.finding(1, 6)
    assert (finding.verdict, finding.text[:13]) == (CheckVerdict.OK, "-5.2 to +1.1 ")


def test_a_record_that_only_took_long_to_be_replicated_is_not_a_clock_behind() -> None:
    watch = ClockWatch()
    look(watch, 0, one=NOW - 60_000)
    look(watch, 2_000, one=NOW - 60_000)
    look(watch, 2_250, one=NOW + 2_000 - APPEND_MS)
    assert watch.finding(1, 6).verdict is CheckVerdict.OK


def test_several_commits_narrow_the_bounds() -> None:
    watch = ClockWatch()
    look(watch, 0, one=NOW - 60_000)
    look(watch, 1_000, one=NOW + 10)  # -1.0 to +1.0
    look(watch, 2_000, one=NOW + 1_990)  # -0.0 to +2.0
    assert watch.finding(1, 6).text.startswith("-0.0 to +1.0 s")


def test_each_broker_has_a_clock_of_its_own() -> None:
    watch = ClockWatch()
    look(watch, 0, one=NOW - 60_000, two=NOW - 60_000 + HOUR)
    look(watch, 250, one=NOW + 100, two=NOW + 100 + HOUR)
    assert [watch.finding(node, 6).verdict for node in (1, 2, 3)] == [
        CheckVerdict.OK,
        CheckVerdict.WARN,
        CheckVerdict.OK,
    ]


def test_a_partition_without_a_leader_counts_for_no_broker() -> None:
    watch = ClockWatch()
    for at, newest in ((0, NOW), (250, NOW + HOUR)):
        watch.see({TWO: newest}, {ONE: 1}, sent=NOW + at, received=NOW + at + 20)
    assert not watch.has_measured([2])


HEALTHY = {
    "host": "worker-1",
    "python": "/opt/python",
    "python_version": "3.11.7",
    "streamgroup": "0.1.0",
    "pyarrow": "20.0.0",
    "google_crc32c": "unknown",
    "parent": "17",
}


def report(*found: dict[str, str], known: int | None = None, problem: str | None = None) -> dict[str, Any]:
    return {"known": len(found) if known is None else known, "found": list(found), "problem": problem}


def test_executors_with_the_same_versions_are_one_finding() -> None:
    (finding,) = findings_of(report(HEALTHY, HEALTHY | {"host": "worker-2"}, HEALTHY | {"parent": "18"}), 60)
    assert finding.verdict is CheckVerdict.OK
    assert finding.text == (
        "3 executors on worker-1, worker-2: Python 3.11.7 (/opt/python), streamgroup 0.1.0, pyarrow 20.0.0, "
        "google_crc32c"
    )


def test_executors_with_other_versions_are_shown_apart() -> None:
    found = list(findings_of(report(HEALTHY, HEALTHY | {"host": "worker-2", "pyarrow": "19.0.0"}), 60))
    assert [row.text.split(":")[0] for row in found] == ["1 executor on worker-2", "1 executor on worker-1"]


def test_a_missing_package_fails_with_the_next_step() -> None:
    problem = "cannot run the source on the executors: it lacks the package streamgroup. Install it"
    first, second = findings_of(report(HEALTHY, problem=problem), 60)
    assert first.verdict is CheckVerdict.OK
    assert (second.verdict, second.text) == (CheckVerdict.FAIL, problem)


@pytest.mark.parametrize(("known", "idle"), [(2, "1 of 2"), (3, "2 of 3")])
def test_an_executor_that_runs_no_task_is_warned_of(known: int, idle: str) -> None:
    _, finding = findings_of(report(HEALTHY, known=known), 60)
    assert finding.verdict is CheckVerdict.WARN
    assert finding.text.startswith(f"{idle} executors ran no task within 60 s. ")


def test_a_session_that_does_not_start_is_its_problem_alone() -> None:
    (finding,) = findings_of({"problem": "no executor has run a task"}, 60)
    assert (finding.verdict, finding.text) == (CheckVerdict.FAIL, "no executor has run a task")


def submit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str) -> None:
    """Let a program stand in for spark-submit."""
    script = tmp_path / "spark-submit"
    script.write_text(f"#!{sys.executable}\n{program}")
    script.chmod(0o755)
    monkeypatch.setattr(module, "spark_submit", lambda: str(script))


def test_spark_submit_gets_the_master_the_settings_and_this_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    submit(
        monkeypatch,
        tmp_path,
        "import json, os, sys\n"
        "*given, program, report, timeout = sys.argv[1:]\n"
        "told = ' '.join([*given, open(program).read().split()[1], timeout, os.environ['PYSPARK_DRIVER_PYTHON']])\n"
        "json.dump({'problem': told}, open(report, 'w'))\n",
    )
    (finding,) = of_executors("spark://m:7077", ["a=b", "c=d"], 60)
    assert finding.text == (
        f"--master spark://m:7077 --conf a=b --conf c=d streamgroup.jobs.executors 60 {sys.executable}"
    )


def test_spark_that_ends_without_a_report_is_a_finding_with_the_last_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = "INFO start\\norg.apache.spark.SparkException: Could not parse Master URL: 'x'.\\nINFO shutdown"
    submit(monkeypatch, tmp_path, f'import sys\nprint("{lines}")\nsys.exit(1)\n')
    (finding,) = of_executors("x", [], 60)
    assert finding.verdict is CheckVerdict.FAIL
    assert finding.text == (
        "cannot check the executors of x: spark-submit failed: org.apache.spark.SparkException: Could not parse Master "
        "URL: 'x'. Check the master's address and the settings"
    )


def test_spark_that_does_not_end_is_killed_with_its_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started = tmp_path / "pid"

    class Started(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            """Time out as soon as the process has a child."""
            if timeout is None:
                return super().wait()
            wait_until(started.exists, "the child of spark-submit")
            raise subprocess.TimeoutExpired(self.args, timeout)

    monkeypatch.setattr(subprocess, "Popen", Started)
    submit(
        monkeypatch,
        tmp_path,
        "import os, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"open({f'{started}.new'!r}, 'w').write(str(child.pid))\n"
        f"os.rename({f'{started}.new'!r}, {str(started)!r})\n"
        "time.sleep(600)\n",
    )
    (finding,) = of_executors("spark://m:7077", [], 60)
    assert (finding.verdict, "it has not ended within 90 s" in finding.text) == (CheckVerdict.FAIL, True)
    pid = int(started.read_text())
    deadline = soon()
    while _runs(pid):
        assert time.monotonic() < deadline, "a process of spark-submit outlives the check"
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    """Return whether a process runs: one that was killed may wait for init to collect it."""
    state = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return state.strip() not in ("", "Z")


def test_a_machine_without_pyspark_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise ConfigError("cannot run Spark: PySpark is not installed. Install it: pip install 'streamgroup[spark]'")

    monkeypatch.setattr(module, "spark_submit", missing)
    (finding,) = of_executors("spark://m:7077", [], 60)
    assert (finding.verdict, finding.text.endswith("pip install 'streamgroup[spark]'")) == (CheckVerdict.FAIL, True)


ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("version", ["4.2.0", "4.2.1", "4.3.0", "4.3.0.dev1"])
def test_a_tried_minor_version_is_ok(version: str) -> None:
    finding = of_pyspark(version)
    assert (finding.verdict, finding.text) == (CheckVerdict.OK, version)


@pytest.mark.parametrize("version", ["4.1.1", "4.4.0", "4.20.0", "5.2.0"])
def test_another_version_is_warned_of_with_those_that_were_tried(version: str) -> None:
    finding = of_pyspark(version)
    assert finding.verdict is CheckVerdict.WARN
    assert finding.text.startswith(f"{version}: streamgroup is tested with PySpark 4.2 and 4.3. ")


def test_the_package_requires_the_first_version_that_was_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"pyspark>={TRIED[0]}" in project["optional-dependencies"]["spark"]
