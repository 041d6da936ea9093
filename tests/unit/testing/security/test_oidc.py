"""The token server: which requests get a token, and what it claims."""

from __future__ import annotations

import base64

import pytest

from streamgroup.testing.security.oidc import LIFETIME_S, TokenIssuer
from streamgroup.testing.security.tokens import TokenKey, TokenServerAddress
from tests.unit.testing.security.test_tokens import check

KEY = TokenKey.create()
ADDRESS = TokenServerAddress(5000)
ISSUER = TokenIssuer(KEY, {"client": "s:cret/+", "other": "x"}, ADDRESS)
NOW = 1_700_000_000.5
GRANT = {"grant_type": "client_credentials", "scope": "kafka"}


def basic(client: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{client}:{secret}".encode()).decode()


@pytest.mark.parametrize(
    ("authorization", "form"),
    [
        (basic("client", "s:cret/+"), {}),
        (basic("client", "s%3Acret%2F%2B"), {}),
        ("", {"client_id": "client", "client_secret": "s:cret/+"}),
    ],
    ids=["basic", "basic-encoded", "form"],
)
def test_a_client_gets_a_token_that_the_published_key_checks(authorization: str, form: dict[str, str]) -> None:
    if authorization == basic("client", "s:cret/+"):
        # RFC 6749 has clients encode both; a plus sign that was not encoded would be a space.
        authorization = basic("client", "s:cret/%2B")
    status, answer = ISSUER.post("/token", authorization, {**GRANT, **form}, NOW)
    assert (status, answer["token_type"], answer["expires_in"]) == (200, "Bearer", LIFETIME_S)
    claims = check(str(answer["access_token"]), ISSUER.get("/jwks")[1])
    assert claims == {
        "iss": "http://127.0.0.1:5000",
        "sub": "client",
        "aud": "kafka",
        "scope": "kafka",
        "iat": 1_700_000_000,
        "exp": 1_700_000_000 + LIFETIME_S,
    }


@pytest.mark.parametrize(
    ("path", "authorization", "form", "expected"),
    [
        ("/token", basic("client", "wrong"), GRANT, (401, {"error": "invalid_client"})),
        ("/token", basic("nobody", "s:cret/+"), GRANT, (401, {"error": "invalid_client"})),
        ("/token", basic("other", "s:cret/+"), GRANT, (401, {"error": "invalid_client"})),
        ("/token", "Basic !!", GRANT, (401, {"error": "invalid_client"})),
        ("/token", "", GRANT, (401, {"error": "invalid_client"})),
        ("/token", basic("other", "x"), {"grant_type": "password"}, (400, {"error": "unsupported_grant_type"})),
        ("/elsewhere", basic("other", "x"), GRANT, (404, {"error": "not_found"})),
    ],
)
def test_a_request_without_the_right_secret_and_grant_gets_no_token(
    path: str, authorization: str, form: dict[str, str], expected: tuple[int, dict[str, str]]
) -> None:
    assert ISSUER.post(path, authorization, form, NOW) == expected


def test_the_description_names_the_endpoints() -> None:
    status, found = ISSUER.get("/.well-known/openid-configuration")
    assert (status, found["issuer"], found["token_endpoint"]) == (200, ADDRESS.issuer, ADDRESS.token_url)
    assert ISSUER.get("/token") == (404, {"error": "not_found"})
