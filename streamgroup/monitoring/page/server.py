"""The server of the live page: its views and files over HTTP, and the thread that reads the cluster."""

from __future__ import annotations

import json
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from streamgroup.errors import StreamGroupError
from streamgroup.monitoring.page.access import COOKIE, Access, Guard
from streamgroup.monitoring.page.history import views
from streamgroup.monitoring.page.history.batches import Reading
from streamgroup.monitoring.page.history.history import History
from streamgroup.text import host_port

_STOP_S = 1
"""Seconds to wait at the end for a reading and for pending responses."""


def serve(
    opened: Callable[[], AbstractContextManager[Read]],
    access: Access,
    *,
    port: int,
    interval: float,
    on_start: Callable[[str], None],
) -> None:
    """Serve the page at `access.host` and `port` until SIGINT or SIGTERM; 0 is any free port.

    `on_start` receives the address when the server listens. Raises StreamGroupError if the port cannot be used.
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


STATIC_FILES = Path(__file__).parent / "static"
_LONGEST_FORM = 4096
_LARGE = 1024
"""Answers from this size on are compressed."""
_MOST_LINES = views.LINES

View = Callable[[History], dict[str, Any] | None]


def application(board: Board, access: Access, interval: float) -> Starlette:
    """Return the application that shows `board`, which is read every `interval` seconds."""

    def file(name: str) -> Callable[[Request], Response]:
        return lambda _: FileResponse(STATIC_FILES / name, headers={"Cache-Control": "no-cache"})

    routes = [
        Route("/", file("index.html")),
        Route("/login", file("login.html")),
        Route("/login", _login(access), methods=["POST"]),
        Route("/api/settings", lambda _: JSONResponse({"interval_s": interval, "token": access.token is not None})),
        Route("/api/overview", _view(board, lambda _: ((), views.overview))),
        Route("/api/group", _view(board, _group)),
        Route("/api/topics", _view(board, lambda _: ((), views.topics_view))),
        Route("/api/topic", _view(board, _topic)),
        Route("/api/cluster", _view(board, lambda _: ((), views.cluster_view))),
        Mount("/assets", StaticFiles(directory=STATIC_FILES)),
    ]
    return Starlette(
        routes=routes, middleware=[Middleware(Guard, access=access), Middleware(GZipMiddleware, minimum_size=_LARGE)]
    )


def _group(request: Request) -> tuple[tuple[str, ...], View]:
    name = request.query_params.get("name", "")
    lines = tuple(sorted(set(request.query_params.getlist("line"))))[:_MOST_LINES]
    return (name, *lines), lambda history: views.group_view(history, name, lines)


def _topic(request: Request) -> tuple[tuple[str, ...], View]:
    name = request.query_params.get("name", "")
    return (name,), lambda history: views.topic_view(history, name)


def _view(board: Board, choose: Callable[[Request], tuple[tuple[str, ...], View]]) -> Callable[[Request], Response]:
    """Return an endpoint with the JSON of a view. A browser that has seen it gets 304.

    Starlette runs the endpoint in a thread, since it is not a coroutine: a large view delays no other request.
    """

    def endpoint(request: Request) -> Response:
        parameters, view = choose(request)
        if request.headers.get("if-none-match") == _tag(board.version()):
            return Response(status_code=HTTPStatus.NOT_MODIFIED)
        version, body = board.answer((request.url.path, *parameters), view)
        if body is None:
            return JSONResponse({"error": "it does not exist, or not any more"}, HTTPStatus.NOT_FOUND)
        return Response(body, media_type="application/json", headers={"ETag": _tag(version)})

    return endpoint


def _tag(version: str) -> str:
    return f'W/"{version}"'


def _login(access: Access) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
            return Response("this form is of another site", HTTPStatus.FORBIDDEN)
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _LONGEST_FORM:
                return Response("the form is too large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        given = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]
        if access.token is None:
            return RedirectResponse("/", HTTPStatus.SEE_OTHER)
        if not access.allows_token(given):
            return RedirectResponse("/login?wrong", HTTPStatus.SEE_OTHER)
        answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        answer.set_cookie(
            COOKIE, access.cookie(), httponly=True, samesite="strict", secure=request.url.scheme == "https"
        )
        return answer

    return endpoint


_MOST_ANSWERS = 64
"""Responses stored until the next reading: browsers that show the same view share one."""


class Board:
    """Gives threads access to one history behind a lock, and caches the responses until the history changes."""

    def __init__(self, history: History | None = None) -> None:
        self._history = history or History()
        self._lock = threading.Lock()
        self._answers: dict[object, bytes | None] = {}
        self._start = secrets.token_hex(4)
        """Distinguishes the sequences of two starts of the server."""

    def add(self, reading: Reading) -> None:
        with self._lock:
            self._history.add(reading)
            self._answers.clear()

    def fail(self, at: float, text: str) -> None:
        """Add the error of a failed reading."""
        with self._lock:
            self._history.fail(at, text)
            self._answers.clear()

    def version(self) -> str:
        """Return a text that changes with each reading."""
        return f"{self._start}-{self._history.sequence}"

    def answer(self, key: object, view: Callable[[History], dict[str, Any] | None]) -> tuple[str, bytes | None]:
        """Return the version and the JSON of a view; None if its object does not exist.

        `key` identifies the view.
        """
        with self._lock:
            if key not in self._answers:
                shown = view(self._history)
                encoded = None if shown is None else json.dumps(shown, separators=(",", ":")).encode()
                if len(self._answers) >= _MOST_ANSWERS:
                    del self._answers[next(iter(self._answers))]
                self._answers[key] = encoded
            return self.version(), self._answers[key]


log = logging.getLogger("streamgroup")

Read = Callable[[], Reading]
"""Reads the cluster once. Raises StreamGroupError."""


class BoardPoller:
    """Reads the cluster every `interval` seconds, from `start` until `stop`, and adds the result to the board.

    `opened` connects. After a failed poll the connection is closed and opened again, because a session with ZooKeeper
    may have ended.
    """

    def __init__(self, opened: Callable[[], AbstractContextManager[Read]], board: Board, interval: float) -> None:
        self._opened = opened
        self._board = board
        self._interval = interval
        self._stopped = threading.Event()
        self._failure = ""
        self._thread = threading.Thread(target=self._run, name="streamgroup-ui-poller", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Stop reading, and wait up to `timeout` seconds for the current reading."""
        self._stopped.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with self._opened() as read:
                    self._read_until_stopped(read)
            except StreamGroupError as error:
                self._fail(str(error))
            except Exception as error:  # the page would show old data forever without a sign
                log.debug("cannot read the cluster", exc_info=True)
                self._fail(f"unexpected error of streamgroup ui: {error!r}")
            self._stopped.wait(self._interval)

    def _fail(self, text: str) -> None:
        """Show an error, and log it once for as long as it repeats: a cluster may be away for days."""
        if text != self._failure:
            log.warning("cannot read the cluster: %s", text)
        self._failure = text
        self._board.fail(time.time(), text)

    def _read_until_stopped(self, read: Read) -> None:
        while not self._stopped.is_set():
            began = time.monotonic()
            self._board.add(read())
            self._failure = ""
            self._stopped.wait(max(0.0, began + self._interval - time.monotonic()))
