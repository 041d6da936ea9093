from __future__ import annotations

from collections.abc import Sequence

import pytest

from streamgroup.auth.gssapi import MAX_ROUNDS, GssapiMechanism
from streamgroup.auth.kerberos_errors import KerberosFailure
from streamgroup.errors import AuthenticationError, TransportError

PEER = "broker-1:9092"
PRINCIPAL = "alice@EXAMPLE.COM"
NO_LAYER_ANSWER = b"wrapped(\1\0\0\0" + PRINCIPAL.encode() + b")"
OFFER = b"wrapped(\1\0\0\0)"


class Context:
    """A security context that sends `tokens`, is complete after the last, and wraps by writing so."""

    def __init__(self, tokens: Sequence[bytes | None]) -> None:
        self.tokens = list(tokens)
        self.taken: list[bytes | None] = []
        self.failure: KerberosFailure | None = None

    @property
    def complete(self) -> bool:
        return not self.tokens

    def step(self, token: bytes | None) -> bytes | None:
        self.taken.append(token)
        if self.failure is not None:
            raise self.failure
        if token == b"bad":
            raise KerberosFailure(0, "Server not found in Kerberos database\n")
        return self.tokens.pop(0)

    def unwrap(self, message: bytes) -> bytes:
        if not message.startswith(b"wrapped("):
            raise KerberosFailure(0, "A token had an invalid MIC")
        return message[len("wrapped(") : -1]

    def wrap(self, message: bytes) -> bytes:
        return b"wrapped(" + message + b")"


def test_the_broker_proves_itself_and_no_layer_is_chosen() -> None:
    context = Context([b"AP-REQ", None])
    mechanism = GssapiMechanism(PEER, context, PRINCIPAL)
    assert mechanism.first() == b"AP-REQ"
    assert mechanism.next(b"AP-REP") == b""
    assert not mechanism.done
    assert mechanism.next(OFFER) == NO_LAYER_ANSWER
    assert mechanism.done, "before KIP-152 the broker does not answer any more"
    assert mechanism.next(b"") is None
    assert mechanism.done
    assert context.taken == [None, b"AP-REP"]


def test_a_context_that_is_complete_at_once() -> None:
    mechanism = GssapiMechanism(PEER, Context([b"AP-REQ"]), PRINCIPAL)
    assert mechanism.first() == b"AP-REQ"
    assert mechanism.next(OFFER) == NO_LAYER_ANSWER


def test_a_broker_that_has_no_token_before_its_offer() -> None:
    mechanism = GssapiMechanism(PEER, Context([b"AP-REQ"]), PRINCIPAL)
    mechanism.first()
    assert mechanism.next(b"") == b""
    assert mechanism.next(OFFER) == NO_LAYER_ANSWER


def test_without_a_principal_the_ticket_names_the_user() -> None:
    mechanism = GssapiMechanism(PEER, Context([b"AP-REQ"]))
    mechanism.first()
    assert mechanism.next(OFFER) == b"wrapped(\1\0\0\0)"


@pytest.mark.parametrize("layers", [1, 3, 5, 7, 0xFF])
def test_no_layer_is_chosen_among_others(layers: int) -> None:
    mechanism = GssapiMechanism(PEER, Context([b"AP-REQ"]), PRINCIPAL)
    mechanism.first()
    assert mechanism.next(b"wrapped(" + bytes((layers, 1, 0, 0)) + b")") == NO_LAYER_ANSWER


@pytest.mark.parametrize(
    ("offer", "cause"),
    [
        (b"wrapped(\6\0\xff\xff)", "requires a security layer of SASL"),
        (b"wrapped(\0\0\0\0)", "requires a security layer of SASL"),
        (b"wrapped(\1\0\0)", "has 3 bytes in place of 4"),
        (b"wrapped(\1\0\0\0\0)", "has 5 bytes in place of 4"),
        (b"wrapped()", "has 0 bytes in place of 4"),
        (b"\1\0\0\0", "cannot read the security layers that the broker offers: A token had an invalid MIC"),
    ],
)
def test_an_offer_that_cannot_be_taken(offer: bytes, cause: str) -> None:
    mechanism = GssapiMechanism(PEER, Context([b"AP-REQ"]), PRINCIPAL)
    mechanism.first()
    with pytest.raises(
        AuthenticationError, match=rf"^cannot authenticate to broker {PEER} as user '{PRINCIPAL}' .*{cause}"
    ):
        mechanism.next(offer)
    assert not mechanism.done


def test_two_empty_answers_are_no_offer() -> None:
    mechanism = GssapiMechanism(PEER, Context([b"AP-REQ"]), PRINCIPAL)
    mechanism.first()
    assert mechanism.next(b"") == b""
    with pytest.raises(AuthenticationError, match="cannot read the security layers"):
        mechanism.next(b"")
    assert not mechanism.done


def test_a_failed_context_names_its_cause() -> None:
    mechanism = GssapiMechanism(PEER, Context([b"AP-REQ", None]), PRINCIPAL)
    mechanism.first()
    with pytest.raises(
        AuthenticationError,
        match=r"Kerberos failed: Server not found in Kerberos database.*Check the ticket or",
    ):
        mechanism.next(b"bad")
    with pytest.raises(AuthenticationError, match="no exchange is under way"):
        mechanism.next(OFFER)
    assert not mechanism.done


@pytest.mark.parametrize(
    ("code", "kind", "next_step"),
    [(37, AuthenticationError, "Set the clocks"), (34, TransportError, "A retry may succeed")],
)
def test_a_failure_of_the_context_says_what_to_do(code: int, kind: type[Exception], next_step: str) -> None:
    context = Context([b"AP-REQ", None])
    mechanism = GssapiMechanism(PEER, context, PRINCIPAL)
    mechanism.first()
    context.failure = KerberosFailure(code - 1_765_328_384, "The cause")
    with pytest.raises(kind, match=f"by SASL GSSAPI: Kerberos failed: The cause. {next_step}"):
        mechanism.next(b"AP-REP")


def test_a_broker_that_rejects_the_ticket_has_the_cause_in_its_log() -> None:
    rejections: list[int] = []
    mechanism = GssapiMechanism(PEER, Context([]), PRINCIPAL, lambda: rejections.append(1))
    error = mechanism.rejected("Authentication failed")
    assert rejections == [1]
    assert "the broker rejected the ticket: Authentication failed. The log of the broker has the cause" in str(error)
    assert isinstance(error, AuthenticationError)


def test_a_broker_cannot_ask_for_tokens_for_ever() -> None:
    mechanism = GssapiMechanism(PEER, Context([b"more"] * (MAX_ROUNDS + 1)), PRINCIPAL)
    mechanism.first()
    for _ in range(MAX_ROUNDS - 2):
        assert mechanism.next(b"more") == b"more"
    with pytest.raises(AuthenticationError, match=f"not established after {MAX_ROUNDS} tokens"):
        mechanism.next(b"more")
