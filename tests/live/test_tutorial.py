"""docs/tutorial.md as a newcomer follows it: its files and its commands, in their order, with a port of the test's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streamgroup.testing.ports import free_ports
from tests.waiting import wait_until

pytestmark = [pytest.mark.live, pytest.mark.long, pytest.mark.timeout(300)]

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
STEP_TIMEOUT_S = 90.0


class Newcomer:
    """Follows the page in an empty directory, with a free port in place of the page's 9092."""

    def __init__(self, home: Path) -> None:
        self._home = home
        (port,) = free_ports(1)
        page = PAGE.read_text().replace("9092", str(port))
        text = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
        self.commands = [line.strip() for line in text.splitlines() if line.startswith("    ")]
        for name, code in re.findall(r"file\s+`([\w.]+)`:\n+```python\n(.*?)```", page, re.DOTALL):
            (home / name).write_text(code)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
        self._environment = {
            **inherited,
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
            "STREAMGROUP_STATE": str(home / "state"),
        }

    def run(self, command: str) -> str:
        """Run a command to its end, and return what it prints."""
        done = self._finished(command)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def _finished(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=self._home,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=STEP_TIMEOUT_S,
            check=False,
        )

    @contextmanager
    def running(self, command: str, says: str) -> Iterator[subprocess.Popen[str]]:
        """Run a command in a terminal of its own, which has printed `says`."""
        name = says.replace(" ", "-")
        with (self._home / name).open("w") as printed:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=self._home, env=self._environment, stdout=printed, text=True
            )
        try:
            wait_until(lambda: says in (self._home / name).read_text(), says, STEP_TIMEOUT_S)
            yield process
            assert process.wait(STEP_TIMEOUT_S) == 0
            assert (self._home / name).read_text().endswith(f"{says.split(maxsplit=1)[0]} was drained\n")
        finally:
            process.kill()
            process.wait()

    def lags(self, groups: str) -> list[int]:
        """Run the page's command for the offsets of the group. Return the lag of each partition that a member holds."""
        return [row["lag"] for row in self._rows(groups) if row["consumer_id"]]

    def held(self, members: str) -> list[int]:
        """Run the page's command for the members. Return how many partitions each of them holds."""
        return sorted(row["partitions"] or 0 for row in self._rows(members))

    def rebalances(self, members: str) -> list[int]:
        """Run the page's command for the members. Return how many rebalances each of them has counted."""
        return sorted(row["trouble"]["rebalance"]["count"] for row in self._rows(members))

    def _rows(self, command: str) -> list[dict[str, Any]]:
        """Run a command about the group, and return its rows.

        Before its first member has joined, the group does not exist: the command fails, and the result is empty.
        """
        found = self._finished(f"{command} --json")
        assert found.returncode == 0 or "does not exist" in found.stderr, found.stderr
        rows: list[dict[str, Any]] = json.loads(found.stdout) if found.returncode == 0 else []
        return rows


def test_a_newcomer_counts_every_record_once(tmp_path: Path) -> None:
    newcomer = Newcomer(tmp_path)
    (venv, path, doctor, up, produce, topic, a, groups, b, members, more, drain_a, drain_b, count, down) = (
        newcomer.commands
    )
    assert venv == "make venv", "the environment of these tests"
    assert path.startswith("export PATH=")
    newcomer.run(doctor)
    newcomer.run(up)
    try:
        newcomer.run(produce)
        assert "orders" in newcomer.run(topic)
        with newcomer.running(a, "a reads"):
            wait_until(lambda: newcomer.lags(groups) == [0] * 4, "the first batch is committed", STEP_TIMEOUT_S)
            with newcomer.running(b, "b reads"):
                wait_until(lambda: newcomer.held(members) == [2, 2], "they share", STEP_TIMEOUT_S)
                assert newcomer.rebalances(members) == [1, 2]
                newcomer.run(more)
                assert "drained: nothing will be repeated" in newcomer.run(drain_a)
                wait_until(lambda: newcomer.held(members) == [4], "b holds all", STEP_TIMEOUT_S)
                wait_until(lambda: newcomer.lags(groups) == [0] * 4, "all is committed", STEP_TIMEOUT_S)
                assert "drained: nothing will be repeated" in newcomer.run(drain_b)
        assert newcomer.run(count) == "2000 rows, 2000 values\n"
        with newcomer.running(a, "a reads"):
            wait_until(lambda: newcomer.held(members) == [4], "a goes on", STEP_TIMEOUT_S)
            assert newcomer.lags(groups) == [0] * 4
            newcomer.run(drain_a)
        assert newcomer.run(count) == "2000 rows, 2000 values\n", "nothing is read twice"
    finally:
        newcomer.run(down)
