from __future__ import annotations

import base64
import functools
import hashlib
import json
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streamgroup.errors import AuthenticationError, AuthError, TransportError
from streamgroup.kafka.net.sasl.mechanisms import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_SHA_256,
    Mechanism,
    OAuthBearerMechanism,
    PlainMechanism,
    ScramMechanism,
)
from tests.unit.kafka.net.sasl.scram_server import HASHES, ScramServer, hi
from tests.unit.kafka.net.sasl.vectors import java_rows


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


PEER = "broker-1:9092"
ROWS = java_rows("OAUTHBEARER")

RFC7628_TOKEN = "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="
RFC7628_FIRST = base64.b64decode(
    "bixhPXVzZXJAZXhhbXBsZS5jb20sAWhvc3Q9c2VydmVyLmV4YW1wbGUuY29tAXBvcnQ9MTQzAWF1dGg9QmVhcmVyIHZGOWRmdDRxbVRjMk52YjNS"
    "bGNrQmhiSFJoZG1semRHRXVZMjl0Q2c9PQEB"
)
"""The client's first message of RFC 7628, section 4.1 (IMAP)."""
RFC7628_CHALLENGE = base64.b64decode(
    "eyJzdGF0dXMiOiJpbnZhbGlkX3Rva2VuIiwic2NvcGUiOiJleGFtcGxlX3Njb3BlIiwib3BlbmlkLWNvbmZpZ3VyYXRpb24iOiJodHRwczovL2V4"
    "YW1wbGUuY29tLy53ZWxsLWtub3duL29wZW5pZC1jb25maWd1cmF0aW9uIn0="
)
"""The error challenge of section 4.3."""
RFC7628_DUMMY = base64.b64decode("AQ==")
"""The client's answer to it."""


def after_first(token: str = "hunter2") -> OAuthBearerMechanism:
    mechanism = OAuthBearerMechanism(PEER, token)
    mechanism.first()
    return mechanism


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['token']}-{i}" for i, row in enumerate(ROWS)])
def test_every_byte_of_oauthbearer_is_that_of_java(row: dict[str, Any]) -> None:
    if row["messages"] is None:
        with pytest.raises(AuthenticationError, match=r"invalid (name|value)"):
            OAuthBearerMechanism(PEER, row["token"], row["extensions"])
    else:
        assert [OAuthBearerMechanism(PEER, row["token"], row["extensions"]).first().decode()] == row["messages"]


def test_the_first_message_is_that_of_rfc_7628_without_its_optional_fields() -> None:
    """Kafka's clients name no authorization identity: the broker takes it from the token. Nor do they send host and
    port, which section 3.1 leaves to the protocol around SASL.
    """
    kafkas = RFC7628_FIRST.replace(b"n,a=user@example.com,", b"n,,").replace(
        b"host=server.example.com\1port=143\1", b""
    )
    assert len(RFC7628_FIRST) - len(kafkas) == len(b"a=user@example.comhost=server.example.com\1port=143\1")
    assert OAuthBearerMechanism(PEER, RFC7628_TOKEN).first() == kafkas


def test_the_failed_exchange_of_rfc_7628() -> None:
    mechanism = after_first(RFC7628_TOKEN)
    assert mechanism.next(RFC7628_CHALLENGE) == RFC7628_DUMMY
    with pytest.raises(AuthenticationError) as caught:
        mechanism.next(b"")
    assert (
        "rejected the credentials: status invalid_token, scope example_scope, openid-configuration "
        "https://example.com/.well-known/openid-configuration. Check" in str(caught.value)
    )


@pytest.mark.parametrize("status", ["temporarily_unavailable", "server_error"])
def test_a_broker_that_cannot_check_the_token_now_is_asked_again(status: str) -> None:
    forgotten: list[bool] = []
    mechanism = OAuthBearerMechanism(PEER, "hunter2", on_rejected=lambda: forgotten.append(True))
    mechanism.first()
    assert mechanism.next(json.dumps({"status": status, "scope": "hunter2"}).encode()) == b"\x01"
    error = mechanism.rejected("hunter2 failed")
    assert isinstance(error, TransportError)
    assert str(error) == (
        f"broker {PEER} could not check the token of SASL OAUTHBEARER: status {status}, scope *****. A retry may "
        "succeed. If it does not, see the broker's log for its token service"
    )
    assert forgotten == [], "the token may be valid"


