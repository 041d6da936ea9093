"""The application behind a real server, for a browser."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from streamgroup.ui.access import Access
from streamgroup.ui.app import application
from streamgroup.ui.board import Board
from tests.waiting import wait_until


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
