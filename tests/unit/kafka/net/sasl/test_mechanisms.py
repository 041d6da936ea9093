"""The SASL mechanisms, with vectors of the RFCs and of Java's client, and with brokers that send anything."""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import json
import pickle
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streamgroup.errors import AuthenticationError, AuthError, TransportError
from streamgroup.kafka.net.sasl.kerberos import GssapiMechanism
from streamgroup.kafka.net.sasl.mechanisms import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    Mechanism,
    OAuthBearerMechanism,
    PlainMechanism,
    ScramMechanism,
)
from tests.fuzz.mutations import mutated_text
from tests.unit.kafka.net.sasl.test_kerberos import OFFER, Context

VECTORS = Path(__file__).parents[4] / "vectors" / "sasl" / "messages.jsonl"


def java_rows(mechanism: str) -> list[dict[str, Any]]:
    """The rows of the mechanisms whose name begins so. `messages` is None where Java refuses."""
    rows = [json.loads(line) for line in VECTORS.read_text().splitlines()]
    return [row for row in rows if row["mechanism"].startswith(mechanism)]


@pytest.mark.parametrize("row", java_rows("PLAIN"), ids=lambda row: row["user"])
def test_every_byte_of_plain_is_that_of_java(row: dict[str, Any]) -> None:
    assert [PlainMechanism("b:1", row["user"], row["password"]).first().decode()] == row["messages"]


@pytest.mark.parametrize("answer", [b"", b"welcome"])
def test_the_exchange_is_complete_when_the_broker_has_answered(answer: bytes) -> None:
    mechanism = PlainMechanism("b:1", "alice", "secret")
    mechanism.first()
    assert not mechanism.done
    assert mechanism.next(answer) is None
    assert mechanism.done


PLAIN_WITH = functools.partial(PlainMechanism, "b:1")
SCRAM_WITH = functools.partial(ScramMechanism, SCRAM_SHA_256, "b:1", nonce="abc")


@pytest.mark.parametrize(
    ("make", "user", "password", "cause"),
    [
        *((make, "", "hunter2", "the user name is empty") for make in (PLAIN_WITH, SCRAM_WITH)),
        *((make, "alice", "", "the password is empty") for make in (PLAIN_WITH, SCRAM_WITH)),
        *((make, "alice", "hunter2\ud800", "the password is not valid Unicode") for make in (PLAIN_WITH, SCRAM_WITH)),
        (PLAIN_WITH, "al\0ice", "hunter2", "the user name contains a NUL"),
        (PLAIN_WITH, "alice", "hunter2\0admin", "the password contains a NUL"),
        (PLAIN_WITH, "\udfff", "hunter2", "the user name is not valid Unicode"),
    ],
)
def test_credentials_that_no_broker_can_have(
    make: Callable[..., Mechanism], user: str, password: str, cause: str
) -> None:
    with pytest.raises(AuthenticationError, match=cause) as caught:
        make(username=user, password=password)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


# -- OAUTHBEARER -------------------------------------------------------------------------------------------------------

PEER = "broker-1:9092"
ROWS = java_rows("OAUTHBEARER")


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


# -- all mechanisms ----------------------------------------------------------------------------------------------------

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


# -- SCRAM, with a server after RFC 5802 that is written apart from the client -----------------------------------------

HASHES = {"SCRAM-SHA-256": hashlib.sha256, "SCRAM-SHA-512": hashlib.sha512}


