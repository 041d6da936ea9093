"""Conversations on this machine: nobody is waited for longer than said."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Listener
from pathlib import Path
from typing import cast

import pytest

from streamgroup.kafka.net import local
from streamgroup.kafka.net.local import connect
from tests.waiting import TIMEOUT_S, repeatedly

SHORT_S = 0.2


@pytest.fixture
def listener() -> Iterator[Listener]:
    """It accepts nobody by itself; its path is short, for a socket's path has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="sg-", dir="/tmp") as home, Listener(f"{home}/s", "AF_UNIX") as made:
        yield made


def test_connecting_to_a_process_that_does_not_accept_times_out(listener: Listener) -> None:
    address = str(listener.address)
    with connect(address, TIMEOUT_S), connect(address, TIMEOUT_S):  # the kernel takes two for it, and then none
        began = time.monotonic()
        with pytest.raises(BlockingIOError):
            connect(address, SHORT_S)
        assert time.monotonic() - began > SHORT_S / 2


def test_a_signal_does_not_end_the_wait_for_a_process_that_does_not_accept(listener: Listener) -> None:
    address = str(listener.address)
    signals: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: signals.append(number))
    connecting = threading.get_ident()
    try:
        with (
            connect(address, TIMEOUT_S),
            connect(address, TIMEOUT_S),
            pytest.raises(BlockingIOError),
            repeatedly(lambda: signal.pthread_kill(connecting, signal.SIGUSR1), every=SHORT_S / 10),
        ):
            connect(address, SHORT_S)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert signals


@pytest.mark.slow
def test_a_peer_that_neither_reads_nor_writes_times_out(listener: Listener) -> None:
    with connect(str(listener.address), SHORT_S) as asking:
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            asking.recv_bytes(1)
        with pytest.raises(TimeoutError):
            asking.send_bytes(b" " * (1 << 24))
        assert time.monotonic() - began > SHORT_S


@pytest.mark.parametrize("timeout", [0.0, -1.0])
def test_a_timeout_of_zero_does_not_wait_forever(listener: Listener, timeout: float) -> None:
    with connect(str(listener.address), timeout) as asking, pytest.raises(TimeoutError):
        asking.recv_bytes(1)


@pytest.mark.slow
def test_a_message_that_comes_byte_by_byte_is_not_waited_for_longer(listener: Listener) -> None:
    with connect(str(listener.address), 5 * SHORT_S) as asking, listener.accept() as answering:
        is_over = threading.Event()

        def drip() -> None:
            os.write(answering.fileno(), struct.pack("!i", 1 << 20))
            while not is_over.wait(SHORT_S / 4):
                os.write(answering.fileno(), b"x")

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            with pytest.raises(TimeoutError):
                asking.recv_bytes(1 << 20)
        finally:
            is_over.set()
            thread.join()


@pytest.mark.parametrize("size", [-1, 11])
def test_a_message_beyond_the_bound_is_refused_before_its_bytes_are_read(listener: Listener, size: int) -> None:
    with connect(str(listener.address), TIMEOUT_S) as asking, listener.accept() as answering:
        os.write(answering.fileno(), struct.pack("!i", size))
        with pytest.raises(OSError, match=f"invalid message of {size} bytes"):
            asking.recv_bytes(10)


def test_a_connection_that_ends_within_a_message_is_its_end(listener: Listener) -> None:
    with connect(str(listener.address), TIMEOUT_S) as asking:
        with listener.accept() as answering:
            os.write(answering.fileno(), struct.pack("!i", 10) + b"x")
        with pytest.raises(EOFError):
            asking.recv_bytes(10)


def test_a_path_without_a_listener_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        connect("/tmp/sg-nobody/s", SHORT_S)


# -- other users ------------------------------------------------------------------------------------------------------

STRANGER = 12345
"""A user who is not the one of these tests."""
needs_credentials = pytest.mark.skipif(
    not hasattr(socket, "SO_PEERCRED"), reason="this system does not tell who is at the other end of a socket"
)


@contextmanager
def open_path() -> Iterator[Path]:
    """A path of a socket that modes do not protect: only the check of the other end does."""
    with tempfile.TemporaryDirectory(prefix="sg-", dir="/tmp") as home:
        Path(home).chmod(0o777)
        yield Path(home) / "s"


def run_as_stranger(program: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> subprocess.Popen[str]:
    """Run a program with the socket `path` as another user; without root, this process takes it for another user's."""
    if os.geteuid() == 0:
        program = f"import os, socket; os.setuid({STRANGER})\n{program}"  # who may not read the library
    else:
        user = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    return subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)


CLIENT = """
import socket, sys
with socket.socket(socket.AF_UNIX) as opened:
    opened.settimeout(60)
    opened.connect(sys.argv[1])
    print(opened.recv(1))
"""
SERVER = """
import os, socket, sys
with socket.socket(socket.AF_UNIX) as listening:
    listening.bind(sys.argv[1])
    os.chmod(sys.argv[1], 0o666)
    listening.listen(1)
    listening.settimeout(60)
    print("listens", flush=True)
    accepted, _ = listening.accept()
    print(accepted.recv(100))
"""


@needs_credentials
def test_a_process_of_another_user_is_hung_up_on_and_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with open_path() as path:
        listener = local.Listener(path, 4, TIMEOUT_S, TIMEOUT_S)
        path.chmod(0o666)
        with run_as_stranger(CLIENT, path, monkeypatch) as stranger:
            assert listener.accept() is None
            said, _ = stranger.communicate(timeout=60)
        listener.close()
    assert said == "b''\n", "closed without a byte"
    assert f"refused a connection to the control socket {path} from process {stranger.pid} of user " in caplog.text


@needs_credentials
def test_nothing_is_said_to_a_listener_of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_path() as path, run_as_stranger(SERVER, path, monkeypatch) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == "listens\n"
        refused = rf"^cannot connect to {path}: process {stranger.pid} of user \d+ listens there$"
        with pytest.raises(PermissionError, match=refused):
            connect(path, TIMEOUT_S)
        assert stranger.stdout.readline() == "b''\n", "closed without a byte"


@needs_credentials
def test_processes_of_the_same_user_exchange_messages() -> None:
    with open_path() as path:
        listener = local.Listener(path, 4, TIMEOUT_S, TIMEOUT_S)
        with connect(path, TIMEOUT_S) as asking, cast("local.MessageSocket", listener.accept()) as answering:
            asking.send_bytes(b"how?")
            assert answering.recv_bytes(4) == b"how?"
            answering.send_bytes(b"so")
            assert asking.recv_bytes(2) == b"so"
        listener.close()
