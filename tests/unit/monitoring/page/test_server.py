"""`serve` listens for browsers that may read the page, and reads the cluster until Ctrl-C. Tests wait for no signal."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import socket
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from streamgroup.errors import ConfigError, StreamGroupError, TransportError
from streamgroup.monitoring.page.access import COOKIE, Access, Guard, is_loopback
from streamgroup.monitoring.page.history import views
from streamgroup.monitoring.page.history.history import History
from streamgroup.monitoring.page.server import STATIC_FILES, Board, BoardPoller, application, serve
from tests.unit.monitoring.page.readings import Cluster, group, partitions, reading
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
    with pytest.raises(RuntimeError) if end is RuntimeError else nullcontext():
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


def test_a_port_in_use_is_an_error_that_names_it_and_a_free_one_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(StreamGroupError, match=f"127.0.0.1:{port}: .*in use.* Choose another --port or --host"):
            serve(Cluster().open, LOOPBACK, port=port, interval=60, on_start=lambda _: None)
    announced: list[str] = []
    serve(Cluster().open, LOOPBACK, port=port, interval=60, on_start=announced.append)
    assert announced == [f"http://127.0.0.1:{port}/"], "the port is free again"


P = partitions(4)
TOKEN = "0123456789abcdef"


@pytest.fixture
def board() -> Board:
    board = Board()
    for at in range(3):
        board.add(reading(at, group(committed=dict.fromkeys(P, at), held={"a": P}), ends=dict.fromkeys(P, 9)))
    return board


def client(board: Board, access: Access | None = None, host: str = "127.0.0.1:9405") -> TestClient:
    return TestClient(application(board, access or LOOPBACK, 5), base_url=f"http://{host}", follow_redirects=False)


def test_each_view_is_json(board: Board) -> None:
    page = client(board)
    assert page.get("/api/overview").json()["groups"][0]["lag"] == 28
    assert page.get("/api/group", params={"name": "etl", "line": "orders-2"}).json()["lines"][0]["id"] == "orders-2"
    assert page.get("/api/topics").json()["topics"][0]["topic"] == "orders"
    assert len(page.get("/api/topic", params={"name": "orders"}).json()["rows"]) == 4
    assert page.get("/api/cluster").json()["brokers"][0]["id"] == 1
    assert page.get("/api/settings").json() == {"interval_s": 5, "token": False}


GONE = ["/api/group?name=gone", "/api/group", "/api/topic?name=gone", "/api/none", "/x"]
OUTSIDE = ["/assets/../app.py", "/assets/%2e%2e/app.py", "/assets/..%2fapp.py"]
"""Files that are not part of the page."""


@pytest.mark.parametrize("path", [*GONE, *OUTSIDE])
def test_what_does_not_exist_or_is_outside_of_the_page_is_404(board: Board, path: str) -> None:
    assert client(board).get(path).status_code == 404


def test_a_view_that_a_browser_has_is_not_sent_again_until_the_next_reading(board: Board) -> None:
    page = client(board)
    first = page.get("/api/overview")
    again = page.get("/api/overview", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    board.add(reading(9, group()))
    newer = page.get("/api/overview", headers={"If-None-Match": first.headers["etag"]})
    assert (newer.status_code, newer.json()["at"]) == (200, 9)
    board.fail(10, "no broker answers")
    failed = page.get("/api/overview", headers={"If-None-Match": newer.headers["etag"]})
    assert (failed.status_code, failed.json()["failed"]) == (200, "no broker answers")


def test_a_large_view_is_compressed(board: Board) -> None:
    many = partitions(500)
    for at in range(100):
        board.add(reading(at, group(committed=dict.fromkeys(many, at)), ends=dict.fromkeys(many, 1000)))
    answer = client(board).get("/api/group?name=etl")
    assert answer.headers["content-encoding"] == "gzip"
    assert len(answer.json()["heat"]) == 500


def test_a_rebinding_name_is_refused_on_every_path(board: Board) -> None:
    page = client(board, host="evil.example")
    for path in ("/", "/api/overview", "/assets/app.js", "/login"):
        assert page.get(path).status_code == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", ["/", "/api/overview", "/api/group?name=etl", "/assets/app.js"])
def test_the_page_changes_nothing(board: Board, method: str, path: str) -> None:
    assert client(board).request(method, path).status_code == 405


# -- the token ---------------------------------------------------------------------------------------------------------


def test_without_the_token_there_is_only_the_form(board: Board) -> None:
    page = client(board, Access("0.0.0.0", TOKEN), "10.0.0.7:9405")
    assert page.get("/").headers["location"] == "/login"
    assert page.get("/assets/app.js").headers["location"] == "/login"
    assert page.get("/login").status_code == 200
    refused = page.get("/api/overview")
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")


def test_the_form_takes_the_token_and_sets_a_cookie_that_scripts_cannot_read(board: Board) -> None:
    page = client(board, Access("0.0.0.0", TOKEN), "10.0.0.7:9405")
    wrong = page.post("/login", content="token=fedcba9876543210")
    assert (wrong.headers["location"], "set-cookie" in wrong.headers) == ("/login?wrong", False)
    right = page.post("/login", content=f"token={TOKEN}")
    assert right.headers["location"] == "/"
    assert "HttpOnly" in right.headers["set-cookie"]
    assert "SameSite=strict" in right.headers["set-cookie"]
    assert TOKEN not in right.headers["set-cookie"]
    assert page.get("/api/overview").status_code == 200


def test_a_form_of_another_site_or_of_another_size_is_refused(board: Board) -> None:
    page = client(board, Access("0.0.0.0", TOKEN), "10.0.0.7:9405")
    for origin in ("https://evil.example", "null"):
        assert page.post("/login", content=f"token={TOKEN}", headers={"Origin": origin}).status_code == 403
    own = page.post("/login", content=f"token={TOKEN}", headers={"Origin": "http://10.0.0.7:9405"})
    assert own.headers["location"] == "/"
    assert page.post("/login", content="x" * 10_000).status_code == 413
    assert client(board).post("/login", content="token=").headers["location"] == "/", "a page without a token"


# -- the files ---------------------------------------------------------------------------------------------------------

FILES = sorted(path for path in STATIC_FILES.rglob("*") if path.is_file())


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_every_file_is_served_and_none_loads_anything_from_elsewhere(board: Board, file: Path) -> None:
    assert client(board).get(f"/assets/{file.relative_to(STATIC_FILES)}").status_code == 200
    if "vendor" in file.parts:
        return
    text = file.read_text()
    assert not re.findall(r"(?:https?:)?//[a-z]", text.replace("http://www.w3.org/2000/svg", ""))
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text)
    assert "setAttribute('style'" not in text
    if file.suffix == ".html":
        assert not re.search(r"<style|<script(?![^>]*\bsrc=)|\bstyle=|\bon[a-z]+=", text)


def test_the_chart_library_is_the_one_that_its_note_names() -> None:
    note = (STATIC_FILES / "vendor" / "VERSION").read_text()
    named = re.findall(r"^([0-9a-f]{64})  (\S+)$", note, re.MULTILINE)
    assert {name for _, name in named} == {"uPlot.esm.js", "uPlot.min.css", "uPlot.LICENSE"}
    for digest, name in named:
        assert hashlib.sha256((STATIC_FILES / "vendor" / name).read_bytes()).hexdigest() == digest


class View:
    """A view of the history, which counts how often it was computed."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, history: History) -> dict[str, Any]:
        self.made += 1
        return {"groups": list(history.groups), "failed": history.failed}


