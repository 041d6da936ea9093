"""The bar of a process that runs as spark-submit runs the job: its output and errors are pipes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.terminals import terminal

pytestmark = pytest.mark.slow

JOB = """
import time
from streamgroup.jobs.backfill import command as module
module.REDRAW_S = 0.02
with module.terminal_bar() as advance:
    time.sleep(0.1)
    advance(30, 120)
    time.sleep(0.1)
    print("backfill: step 3 of 12", flush=True)
    advance(120, 120)
    time.sleep(0.1)
print("over")
"""
IN_BACKGROUND = f"import os\nos.setpgid(0, 0)\n{JOB}"
SAID = "backfill: step 3 of 12\nover\n"


def run(argv: list[object], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["env", *(f"{name}={value}" for name, value in environment.items()), *map(str, argv)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        start_new_session=True,
    )


def test_the_bar_is_on_the_terminal_and_standard_output_has_the_lines_alone() -> None:
    with terminal() as user:
        done = run(user.argv([sys.executable, "-c", JOB]), TERM="xterm")
    assert (done.stdout, done.stderr) == (SAID, "")
    drawn = user.text()
    assert all(part in drawn for part in ("0/?", " 25%", "30/120", "100%", "120/120", "offsets"))
    assert "\n" not in drawn, "the bar stays in its line"
    assert drawn.endswith("\r\x1b[K"), "it is erased at the end"
    assert "\x1b[?25l" not in drawn, "a job that is killed leaves a cursor to its user"


def test_without_a_terminal_nothing_is_drawn() -> None:
    done = run([sys.executable, "-c", JOB], TERM="xterm")
    assert (done.stdout, done.stderr) == (SAID, "")


def test_a_job_in_the_background_draws_nothing() -> None:
    # The shell stays in the foreground: the job is its child, in a process group of its own.
    shell = ["sh", "-c", '"$@" & wait $!', "sh", sys.executable, "-c", IN_BACKGROUND]
    with terminal() as user:
        done = run(user.argv(shell), TERM="xterm")
    assert (done.stdout, done.stderr, user.text()) == (SAID, "", "")


def test_a_dumb_terminal_gets_no_control_sequences() -> None:
    with terminal() as user:
        done = run(user.argv([sys.executable, "-c", JOB]), TERM="dumb")
    assert (done.stdout, user.text()) == (SAID, "")


def test_a_terminal_that_is_closed_meanwhile_does_not_end_the_job() -> None:
    failing = JOB.replace("module.REDRAW_S", "module.TerminalBar._line = fail\nmodule.REDRAW_S")
    failing = f"def fail(bar):\n    raise OSError(5, 'Input/output error')\n{failing}"
    with terminal() as user:
        done = run(user.argv([sys.executable, "-c", failing]), TERM="xterm")
    assert (done.stdout, done.stderr) == (SAID, "")
