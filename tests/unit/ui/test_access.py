from __future__ import annotations

import pytest

from streamgroup.errors import ConfigError
from streamgroup.ui.access import Access, is_loopback

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
