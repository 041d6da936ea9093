from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from streamgroup.errors import ConfigError
from streamgroup.monitoring.page.access import COOKIE, Access, Guard, is_loopback

TOKEN = "0123456789abcdef"


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


def client(page: Page, access: Access = SECURED, host: str = "10.0.0.7:9405") -> TestClient:
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
    assert client(page).get("/api/overview", headers=headers).status_code == (200 if is_let_through else 401)
    assert page.reached == (["/api/overview"] if is_let_through else [])


def test_a_program_is_told_that_the_token_is_missing_and_a_browser_is_sent_to_the_form() -> None:
    page = Page()
    program = client(page).get("/api/overview")
    assert (program.json(), program.headers["www-authenticate"]) == ({"error": "the token is missing"}, "Bearer")
    browser = client(page).get("/")
    assert (browser.status_code, browser.headers["location"]) == (303, "/login")
    assert page.reached == []


@pytest.mark.parametrize("path", ["/login", "/assets/login.css", "/assets/login.js", "/assets/theme.js"])
def test_the_form_and_its_files_need_no_token(path: str) -> None:
    assert client(Page()).get(path).text == "the page"


@pytest.mark.parametrize("path", ["/login/x", "/assets/app.js", "/assets/login.css.map", "/Login", "//login"])
def test_a_path_that_is_like_one_of_the_form_needs_the_token(path: str) -> None:
    page = Page()
    assert client(page).get(f"http://10.0.0.7:9405{path}").headers["location"] == "/login"
    assert page.reached == []


def test_a_page_without_a_token_is_open_to_this_machine() -> None:
    assert client(Page(), Access("127.0.0.1"), "127.0.0.1:9405").get("/api/overview").text == "the page"


@pytest.mark.parametrize("path", ["/", "/api/overview", "/login"])
def test_a_host_name_that_is_not_served_is_refused_with_the_next_step_even_with_the_token(path: str) -> None:
    page = Page()
    refused = client(page, host="evil.example").get(path, headers={"Authorization": f"Bearer {TOKEN}"})
    assert (refused.status_code, page.reached) == (421, [])
    assert "Use its address, or start it with --name HOST" in refused.text


def test_a_request_without_a_host_is_refused() -> None:
    page = Page()
    assert client(page).get("/login", headers={"Host": ""}).status_code == 421
    assert page.reached == []


@pytest.mark.parametrize(("host", "path"), [("10.0.0.7", "/login"), ("10.0.0.7", "/"), ("evil.example", "/")])
def test_answers_of_the_page_and_refusals_bind_the_browser_alike(host: str, path: str) -> None:
    headers = client(Page(), host=host).get(path).headers
    policy = headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'self'"} <= set(policy)
    assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")
    # With no-referrer, browsers send the form of the token with `Origin: null`, which the page refuses.
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == headers["cross-origin-opener-policy"] == "same-origin"


@pytest.mark.parametrize(
    ("path", "cache"), [("/api/overview", "no-store"), ("/api/none", "no-store"), ("/", "no-cache")]
)
def test_answers_with_figures_are_not_stored(path: str, cache: str) -> None:
    assert client(Page()).get(path).headers["cache-control"] == cache


def test_an_answer_that_says_how_long_it_may_be_stored_keeps_it() -> None:
    page = Page(**{"Cache-Control": "max-age=60"})
    assert client(page).get("/login").headers["cache-control"] == "max-age=60"


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
