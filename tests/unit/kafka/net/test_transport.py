"""The bytes of a connection with TLS and without, below Kafka's protocol."""

from __future__ import annotations

import os
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamgroup.errors import TlsError, TransportError
from streamgroup.kafka.net import transport as module
from streamgroup.kafka.net.tls.contexts import Contexts
from streamgroup.kafka.net.tls.transport import PlaintextProbe, TlsTransport
from streamgroup.kafka.net.transport import PROBE_TIMEOUT_S, PlainTransport, acknowledge_at_once
from streamgroup.testing import Authority
from tests.certificates import server_context
from tests.unit.kafka.net.conftest import wait_for_events
from tests.unit.kafka.net.delayed import delayed_connection, is_prompt
from tests.unit.kafka.net.tls_servers import conversation, shake, trusting, until
from tests.waiting import TIMEOUT_S

Context = Callable[..., ssl.SSLContext]
Ends = tuple[TlsTransport, ssl.SSLSocket]
LARGE = bytes(range(256)) * 4096
"""1 MiB: many records, and more than the buffers of a socket hold."""

both_versions = pytest.mark.parametrize("newest", ["TLSv1.2", "TLSv1.3"])


@pytest.fixture
def context(authority: Authority, tmp_path: Path) -> Context:
    """Makes the context of a server whose certificate is for localhost."""
    return lambda **others: server_context(authority.issue(), tmp_path, **others)


@pytest.fixture
def ends(authority: Authority, context: Context) -> Iterator[Ends]:
    """A transport whose handshake is done, and the server's end."""
    with conversation(trusting(authority), context()) as both:
        yield both


def received(transport: TlsTransport, count: int) -> bytes:
    """Receive exactly `count` bytes."""
    space = memoryview(bytearray(count))
    at = 0

    def step() -> bool:
        nonlocal at
        at += transport.receive_into(space[at:]) or 0
        return at == count

    until(transport, step)
    return bytes(space)


@both_versions
def test_bytes_arrive_in_both_directions(authority: Authority, context: Context, newest: str) -> None:
    with conversation(trusting(authority), context(newest=newest)) as (transport, server):
        assert server.version() == newest
        assert transport.send([memoryview(b"ab"), memoryview(b""), memoryview(b"c")]) == 3
        assert server.recv(2) + server.recv(1) == b"abc"
        server.sendall(b"defg")
        assert received(transport, 4) == b"defg"
        assert transport.receive_into(memoryview(bytearray(4))) is None


def test_a_write_that_the_socket_refuses_goes_on_with_the_same_bytes_elsewhere(ends: Ends) -> None:
    transport, server = ends
    sent = transport.send([memoryview(LARGE)])
    assert 0 < sent < len(LARGE)
    assert transport.send([memoryview(LARGE)[sent:]]) == 0
    assert transport.interest(has_unsent=True) == select.POLLIN | select.POLLOUT
    assert transport.interest(has_unsent=False) == select.POLLIN
    arrived = bytearray()

    def read() -> None:
        while len(arrived) < len(LARGE):
            arrived.extend(server.recv(65_536))

    reader = threading.Thread(target=read)
    reader.start()

    def step() -> bool:
        nonlocal sent
        # The bytes have moved: OpenSSL must not insist on the buffer of the first attempt.
        sent += transport.send([memoryview(bytes(LARGE[sent:]))])
        return sent == len(LARGE)

    until(transport, step, has_unsent=True)
    reader.join()
    assert bytes(arrived) == LARGE


def test_the_end_of_the_stream_comes_behind_the_bytes_before_it(ends: Ends) -> None:
    transport, server = ends
    server.sendall(b"last")
    server.settimeout(0)
    with pytest.raises(ssl.SSLWantReadError):  # its close_notify is sent, ours is not there yet
        server.unwrap()
    space = memoryview(bytearray(8))
    assert transport.receive_into(space) == 4
    assert transport.pending, "close_notify has been read, and no event will follow"
    assert transport.receive_into(space) == 0
    assert transport.send([memoryview(b"still heard")]) == 11, "a half closed connection takes bytes"


def test_an_end_without_close_notify_is_an_end(ends: Ends) -> None:
    transport, server = ends
    socket.socket.shutdown(server, socket.SHUT_WR)
    assert transport.receive_into(memoryview(bytearray(8))) == 0


