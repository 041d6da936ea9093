"""Messages of a broker with random changes, for every mechanism: a token, an end, or an AuthenticationError."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable

import pytest

from streamgroup.errors import AuthenticationError
from streamgroup.kafka.net.sasl.kerberos import GssapiMechanism, KerberosFailure
from streamgroup.kafka.net.sasl.mechanisms import (
    MAX_CHALLENGE,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    Mechanism,
    OAuthBearerMechanism,
    PlainMechanism,
    ScramMechanism,
)

CASES = 10_000
SECRET = "hunter2"
LONGEST_CASE_S = 1.0
"""CPU time of one case, in seconds: a real PBKDF2 at the upper bound or a quadratic parser takes longer."""


class Context:
    """A security context that is complete after the broker's first token, and whose wrapping is one byte."""

    complete = False

    def step(self, token: bytes | None) -> bytes | None:
        self.complete = token is not None
        return b"token"

    def unwrap(self, message: bytes) -> bytes:
        if message[:1] != b"w":
            raise KerberosFailure(0, "no wrapped message")
        return message[1:]

    def wrap(self, message: bytes) -> bytes:
        return b"w" + message


MECHANISMS: dict[str, tuple[Callable[[], Mechanism], tuple[bytes, ...]]] = {
    "PLAIN": (lambda: PlainMechanism("b:1", "alice", SECRET), (b"",)),
    **{
        name: (
            lambda name=name: ScramMechanism(name, "b:1", "alice", SECRET, "abc"),
            (b"r=abcdef,s=AAECAw==,i=4096", b"v=" + b"A" * 43 + b"=", b"e=invalid-proof", b"m=x,r=abcd,s=AAAA,i=99999"),
        )
        for name in (SCRAM_SHA_256, SCRAM_SHA_512)
    },
    "OAUTHBEARER": (
        lambda: OAuthBearerMechanism("b:1", SECRET, {"logicalCluster": "lkc-1"}),
        (b"", b'{"status":"invalid_token","scope":"a b","openid-configuration":"https://x"}', b'{"status":{"a":[1]}}'),
    ),
    "GSSAPI": (lambda: GssapiMechanism("b:1", Context(), "alice@X"), (b"AP-REP", b"", b"w\1\0\0\0", b"w\7\1\0\0")),
}

_PIECES = (b",", b"=", b"\0", b"\x01", b"\xff", b"9" * 30, b"[" * 40, b'"', b"\\u0000", b"e=", b"v=", b"r=abc", b"i=")


def changed(message: bytes, chance: random.Random) -> bytes:
    """The message with up to three changes: a bit, a piece put in, a part cut out or repeated, a great length."""
    data = bytearray(message)
    for _ in range(chance.randrange(4)):
        place = chance.randrange(len(data) + 1)
        match chance.randrange(6):
            case 0 if data:
                data[min(place, len(data) - 1)] ^= 1 << chance.randrange(8)
            case 1:
                data[place:place] = chance.choice((*_PIECES, SECRET.encode()))
            case 2:
                del data[place : place + chance.randrange(8)]
            case 3:
                data[place:place] = data[place : place + chance.randrange(20)]
            case 4:
                data[place:place] = chance.randbytes(chance.randrange(8))
            case _ if chance.random() < 0.05:
                data[place:place] = chance.choice((b"9", b"[", b",a=b", b"\\")) * chance.randrange(MAX_CHALLENGE // 2)
    return bytes(data)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The iterations of each PBKDF2, which is not computed."""
    iterations: list[int] = []

    def salt(_hash: str, _password: bytes, _salt: bytes, count: int) -> bytes:
        iterations.append(count)
        return b"salted"

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", salt)
    return iterations


@pytest.mark.parametrize("name", MECHANISMS)
def test_nothing_but_typed_errors_without_secrets(name: str, counted: list[int]) -> None:
    make, messages = MECHANISMS[name]
    chance = random.Random(f"{name} 1")
    ends: dict[str, int] = {}
    for case in range(CASES):
        sent: list[bytes] = []
        began = time.thread_time()
        end = run(make(), messages, chance, sent)
        assert time.thread_time() - began < LONGEST_CASE_S, f"case {case}: {sent}"
        ends[end] = ends.get(end, 0) + 1
    assert all(MIN_ITERATIONS <= count <= MAX_ITERATIONS for count in counted)
    assert bool(counted) == name.startswith("SCRAM")
    # A broker that does not know the password never gets as far as success.
    assert set(ends) == (
        {"failed"} if name.startswith("SCRAM") else {"done"} if name == "PLAIN" else {"done", "failed"}
    )


def run(mechanism: Mechanism, messages: tuple[bytes, ...], chance: random.Random, sent: list[bytes]) -> str:
    """One exchange with a random broker. `sent` gets the messages, to name them if the case fails."""
    token: bytes | None = mechanism.first()
    while token is not None:
        sent.append(changed(chance.choice(messages), chance))
        try:
            token = mechanism.next(sent[-1])
        except AuthenticationError as error:
            message = str(error)
            break
        assert token is None or isinstance(token, bytes)
    else:
        assert mechanism.done, sent
        return "done"
    assert SECRET not in message, sent
    assert message.isprintable(), sent
    assert len(message) < 800, sent
    assert not mechanism.done, sent
    return "failed"
