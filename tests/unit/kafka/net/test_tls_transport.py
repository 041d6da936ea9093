"""The bytes of a TLS connection, without Kafka's protocol."""

from __future__ import annotations

import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from streamgroup.errors import TlsError, TransportError
from streamgroup.kafka.net.tls.contexts import Contexts
from streamgroup.kafka.net.tls.transport import TlsTransport
from streamgroup.testing import Authority
from tests.certificates import server_context
from tests.unit.kafka.net.tls_servers import conversation, trusting, until

Context = Callable[..., ssl.SSLContext]
LARGE = bytes(range(256)) * 4096
"""1 MiB: many records, and more than the buffers of a socket hold."""

both_versions = pytest.mark.parametrize("newest", ["TLSv1.2", "TLSv1.3"])


@pytest.fixture
def context(authority: Authority, tmp_path: Path) -> Context:
    """Makes the context of a server whose certificate is for localhost."""
    return lambda **others: server_context(authority.issue(), tmp_path, **others)


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
        transport.close(reset=True)


@both_versions
def test_a_large_frame_is_received_whole_across_records(authority: Authority, context: Context, newest: str) -> None:
    with conversation(trusting(authority), context(newest=newest)) as (transport, server):
        sender = threading.Thread(target=server.sendall, args=(LARGE,))
        sender.start()
        assert received(transport, len(LARGE)) == LARGE
        sender.join()
        transport.close(reset=True)


def test_decrypted_bytes_are_pending_although_the_descriptor_is_not_readable(
    authority: Authority, context: Context
) -> None:
    with conversation(trusting(authority), context()) as (transport, server):
        server.sendall(b"0123456789")
        assert received(transport, 4) == b"0123"
        poll = select.poll()
        poll.register(transport.fileno, select.POLLIN)
        assert poll.poll(0) == []
        assert transport.pending
        assert received(transport, 6) == b"456789"
        assert not transport.pending
        transport.close(reset=True)


def test_a_write_that_the_socket_refuses_goes_on_with_the_same_bytes_elsewhere(
    authority: Authority, context: Context
) -> None:
    with conversation(trusting(authority), context()) as (transport, server):
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
        transport.close(reset=True)


def test_the_end_of_the_stream_comes_behind_the_bytes_before_it(authority: Authority, context: Context) -> None:
    with conversation(trusting(authority), context()) as (transport, server):
        server.sendall(b"last")
        server.settimeout(0)
        with pytest.raises(ssl.SSLWantReadError):  # its close_notify is sent, ours is not there yet
            server.unwrap()
        space = memoryview(bytearray(8))
        assert transport.receive_into(space) == 4
        assert transport.pending, "close_notify has been read, and no event will follow"
        assert transport.receive_into(space) == 0
        assert transport.send([memoryview(b"still heard")]) == 11, "a half closed connection takes bytes"
        transport.close(reset=True)


def test_an_end_without_close_notify_is_an_end(authority: Authority, context: Context) -> None:
    with conversation(trusting(authority), context()) as (transport, server):
        socket.socket.shutdown(server, socket.SHUT_WR)
        assert transport.receive_into(memoryview(bytearray(8))) == 0
        transport.close(reset=True)


def test_a_damaged_record_comes_behind_the_bytes_before_it(authority: Authority, context: Context) -> None:
    with conversation(trusting(authority), context()) as (transport, server):
        server.sendall(b"good")
        socket.socket.sendall(server, struct.pack(">BHH", 23, 0x0303, 32) + b"x" * 32)
        space = memoryview(bytearray(8))
        assert transport.receive_into(space) == 4
        assert transport.pending
        with pytest.raises(ssl.SSLError, match="BAD_RECORD_MAC"):
            transport.receive_into(space)
        transport.close(reset=True)


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


def test_close_does_not_wait_where_the_socket_takes_nothing(authority: Authority, context: Context) -> None:
    with conversation(trusting(authority), context()) as (transport, _):
        assert transport.send([memoryview(LARGE)]) < len(LARGE)
        transport.close(reset=False)


def test_the_address_of_the_certificate_may_be_an_ip_address(authority: Authority, tmp_path: Path) -> None:
    context = server_context(authority.issue(hosts=["::1", "127.0.0.1"]), tmp_path)
    for host in ("127.0.0.1", "::1", "::1%lo"):
        with conversation(trusting(authority), context, host) as (transport, _):
            transport.close(reset=True)


def test_the_name_is_sent_to_the_server_without_the_final_dot(authority: Authority, context: Context) -> None:
    asked: list[str | None] = []
    server = context()
    server.sni_callback = lambda sock, name, own: asked.append(name)
    with conversation(trusting(authority), server, "localhost.") as (transport, _):
        transport.close(reset=True)
    assert asked == ["localhost"]


@pytest.mark.parametrize("host", ["", ".example"])
def test_an_impossible_host_name_is_refused(host: str, authority: Authority) -> None:
    ours, theirs = socket.socketpair()
    with theirs, pytest.raises(TlsError, match=f"invalid host name '{host}'.*advertised.listeners"):
        TlsTransport(ours, f"{host}:9093", host, trusting(authority), Contexts())


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
    with (
        pytest.raises(TlsError, match=r"has chosen the cipher suite TLS_AES_256_GCM_SHA384, which kafka\.ssl\.cipher"),
        conversation(options, context()),
    ):
        pass
