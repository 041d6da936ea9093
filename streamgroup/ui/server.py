"""Serves the page until Ctrl-C."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

import uvicorn

from streamgroup.errors import StreamGroupError
from streamgroup.text import host_port
from streamgroup.ui.access import Access
from streamgroup.ui.app import application
from streamgroup.ui.board import Board, BoardPoller, Read

_STOP_S = 1
"""Seconds that the end waits for a reading and for answers under way."""


def serve(
    opened: Callable[[], AbstractContextManager[Read]],
    access: Access,
    *,
    port: int,
    interval: float,
    on_start: Callable[[str], None],
) -> None:
    """Serve the page at `access.host` and `port` until SIGINT or SIGTERM; 0 is any free port.

    `on_start` gets the address when the server listens. Raises StreamGroupError if the port cannot be used.
    """
    board = Board()
    config = uvicorn.Config(
        application(board, access, interval),
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=_STOP_S,
    )
    with _listening(access.host, port) as listener:
        poller = BoardPoller(opened, board, interval)
        poller.start()
        try:
            on_start(f"http://{host_port(access.host, listener.getsockname()[1])}/")
            with suppress(KeyboardInterrupt):  # uvicorn raises the signal again when it has shut down
                uvicorn.Server(config).run(sockets=[listener])
        finally:
            poller.stop(_STOP_S)


def _listening(host: str, port: int) -> socket.socket:
    bare = host.strip("[]")
    try:
        # Not with the port: glibc takes the last 16 bits of one that does not exist, which `create_server` refuses.
        family, _, _, _, address = socket.getaddrinfo(bare, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server((address[0], port), family=family)
    except (OSError, OverflowError) as error:
        raise StreamGroupError(
            f"cannot serve the page at {host_port(host, port)}: {error}. Choose another --port or --host"
        ) from None
