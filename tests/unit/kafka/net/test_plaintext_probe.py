"""The probe tells a broker without TLS from one that stops, so that the user learns which option is wrong."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgroup.kafka.net.tls.transport import PlaintextProbe
from streamgroup.kafka.net.transport import PROBE_TIMEOUT_S

WAIT_MS = 30_000


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        yield opened


@pytest.fixture
def probe(listener: socket.socket) -> Iterator[PlaintextProbe]:
    opened = PlaintextProbe(socket.AF_INET, listener.getsockname(), 100.0)
    yield opened
    opened.close()


def advanced(probe: PlaintextProbe) -> bool | None:
    """Wait for the events that the probe is interested in, and advance it."""
    poll = select.poll()
    poll.register(probe.fileno, probe.interest)
    assert poll.poll(WAIT_MS), "no event has come"
    return probe.advance(100.0)


def asked(probe: PlaintextProbe, listener: socket.socket) -> tuple[socket.socket, bytes]:
    """Let the probe send its request. Return the server's end, and the request."""
    assert advanced(probe) is None
    server, _ = listener.accept()
    server.settimeout(WAIT_MS / 1000)
    size = server.recv(4, socket.MSG_WAITALL)
    return server, size + server.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)


def answer(request: bytes, size: int) -> bytes:
    """Return the beginning of an answer to the request, which says that `size` bytes follow."""
    return struct.pack(">i", size) + request[8:12]


def test_the_probe_sends_the_oldest_api_versions_request_without_a_client_id(
    probe: PlaintextProbe, listener: socket.socket
) -> None:
    server, request = asked(probe, listener)
    with server:
        assert struct.unpack(">ihh4xh", request) == (len(request) - 4, 18, 0, -1)


def test_the_probe_waits_first_to_send_and_then_to_receive(probe: PlaintextProbe, listener: socket.socket) -> None:
    assert probe.interest == select.POLLOUT
    with asked(probe, listener)[0]:
        assert probe.interest == select.POLLIN


@pytest.mark.parametrize("size", [6, 300, (1 << 20) - 1])
def test_an_answer_with_the_id_of_the_request_comes_from_a_plaintext_broker(
    size: int, probe: PlaintextProbe, listener: socket.socket
) -> None:
    server, request = asked(probe, listener)
    with server:
        server.sendall(answer(request, size))
        assert advanced(probe) is True


def test_an_answer_in_single_bytes_counts_when_its_id_is_whole(probe: PlaintextProbe, listener: socket.socket) -> None:
    server, request = asked(probe, listener)
    *first, last = answer(request, 20)
    with server:
        for byte in first:
            server.sendall(bytes([byte]))
            assert advanced(probe) is None
        server.sendall(bytes([last]))
        assert advanced(probe) is True


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(struct.pack(">ii", 20, 1), id="another id"),
        pytest.param(b"HTTP/1.1 400 Bad Request", id="HTTP"),
        pytest.param(b"\x15\x03\x03\0\x02\x02\x50\0", id="an alert of TLS"),
        pytest.param(b"", id="the end at once"),
        pytest.param(b"\0\0\0", id="the end in the length"),
    ],
)
def test_a_server_that_says_something_else_is_not_a_plaintext_broker(
    said: bytes, probe: PlaintextProbe, listener: socket.socket
) -> None:
    with asked(probe, listener)[0] as server:
        server.sendall(said)
    while (found := advanced(probe)) is None:
        pass
    assert found is False


@pytest.mark.parametrize("size", [-1, 0, 5, 1 << 20])
def test_an_answer_too_short_for_an_error_code_or_too_long_is_not_one(
    size: int, probe: PlaintextProbe, listener: socket.socket
) -> None:
    server, request = asked(probe, listener)
    with server:
        server.sendall(answer(request, size))
        assert advanced(probe) is False


def test_a_server_that_says_nothing_is_given_up_at_the_timeout(probe: PlaintextProbe, listener: socket.socket) -> None:
    with asked(probe, listener)[0]:
        assert probe.advance(100.0 + PROBE_TIMEOUT_S - 0.001) is None
        assert probe.advance(100.0 + PROBE_TIMEOUT_S) is False


def test_a_server_that_refuses_the_connection_is_not_a_plaintext_broker(listener: socket.socket) -> None:
    address = listener.getsockname()
    listener.close()
    probe = PlaintextProbe(socket.AF_INET, address, 100.0)
    assert advanced(probe) is False
    probe.close()


def test_an_address_to_which_no_connection_can_begin_is_not_a_plaintext_broker(tmp_path: Path) -> None:
    probe = PlaintextProbe(socket.AF_UNIX, str(tmp_path / "nobody"), 100.0)
    assert probe.advance(100.0) is False
    probe.close()


def test_the_server_sees_the_end_of_a_closed_probe(probe: PlaintextProbe, listener: socket.socket) -> None:
    with asked(probe, listener)[0] as server:
        probe.close()
        assert server.recv(1) == b""
