"""Small shell scripts stand in for servers: what matters is how processes are led."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamgroup.errors import StreamGroupError
from streamgroup.testing import processes
from streamgroup.testing.processes import PortTakenError, ServerProcess, ServerStartError, on_free_ports
from tests.waiting import wait_until

DEADLINE_S = 20

SERVES = (
    "exec 2>/dev/null; trap 'echo bye; exit 0' TERM; echo $$ >> started; echo serving; while :; do sleep 0.02; done"
)
DEAF = "trap '' TERM; echo $$ >> started; while :; do sleep 0.02; done"

Make = Callable[..., ServerProcess]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[ServerProcess] = []

    def server(script: str = SERVES, timeout_s: float = DEADLINE_S) -> ServerProcess:
        starts = tmp_path / "started"

        def ready() -> bool:
            return process.pid is not None and starts.exists() and str(process.pid) in starts.read_text().split()

        argv = ["/bin/sh", "-c", script]
        process = ServerProcess("a server", argv, tmp_path / "server.log", ready, start_timeout_s=timeout_s)
        made.append(process)
        return process

    yield server
    for process in made:
        process.kill()


def state_of(pid: int) -> str:
    """One letter of proc(5), empty where the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def test_a_started_server_lives_in_a_process_group_of_its_own_until_it_is_stopped(make: Make) -> None:
    server = make()
    server.start()
    assert server.alive
    assert server.pid is not None
    assert os.getpgid(server.pid) == server.pid != os.getpgid(0)
    server.stop()
    assert not server.alive
    assert server.log.read_text().split() == ["serving", "bye"]


def test_a_killed_server_has_no_time_for_good_order_and_may_be_killed_again(make: Make) -> None:
    server = make()
    server.start()
    server.kill()
    assert not server.alive
    server.kill()
    server.stop()
    assert "bye" not in server.log.read_text()


def test_a_server_deaf_to_sigterm_is_killed_after_the_deadline(make: Make) -> None:
    server = make(DEAF)
    server.start()
    server.stop(timeout_s=0.1)
    assert not server.alive


@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="the test reads a process state from /proc, which Linux has"
)
def test_a_paused_server_is_alive_but_does_not_run_until_resumed(make: Make) -> None:
    server = make("echo $$ >> started; exec sleep 60")
    server.start()
    assert server.pid is not None
    pid = server.pid
    server.pause()
    assert state_of(pid) == "T"
    assert server.alive
    server.resume()
    wait_until(lambda: state_of(pid) in ("S", "R"), "it goes on")


