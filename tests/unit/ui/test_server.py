"""`serve` listens for browsers, reads the cluster beside, and ends both with Ctrl-C. No test waits for a signal."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn

from streamgroup.errors import StreamGroupError
from streamgroup.ui.access import Access
from streamgroup.ui.server import serve
from tests.unit.ui.readings import Cluster
from tests.waiting import wait_until

LOOPBACK = Access("127.0.0.1")


@pytest.fixture(autouse=True)
def until(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Replaces the part of uvicorn that waits for a signal: the server ends when the given function has returned."""

    def set_end(end: Callable[[], object]) -> None:
        def run(server: uvicorn.Server, sockets: list[socket.socket]) -> None:
            end()

        monkeypatch.setattr(uvicorn.Server, "run", run)

    set_end(lambda: None)
    return set_end


def accepts(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, 5).close()
    except ConnectionRefusedError:
        return False
    return True


def port_of(url: str) -> int:
    found = re.fullmatch(r"http://127\.0\.0\.1:([1-9][0-9]*)/", url)
    assert found is not None, url
    return int(found[1])


def test_the_address_is_announced_when_browsers_can_connect_and_nothing_is_left_at_the_end(until: Any) -> None:
    cluster, announced, connected = Cluster(), [], []
    until(lambda: wait_until(lambda: cluster.read, "a reading"))

    def on_start(url: str) -> None:
        announced.append(url)
        connected.append(accepts(("127.0.0.1", port_of(url))))

    serve(cluster.open, LOOPBACK, port=0, interval=60, on_start=on_start)
    assert (len(announced), connected) == (1, [True])
    assert not accepts(("127.0.0.1", port_of(announced[0]))), "the port is free again"
    assert (cluster.opened, cluster.read, cluster.closed) == (1, 1, 1)


@pytest.mark.parametrize("end", [KeyboardInterrupt, RuntimeError])
def test_the_readings_end_with_the_server_and_only_ctrl_c_is_not_an_error(until: Any, end: type[BaseException]) -> None:
    cluster = Cluster()

    def stop() -> None:
        wait_until(lambda: cluster.read, "a reading")
        raise end

    until(stop)
    if end is RuntimeError:
        with pytest.raises(RuntimeError):
            serve(cluster.open, LOOPBACK, port=0, interval=60, on_start=lambda _: None)
    else:
        serve(cluster.open, LOOPBACK, port=0, interval=60, on_start=lambda _: None)
    assert cluster.closed == 1


def test_the_readings_end_where_the_address_cannot_be_announced() -> None:
    cluster = Cluster()

    def refuse(_: str) -> None:
        wait_until(lambda: cluster.read, "a reading")
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        serve(cluster.open, LOOPBACK, port=0, interval=60, on_start=refuse)
    assert cluster.closed == 1


def test_the_address_has_the_port_that_was_asked_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    announced: list[str] = []
    serve(Cluster().open, LOOPBACK, port=port, interval=60, on_start=announced.append)
    assert announced == [f"http://127.0.0.1:{port}/"]


@pytest.mark.skipif(not socket.has_ipv6, reason="Python was built without IPv6")
@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_an_ipv6_address_is_in_brackets_in_the_url(host: str) -> None:
    announced: list[str] = []
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    serve(Cluster().open, Access(host), port=0, interval=60, on_start=announced.append)
    assert re.fullmatch(r"http://\[::1\]:[1-9][0-9]*/", announced[0])


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", -1), ("127.0.0.1", 2**16), ("192.0.2.1", 0)])
def test_an_address_that_cannot_be_used_is_an_error_before_the_cluster_is_opened(host: str, port: int) -> None:
    cluster = Cluster()
    announced: list[str] = []
    with pytest.raises(StreamGroupError, match=rf"cannot serve the page at {host}:{port}: .*\. Choose another --port"):
        serve(cluster.open, Access(host, "0123456789abcdef"), port=port, interval=60, on_start=announced.append)
    assert (cluster.opened, announced) == (0, [])


def test_a_port_in_use_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(StreamGroupError, match=f"127.0.0.1:{port}: .*in use.* Choose another --port or --host"):
            serve(Cluster().open, LOOPBACK, port=port, interval=60, on_start=lambda _: None)
