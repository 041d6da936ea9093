"""Conversations on this machine: nobody is waited for longer than said."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Listener

import pytest

from streamgroup.net.local import connect

SHORT_S = 0.2


@pytest.fixture
def listener() -> Iterator[Listener]:
    """It accepts nobody by itself; its path is short, for a socket's path has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="sg-", dir="/tmp") as home, Listener(f"{home}/s", "AF_UNIX") as made:
        yield made


def test_messages_arrive_in_both_directions(listener: Listener) -> None:
    with connect(str(listener.address), 5.0) as asking, listener.accept() as answering:
        asking.send_bytes(b"how?")
        assert answering.recv_bytes() == b"how?"
        answering.send_bytes(b"so")
        assert asking.recv_bytes() == b"so"


def test_connecting_to_a_process_that_does_not_accept_times_out(listener: Listener) -> None:
    address = str(listener.address)
    with connect(address, SHORT_S), connect(address, SHORT_S):  # the kernel takes two for it, and then none
        began = time.monotonic()
        with pytest.raises(BlockingIOError):
            connect(address, SHORT_S)
        assert SHORT_S / 2 < time.monotonic() - began < 5


def test_a_peer_that_neither_reads_nor_writes_times_out(listener: Listener) -> None:
    with connect(str(listener.address), SHORT_S) as asking:
        began = time.monotonic()
        with pytest.raises(BlockingIOError):
            asking.recv_bytes()
        with pytest.raises(BlockingIOError):
            asking.send_bytes(b" " * (1 << 24))
        assert SHORT_S < time.monotonic() - began < 5


@pytest.mark.parametrize("timeout", [0.0, -1.0])
def test_a_timeout_of_zero_does_not_wait_forever(listener: Listener, timeout: float) -> None:
    with connect(str(listener.address), timeout) as asking, pytest.raises(BlockingIOError):
        asking.recv_bytes()


def test_a_path_without_a_listener_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        connect("/tmp/sg-nobody/s", SHORT_S)