@pytest.mark.parametrize(
    "status", ["invalid_token", "insufficient_scope", "invalid_request", "unknown", 5, ["x"], None]
)
def test_every_other_status_is_final(status: object) -> None:
    mechanism = after_first()
    mechanism.next(json.dumps({"status": status}).encode())
    assert isinstance(mechanism.rejected("no"), AuthenticationError)


@pytest.mark.parametrize("token", ["", "hunter2\x01", "hunter2 x", "=hunter2", "hunter2é", "hunter2\n"])
def test_a_token_that_no_broker_accepts(token: str) -> None:
    with pytest.raises(AuthenticationError, match=r"bearer token must not have\. Check the answer") as caught:
        OAuthBearerMechanism(PEER, token)
    assert "hunter2" not in str(caught.value)


def test_an_invalid_extension_shows_no_value() -> None:
    with pytest.raises(AuthenticationError, match="invalid value of the SASL extension logicalCluster") as caught:
        OAuthBearerMechanism(PEER, "token", {"logicalCluster": "hunter2\x01"})
    assert "hunter2" not in str(caught.value)


def test_an_empty_answer_is_success() -> None:
    mechanism = after_first()
    assert not mechanism.done
    assert mechanism.next(b"") is None
    assert mechanism.done


def test_an_error_challenge_is_answered_and_explained() -> None:
    problem = {
        "status": "invalid_token",
        "scope": "kafka:read kafka:write",
        "openid-configuration": "https://id.example.com/.well-known/openid-configuration",
        "more": "other",
    }
    mechanism = after_first()
    assert mechanism.next(json.dumps(problem).encode()) == b"\x01"
    assert not mechanism.done
    assert str(mechanism.rejected("SASL authentication failed")) == (
        f"cannot authenticate to broker {PEER} by SASL OAUTHBEARER: the broker rejected the credentials: status "
        "invalid_token, scope kafka:read kafka:write, openid-configuration "
        "https://id.example.com/.well-known/openid-configuration; SASL authentication failed. Check the token's "
        "end, issuer and audience, and the clocks of this host and of the brokers"
    )


def test_kafka_repeats_its_challenge_and_the_error_does_not() -> None:
    mechanism = after_first()
    mechanism.next(b'{"status":"invalid_token"}')
    assert "credentials: status invalid_token. Check" in str(mechanism.rejected('{"status":"invalid_token"}'))


