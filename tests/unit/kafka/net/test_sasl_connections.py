"""SASL over real sockets: connections that wait for it, sessions that end, tokens that come late."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from streamgroup.errors import AuthenticationError, TransportError
from streamgroup.kafka.net.connection import Connection
from streamgroup.kafka.net.poller import ConnectionLost, ConnectionReady, Poller, ResponseReceived
from streamgroup.kafka.net.sasl.mechanisms import Exchange, PlainMechanism
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest, MetadataRequest
from streamgroup.kafka.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from streamgroup.options.sasl import OAuthOptions, SaslOptions
from streamgroup.options.secrets import Secret
from streamgroup.options.types import ClientOptions
from tests.clock import Clock
from tests.fakes.answers import METADATA, api_versions
from tests.fakes.broker import CLOSE, SILENCE, FakeBroker
from tests.waiting import TIMEOUT_S, soon

Start = Callable[..., FakeBroker]
Options = Callable[..., ClientOptions]

EVERYTHING = MetadataRequest(topics=None)
PLAIN = SaslOptions("PLAIN", "ann", Secret("hunter2"))
PROVIDED = SaslOptions("OAUTHBEARER", oauth=OAuthOptions(provider="slow_signer:token"))


class Listener:
    """A listener with SASL, which accepts what `accepts` and ends sessions after `lifetime_ms`."""

    def __init__(self, start: Start, accepts: Callable[[bytes], Any] = lambda token: b"hunter2" in token) -> None:
        self.lifetime_ms = 0
        self.accepts = accepts
        self.broker = start(
            {
                ApiVersionsRequest: lambda *_: api_versions(
                    apiversions=(0, 3), metadata=(0, 13), saslhandshake=(0, 1), saslauthenticate=(0, 2)
                ),
                SaslHandshakeRequest: lambda *_: SaslHandshakeResponse(mechanisms=("PLAIN", "OAUTHBEARER")),
                SaslAuthenticateRequest: self._authenticate,
                MetadataRequest: lambda *_: METADATA,
            }
        )

    def _authenticate(self, request: SaslAuthenticateRequest, _: int) -> Any:
        accepted = self.accepts(bytes(request.auth_bytes))
        if accepted is SILENCE or accepted is CLOSE or isinstance(accepted, SaslAuthenticateResponse):
            return accepted
        if not accepted:
            return SaslAuthenticateResponse(error_code=58, error_message="no such user")
        return SaslAuthenticateResponse(session_lifetime_ms=self.lifetime_ms)

    @property
    def exchanges(self) -> int:
        return len(self.broker.asked("SaslHandshake"))


def wait_for(poller: Poller, kind: type, seconds: float = TIMEOUT_S) -> Any:
    deadline = soon(seconds)
    while time.monotonic() < deadline:
        for event in poller.wait(0.2):
            if isinstance(event, kind):
                return event
    raise AssertionError(f"no {kind.__name__}")


def connected(
    listener: Listener, options: Options, clock: Callable[[], float] = time.monotonic, **others: Any
) -> Connection:
    port = listener.broker.port
    connection = Connection("127.0.0.1", port, options(port, **{"sasl": PLAIN, **others}), clock)
    connection.connect(clock() + TIMEOUT_S)
    return connection


def test_a_connection_is_open_when_the_broker_has_accepted_the_client(broker: Start, options: Options) -> None:
    listener = Listener(broker)
    connection = connected(listener, options)
    assert connection.open
    assert connection.call(EVERYTHING, soon()) == METADATA
    assert [name for name, *_ in listener.broker.requests] == [
        *("ApiVersions", "SaslHandshake", "SaslAuthenticate", "Metadata"),
    ]


def test_a_rejected_client_is_an_error_at_once(broker: Start, options: Options) -> None:
    listener = Listener(broker, lambda _: False)
    with pytest.raises(AuthenticationError, match=r"as user .ann. by SASL PLAIN: .*no such user"):
        connected(listener, options)
    poller = Poller(options(listener.broker.port, sasl=PLAIN))
    poller.connect("127.0.0.1", listener.broker.port)
    assert isinstance(wait_for(poller, ConnectionLost).error, AuthenticationError)
    poller.close()
    assert listener.exchanges == 2


def test_a_broker_that_does_not_answer_is_an_error_after_the_setup_timeout(broker: Start, options: Options) -> None:
    clock = Clock()
    with pytest.raises(TransportError, match=r"to the SASL exchange within 0\.3 s .*pending: SASL PLAIN"):
        connected(Listener(broker, clock.before(0.3, SILENCE)), options, clock, connection_setup_timeout_ms=300)


def test_an_idle_connection_authenticates_again_before_its_next_request(broker: Start, options: Options) -> None:
    listener = Listener(broker)
    listener.lifetime_ms = 3_600_000
    clock = Clock()
    client = options(listener.broker.port, sasl=PLAIN, connections_max_idle_ms=-1)
    connection = Connection("127.0.0.1", listener.broker.port, client, clock)
    connection.connect(clock() + TIMEOUT_S)
    connection.call(EVERYTHING, clock() + TIMEOUT_S)
    assert listener.exchanges == 1
    clock.now += 3_060
    assert connection.call(EVERYTHING, clock() + TIMEOUT_S) == METADATA
    assert listener.exchanges == 2
    assert listener.broker.connections == 1
    connection.call(EVERYTHING, clock() + TIMEOUT_S)
    assert listener.exchanges == 2, "a new session has begun"


@pytest.fixture
def signer(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Make a function that returns a token as soon as the event is set."""
    released = threading.Event()
    module = ModuleType("slow_signer")
    module.token = lambda: released.wait(TIMEOUT_S) and "a.token"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "slow_signer", module)
    return released