def test_a_damaged_record_comes_behind_the_bytes_before_it(ends: Ends) -> None:
    transport, server = ends
    server.sendall(b"good")
    socket.socket.sendall(server, struct.pack(">BHH", 23, 0x0303, 32) + b"x" * 32)
    space = memoryview(bytearray(8))
    assert transport.receive_into(space) == 4
    assert transport.pending
    with pytest.raises(ssl.SSLError, match="BAD_RECORD_MAC"):
        transport.receive_into(space)


def test_close_says_goodbye_and_reset_does_not(authority: Authority, context: Context) -> None:
    with conversation(trusting(authority), context()) as (transport, server):
        server.suppress_ragged_eofs = False
        transport.close(reset=False)
        assert server.recv(1) == b"", "close_notify came before the end"
    with conversation(trusting(authority), context()) as (transport, server):
        server.suppress_ragged_eofs = False
        transport.close(reset=True)
        with pytest.raises(ssl.SSLEOFError):
            server.recv(1)


def test_close_does_not_wait_where_the_socket_takes_nothing(ends: Ends) -> None:
    transport, _ = ends
    assert transport.send([memoryview(LARGE)]) < len(LARGE)
    transport.close(reset=False)


def test_the_address_of_the_certificate_may_be_an_ip_address(authority: Authority, tmp_path: Path) -> None:
    context = server_context(authority.issue(hosts=["::1", "127.0.0.1"]), tmp_path)
    for host in ("127.0.0.1", "::1", "::1%lo"):
        shake(trusting(authority), context, host)


def test_the_name_is_sent_to_the_server_without_the_final_dot(authority: Authority, context: Context) -> None:
    asked: list[str | None] = []
    server = context()
    server.sni_callback = lambda sock, name, own: asked.append(name)
    shake(trusting(authority), server, "localhost.")
    assert asked == ["localhost"]


@pytest.mark.parametrize("host", ["", ".example"])
def test_an_impossible_host_name_is_refused_and_its_connection_can_be_closed(host: str, authority: Authority) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        with pytest.raises(TlsError, match=f"invalid host name '{host}'.*advertised.listeners") as caught:
            TlsTransport(ours, f"{host}:9093", host, trusting(authority), Contexts())
        ours.close()
        theirs.settimeout(5.0)
        assert theirs.recv(1) == b"", "the descriptor is closed while the error is alive"
        assert caught.value


def test_a_socket_that_is_not_connected_is_a_lost_connection(authority: Authority) -> None:
    ours = socket.create_connection((listener := socket.create_server(("127.0.0.1", 0))).getsockname())
    accepted, _ = listener.accept()
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    accepted.close()
    listener.close()
    ours.setblocking(False)
    with pytest.raises(TransportError, match=r"lost the connection to broker b:1"):
        TlsTransport(ours, "b:1", "b", trusting(authority), Contexts()).shake_hands(0.0)


def test_a_suite_of_tls_13_that_is_not_listed_is_refused(authority: Authority, context: Context) -> None:
    options = trusting(authority, cipher_suites=("TLS_AES_128_GCM_SHA256",))
    with pytest.raises(TlsError, match=r"has chosen the cipher suite TLS_AES_256_GCM_SHA384, which kafka\.ssl\.cipher"):
        shake(options, context())


# -- the probe tells a broker without TLS from one that stops, so that the user learns which option is wrong ----------


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
    wait_for_events(probe.fileno, probe.interest)
    return probe.advance(100.0)


def asked(probe: PlaintextProbe, listener: socket.socket) -> tuple[socket.socket, bytes]:
    """Let the probe send its request. Return the server's end, and the request."""
    assert advanced(probe) is None
    server, _ = listener.accept()
    server.settimeout(TIMEOUT_S)
    size = server.recv(4, socket.MSG_WAITALL)
    return server, size + server.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)


def answer(request: bytes, size: int) -> bytes:
    """Return the beginning of an answer to the request, which says that `size` bytes follow."""
    return struct.pack(">i", size) + request[8:12]


