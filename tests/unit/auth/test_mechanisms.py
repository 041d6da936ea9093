from __future__ import annotations

import base64
import json
import pickle
from typing import Any

import pytest

from streamgroup.auth.mechanisms import Mechanism, OAuthBearerMechanism, PlainMechanism
from streamgroup.auth.scram import SCRAM_SHA_256, ScramMechanism
from streamgroup.errors import AuthenticationError, AuthError, TransportError
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
