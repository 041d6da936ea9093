"""The contract that all mechanisms share."""

from __future__ import annotations

import pickle

import pytest

from streamgroup.auth.mechanism import Mechanism
from streamgroup.auth.oauthbearer import OAuthBearerMechanism
from streamgroup.auth.plain import PlainMechanism
from streamgroup.auth.scram import SCRAM_SHA_256, ScramMechanism
from streamgroup.errors import AuthenticationError, AuthError, TransportError

PEER = "broker-1:9092"
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
