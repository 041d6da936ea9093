"""`streamgroup ui` serves the live page: its address, its token and the names that it answers to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streamgroup.cli.ui import ui
from streamgroup.errors import StreamGroupError
from streamgroup.ui import server
from streamgroup.ui.access import Access

TOKEN = "0123456789abcdef"


def run(*arguments: str, env: Mapping[str, str] | None = None) -> Result:
    return CliRunner().invoke(ui, ["-b", "broker", *arguments], env=env)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(server, "serve", lambda opened, access, **named: calls.append({"access": access, **named}))
    return calls


def test_the_page_is_on_loopback_by_default(served: list[dict[str, Any]]) -> None:
    assert run().exit_code == 0
    access: Access = served[0]["access"]
    assert (access.host, access.token, served[0]["port"], served[0]["interval"]) == ("127.0.0.1", None, 9405, 5)


def test_a_page_for_other_machines_needs_a_token_before_anything_listens(served: list[dict[str, Any]]) -> None:
    result = run("--host", "0.0.0.0")
    assert isinstance(result.exception, StreamGroupError)
    assert "--token" in str(result.exception)
    assert served == []


def test_the_token_comes_from_a_variable_and_is_not_shown(served: list[dict[str, Any]]) -> None:
    result = run("--host", "0.0.0.0", "--token", "env:PAGE_TOKEN", env={"PAGE_TOKEN": TOKEN})
    assert result.exit_code == 0
    assert served[0]["access"].token == TOKEN
    assert TOKEN not in result.output + repr(served)


def test_further_names_of_the_page(served: list[dict[str, Any]]) -> None:
    assert run("--name", "kafka.example").exit_code == 0
    assert served[0]["access"].allows_host("kafka.example:9405")


def test_a_port_in_use_is_an_error_that_names_the_next_step() -> None:
    import socket  # noqa: PLC0415

    with socket.create_server(("127.0.0.1", 0)) as other:
        result = run("--port", str(other.getsockname()[1]))
    assert isinstance(result.exception, StreamGroupError)
    assert "Choose another --port" in str(result.exception)