def test_the_probe_sends_the_oldest_request_without_a_client_id(probe: PlaintextProbe, listener: socket.socket) -> None:
    assert probe.interest == select.POLLOUT
    server, request = asked(probe, listener)
    with server:
        assert struct.unpack(">ihh4xh", request) == (len(request) - 4, 18, 0, -1)
    assert probe.interest == select.POLLIN


POSSIBLE, IMPOSSIBLE = (6, 300, (1 << 20) - 1), (-1, 0, 5, 1 << 20)


@pytest.mark.parametrize("size", [*POSSIBLE, *IMPOSSIBLE])
def test_an_answer_with_the_id_of_the_request_and_a_possible_size_comes_from_a_plaintext_broker(
    size: int, probe: PlaintextProbe, listener: socket.socket
) -> None:
    """With an error code at least, and not longer than any answer of this API."""
    server, request = asked(probe, listener)
    with server:
        server.sendall(answer(request, size))
        assert advanced(probe) is (size in POSSIBLE)


def test_an_answer_in_single_bytes_counts_when_its_id_is_whole(probe: PlaintextProbe, listener: socket.socket) -> None:
    server, request = asked(probe, listener)
    *first, last = answer(request, 20)
    with server:
        for byte in first:
            server.sendall(bytes([byte]))
            assert advanced(probe) is None
        server.sendall(bytes([last]))
        assert advanced(probe) is True


def test_a_server_that_says_nothing_is_given_up_at_the_timeout(probe: PlaintextProbe, listener: socket.socket) -> None:
    with asked(probe, listener)[0] as server:
        assert probe.advance(100.0 + PROBE_TIMEOUT_S - 0.001) is None
        assert probe.advance(100.0 + PROBE_TIMEOUT_S) is False
        probe.close()
        assert server.recv(1) == b"", "the server sees the end"


def test_a_server_that_cannot_be_reached_is_not_a_plaintext_broker(listener: socket.socket, tmp_path: Path) -> None:
    address = listener.getsockname()
    listener.close()
    refused = PlaintextProbe(socket.AF_INET, address, 100.0)
    assert advanced(refused) is False
    refused.close()
    absent = PlaintextProbe(socket.AF_UNIX, str(tmp_path / "nobody"), 100.0)
    assert absent.advance(100.0) is False
    absent.close()


# -- a connection without encryption ----------------------------------------------------------------------------------

PlainEnds = tuple[PlainTransport, socket.socket]


@pytest.fixture
def plain_ends() -> Iterator[PlainEnds]:
    """The transport, and the broker's end of its TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    ours.setblocking(False)
    theirs.settimeout(5)
    with ours, theirs:
        yield PlainTransport(ours), theirs


def test_a_full_socket_takes_nothing_and_takes_more_when_the_broker_has_read(plain_ends: PlainEnds) -> None:
    transport, broker = plain_ends
    block, sent = memoryview(bytes(1 << 16)), 0
    while count := transport.send([block]):
        sent += count
    assert transport.send([block]) == 0
    received = 0
    while received < sent:
        received += len(broker.recv(1 << 20))
    assert transport.send([memoryview(b"mo"), memoryview(b""), memoryview(b"re")]) == 4, "in one call"
    assert broker.recv(100) == b"more"


def test_bytes_are_received_as_far_as_there_is_space_and_none_is_not_the_end(plain_ends: PlainEnds) -> None:
    transport, broker = plain_ends
    space = memoryview(bytearray(4))
    assert transport.receive_into(space) is None
    broker.sendall(b"abcdef")
    wait_for_events(transport.fileno, select.POLLIN)
    assert (transport.receive_into(space), bytes(space)) == (4, b"abcd")
    assert (transport.receive_into(space), bytes(space[:2])) == (2, b"ef")
    assert transport.receive_into(space) is None
    broker.close()
    wait_for_events(transport.fileno, select.POLLIN)
    assert transport.receive_into(space) == 0


def test_a_connection_that_the_broker_resets_is_an_error_of_both_directions(plain_ends: PlainEnds) -> None:
    transport, broker = plain_ends
    PlainTransport(broker).close(reset=True)
    wait_for_events(transport.fileno, select.POLLIN)
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
        patched.setattr(module, "_QUICKACK", None)
        acknowledge_at_once()
    with monkeypatch.context() as patched:
        patched.setattr(module, "_DESCRIPTORS", module._DESCRIPTORS / "none")
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
