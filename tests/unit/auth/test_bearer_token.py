from __future__ import annotations

import base64

import pytest

from streamgroup.auth.bearer_token import end_of
from streamgroup.auth.oauthbearer import OAuthBearerMechanism


def jwt(claims: str) -> str:
    return f"e30.{base64.urlsafe_b64encode(claims.encode()).decode().rstrip('=')}.sig"


@pytest.mark.parametrize(
    ("token", "end"),
    [
        (jwt('{"exp": 1700000000}'), 1_700_000_000.0),
        (jwt('{"exp": 1700000000.5}'), 1_700_000_000.5),
        (jwt('{"exp": true}'), None),
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
    ("exp", "said"),
    [
        ("1700000000", ": the token expires at 2023-11-14 22:13:20 UTC. Check the token's end"),
        ("1e300", "credentials. "),
    ],
)
def test_the_error_of_a_rejected_token_says_when_it_expires(exp: str, said: str) -> None:
    assert said in str(OAuthBearerMechanism("b:1", jwt(f'{{"exp": {exp}}}')).rejected(""))
