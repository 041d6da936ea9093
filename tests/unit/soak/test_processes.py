"""The processes of an application, as /proc shows them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak.judgement import COORDINATOR, DRIVER
from tests.soak.processes import processes_of

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system has no /proc")

PROGRAM = """
import subprocess, sys, threading
held = [open("/dev/null") for _ in range(5)]
program = "import sys; print(flush=True); sys.stdin.read()"
child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()  # a child that has not begun its program has the handles of its parent
threading.Thread(target=sys.stdin.read, daemon=True).start()
print(child.pid, flush=True)
child.wait()
"""


@pytest.fixture
def application() -> Iterator[tuple[int, int]]:
    """A process that leads a session, and its child."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    yield process.pid, child
    os.killpg(process.pid, 9)
    process.communicate()


def test_roles_memory_handles_and_threads_are_read(application: tuple[int, int]) -> None:
    driver, child = application
    found = {process.role: process for process in processes_of(driver, child)}
    assert found[DRIVER].pid == driver
    assert found[COORDINATOR].pid == child
    assert 2 < found[DRIVER].rss_mib < 100
    assert found[DRIVER].handles >= found[COORDINATOR].handles + 5
    assert found[DRIVER].threads == 2
    assert found[DRIVER].name != found[COORDINATOR].name
    assert found[DRIVER].cpu_s < 60


def test_a_process_without_a_role_or_of_another_session_is_left_out(application: tuple[int, int]) -> None:
    driver, child = application
    assert [process.role for process in processes_of(driver, None)] == [DRIVER]
    assert list(processes_of(child, None)) == []
