"""SASL over real sockets: connections that wait for it, sessions that end, tokens that come late."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from types import ModuleType
from typing import Any

import pytest

from streamgroup.errors import AuthenticationError, ConfigError, TransportError
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.net.connection import Connection
from streamgroup.kafka.net.poller import ConnectionLost, ConnectionReady, Poller, ResponseReceived
from streamgroup.kafka.net.sasl.kerberos import Tickets
from streamgroup.kafka.net.sasl.mechanisms import Exchange, PlainMechanism
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest, MetadataRequest
from streamgroup.kafka.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from streamgroup.options.sasl import KerberosOptions, OAuthOptions, SaslOptions
from streamgroup.options.secrets import Secret
from streamgroup.options.types import ClientOptions
from tests.clock import Clock
from tests.fakes.answers import METADATA, api_versions
from tests.fakes.broker import CLOSE, SILENCE, FakeBroker
from tests.unit.kafka.net.polling import collect
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


def wait_for_exchanges(poller: Poller, listener: Listener, count: int) -> None:
    deadline = soon()
    while listener.exchanges < count and time.monotonic() < deadline:
        poller.wait(0.05)
    assert listener.exchanges >= count


def call_after_idling(listener: Listener, options: Options, exchanges: int) -> None:
    """Let a connection of a poller idle until it has authenticated so many times, and call the broker by it."""
    listener.lifetime_ms = 200
    poller = Poller(options(listener.broker.port, sasl=PLAIN))
    handle = poller.connect("127.0.0.1", listener.broker.port)
    wait_for(poller, ConnectionReady)
    wait_for_exchanges(poller, listener, exchanges)
    poller.send(handle, EVERYTHING)
    assert wait_for(poller, ResponseReceived).response == METADATA
    poller.close()


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


def test_requests_of_a_poller_wait_for_it_too(broker: Start, options: Options) -> None:
    listener = Listener(broker)
    poller = Poller(options(listener.broker.port, sasl=PLAIN))
    handle = poller.connect("127.0.0.1", listener.broker.port)
    poller.send(handle, EVERYTHING)
    events: list[Any] = list(collect(poller, 2))
    assert [type(event) for event in events] == [ConnectionReady, ResponseReceived]
    assert events[1].response == METADATA
    poller.close()


def test_a_rejected_client_is_an_error_at_once(broker: Start, options: Options) -> None:
    listener = Listener(broker, lambda _: False)
    with pytest.raises(AuthenticationError, match=r"as user .ann. by SASL PLAIN: .*no such user"):
        connected(listener, options)
    poller = Poller(options(listener.broker.port, sasl=PLAIN))
    poller.connect("127.0.0.1", listener.broker.port)
    assert isinstance(wait_for(poller, ConnectionLost).error, AuthenticationError)
    poller.close()
    assert listener.exchanges == 2


def test_a_broker_that_hangs_up_on_a_token_may_be_asked_again(broker: Start, options: Options) -> None:
    with pytest.raises(TransportError, match="closed the connection; pending: SASL PLAIN"):
        connected(Listener(broker, lambda _: CLOSE), options)


TRANSIENT = [
    SaslAuthenticateResponse(error_code=15, error_message="the coordinator is not available"),
    SaslAuthenticateResponse(error_code=-1),
    CLOSE,
]


@pytest.mark.parametrize("answer", TRANSIENT, ids=["a retriable code", "an unexpected code", "a closed connection"])
def test_a_broker_that_cannot_check_the_credentials_now_is_asked_until_it_can(
    broker: Start, options: Options, answer: Any
) -> None:
    answers = [answer, answer, SaslAuthenticateResponse()]
    listener = Listener(broker, lambda _: answers.pop(0))
    with closing(KafkaCluster(options(listener.broker.port, sasl=PLAIN))) as cluster:
        cluster.snapshot(set(), cluster.deadline(60_000))
    assert listener.exchanges == 3


@pytest.mark.parametrize("code", [31, 33, 34, 58])
def test_a_final_code_of_the_exchange_ends_an_operation_at_once(broker: Start, options: Options, code: int) -> None:
    listener = Listener(broker, lambda _: SaslAuthenticateResponse(error_code=code))
    rejected = pytest.raises(AuthenticationError, match="SASL PLAIN: the broker")
    with closing(KafkaCluster(options(listener.broker.port, sasl=PLAIN))) as cluster, rejected:
        cluster.snapshot(set(), cluster.deadline(60_000))
    assert listener.exchanges == 1


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


@pytest.mark.slow
def test_an_idle_connection_of_a_poller_authenticates_again_by_itself(
    broker: Start, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamgroup.kafka.net.link._SHORTEST_SESSION_S", 0)
    listener = Listener(broker)
    call_after_idling(listener, options, exchanges=4)
    assert listener.broker.connections == 1


@pytest.mark.parametrize(("lifetime_ms", "exchanges"), [(-1, 1), (1, 2)])
def test_a_broker_cannot_make_the_client_authenticate_without_end(
    broker: Start, options: Options, lifetime_ms: int, exchanges: int
) -> None:
    listener = Listener(broker)
    listener.lifetime_ms = lifetime_ms
    clock = Clock()
    poller = Poller(options(listener.broker.port, sasl=PLAIN), clock)
    handle = poller.connect("127.0.0.1", listener.broker.port)
    wait_for(poller, ConnectionReady)

    def exchanges_after(seconds: float) -> int:
        clock.now += seconds
        poller.wait(0)  # begins the exchange that is due
        poller.send(handle, EVERYTHING)  # which the broker reads after it
        wait_for(poller, ResponseReceived)
        return listener.exchanges

    assert [exchanges_after(0.99), exchanges_after(0.02), exchanges_after(0.97)] == [1, exchanges, exchanges]
    poller.close()


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


def test_a_connection_waits_for_its_token(broker: Start, options: Options, signer: threading.Event) -> None:
    threading.Timer(0.05, signer.set).start()
    connection = connected(Listener(broker, lambda token: b"a.token" in token), options, sasl=PROVIDED)
    assert connection.open


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


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let the rounds of SCRAM end as soon as the event is set."""
    released = threading.Event()

    def compute(*_: Any) -> bytes:
        assert released.wait(TIMEOUT_S)
        return b"salted"

    monkeypatch.setattr("streamgroup.kafka.net.sasl.mechanisms.hashlib.pbkdf2_hmac", compute)
    return released