THREADS = 8
BUSY = f"""
import pathlib, threading, time
def count(file):
    while True:
        file.seek(0)
        file.write(str(time.monotonic_ns()).encode())
for n in range({THREADS}):
    threading.Thread(target=count, args=(open(f"thread{{n}}", "wb", buffering=0),)).start()
print("serving", flush=True)
"""


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of several threads, each of which writes the time into a file without end."""
    server = ServerProcess(
        "a server", [sys.executable, "-c", BUSY], tmp_path / "server.log", lambda: True, announces="serving"
    )
    server.start()
    yield server
    server.kill()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="Linux shows the states of threads in /proc")
def test_every_thread_of_a_paused_server_has_stopped_when_pause_returns(busy: ServerProcess, tmp_path: Path) -> None:
    def read() -> list[bytes]:
        return [(tmp_path / f"thread{n}").read_bytes() for n in range(THREADS)]

    def differs(before: list[bytes]) -> bool:
        return read() != before

    tasks = sorted(Path(f"/proc/{busy.pid}/task").iterdir())
    assert len(tasks) == THREADS + 1
    for _ in range(20):
        busy.pause()
        states = {(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks}
        written = read()
        busy.pause()  # paused already
        time.sleep(0.005)
        assert states == {"T"}
        assert read() == written
        busy.resume()
        wait_until(functools.partial(differs, written), "it goes on")


def test_a_pause_leaves_the_exit_status_to_whoever_waits_for_the_server(tmp_path: Path) -> None:
    script = "trap 'exit 7' TERM; echo serving; while :; do sleep 0.02; done"
    is_ready = True
    server = ServerProcess(
        "a server", ["/bin/sh", "-c", script], tmp_path / "log", lambda: is_ready, announces="serving"
    )
    server.start()
    server.pause()
    server.resume()
    server.pause()
    assert server.alive
    assert server.pid is not None
    os.kill(server.pid, signal.SIGTERM)
    server.resume()
    wait_until(lambda: not server.alive, "the server has ended")
    is_ready = False
    with pytest.raises(ServerStartError, match="ended with exit code 7"):
        server.await_ready()


def test_a_pause_waits_for_a_server_that_is_starting_a_child(make: Make) -> None:
    server = make("echo $$ >> started; while :; do /bin/true; done")
    server.start()
    for _ in range(100):
        server.pause()
        server.resume()


def test_a_server_that_ends_instead_of_pausing_is_an_error(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    server = make()
    server.start()
    kill = os.kill
    with monkeypatch.context() as patched:
        patched.setattr(os, "kill", lambda pid, _: kill(pid, signal.SIGKILL))
        with pytest.raises(StreamGroupError, match="cannot pause a server: it ended with exit code -9"):
            server.pause()


def test_a_server_that_runs_on_is_an_error_at_the_deadline(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    server = make()
    server.start()
    with monkeypatch.context() as patched:
        patched.setattr(processes, "PAUSE_TIMEOUT_S", 0.05)
        patched.setattr(os, "kill", lambda pid, number: None)
        with pytest.raises(StreamGroupError, match=r"a server \(pid \d+\): it did not stop within 0.05 s"):
            server.pause()


def test_a_paused_server_can_be_stopped_in_good_order(make: Make) -> None:
    server = make()
    server.start()
    server.pause()
    server.stop()
    assert server.log.read_text().split()[-1] == "bye"


def test_restart_stops_a_running_process_and_starts_it_with_the_same_log(make: Make) -> None:
    server = make()
    server.start()
    with pytest.raises(StreamGroupError, match="runs already"):
        server.start()
    first = server.pid
    server.restart()
    assert server.pid != first
    assert server.log.read_text().split() == ["serving", "bye", "serving"]


@pytest.mark.parametrize("act", ["pause", "resume"])
def test_a_signal_to_a_dead_server_is_an_error_that_names_the_way_out(make: Make, act: str) -> None:
    server = make()
    server.start()
    server.kill()
    with pytest.raises(StreamGroupError, match="restart"):
        getattr(server, act)()


def test_a_failed_start_shows_exit_code_and_the_end_of_this_starts_log(make: Make, tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("of an earlier start\n")
    with pytest.raises(ServerStartError) as raised:
        make("for i in $(seq 100); do echo line $i; done; echo no such directory >&2; exit 7").start()
    message = str(raised.value)
    assert "a server ended with exit code 7" in message
    assert message.endswith("line 100\nno such directory")
    assert "line 1\n" not in message
    assert "earlier" not in message


def test_an_answer_from_another_server_on_its_port_is_not_taken_for_its_own(tmp_path: Path) -> None:
    script = "sleep 0.3; echo Address already in use; exit 1"
    server = ServerProcess("b", ["/bin/sh", "-c", script], tmp_path / "log", lambda: True, announces="has started")
    with pytest.raises(PortTakenError):
        server.start()


def test_a_start_that_hangs_ends_at_its_deadline_and_leaves_no_process(make: Make) -> None:
    server = make("echo waiting for godot; exec sleep 60", timeout_s=0.3)
    began = time.monotonic()
    with pytest.raises(ServerStartError, match=r"did not serve within 0 s[\s\S]*waiting for godot"):
        server.start()
    assert time.monotonic() - began < DEADLINE_S
    assert not server.alive


def test_a_taken_port_is_recognised_even_far_above_the_log_tail(make: Make) -> None:
    with pytest.raises(PortTakenError):
        make("echo java.net.BindException: Address already in use; seq 1000; exit 1").start()


ORPHANER = """
import os, pathlib, signal, sys, threading
from streamgroup.testing.processes import ServerProcess
log = pathlib.Path(sys.argv[1]) / "orphan.log"
server = ServerProcess("orphan", ["/bin/sh", "-c", "echo up; exec sleep 60"], log, lambda: "up" in log.read_text())
starter = threading.Thread(target=server.start)   # its end must not be the server's
starter.start()
starter.join()
assert server.alive
print(server.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_server_dies_with_the_process_that_started_it_however_that_dies(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", ORPHANER, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    # Whoever adopts orphans here need not reap them: a zombie has died, too.
    wait_until(lambda: state_of(int(ran.stdout)) in ("", "Z"), "the server has ended")


class Taken:
    """A server whose port is another's for the first few starts."""

    def __init__(self, times: int, error: type[ServerStartError] = PortTakenError) -> None:
        self.left, self.error, self.starts = times, error, 0

    def __call__(self) -> None:
        self.starts += 1
        if self.starts <= self.left:
            raise self.error(f"attempt {self.starts}")


def test_a_port_that_somebody_took_in_between_is_looked_for_again() -> None:
    server = Taken(2)
    on_free_ports(server, fixed=False)
    assert server.starts == 3


@pytest.mark.parametrize(
    ("error", "fixed", "starts"), [(PortTakenError, False, 3), (PortTakenError, True, 1), (ServerStartError, False, 1)]
)
def test_a_port_is_not_looked_for_without_end_and_neither_where_it_is_fixed_nor_after_another_failure(
    error: type[ServerStartError], fixed: bool, starts: int
) -> None:
    server = Taken(10, error)
    with pytest.raises(error, match=f"attempt {starts}"):
        on_free_ports(server, fixed=fixed)
    assert server.starts == starts
