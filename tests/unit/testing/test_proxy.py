"""A proxy between a client and a server of plain sockets on the loopback."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from streamgroup.errors import ConfigError
from streamgroup.testing import Direction, End, Fault, Proxy, Which
from streamgroup.testing.flow import CAPACITY
from tests.waiting import wait_until

SOON = 30.0
MID_FRAME = {end: Fault(end=end, mid_frame=True) for end in End}
FRAME = (100).to_bytes(4, "big") + bytes(range(100))
HALF = FRAME[:54]


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(SOON)
        yield listener


@pytest.fixture
def proxy(server: socket.socket) -> Iterator[Proxy]:
    with Proxy(server.getsockname()) as running:
        yield running


Connect = Callable[[], tuple[socket.socket, socket.socket]]


@pytest.fixture
def connect(server: socket.socket, proxy: Proxy) -> Iterator[Connect]:
    """Makes a connection through the proxy: the client's end and the server's."""
    with contextlib.ExitStack() as stack:

        def make() -> tuple[socket.socket, socket.socket]:
            client = stack.enter_context(socket.create_connection(proxy.address, SOON))
            accepted = stack.enter_context(server.accept()[0])
            accepted.settimeout(SOON)
            return client, accepted

        yield make


def received(end: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = end.recv(count - len(data))
        if not more:
            break
        data += more
    return data


def is_silent(end: socket.socket, seconds: float = 0.1) -> bool:
    end.settimeout(seconds)
    try:
        return not end.recv(1) and False
    except TimeoutError:
        return True
    finally:
        end.settimeout(SOON)


def test_a_proxy_without_faults_carries_bytes_and_ends_of_streams(connect: Connect, proxy: Proxy) -> None:
    client, server = connect()
    data = bytes(range(256)) * 4000
    sender = threading.Thread(target=client.sendall, args=(data,))
    sender.start()
    assert received(server, len(data)) == data
    sender.join(SOON)
    client.shutdown(socket.SHUT_WR)
    assert server.recv(1) == b""
    server.sendall(b"after your end")  # one half may be closed alone
    assert received(client, 14) == b"after your end"
    server.close()
    assert client.recv(1) == b""
    wait_until(lambda: proxy.open == 0, "both ends are closed", SOON)
    assert (proxy.accepted, proxy.ended, proxy.held) == (1, 0, 0)
    assert proxy.delivered == 14, "bytes to the server do not count"
    _, server = connect()
    server.sendall(b"more")
    wait_until(lambda: proxy.delivered == 18, "bytes of open connections count, too", SOON)


def test_a_reset_of_one_side_resets_the_other(connect: Connect) -> None:
    client, server = connect()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    with pytest.raises(ConnectionResetError):
        server.recv(1)


def test_a_server_that_does_not_listen_means_a_reset() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = gone.getsockname()
    # It may come before the client has looked whether it is connected.
    with (
        Proxy(address) as proxy,
        pytest.raises(ConnectionResetError),
        socket.create_connection(proxy.address, SOON) as client,
    ):
        client.recv(1)


def test_a_cut_concerns_the_open_connections_and_no_later_ones(connect: Connect, proxy: Proxy) -> None:
    first, second = connect(), connect()
    assert proxy.cut() == 2
    for end in (*first, *second):
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    client, server = connect()
    client.sendall(b"x")
    assert server.recv(1) == b"x"


def test_a_cut_by_fin_is_an_end_of_the_stream_for_both_sides(connect: Connect, proxy: Proxy) -> None:
    client, server = connect()
    client.sendall(b"on its way")
    assert proxy.cut(End.FIN) == 1
    assert client.recv(1) == b""
    assert received(server, 100) in (b"", b"on its way")
    client.close()
    server.close()
    wait_until(lambda: proxy.open == 0, "both ends are closed", SOON)


def test_one_direction_is_delayed(connect: Connect, proxy: Proxy) -> None:
    client, server = connect()
    proxy.set(Fault(delay_s=0.05), Direction.TO_CLIENT)
    began = time.monotonic()
    client.sendall(b"x")
    assert server.recv(1) == b"x"
    server.sendall(b"y")
    assert client.recv(1) == b"y"
    assert time.monotonic() - began >= 0.05


@pytest.mark.parametrize("direction", Direction.BOTH)
def test_a_stall_in_mid_frame_goes_on_when_healed(connect: Connect, proxy: Proxy, direction: Direction) -> None:
    client, server = connect()
    source, sink = (client, server) if direction is Direction.TO_SERVER else (server, client)
    proxy.set(MID_FRAME[End.STALL], direction)
    source.sendall(FRAME)
    assert received(sink, len(HALF)) == HALF
    assert is_silent(sink)
    assert proxy.ended == 1
    sink.sendall(FRAME)  # the other direction is not concerned
    assert received(source, len(FRAME)) == FRAME
    proxy.heal()
    assert received(sink, len(FRAME) - len(HALF)) == FRAME[len(HALF) :]


def test_only_the_next_connection_is_concerned(connect: Connect, proxy: Proxy) -> None:
    before = connect()
    proxy.set(Fault(end=End.STALL), which=Which.NEXT)
    following, later = connect(), connect()
    for client, _ in (before, following, later):
        client.sendall(b"x")
    assert before[1].recv(1) == later[1].recv(1) == b"x"
    assert is_silent(following[1])
    proxy.heal()
    assert following[1].recv(1) == b"x"


def test_open_connections_only(connect: Connect, proxy: Proxy) -> None:
    before = connect()
    proxy.set(Fault(end=End.STALL), which=Which.OPEN)
    after = connect()
    for client, _ in (before, after):
        client.sendall(b"x")
    assert after[1].recv(1) == b"x"
    assert is_silent(before[1])


def test_neither_side_notices_the_end_of_a_half_open_connection(connect: Connect, proxy: Proxy) -> None:
    client, server = connect()
    proxy.set(Fault(end=End.HALF_OPEN))
    server.close()
    client.sendall(b"to nobody")
    assert is_silent(client)
    assert (proxy.open, proxy.ended) == (1, 2)
    proxy.heal()  # what has vanished cannot be sent again
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_an_end_that_replaces_another_counts(connect: Connect, proxy: Proxy) -> None:
    client, _ = connect()
    proxy.set(Fault(end=End.HALF_OPEN))
    assert proxy.ended == 2
    assert proxy.cut() == 1
    assert proxy.ended == 4
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_a_half_open_connection_goes_when_both_sides_have_gone(connect: Connect, proxy: Proxy) -> None:
    client, server = connect()
    proxy.set(Fault(end=End.HALF_OPEN))
    client.close()
    server.close()
    wait_until(lambda: proxy.open == 0, "nobody is left", SOON)


def test_the_buffer_of_a_flow_is_bounded(connect: Connect, proxy: Proxy) -> None:
    client, _ = connect()
    proxy.set(Fault(delay_s=60))
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.sendall(bytes(64 * 1024 * 1024))
    assert CAPACITY <= proxy.held <= CAPACITY + 64 * 1024


def test_a_stopped_proxy_resets_its_connections_and_listens_no_more(server: socket.socket) -> None:
    with Proxy(server.getsockname()) as proxy:
        client = socket.create_connection(proxy.address, SOON)
        wait_until(lambda: proxy.open == 1, "it is accepted", SOON)
    with client, pytest.raises(ConnectionResetError):
        client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(proxy.address, SOON)
    with pytest.raises(ConfigError, match="is not running"):
        proxy.heal()


def test_a_proxy_that_was_never_started_says_so_and_can_be_stopped() -> None:
    proxy = Proxy()
    with pytest.raises(ConfigError, match="`with` statement"):
        proxy.cut()
    proxy.stop()