@functools.cache
def salted(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(HASHES[name]().name, password, salt, iterations)


@dataclass
class ScramServer:
    """A server that has one user. `accepted` is set once a client has proved the password."""

    name: str
    user: str
    password: str
    nonce: str = "server-nonce"
    salt: bytes = b"salt of the user"
    iterations: int = 4_096
    accepted: bool = field(default=False, init=False)
    extensions: dict[str, str] = field(default_factory=dict, init=False)

    def first(self, client_first: bytes) -> bytes:
        """The answer to the client's first message; empty for an unknown user."""
        header, _, bare = client_first.decode().partition(",,")
        user, nonce, *extensions = bare.split(",")
        assert header == "n"
        assert nonce.startswith("r=")
        self.extensions = dict(extension.split("=", 1) for extension in extensions)
        if user.removeprefix("n=").replace("=2C", ",").replace("=3D", "=") != self.user:
            return b"e=unknown-user"
        self._bare = bare
        self._all = nonce[2:] + self.nonce
        self._first = f"r={self._all},s={base64.b64encode(self.salt).decode()},i={self.iterations}"
        return self._first.encode()

    def final(self, client_final: bytes) -> bytes:
        """The server's signature, or an error if the proof is not that of the password."""
        without_proof, _, proof = client_final.decode().rpartition(",p=")
        if without_proof != f"c=biws,r={self._all}":
            return b"e=other-error"
        message = ",".join((self._bare, self._first, without_proof)).encode()
        key = salted(self.name, self.password.encode(), self.salt, self.iterations)
        hashed = HASHES[self.name]
        stored = hashed(hmac.new(key, b"Client Key", hashed).digest()).digest()
        signature = hmac.new(stored, message, hashed).digest()
        client_key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if hashed(client_key).digest() != stored:
            return b"e=invalid-proof"
        self.accepted = True
        server_key = hmac.new(key, b"Server Key", hashed).digest()
        return b"v=" + base64.b64encode(hmac.new(server_key, message, hashed).digest())


NAMES = sorted(HASHES)
SCRAM_ROWS = java_rows("SCRAM")

each_hash = pytest.mark.parametrize("name", NAMES)
texts = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)


def client(name: str = NAMES[0], password: str = "pencil", nonce: str = "abc", **more: Any) -> ScramMechanism:
    return ScramMechanism(name, PEER, "user", password, nonce, **more)


def server_first(nonce: str = "abcdef", salt: str = "AAAA", iterations: str = "4096", more: str = "") -> bytes:
    return f"r={nonce},s={salt},i={iterations}{more}".encode()


# -- SCRAM: vectors ----------------------------------------------------------------------------------------------------


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


# -- a broker that is not to be trusted --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("challenge", "cause"),
    [
        (b"", "reports success without a proof"),
        (b"e=unknown-user", "rejected the credentials: unknown-user"),
        (b"v=AAAA", "first message of the broker is not valid"),
        *(
            (server_first(nonce), "nonce of the broker does not continue")
            for nonce in ("abc", "abd", "xabcd", "ABCdef")
        ),
        *(
            (changed, "first message of the broker is not valid")
            for changed in (
                *(server_first(nonce) for nonce in ("abc def", "abc\N{LATIN SMALL LETTER E WITH ACUTE}")),
                *(server_first(salt=salt) for salt in ("", "A", "AB==", "AAA=AAAA")),
                *(server_first(iterations=number) for number in ("", "-4096", "4096.0", "٤٠٩٦")),
                *(server_first() + b"\n", b"\n" + server_first(), server_first() + b","),
            )
        ),
        (server_first(iterations="0"), "requires 0 iterations"),
        (server_first(iterations="4095"), "requires 4095 iterations"),
        (server_first(iterations="1000001"), "requires 1000001 iterations"),
        (server_first(iterations="4294971392"), "requires 4294971392 iterations"),
        (server_first(iterations="9" * 5_000), "requires 999999999999… iterations"),
        (b"m=x," + server_first(), "has a mandatory extension"),
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
        (b"v=AAAA", "has not proved that it has the password"),
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


@pytest.mark.parametrize(
    ("name", "nonce"), [("SCRAM-SHA-1", "abc"), (NAMES[0], ""), (NAMES[0], "a,b"), (NAMES[0], "é")]
)
def test_a_wrong_call_is_a_value_error(name: str, nonce: str) -> None:
    with pytest.raises(ValueError, match="invalid mechanism"):
        ScramMechanism(name, PEER, "user", "hunter2", nonce)


# -- messages of a broker with random changes: a token, an end, or an AuthenticationError ------------------------------


CASES = 3_000
LONGEST_CASE_S = 1.0
"""CPU time of one case, in seconds: a real PBKDF2 at the upper bound or a quadratic parser takes longer."""


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
    "GSSAPI": (
        lambda: GssapiMechanism("b:1", Context([b"token", None]), "a@X"),
        (b"AP-REP", b"", OFFER, b"wrapped(\7\1\0\0)"),
    ),
}


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
        sound = chance.choice(messages)
        is_changed = chance.random() < 0.7
        sent.append(mutated_text(sound, (), (*messages, SECRET.encode()), chance) if is_changed else sound)
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
