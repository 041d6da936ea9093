"""`streamgroup.SchemaRegistry`: a user names a registry, and learns at once which part of it cannot be used."""

from __future__ import annotations

import pytest

from streamgroup.errors import ConfigError
from streamgroup.parsing.registry import SchemaRegistry


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("registry:8081",), "invalid URL"),
        (("http://",), "invalid URL"),
        (("http://[",), "invalid URL"),
        (("HTTP://registry",), "invalid URL"),
        (("http://registry:port",), "invalid URL"),
        (("https://one,http://two",), "invalid URL"),
        (("https://one,http://u:p@two",), "invalid URL"),
        (("http://u:p@registry",), "credentials in it"),
        (("http://registry", "etl"), "both user and password"),
        (("http://registry", None, None, "/ca.pem"), "not https"),
    ],
)
def test_a_registry_that_cannot_be_asked_is_refused(given: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        SchemaRegistry(*given)


@pytest.mark.parametrize(
    "given",
    [
        ("http://registry",),
        ("http://registry:8081/schemas",),
        ("https://[::1]:8081",),
        ("https://registry:65535", "etl", "env:PASSWORD"),
        ("https://registry", None, None, "/ca.pem"),
        # Only None means that there is no user: an empty password is one.
        ("https://registry", "etl", ""),
    ],
)
def test_a_registry_that_can_be_asked_keeps_its_parts_as_given(given: tuple[str, ...]) -> None:
    registry = SchemaRegistry(*given)
    parts = (registry.url, registry.user, registry.password, registry.ca)
    assert parts == (*given, None, None, None)[:4]


@pytest.mark.parametrize("port", ["0", "65536", "-1", "80a"])
def test_a_port_that_cannot_be_is_refused_with_an_example_of_a_url(port: str) -> None:
    with pytest.raises(ConfigError, match="expected, for example, https://registry:8081"):
        SchemaRegistry(f"https://registry:{port}")


@pytest.mark.parametrize("url", ["https://registry?normalize=true", "", "https:///subjects"])
def test_a_url_with_a_query_or_without_a_host_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="invalid URL of the schema registry"):
        SchemaRegistry(url)


@pytest.mark.parametrize("url", ["https://etl:hunter2@registry", "https://:hunter2@registry", "https://etl@registry"])
def test_credentials_in_the_url_are_refused_and_the_error_does_not_show_them(url: str) -> None:
    with pytest.raises(ConfigError, match=r"credentials in it. Set the user and the password") as raised:
        SchemaRegistry(url)
    assert "hunter2" not in str(raised.value)


def test_a_password_without_a_user_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match=r"both user and password, or neither. Set the other one too") as raised:
        SchemaRegistry("https://registry", password="hunter2")
    assert "hunter2" not in str(raised.value)


def test_the_text_of_a_registry_does_not_show_its_password() -> None:
    text = repr(SchemaRegistry("https://registry", "etl", "hunter2"))
    assert "hunter2" not in text
    assert "etl" in text
