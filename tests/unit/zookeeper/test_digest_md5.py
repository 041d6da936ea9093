from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.zookeeper import digest_md5
from streamgroup.zookeeper.digest_md5 import DigestMd5

CHALLENGE = b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
PROOF = b"rspauth=ea40f60335c427b5527b84dbabcdfffd"


@pytest.fixture
def chris(monkeypatch: pytest.MonkeyPatch) -> DigestMd5:
    """The user of the example in RFC 2831, section 4."""
    monkeypatch.setattr(digest_md5, "DIGEST_URI", "imap/elwood.innosoft.com")
    return DigestMd5("chris", "secret", "OA6MHXh6VqTrRk")


def test_the_example_of_the_rfc_has_its_response_and_its_proof(chris: DigestMd5) -> None:
    response = chris.response(CHALLENGE).decode()
    assert "response=d388dad90d4bbd760a152321f2143af7," in response
    assert 'username="chris",realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",nc=00000001' in response
    assert chris.is_proof(PROOF)


@pytest.mark.parametrize("proof", [b"", b"rspauth=", PROOF[:-1], PROOF.replace(b"ea40", b"ea41"), PROOF + b","])
def test_a_server_that_does_not_know_the_password_is_noticed(chris: DigestMd5, proof: bytes) -> None:
    chris.response(CHALLENGE)
    assert not chris.is_proof(proof)


def test_nothing_is_a_proof_before_the_challenge(chris: DigestMd5) -> None:
    assert not chris.is_proof(b"")
    assert not chris.is_proof(PROOF)


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b'realm="r",qop="auth",algorithm=md5-sess',
        b'realm="r",nonce="n",qop="auth",algorithm=md5',
        b'realm="r",nonce="n",qop="auth-conf",algorithm=md5-sess',
        CHALLENGE.replace(b"nonce", b"once"),
    ],
)
def test_another_challenge_is_an_error(chris: DigestMd5, challenge: bytes) -> None:
    with pytest.raises(ValueError, match="challenge lacks"):
        chris.response(challenge)


def test_a_challenge_longer_than_the_rfc_allows_is_not_searched(chris: DigestMd5) -> None:
    with pytest.raises(ValueError, match="the challenge has 100000 bytes, more than 2047"):
        chris.response(b"a" * 100_000)


def test_quotes_in_names_are_escaped() -> None:
    response = DigestMd5('a"\\b', "p", "c").response(b'realm="x\\"y",nonce="n",algorithm=md5-sess').decode()
    assert 'username="a\\"\\\\b",realm="x\\"y"' in response


@given(st.binary(max_size=200))
def test_any_bytes_are_a_challenge_or_a_value_error(challenge: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert b"canary" not in DigestMd5("u", "canary", "c").response(challenge)
