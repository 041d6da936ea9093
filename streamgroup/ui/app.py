"""The ASGI application: the page's files, and the views of the history as JSON. It changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from streamgroup.ui.access import COOKIE, Access, Guard
from streamgroup.ui.board import Board
from streamgroup.ui.history import views
from streamgroup.ui.history.history import History

PAGE = Path(__file__).parent / "page"
_LONGEST_FORM = 4096
_LARGE = 1024
"""Answers from this size on are compressed."""
_MOST_LINES = views.LINES

View = Callable[[History], dict[str, Any] | None]


def application(board: Board, access: Access, interval: float) -> Starlette:
    """Return the application that shows `board`, which is read every `interval` seconds."""

    def file(name: str) -> Callable[[Request], Response]:
        return lambda _: FileResponse(PAGE / name, headers={"Cache-Control": "no-cache"})

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
        Mount("/assets", StaticFiles(directory=PAGE)),
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

    Starlette runs the endpoint in a thread, since it is not a coroutine: a large view holds up no other request.
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
