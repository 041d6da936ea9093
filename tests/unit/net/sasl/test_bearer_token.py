from __future__ import annotations

import base64

import pytest

from streamgroup.auth.oauthbearer import OAuthBearerMechanism
from streamgroup.net.sasl.bearer_token import described_end, end_of


def jwt(claims: str) -> str:
    return f"e30.{base64.urlsafe_b64encode(claims.encode()).decode().rstrip('=')}.sig"


@pytest.mark.parametrize(
    ("token", "end"),
    [
        (jwt('{"exp": 1700000000}'), 1_700_000_000.0),
        (jwt('{"exp": 1700000000.5}'), 1_700_000_000.5),
        (jwt('{"exp": true}'), None),
        (jwt(f'{{"exp": 1{"0" * 400}}}'), None),
        (jwt('{"exp": 1e999}'), None),
        (jwt('{"exp": "soon"}'), None),
        (jwt("{}"), None),
        (jwt("[1]"), None),
        (jwt("no JSON"), None),
        ("e30.*", None),
        ("opaque", None),
        ("", None),
    ],
)
def test_the_end_is_that_of_a_jwt(token: str, end: float | None) -> None:
    assert end_of(token) == end


@pytest.mark.parametrize(
    ("exp", "shown"), [("1700000000", "2023-11-14 22:13:20 UTC"), ("1e300", ""), ("-1e300", ""), ("NaN", "")]
)
def test_the_end_is_described_if_the_calendar_has_it(exp: str, shown: str) -> None:
    assert described_end(jwt(f'{{"exp": {exp}}}')) == shown


def test_the_error_of_a_rejected_token_says_when_it_expires() -> None:
    error = OAuthBearerMechanism("b:1", "e30.e30.x", expiry="2023-11-14 22:13:20 UTC").rejected("")
    assert "credentials: the token expires at 2023-11-14 22:13:20 UTC. Check the token's end" in str(error)
