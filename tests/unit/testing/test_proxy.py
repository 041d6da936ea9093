"""A proxy between a client and a server of plain sockets on the loopback."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import ConfigError
from streamgroup.testing import Direction, End, Fault, Proxy, Which
from streamgroup.testing.flow import CAPACITY, CLEAN, Flow
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


# -- the bytes behind a proxy, without sockets: nothing is changed or reordered, or lost but by an end -----------------


MIDDLE = Fault(end=End.STALL, mid_frame=True)


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def pieces(flow: Flow, now: float = 0.0) -> list[bytes]:
    """All that may be sent at this moment."""
    sent = []
    while piece := bytes(flow.piece(now)):
        sent.append(piece)
        flow.sent(len(piece))
    return sent


@given(st.lists(st.binary(min_size=1, max_size=50)), st.sampled_from([None, 1, 3, 7]), st.integers(1, 9))
def test_bytes_arrive_as_they_were_sent_however_they_are_split_and_taken(
    chunks: list[bytes], split: int | None, taken: int
) -> None:
    flow = Flow(Fault(split=split), 0.0)
    for chunk in chunks:
        flow.put(chunk, 0.0)
    got = b""
    while piece := bytes(flow.piece(0.0)):
        assert split is None or len(piece) <= split
        got += piece[:taken]  # a socket may take less than it is given
        flow.sent(min(taken, len(piece)))
    assert got == b"".join(chunks)
    assert flow.held == 0


def test_delayed_bytes_leave_when_they_are_due() -> None:
    flow = Flow(Fault(delay_s=0.05), 0.0)
    flow.put(b"first", 1.0)
    flow.put(b"second", 1.02)
    assert pieces(flow, 1.04) == []
    assert flow.due(1.04) == pytest.approx(1.05)
    assert pieces(flow, 1.06) == [b"first"]
    assert pieces(flow, 1.08) == [b"second"]


def test_the_end_of_the_source_is_delayed_as_its_bytes_are() -> None:
    flow = Flow(Fault(delay_s=0.05), 0.0)
    flow.put(b"last", 1.0)
    flow.close(1.0)
    assert not flow.finished(1.06)
    assert pieces(flow, 1.06) == [b"last"]
    assert flow.finished(1.06)


def test_a_throttled_flow_keeps_its_rate() -> None:
    flow = Flow(Fault(bytes_per_s=125_000), 0.0)
    flow.put(bytes(100_000), 0.0)
    now, passed = 0.0, 0
    while flow.held:
        due = flow.due(now)
        assert due is not None
        now = max(now, due) + 0.001
        passed += sum(map(len, pieces(flow, now)))
        assert passed <= 125_000 * (now + 0.03)
    assert 0.7 < now < 1.0  # 0.8 s at that rate


def test_a_rate_below_a_byte_a_moment_still_passes_bytes() -> None:
    flow = Flow(Fault(bytes_per_s=10), 0.0)
    flow.put(b"abc", 0.0)
    assert pieces(flow, 0.05) == []
    assert pieces(flow, 0.11) == [b"a"]


def test_a_flow_takes_no_more_than_it_can_hold() -> None:
    flow = Flow(MIDDLE, 0.0)
    while flow.hungry:
        flow.put(bytes(64 * 1024), 0.0)
    assert flow.held <= CAPACITY + 64 * 1024


@given(st.lists(st.binary(max_size=30), min_size=1), st.binary(min_size=1, max_size=60), st.integers(1, 9))
def test_an_end_in_mid_frame_comes_in_the_middle_of_the_first_frame_that_is_large_enough(
    small: list[bytes], large: bytes, step: int
) -> None:
    stream = b"".join(map(frame, small)) + frame(bytes(31) + large)
    flow = Flow(Fault(end=End.STALL, mid_frame=True, min_frame=31), 0.0)
    got = b""
    for at in range(0, len(stream), step):
        flow.put(stream[at : at + step], 0.0)
        got += b"".join(pieces(flow))
    size = 31 + len(large)
    assert got == stream[: sum(len(body) + 4 for body in small) + 4 + size // 2]
    assert flow.ended is End.STALL
    flow.fault = CLEAN
    assert got + b"".join(pieces(flow)) == stream


def test_frames_are_followed_while_no_fault_asks_for_them() -> None:
    flow = Flow(CLEAN, 0.0)
    flow.put(frame(bytes(10))[:6], 0.0)  # two of ten
    assert pieces(flow) == [frame(bytes(10))[:6]]
    flow.fault = MIDDLE
    flow.put(bytes(100), 0.0)
    assert b"".join(pieces(flow)) == bytes(3)
    assert flow.ended is End.STALL


def test_an_empty_frame_has_no_middle() -> None:
    flow = Flow(MIDDLE, 0.0)
    flow.put(frame(b"") + frame(b"x"), 0.0)
    assert b"".join(pieces(flow)) == frame(b"") + frame(b"x")[:4]


@pytest.mark.parametrize("end", [End.RESET, End.FIN, End.HALF_OPEN])
def test_after_an_end_that_is_not_a_stall_bytes_are_thrown_away(end: End) -> None:
    flow = Flow(Fault(end=end), 0.0)
    flow.put(b"lost", 0.0)
    assert (flow.held, pieces(flow)) == (0, [])
    assert flow.finished(0.0) is (end is End.FIN)


@pytest.mark.parametrize(
    "wrong",
    [
        {"delay_s": -1},
        {"bytes_per_s": 0},
        {"split": 0},
        {"mid_frame": True},
        {"min_frame": 3, "end": End.FIN},
        {"min_frame": 3},
    ],
)
def test_faults_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"Fault\("):
        Fault(**wrong)  # type: ignore[arg-type]
