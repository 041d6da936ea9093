"""Checks of `streamgroup doctor` outside the cluster: the executors of a Spark master, and the version of PySpark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from streamgroup.errors import StreamGroupError
from streamgroup.spark_home import spark_submit
from streamgroup.text import counted, first_of


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
