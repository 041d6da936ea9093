"""The sockets of a process acknowledge at once what arrives, where the system can."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from streamgroup.kafka.net import quick_acknowledgements
from streamgroup.kafka.net.quick_acknowledgements import acknowledge_at_once
from tests.unit.kafka.net.delayed import delayed_connection, is_prompt

pytestmark = pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux has TCP_QUICKACK")


@pytest.fixture
def worker_end() -> Iterator[socket.socket]:
    with delayed_connection() as end:
        yield end


def test_connections_of_the_process_acknowledge_at_once(worker_end: socket.socket) -> None:
    one, other = socket.socketpair()  # of the file system: it has no acknowledgements
    with one, other:
        acknowledge_at_once()
        one.sendall(b"still open")
        assert other.recv(100) == b"still open"
    assert is_prompt(worker_end)


def test_a_system_without_the_option_or_without_proc_is_left_alone(
    worker_end: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(quick_acknowledgements, "_QUICKACK", None)
        acknowledge_at_once()
    with monkeypatch.context() as patched:
        patched.setattr(quick_acknowledgements, "_DESCRIPTORS", quick_acknowledgements._DESCRIPTORS / "none")
        acknowledge_at_once()
    assert not is_prompt(worker_end)


def test_a_default_timeout_of_a_library_leaves_the_sockets_blocking(worker_end: socket.socket) -> None:
    socket.setdefaulttimeout(5)
    try:
        acknowledge_at_once()
    finally:
        socket.setdefaulttimeout(None)
    assert os.get_blocking(worker_end.fileno())
    assert is_prompt(worker_end)
