from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroup.auth.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism
from streamgroup.errors import AuthenticationError
from tests.unit.auth.scram_server import HASHES, ScramServer, hi
from tests.unit.auth.vectors import java_rows

NAMES = sorted(HASHES)
PEER = "broker-1:9092"
ROWS = java_rows("SCRAM")

each_hash = pytest.mark.parametrize("name", NAMES)
texts = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)


def client(name: str = NAMES[0], password: str = "pencil", nonce: str = "abc", **more: Any) -> ScramMechanism:
    return ScramMechanism(name, PEER, "user", password, nonce, **more)


def server_first(nonce: str = "abcdef", salt: str = "AAAA", iterations: str = "4096", more: str = "") -> bytes:
    return f"r={nonce},s={salt},i={iterations}{more}".encode()


# -- vectors -----------------------------------------------------------------------------------------------------------


def test_the_example_of_rfc_7677() -> None:
    mechanism = client(nonce="rOprNGfwEbeRWgbNEkqO")
    assert mechanism.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    final = mechanism.next(b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert not mechanism.done
    assert mechanism.next(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None
    assert mechanism.done


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['mechanism']}-{i}" for i, row in enumerate(ROWS)])
def test_every_byte_is_that_of_java(row: dict[str, Any]) -> None:
    first, challenge, final, verifier = (message.encode() for message in row["messages"])
    mechanism = ScramMechanism(
        row["mechanism"], PEER, row["user"], row["password"], row["client_nonce"], token_auth=row["token_auth"]
    )
    assert mechanism.first() == first
    assert mechanism.next(challenge) == final
    assert mechanism.next(verifier) is None
    assert mechanism.done


@each_hash
def test_the_salted_password_is_that_of_the_rfc_step_by_step(name: str) -> None:
    assert hi(name, b"pencil", b"salt", 4_096) == hashlib.pbkdf2_hmac(HASHES[name]().name, b"pencil", b"salt", 4_096)


# -- with a server -----------------------------------------------------------------------------------------------------


@each_hash
@settings(max_examples=50)
@given(user=texts, password=texts, salt=st.binary(min_size=1, max_size=40), token_auth=st.booleans())
def test_the_right_password_authenticates_both_sides(
    name: str, user: str, password: str, salt: bytes, token_auth: bool
) -> None:
    server = ScramServer(name, user, password, salt=salt)
    mechanism = ScramMechanism(name, PEER, user, password, "client", token_auth=token_auth)
    final = mechanism.next(server.first(mechanism.first()))
    assert final is not None
    assert not mechanism.done
    assert mechanism.next(server.final(final)) is None
    assert server.accepted
    assert mechanism.done
    assert server.extensions == ({"tokenauth": "true"} if token_auth else {})


@each_hash
@settings(max_examples=30)
@given(password=texts, other=texts)
def test_another_password_authenticates_neither_side(name: str, password: str, other: str) -> None:
    server = ScramServer(name, "user", password)
    mechanism = client(name, other)
    final = mechanism.next(server.first(mechanism.first()))
    assert final is not None
    if password == other:
        return
    with pytest.raises(AuthenticationError, match="the broker rejected the credentials: invalid-proof"):
        mechanism.next(server.final(final))
    assert not server.accepted
    assert not mechanism.done


@pytest.fixture
def salted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many exchanges of one password cost the time of one."""
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", functools.cache(hashlib.pbkdf2_hmac))


@pytest.mark.usefixtures("salted_once")
@each_hash
def test_a_changed_bit_of_the_first_message_fails(name: str) -> None:
    first = ScramServer(name, "user", "pencil").first(client(name).first())
    for changed in each_bit_changed(first, every=9):
        server = ScramServer(name, "user", "pencil")
        mechanism = client(name)
        server.first(mechanism.first())
        try:
            final = mechanism.next(changed)
        except AuthenticationError:
            continue
        assert final is not None
        with pytest.raises(AuthenticationError):
            mechanism.next(server.final(final))
        assert not server.accepted
        assert not mechanism.done


@pytest.mark.usefixtures("salted_once")
@each_hash
def test_any_changed_bit_of_the_signature_fails(name: str) -> None:
    server = ScramServer(name, "user", "pencil")
    challenge = server.first(client(name).first())
    verifier = server.final(after_the_first_message(client(name), challenge)[1])
    for changed in each_bit_changed(verifier):
        mechanism, _ = after_the_first_message(client(name), challenge)
        with pytest.raises(AuthenticationError):
            mechanism.next(changed)
        assert not mechanism.done
    mechanism, _ = after_the_first_message(client(name), challenge)
    assert mechanism.next(verifier) is None


def each_bit_changed(message: bytes, every: int = 1) -> Iterator[bytes]:
    """The message with each of its bits changed; with `every` 9, one bit of most of its bytes."""
    number = int.from_bytes(message, "big")
    return ((number ^ 1 << bit).to_bytes(len(message), "big") for bit in range(0, len(message) * 8, every))


def after_the_first_message(mechanism: ScramMechanism, challenge: bytes) -> tuple[ScramMechanism, bytes]:
    mechanism.first()
    final = mechanism.next(challenge)
    assert final is not None
    return mechanism, final


def test_a_signature_has_one_text_only() -> None:
    verifier = "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    other = verifier.replace("4=", "5=")
    assert base64.b64decode(verifier) == base64.b64decode(other)
    mechanism = client(nonce="rOprNGfwEbeRWgbNEkqO")
    mechanism.first()
    mechanism.next(b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    with pytest.raises(AuthenticationError, match="the last message of the broker is not valid"):
        mechanism.next(f"v={other}".encode())


# -- a broker that is not to be trusted --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("challenge", "cause"),
    [
        (b"", "reports success without a proof"),
        (b"e=unknown-user", "rejected the credentials: unknown-user"),
        (b"v=AAAA", "first message of the broker is not valid"),
        (server_first("abc"), "nonce of the broker does not continue"),
        (server_first("abd"), "nonce of the broker does not continue"),
        (server_first("xabcd"), "nonce of the broker does not continue"),
        (server_first("ABCdef"), "nonce of the broker does not continue"),
        (server_first("abc def"), "first message of the broker is not valid"),
        (server_first("abc\N{LATIN SMALL LETTER E WITH ACUTE}"), "first message of the broker is not valid"),
        (server_first(salt=""), "first message of the broker is not valid"),
        (server_first(salt="A"), "first message of the broker is not valid"),
        (server_first(salt="AB=="), "first message of the broker is not valid"),
        (server_first(salt="AAA=AAAA"), "first message of the broker is not valid"),
        (server_first(iterations=""), "first message of the broker is not valid"),
        (server_first(iterations="-4096"), "first message of the broker is not valid"),
        (server_first(iterations="4096.0"), "first message of the broker is not valid"),
        (server_first(iterations="٤٠٩٦"), "first message of the broker is not valid"),
        (server_first(iterations="0"), "asks for 0 iterations"),
        (server_first(iterations="4095"), "asks for 4095 iterations"),
        (server_first(iterations="1000001"), "asks for 1000001 iterations"),
        (server_first(iterations="4294971392"), "asks for 4294971392 iterations"),
        (server_first(iterations="9" * 5_000), "asks for 999999999999… iterations"),
        (b"m=x," + server_first(), "has a mandatory extension"),
        (server_first() + b"\n", "first message of the broker is not valid"),
        (b"\n" + server_first(), "first message of the broker is not valid"),
        (server_first() + b",", "first message of the broker is not valid"),
        (b"\xff" + server_first(), "not valid UTF-8"),
        (b"r=" + b"a" * 70_000, "message of 70002 bytes"),
    ],
)
def test_a_bad_first_message_costs_no_work(challenge: bytes, cause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", lambda *_: pytest.fail("the password was salted"))
    mechanism = client()
    mechanism.first()
    with pytest.raises(AuthenticationError, match=f"^cannot authenticate to broker {PEER} as user 'user' .*{cause}"):
        mechanism.next(challenge)
    assert not mechanism.done


@pytest.mark.parametrize("iterations", [MIN_ITERATIONS, MAX_ITERATIONS])
def test_the_bounds_of_iterations_are_allowed(iterations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", lambda *given: asked.append(given[3]) or b"key")
    mechanism = client()
    mechanism.first()
    assert mechanism.next(server_first(iterations=str(iterations))) is not None
    assert asked == [iterations]


@pytest.mark.parametrize(
    ("challenge", "cause"),
    [
        (b"", "reports success without a proof"),
        (b"e=invalid-proof", "rejected the credentials: invalid-proof"),
        (b"e=invalid-proof,x=y", "rejected the credentials: invalid-proof"),
        (b"v=", "last message of the broker is not valid"),
        (b"v=AAAA", "has not proved that it knows the password"),
        (server_first(), "last message of the broker is not valid"),
        (b"\x80", "not valid UTF-8"),
    ],
)
def test_a_bad_last_message_is_no_success(challenge: bytes, cause: str) -> None:
    mechanism = client()
    mechanism.first()
    mechanism.next(server_first())
    with pytest.raises(AuthenticationError, match=cause):
        mechanism.next(challenge)
    assert not mechanism.done


def test_a_broker_may_send_optional_extensions() -> None:
    first, challenge, _, _ = (message.encode() for message in ROWS[0]["messages"])
    mechanism = client(nonce=ROWS[0]["client_nonce"])
    assert mechanism.first() == first
    assert mechanism.next(challenge + b",x=1,later=a b") is not None


# -- credentials -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "password", "cause"),
    [("", "p", "user name is empty"), ("u", "", "password is empty"), ("u", "\ud800", "password is not valid Unicode")],
)
def test_credentials_that_no_broker_can_have(user: str, password: str, cause: str) -> None:
    with pytest.raises(AuthenticationError, match=cause) as caught:
        ScramMechanism(NAMES[0], PEER, user, password, "abc")
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    ("name", "nonce"), [("SCRAM-SHA-1", "abc"), (NAMES[0], ""), (NAMES[0], "a,b"), (NAMES[0], "é")]
)
def test_a_wrong_call_is_a_value_error(name: str, nonce: str) -> None:
    with pytest.raises(ValueError, match="invalid mechanism"):
        ScramMechanism(name, PEER, "user", "hunter2", nonce)