def test_a_token_that_comes_late_holds_up_no_other_connection(
    broker: Start, options: Options, signer: threading.Event
) -> None:
    slow, quick = Listener(broker, lambda token: b"a.token" in token), Listener(broker)
    poller = Poller(options(slow.broker.port, sasl=PROVIDED))
    waiting = poller.connect("127.0.0.1", slow.broker.port)
    assert poller.wait(0.2) == []
    connected(quick, options).call(EVERYTHING, soon())
    signer.set()
    assert wait_for(poller, ConnectionReady).handle == waiting
    poller.close()


def test_a_token_that_does_not_come_is_named(
    broker: Start, options: Options, signer: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("slow_signer.token", lambda: clock.sleep(0.2) or signer.wait(TIMEOUT_S))
    with pytest.raises(TransportError, match=r"there was no token within 0\.2 s \(socket.connection.setup"):
        connected(Listener(broker), options, clock, sasl=PROVIDED, connection_setup_timeout_ms=200)
    signer.set()


def test_the_error_of_a_token_is_that_of_the_connection(broker: Start, options: Options) -> None:
    missing = SaslOptions("OAUTHBEARER", oauth=OAuthOptions(provider="not_there:token"))
    with pytest.raises(Exception, match="No module named 'not_there'") as caught:
        connected(Listener(broker), options, sasl=missing)
    assert caught.type.__name__ == "ConfigError"


def by_rounds(token: bytes) -> Any:
    """Answer the first token of SCRAM by a million rounds, and do not believe the proof."""
    if token.startswith(b"n,,"):
        nonce = token.rpartition(b"r=")[2]
        return SaslAuthenticateResponse(auth_bytes=b"r=" + nonce + b"more,s=c2FsdA==,i=1000000")
    return SaslAuthenticateResponse(error_code=58, error_message="no such proof")


SCRAM = SaslOptions("SCRAM-SHA-256", "ann", Secret("hunter2"))


def test_rounds_of_scram_that_take_too_long_are_named(
    broker: Start, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, rounds, began = Clock(), threading.Event(), time.monotonic()
    compute = lambda *_: clock.sleep(0.2) or (rounds.wait(TIMEOUT_S) and b"")  # noqa: E731
    monkeypatch.setattr("streamgroup.kafka.net.sasl.mechanisms.hashlib.pbkdf2_hmac", compute)
    with pytest.raises(TransportError, match=r"the password was not computed within 0\.2 s .*fewer iterations"):
        connected(Listener(broker, by_rounds), options, clock, sasl=SCRAM, connection_setup_timeout_ms=200)
    assert time.monotonic() - began < TIMEOUT_S / 2, "the rounds hold up no other connection of the thread"
    rounds.set()


def test_an_idle_connection_of_a_poller_authenticates_again_also_by_long_steps(
    broker: Start, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    class LongPlain(PlainMechanism):
        """PLAIN with an answer to a challenge, which takes long."""

        def _exchange(self) -> Exchange:
            self.takes_long = True
            assert (yield b"first") == b"challenge"
            self.takes_long = False
            yield b"hunter2"

    monkeypatch.setattr("streamgroup.kafka.net.link._SHORTEST_SESSION_S", 0)
    monkeypatch.setattr("streamgroup.kafka.net.sasl.credentials.PlainMechanism", LongPlain)
    listener = Listener(broker, lambda token: token == b"hunter2" or SaslAuthenticateResponse(auth_bytes=b"challenge"))
    listener.lifetime_ms = 200
    poller = Poller(options(listener.broker.port, sasl=PLAIN))
    handle = poller.connect("127.0.0.1", listener.broker.port)
    wait_for(poller, ConnectionReady)
    deadline = soon()
    while listener.exchanges < 3:
        assert time.monotonic() < deadline
        poller.wait(0.05)
    poller.send(handle, EVERYTHING)
    assert wait_for(poller, ResponseReceived).response == METADATA
    poller.close()
