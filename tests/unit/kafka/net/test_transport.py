"""A connection without encryption: bytes go out and come in without waiting, and a close ends it as its caller says."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator

import pytest

from streamgroup.kafka.net.transport import PlainTransport

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