def test_two_browsers_share_one_answer_until_the_next_reading() -> None:
    board, view = Board(), View()
    first = board.answer("overview", view)
    assert (board.answer("overview", view), view.made) == (first, 1)
    board.add(reading(100, group("etl")))
    version, answer = board.answer("overview", view)
    assert (view.made, json.loads(answer or b"")) == (2, {"groups": ["etl"], "failed": ""})
    assert version != first[0]


def test_a_view_of_something_that_does_not_exist_has_no_answer_and_is_not_computed_again() -> None:
    board, made = Board(), []

    def gone(history: History) -> None:
        made.append(history)

    assert [board.answer("gone", gone)[1] for _ in range(2)] == [None, None]
    assert len(made) == 1


def test_64_answers_are_kept_and_the_oldest_one_goes_first() -> None:
    board, views = Board(), [View() for _ in range(65)]
    for number, view in enumerate(views):
        board.answer(number, view)
    board.answer(64, views[64])
    board.answer(1, views[1])
    assert {view.made for view in views} == {1}
    board.answer(0, views[0])
    assert views[0].made == 2


def test_two_starts_of_the_server_do_not_have_the_same_version() -> None:
    one, other = Board(), Board()
    assert one.version() != other.version(), "a browser would take the answer of the earlier start for the newest"
    before = one.version()
    assert one.version() == before
    one.add(reading(100))
    assert one.version() != before


