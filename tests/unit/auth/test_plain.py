from __future__ import annotations

from typing import Any

import pytest

from streamgroup.auth.plain import PlainMechanism
from streamgroup.errors import AuthenticationError
from tests.unit.auth.vectors import java_rows


def test_the_example_of_rfc_4616() -> None:
    assert PlainMechanism("b:1", "tim", "tanstaaftanstaaf").first() == b"\0tim\0tanstaaftanstaaf"


@pytest.mark.parametrize("row", java_rows("PLAIN"), ids=lambda row: row["user"])
def test_every_byte_is_that_of_java(row: dict[str, Any]) -> None:
    assert [PlainMechanism("b:1", row["user"], row["password"]).first().decode()] == row["messages"]


@pytest.mark.parametrize("answer", [b"", b"welcome"])
def test_the_exchange_is_complete_when_the_broker_has_answered(answer: bytes) -> None:
    mechanism = PlainMechanism("b:1", "alice", "secret")
    mechanism.first()
    assert not mechanism.done
    assert mechanism.next(answer) is None
    assert mechanism.done


@pytest.mark.parametrize(
    ("user", "password", "cause"),
    [
        ("", "hunter2", "the user name is empty"),
        ("alice", "", "the password is empty"),
        ("al\0ice", "hunter2", "the user name contains a NUL"),
        ("alice", "hunter2\0admin", "the password contains a NUL"),
        ("alice", "hunter2\ud800", "the password is not valid Unicode"),
        ("\udfff", "hunter2", "the user name is not valid Unicode"),
    ],
)
def test_credentials_that_plain_cannot_carry(user: str, password: str, cause: str) -> None:
    with pytest.raises(AuthenticationError, match=cause) as caught:
        PlainMechanism("b:1", user, password)
    assert "hunter2" not in str(caught.value)
