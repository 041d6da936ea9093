"""The signed tokens of SASL OAUTHBEARER, and the public key by which a broker checks them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from streamgroup.testing.security.tokens import AUDIENCE, KEY_ID, LIFETIME_S, TokenIssuer, TokenKey, TokenServerAddress

KEY = TokenKey.create()


def part(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def check(token: str, jwks: Any) -> dict[str, Any]:
    """The claims of a token, as a second implementation of RFC 7515 reads them with the published key."""
    header, claims, signature = token.split(".")
    (published,) = jwks["keys"]
    assert json.loads(part(header)) == {"alg": "RS256", "typ": "JWT", "kid": published["kid"]}
    numbers = rsa.RSAPublicNumbers(*(int.from_bytes(part(published[name]), "big") for name in ("e", "n")))
    numbers.public_key().verify(part(signature), f"{header}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256())
    found: dict[str, Any] = json.loads(part(claims))
    return found


def test_a_changed_token_and_a_token_of_another_key_fail_the_check() -> None:
    jwks = KEY.jwks()
    header, claims, signature = KEY.sign({"sub": "client"}).split(".")
    forged = base64.urlsafe_b64encode(b'{"sub": "admin"}').rstrip(b"=").decode()
    assert check(f"{header}.{claims}.{signature}", jwks) == {"sub": "client"}
    with pytest.raises(InvalidSignature):
        check(f"{header}.{forged}.{signature}", jwks)
    with pytest.raises(InvalidSignature):
        check(TokenKey.create().sign({"sub": "client"}), jwks)


def test_the_published_set_has_the_public_numbers_of_one_key_and_nothing_private() -> None:
    (published,) = json.loads(json.dumps(KEY.jwks()))["keys"]
    assert sorted(published) == ["alg", "e", "kid", "kty", "n", "use"]
    assert (published["kty"], published["use"], published["alg"], published["kid"]) == ("RSA", "sig", "RS256", KEY_ID)
    numbers = KEY.key.public_key().public_numbers()
    assert (published["e"], len(part(published["n"]))) == ("AQAB", 256), "RFC 7518: without leading zeros"
    assert int.from_bytes(part(published["n"]), "big") == numbers.n


def test_a_token_is_three_parts_of_base64url_without_padding() -> None:
    # With these claims the base64 of RFC 4648, section 4, has a plus sign, a slash and padding.
    token = KEY.sign({"sub": "~~~???>>>", "aud": AUDIENCE, "exp": 1})
    assert token.count(".") == 2
    assert set(token) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")
    assert check(token, KEY.jwks()) == {"sub": "~~~???>>>", "aud": "kafka", "exp": 1}


def test_a_key_survives_its_file_and_its_repr_does_not_show_it() -> None:
    assert TokenKey.load(KEY.pem()).jwks() == KEY.jwks()
    assert "PRIVATE" in KEY.pem().decode()
    assert str(KEY.key.private_numbers().d) not in repr(KEY)
    assert "key=" not in repr(KEY)


ADDRESS = TokenServerAddress(5000)
ISSUER = TokenIssuer(KEY, {"client": "s:cret/+", "other": "x"}, ADDRESS)
NOW = 1_700_000_000.5
GRANT = {"grant_type": "client_credentials", "scope": "kafka"}


def basic(client: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{client}:{secret}".encode()).decode()


@pytest.mark.parametrize(
    ("authorization", "form"),
    [
        # RFC 6749 has clients encode both; a plus sign that was not encoded would be a space.
        (basic("client", "s:cret/%2B"), {}),
        (basic("client", "s%3Acret%2F%2B"), {}),
        ("", {"client_id": "client", "client_secret": "s:cret/+"}),
    ],
    ids=["basic", "basic-encoded", "form"],
)
def test_a_client_gets_a_token_that_the_published_key_checks(authorization: str, form: dict[str, str]) -> None:
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
    ("path", "authorization", "form", "status", "error"),
    [
        ("/token", basic("client", "wrong"), GRANT, 401, "invalid_client"),
        ("/token", basic("nobody", "s:cret/+"), GRANT, 401, "invalid_client"),
        ("/token", basic("other", "s:cret/+"), GRANT, 401, "invalid_client"),
        ("/token", "Basic !!", GRANT, 401, "invalid_client"),
        ("/token", "", GRANT, 401, "invalid_client"),
        ("/token", basic("other", "x"), {"grant_type": "password"}, 400, "unsupported_grant_type"),
        ("/elsewhere", basic("other", "x"), GRANT, 404, "not_found"),
    ],
)
def test_a_request_without_the_right_secret_and_grant_gets_no_token(
    path: str, authorization: str, form: dict[str, str], status: int, error: str
) -> None:
    assert ISSUER.post(path, authorization, form, NOW) == (status, {"error": error})


def test_the_description_names_the_endpoints() -> None:
    status, found = ISSUER.get("/.well-known/openid-configuration")
    assert (status, found["issuer"], found["token_endpoint"]) == (200, ADDRESS.issuer, ADDRESS.token_url)
    assert ISSUER.get("/token") == (404, {"error": "not_found"})