def shown(board: Board) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(board.answer("overview", views.overview)[1] or b"{}")
    return found


def test_readings_go_on_until_the_poller_is_stopped() -> None:
    board, cluster = Board(), Cluster()
    poller = BoardPoller(cluster.open, board, 0.01)
    poller.start()
    wait_until(lambda: shown(board)["sequence"] >= 3, "three readings")
    poller.stop(5)
    assert (cluster.opened, cluster.closed) == (1, 1)
    assert shown(board)["sequence"] == cluster.read


def test_after_an_error_of_any_kind_the_cluster_is_opened_again() -> None:
    board, cluster = Board(), Cluster(TransportError("no broker answers"), KeyError("x"))
    poller = BoardPoller(cluster.open, board, 0.01)
    poller.start()
    wait_until(lambda: shown(board)["at"], "a reading")
    poller.stop(5)
    assert (cluster.opened, cluster.closed) == (3, 3)
    errors = json.loads(board.answer("cluster", views.cluster_view)[1] or b"{}")["errors"]
    assert [error["text"] for error in errors] == [
        "unexpected error of streamgroup ui: KeyError('x')",
        "no broker answers",
    ]


def test_an_error_that_repeats_is_logged_once_until_a_reading_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    away = [TransportError("no broker answers") for _ in range(3)]
    board, cluster = Board(), Cluster(*away)
    poller = BoardPoller(cluster.open, board, 0.01)
    poller.start()
    wait_until(lambda: shown(board)["at"], "a reading")
    cluster.failures.append(TransportError("no broker answers"))
    wait_until(lambda: cluster.opened == 5, "opened again after another failure")
    poller.stop(5)
    assert [record.getMessage() for record in caplog.records] == ["cannot read the cluster: no broker answers"] * 2


# -- access -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "::1", "[::1]"])
def test_loopback_needs_no_token(host: str) -> None:
    assert is_loopback(host)
    assert Access(host).allows_cookie("") is True


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "broker-1", ""])
def test_a_page_for_other_machines_does_not_start_without_a_token(host: str) -> None:
    with pytest.raises(ConfigError, match="--token"):
        Access(host)


def test_a_token_that_could_be_guessed_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match="7 characters") as refused:
        Access("0.0.0.0", "secret!")
    assert "secret!" not in str(refused.value)
    assert TOKEN not in repr(Access("0.0.0.0", TOKEN))


@pytest.mark.parametrize(
    ("listens", "header", "allowed"),
    [
        ("127.0.0.1", "127.0.0.1:9405", True),
        ("127.0.0.1", "localhost:9405", True),
        ("127.0.0.1", "LocalHost", True),
        ("127.0.0.1", "[::1]:9405", True),
        ("127.0.0.1", "laptop", True),
        ("127.0.0.1", "evil.example:9405", False),
        ("127.0.0.1", "localhost.evil.example", False),
        ("127.0.0.1", "127.0.0.1.evil.example", False),
        ("127.0.0.1", "10.0.0.7", False),
        ("127.0.0.1", "", False),
        ("127.0.0.1", "localhost:9405@evil.example", False),
        ("127.0.0.1", "localhost:x", False),
        ("0.0.0.0", "10.0.0.7:9405", True),
        ("0.0.0.0", "evil.example", False),
        ("0.0.0.0", "laptop.", True),
    ],
)
def test_a_browser_that_was_led_to_the_page_by_another_name_is_refused(
    listens: str, header: str, allowed: bool
) -> None:
    assert Access(listens, TOKEN, {"Laptop"}).allows_host(header) is allowed


def test_the_cookie_proves_the_token_and_does_not_contain_it() -> None:
    access = Access("0.0.0.0", TOKEN)
    assert access.allows_token(TOKEN)
    assert access.allows_cookie(access.cookie())
    assert TOKEN not in access.cookie()
    for wrong in ("", TOKEN[:-1], TOKEN + "0", "ä" * 16):
        assert not access.allows_token(wrong)
        assert not access.allows_cookie(wrong)
    assert not access.allows_cookie(TOKEN)
    assert not Access("0.0.0.0", TOKEN[::-1]).allows_cookie(access.cookie())


SECURED = Access("0.0.0.0", TOKEN)


class Page:
    """The application behind the guard, which records the paths that reach it."""

    def __init__(self, **headers: str) -> None:
        self.reached: list[str] = []
        self.headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.reached.append(scope.get("path", scope["type"]))
        if scope["type"] == "http":
            await PlainTextResponse("the page", headers=self.headers)(scope, receive, send)


