"""A connection without encryption: bytes go out and come in without waiting, and a close ends it as its caller says."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator

import pytest

from streamgroup.kafka.net import transport
from streamgroup.kafka.net.transport import PlainTransport, acknowledge_at_once
from tests.unit.kafka.net.delayed import delayed_connection, is_prompt

Ends = tuple[PlainTransport, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """The transport, and the broker's end of its TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    ours.setblocking(False)
    theirs.settimeout(5)
    with ours, theirs:
        yield PlainTransport(ours), theirs


def wait(transport: PlainTransport) -> None:
    poll = select.poll()
    poll.register(transport.fileno, select.POLLIN)
    assert poll.poll(5_000), "nothing has come"


def test_a_full_socket_takes_nothing_and_takes_more_when_the_broker_has_read(ends: Ends) -> None:
    transport, broker = ends
    block, sent = memoryview(bytes(1 << 16)), 0
    while count := transport.send([block]):
        sent += count
    assert transport.send([block]) == 0
    received = 0
    while received < sent:
        received += len(broker.recv(1 << 20))
    assert transport.send([memoryview(b"mo"), memoryview(b""), memoryview(b"re")]) == 4, "in one call"
    assert broker.recv(100) == b"more"


def test_bytes_are_received_as_far_as_there_is_space_and_none_is_not_the_end(ends: Ends) -> None:
    transport, broker = ends
    space = memoryview(bytearray(4))
    assert transport.receive_into(space) is None
    broker.sendall(b"abcdef")
    wait(transport)
    assert (transport.receive_into(space), bytes(space)) == (4, b"abcd")
    assert (transport.receive_into(space), bytes(space[:2])) == (2, b"ef")
    assert transport.receive_into(space) is None
    broker.close()
    wait(transport)
    assert transport.receive_into(space) == 0


def test_a_connection_that_the_broker_resets_is_an_error_of_both_directions(ends: Ends) -> None:
    transport, broker = ends
    PlainTransport(broker).close(reset=True)
    wait(transport)
    with pytest.raises(ConnectionResetError):
        transport.receive_into(memoryview(bytearray(4)))
    with pytest.raises(BrokenPipeError):
        transport.send([memoryview(b"x")])


@pytest.fixture
def worker_end() -> Iterator[socket.socket]:
    with delayed_connection() as end:
        yield end


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux has TCP_QUICKACK")
def test_a_system_without_the_option_or_without_proc_is_left_alone(
    worker_end: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(transport, "_QUICKACK", None)
        acknowledge_at_once()
    with monkeypatch.context() as patched:
        patched.setattr(transport, "_DESCRIPTORS", transport._DESCRIPTORS / "none")
        acknowledge_at_once()
    assert not is_prompt(worker_end)


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux has TCP_QUICKACK")
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
