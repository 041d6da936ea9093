"""The signed tokens of SASL OAUTHBEARER, and the public key by which a broker checks them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from streamgroup.testing.security.tokens import AUDIENCE, KEY_ID, TokenKey, TokenServerAddress

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


def test_a_key_survives_its_file() -> None:
    assert TokenKey.load(KEY.pem()).jwks() == KEY.jwks()


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


def test_the_addresses_are_on_loopback_and_kafka_4_may_open_both() -> None:
    address = TokenServerAddress(5000)
    assert address.issuer == "http://127.0.0.1:5000"
    assert (address.token_url, address.jwks_url) == ("http://127.0.0.1:5000/token", "http://127.0.0.1:5000/jwks")
    name, _, urls = address.jvm_flag.partition("=")
    assert name == "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls"
    assert urls.split(",") == [address.token_url, address.jwks_url]


def test_the_repr_of_a_key_does_not_show_it() -> None:
    assert "PRIVATE" in KEY.pem().decode()
    assert str(KEY.key.private_numbers().d) not in repr(KEY)
    assert "key=" not in repr(KEY)