def guarded(page: Page, access: Access = SECURED, host: str = "10.0.0.7:9405") -> TestClient:
    return TestClient(Guard(page, access), base_url=f"http://{host}", follow_redirects=False)


@pytest.mark.parametrize(
    ("headers", "is_let_through"),
    [
        ({}, False),
        ({"Authorization": f"Bearer {TOKEN}"}, True),
        ({"Authorization": "Bearer fedcba9876543210"}, False),
        ({"Authorization": f"Basic {TOKEN}"}, False),
        ({"Cookie": f"{COOKIE}={SECURED.cookie()}"}, True),
        ({"Cookie": f"{COOKIE}={TOKEN}"}, False),
        ({"Cookie": f"another={SECURED.cookie()}"}, False),
        ({"Authorization": "Bearer wrong", "Cookie": f"{COOKIE}={SECURED.cookie()}"}, False),
    ],
)
def test_a_request_reaches_the_page_with_the_token_or_the_cookie_that_proves_it(
    headers: dict[str, str], is_let_through: bool
) -> None:
    page = Page()
    assert guarded(page).get("/api/overview", headers=headers).status_code == (200 if is_let_through else 401)
    assert page.reached == (["/api/overview"] if is_let_through else [])


def test_a_program_is_told_that_the_token_is_missing_and_a_browser_is_sent_to_the_form() -> None:
    page = Page()
    program = guarded(page).get("/api/overview")
    assert (program.json(), program.headers["www-authenticate"]) == ({"error": "the token is missing"}, "Bearer")
    browser = guarded(page).get("/")
    assert (browser.status_code, browser.headers["location"]) == (303, "/login")
    assert page.reached == []
    assert guarded(page, Access("127.0.0.1"), "127.0.0.1:9405").get("/api/overview").text == "the page", "without one"


@pytest.mark.parametrize("path", ["/login", "/assets/login.css", "/assets/login.js", "/assets/theme.js"])
def test_the_form_and_its_files_need_no_token(path: str) -> None:
    assert guarded(Page()).get(path).text == "the page"


@pytest.mark.parametrize("path", ["/login/x", "/assets/app.js", "/assets/login.css.map", "/Login", "//login"])
def test_a_path_that_is_like_one_of_the_form_needs_the_token(path: str) -> None:
    page = Page()
    assert guarded(page).get(f"http://10.0.0.7:9405{path}").headers["location"] == "/login"
    assert page.reached == []


@pytest.mark.parametrize("path", ["/", "/api/overview", "/login"])
def test_a_host_name_that_is_not_served_is_refused_with_the_next_step_even_with_the_token(path: str) -> None:
    page = Page()
    refused = guarded(page, host="evil.example").get(path, headers={"Authorization": f"Bearer {TOKEN}"})
    assert (refused.status_code, page.reached) == (421, [])
    assert "Use its address, or start it with --name HOST" in refused.text
    assert guarded(page).get(path, headers={"Host": ""}).status_code == 421
    assert page.reached == []


@pytest.mark.parametrize(("host", "path"), [("10.0.0.7", "/login"), ("10.0.0.7", "/"), ("evil.example", "/")])
def test_answers_of_the_page_and_refusals_bind_the_browser_alike(host: str, path: str) -> None:
    headers = guarded(Page(), host=host).get(path).headers
    policy = headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'self'"} <= set(policy)
    assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")
    # With no-referrer, browsers send the form of the token with `Origin: null`, which the page refuses.
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == headers["cross-origin-opener-policy"] == "same-origin"


@pytest.mark.parametrize(
    ("path", "cache"), [("/api/overview", "no-store"), ("/api/none", "no-store"), ("/", "no-cache")]
)
def test_answers_with_figures_are_not_stored_unless_they_say_how_long(path: str, cache: str) -> None:
    assert guarded(Page()).get(path).headers["cache-control"] == cache
    page = Page(**{"Cache-Control": "max-age=60"})
    assert guarded(page).get("/login").headers["cache-control"] == "max-age=60"


def test_a_websocket_gets_no_answer_and_the_start_of_the_server_reaches_the_page() -> None:
    page = Page()
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("the guard reads nothing")

    guard = Guard(page, SECURED)
    asyncio.run(guard({"type": "websocket", "path": "/login", "headers": []}, receive, send))
    assert (page.reached, sent) == ([], [])
    asyncio.run(guard({"type": "lifespan"}, receive, send))
    assert page.reached == ["lifespan"]
