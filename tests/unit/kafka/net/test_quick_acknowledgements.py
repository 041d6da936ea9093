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


def test_connections_of_the_process_acknowledge_at_once_and_stay_as_blocking_as_they_were(
    worker_end: socket.socket,
) -> None:
    one, other = socket.socketpair()  # of the file system: it has no acknowledgements
    socket.setdefaulttimeout(5)  # as a library may have done
    try:
        acknowledge_at_once()
    finally:
        socket.setdefaulttimeout(None)
    with one, other:
        one.sendall(b"still open")
        assert other.recv(100) == b"still open"
    assert os.get_blocking(worker_end.fileno())
    assert is_prompt(worker_end)