@pytest.mark.parametrize("answer", [b"", b"\x01", b"more"])
def test_no_answer_makes_a_success_of_an_error_challenge(answer: bytes) -> None:
    mechanism = after_first()
    assert mechanism.next(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(AuthenticationError, match="rejected the credentials: status invalid_token"):
        mechanism.next(answer)
    assert not mechanism.done


@pytest.mark.parametrize(
    ("challenge", "shown"),
    [
        (b"go away", "credentials: go away. Check"),
        (b'"go away"', 'credentials: "go away". Check'),
        (b"[" * 60_000, "credentials: [[["),
        (b"9" * 5_000, "credentials: 999"),
        (b"NaN", "credentials: NaN. Check"),
        (b"{}", "credentials. Check"),
        (b'{"status": 5, "scope": null}', "credentials. Check"),
        (
            b'{"status": "a\\u0007\\nb"}',
            "credentials: status a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}b. Check",
        ),
        (b'{"status": "hunter2 is bad"}', "credentials: status ***** is bad. Check"),
        (b'{"status": "h\\u0075nter2 is bad"}', "credentials: status ***** is bad. Check"),
        (b"Bearer hunter2", "credentials: Bearer *****. Check"),
    ],
)
def test_any_error_challenge_is_shown_short_and_without_the_token(challenge: bytes, shown: str) -> None:
    mechanism = after_first()
    assert mechanism.next(challenge) == b"\x01"
    message = str(mechanism.rejected(""))
    assert shown in message
    assert "hunter2" not in message
    assert len(message) < 600


@pytest.mark.parametrize("challenge", [b"\xff", b"x" * 65_537])
def test_an_unreadable_challenge_ends_the_exchange(challenge: bytes) -> None:
    mechanism = after_first()
    with pytest.raises(AuthenticationError, match=r"not valid UTF-8|65537 bytes"):
        mechanism.next(challenge)
    assert not mechanism.done


def test_a_rejected_token_is_reported_to_its_owner() -> None:
    forgotten: list[bool] = []
    mechanism = OAuthBearerMechanism(PEER, "token", on_rejected=lambda: forgotten.append(True))
    mechanism.rejected("")
    assert forgotten == [True]


SECRET = "hunter2"


def mechanisms() -> list[Mechanism]:
    return [
        PlainMechanism(PEER, "alice", SECRET),
        ScramMechanism(SCRAM_SHA_256, PEER, "alice", SECRET, "abc"),
        OAuthBearerMechanism(PEER, SECRET),
    ]


each = pytest.mark.parametrize("mechanism", mechanisms(), ids=lambda mechanism: mechanism.name)


@each
def test_the_broker_says_why_it_rejects_the_client(mechanism: Mechanism) -> None:
    error = mechanism.rejected(f"wrong password {SECRET}.\n" + "x" * 1_000)
    user = "" if mechanism.name == "OAUTHBEARER" else " as user 'alice'"
    assert str(error).startswith(
        f"cannot authenticate to broker {PEER}{user} by SASL {mechanism.name}: the broker rejected the credentials: "
        "wrong password *****."
    )
    assert str(error).endswith(f"…. {mechanism.after_rejection}")
    assert SECRET not in str(error)
    assert "\n" not in str(error)
    assert len(str(error)) < 600


def test_an_error_is_fatal_and_crosses_processes() -> None:
    error = pickle.loads(pickle.dumps(PlainMechanism(PEER, "alice", SECRET).rejected("")))
    assert isinstance(error, AuthenticationError)
    assert isinstance(error, AuthError)
    assert not isinstance(error, TransportError), "a transport error is retried"
    assert str(error) == (
        f"cannot authenticate to broker {PEER} as user 'alice' by SASL PLAIN: the broker rejected the credentials. "
        "Check the credentials in kafka.sasl.jaas.config"
    )


@each
def test_a_mechanism_shows_no_secret_and_is_not_pickled(mechanism: Mechanism) -> None:
    assert SECRET not in f"{mechanism} {mechanism!r}"
    mechanism.first()
    with pytest.raises(TypeError):
        pickle.dumps(mechanism)


@pytest.mark.parametrize("mechanism", mechanisms(), ids=lambda mechanism: mechanism.name)
def test_an_exchange_happens_once(mechanism: Mechanism) -> None:
    with pytest.raises(AuthenticationError, match="no exchange is under way"):
        mechanism.next(b"")
    assert not mechanism.done
    mechanism.first()
    with pytest.raises(RuntimeError, match="has begun already"):
        mechanism.first()


def test_a_failed_exchange_cannot_go_on_to_success() -> None:
    mechanism = ScramMechanism(SCRAM_SHA_256, PEER, "alice", SECRET, "abc")
    mechanism.first()
    for _ in range(3):
        with pytest.raises(AuthenticationError):
            mechanism.next(b"")
        assert not mechanism.done


NAMES = sorted(HASHES)
SCRAM_ROWS = java_rows("SCRAM")

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


@pytest.mark.parametrize("row", SCRAM_ROWS, ids=[f"{row['mechanism']}-{i}" for i, row in enumerate(SCRAM_ROWS)])
def test_every_byte_of_scram_is_that_of_java(row: dict[str, Any]) -> None:
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
    assume(other not in "the broker rejected the credentials: invalid-proof")  # a message never contains the password
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
        (server_first(iterations="0"), "requires 0 iterations"),
        (server_first(iterations="4095"), "requires 4095 iterations"),
        (server_first(iterations="1000001"), "requires 1000001 iterations"),
        (server_first(iterations="4294971392"), "requires 4294971392 iterations"),
        (server_first(iterations="9" * 5_000), "requires 999999999999… iterations"),
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
    first, challenge, _, _ = (message.encode() for message in SCRAM_ROWS[0]["messages"])
    mechanism = client(nonce=SCRAM_ROWS[0]["client_nonce"])
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
