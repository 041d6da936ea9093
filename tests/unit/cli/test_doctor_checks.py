from __future__ import annotations

import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from streamgroup.cli import _doctor_checks as module
from streamgroup.cli._doctor_checks import TRIED, CheckVerdict, findings_of, of_executors, of_pyspark
from streamgroup.errors import ConfigError
from tests.waiting import soon, wait_until

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
