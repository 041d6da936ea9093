"""The board of a real cluster, and the application behind a real server, for a browser."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from streamgroup.cli._cluster import ClusterAddress, client_options
from streamgroup.cli.ui import PageDataReader
from streamgroup.monitoring.page.access import Access
from streamgroup.monitoring.page.history import views
from streamgroup.monitoring.page.server import Board, BoardPoller, application
from tests.browser import Browser
from tests.waiting import wait_until


@contextmanager
def polled(where: ClusterAddress, *groups: str, interval: float = 0.2) -> Iterator[Board]:
    """Read `groups` of a cluster, or all of its groups, at intervals in seconds for the block; yields their board."""
    board = Board()
    options = client_options(where, "streamgroup-ui", 10_000)
    poller = BoardPoller(PageDataReader(options, groups, 10_000).opened, board, interval)
    poller.start()
    try:
        yield board
    finally:
        poller.stop(10)


@contextmanager
def shown(page: Browser, where: ClusterAddress, group: str) -> Iterator[None]:
    """Open the page of a group, once it has been read, and read the cluster on for the block.

    The page is left before its server ends, which would be an error in its console.
    """
    with polled(where, interval=0.5) as board, served(board, interval=0.5) as url:
        wait_until(lambda: board.answer(group, lambda found: views.group_view(found, group))[1], "the group is read")
        page.open(f"{url}/#/group/{group}")
        yield
        assert page.console == []
        page.open("about:blank")


@contextmanager
def served(board: Board, access: Access | None = None, interval: float = 1.0) -> Iterator[str]:
    """Serve `board` on a free port of loopback for the block; yields the URL without a slash at its end."""
    config = uvicorn.Config(
        application(board, access or Access("127.0.0.1"), interval), log_level="warning", timeout_graceful_shutdown=1
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: server.run(sockets=[listener]), daemon=True)
        thread.start()
        wait_until(lambda: server.started, "the server listens")
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(10)