def by_rounds(token: bytes) -> Any:
    """Answer the first token of SCRAM by a million rounds, and do not believe the proof."""
    if token.startswith(b"n,,"):
        nonce = token.rpartition(b"r=")[2]
        return SaslAuthenticateResponse(auth_bytes=b"r=" + nonce + b"more,s=c2FsdA==,i=1000000")
    return SaslAuthenticateResponse(error_code=58, error_message="no such proof")


SCRAM = SaslOptions("SCRAM-SHA-256", "ann", Secret("hunter2"))


def test_the_rounds_of_scram_hold_up_no_other_connection(
    broker: Start, options: Options, rounds: threading.Event
) -> None:
    slow, quick = Listener(broker, by_rounds), Listener(broker)
    poller = Poller(options(slow.broker.port, sasl=SCRAM))
    poller.connect("127.0.0.1", slow.broker.port)
    deadline = soon()
    while not slow.broker.asked("SaslAuthenticate"):
        assert time.monotonic() < deadline
        assert poller.wait(0.05) == []
    assert poller.wait(0.1) == []
    connected(quick, options).call(EVERYTHING, soon())
    rounds.set()
    assert "no such proof" in str(wait_for(poller, ConnectionLost).error)
    poller.close()


def test_rounds_of_scram_that_take_too_long_are_named(
    broker: Start, options: Options, rounds: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    compute = lambda *_: clock.sleep(0.2) or (rounds.wait(TIMEOUT_S) and b"")  # noqa: E731
    monkeypatch.setattr("streamgroup.kafka.net.sasl.mechanisms.hashlib.pbkdf2_hmac", compute)
    with pytest.raises(TransportError, match=r"the password was not computed within 0\.2 s .*fewer iterations"):
        connected(Listener(broker, by_rounds), options, clock, sasl=SCRAM, connection_setup_timeout_ms=200)
    rounds.set()


def test_an_idle_connection_of_a_poller_authenticates_again_by_long_steps(
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
    call_after_idling(listener, options, exchanges=3)


def test_the_error_of_a_ticket_is_that_of_the_connection(
    broker: Start, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> Any:
        raise ConfigError("no package")

    monkeypatch.setattr("streamgroup.kafka.net.sasl.credentials.TICKETS", Tickets(fails))
    kerberos = SaslOptions("GSSAPI", kerberos=KerberosOptions("kafka", use_ticket_cache=True))
    with pytest.raises(ConfigError, match="no package"):
        connected(Listener(broker), options, sasl=kerberos)
