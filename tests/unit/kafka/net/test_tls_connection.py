"""Kafka's protocol over TLS: connections and pollers with brokers that do what a test says."""

from __future__ import annotations

import pickle
import select
import socket
import ssl
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamgroup.errors import ConfigError, TlsError, TransportError
from streamgroup.kafka.net.connection import Connection
from streamgroup.kafka.net.poller import ConnectionLost, ConnectionReady, Poller, ResponseReceived
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest, MetadataRequest
from streamgroup.options.secrets import Secret
from streamgroup.options.tls import TlsOptions
from streamgroup.options.types import ClientOptions
from streamgroup.testing import Authority
from tests.certificates import chain_text, key_text, server_context
from tests.fakes.answers import API_VERSIONS, METADATA
from tests.fakes.broker import CLOSE, SILENCE, FakeBroker, OtherId, Raw, framed
from tests.fakes.old_broker import old_broker
from tests.unit.kafka.net.conftest import EVERYTHING, Options, Start, collect, script
from tests.unit.kafka.net.tls_servers import trusting
from tests.waiting import soon, wait_until

LARGE = replace(METADATA, topics=tuple(replace(METADATA.topics[0], name=f"{n:0240}") for n in range(2_000)))
"""A response of about 0.5 MiB: many records of TLS, and a frame that is received into memory of its own."""
TWO_AT_ONCE = Raw(framed(MetadataRequest, LARGE, 4, 1) + framed(MetadataRequest, METADATA, 4, 2))
"""The end of the large frame shares its last record with the small one."""


@pytest.fixture
def secured(broker: Start, authority: Authority, tmp_path: Path) -> Start:
    """Starts a fake broker with TLS for localhost, which answers ApiVersions and Metadata."""

    def start(handlers: dict[Any, Any] | None = None, **others: Any) -> FakeBroker:
        context = server_context(authority.issue(), tmp_path, **others)
        own = {ApiVersionsRequest: script(API_VERSIONS), MetadataRequest: script(METADATA)}
        return broker({**own, **(handlers or {})}, context)

    return start


@pytest.fixture
def ssl_options(options: Options, authority: Authority) -> Options:
    """Client options that trust the authority; `tls` replaces fields of TlsOptions."""

    def make(tls: dict[str, Any] | None = None, **others: Any) -> ClientOptions:
        return options(security_protocol="SSL", tls=trusting(authority, **(tls or {})), **others)

    return make


def connected(fake: FakeBroker, options: ClientOptions) -> Connection:
    connection = Connection("127.0.0.1", fake.port, options)
    connection.connect(soon())
    return connection


# -- traffic -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("newest", ["TLSv1.2", "TLSv1.3"])
def test_the_connection_is_idle_between_its_requests(newest: str, secured: Start, ssl_options: Options) -> None:
    connection = connected(secured(newest=newest), ssl_options())
    assert connection.idle
    for _ in range(3):
        assert connection.call(EVERYTHING, soon()) == METADATA
        assert connection.idle
    connection.close()


def test_answers_in_one_record_are_received_without_a_readable_descriptor(secured: Start, ssl_options: Options) -> None:
    connection = connected(secured({MetadataRequest: script(TWO_AT_ONCE, SILENCE)}), ssl_options())
    for _ in range(2):
        connection.send(EVERYTHING, 4)
    assert len(connection.receive(soon()).response.topics) == 2_000
    link = connection._open_link()
    assert link.pending
    poll = select.poll()
    poll.register(link.fileno or -1, select.POLLIN)
    assert poll.poll(0) == [], "only OpenSSL has the bytes"
    assert connection.receive(soon()).response.brokers == METADATA.brokers
    assert connection.idle


def test_unread_bytes_inside_openssl_keep_a_connection_from_being_idle(secured: Start, ssl_options: Options) -> None:
    connection = connected(secured({MetadataRequest: script(TWO_AT_ONCE, SILENCE)}), ssl_options())
    connection.send(EVERYTHING, 4)
    connection.receive(soon())
    assert connection.outstanding == 0
    assert not connection.idle


def test_a_poller_reads_what_is_left_inside_openssl_without_waiting(secured: Start, ssl_options: Options) -> None:
    poller = Poller(ssl_options())
    handle = poller.connect("127.0.0.1", secured({MetadataRequest: script(TWO_AT_ONCE, SILENCE)}).port)
    for _ in range(2):
        poller.send(handle, EVERYTHING, 4)
    assert [type(event) for event in collect(poller, 2)] == [ConnectionReady, ResponseReceived]
    (second_answer,) = poller.wait(None)  # nothing will ever arrive
    assert isinstance(second_answer, ResponseReceived)
    poller.close()


def test_an_old_broker_is_recognized_over_several_secured_connections(
    broker: Start, ssl_options: Options, authority: Authority, tmp_path: Path
) -> None:
    context = server_context(authority.issue(), tmp_path)
    fake = old_broker(lambda handlers: broker(handlers, context), "0.9", Metadata=script(METADATA))
    connection = connected(fake, ssl_options())
    assert connection.versions.release == "0.9"
    assert connection.call(MetadataRequest(topics=()), soon()).brokers == METADATA.brokers
    assert fake.connections > 1
    assert not fake.refused


# -- ends ----------------------------------------------------------------------------------------------------------


def test_a_kept_connection_that_the_broker_has_ended_is_not_idle(secured: Start, ssl_options: Options) -> None:
    fake = secured()
    connection = connected(fake, ssl_options())
    fake.hang_up()
    wait_until(lambda: not connection.idle, "the end of the connection")
    with pytest.raises(TransportError, match=r"(closed|lost) the connection"):
        connection.arrived()


# -- failed handshakes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("newest", ["TLSv1.2", "TLSv1.3"])
def test_a_broker_that_demands_a_client_certificate_is_named(
    newest: str, secured: Start, ssl_options: Options, authority: Authority
) -> None:
    fake = secured(newest=newest, clients=authority)
    with pytest.raises(TlsError, match=r"demands a client certificate.*Set kafka\.ssl\.keystore\.location"):
        connected(fake, ssl_options())
    me, stranger = authority.issue(name="me"), Authority.create("stranger").issue()
    for issued in (me, stranger):
        key, chain = Secret(key_text(issued)), Secret(chain_text(issued))
        tls = {"keystore_type": "PEM", "keystore_key": key, "keystore_certificate_chain": chain}
        if issued is me:
            assert connected(fake, ssl_options(tls)).call(EVERYTHING, soon()) == METADATA
        else:
            with pytest.raises(TlsError, match="the broker refuses the client certificate"):
                connected(fake, ssl_options(tls))


def test_options_without_tls_use_the_defaults_and_never_plaintext(secured: Start, options: Options) -> None:
    with pytest.raises(TlsError, match="No trust store is set"):
        connected(secured(), options(security_protocol="SSL"))


def test_a_plaintext_broker_is_recognized_at_once(broker: Start, ssl_options: Options) -> None:
    fake = broker({ApiVersionsRequest: script(API_VERSIONS)})
    with pytest.raises(TlsError, match=r"the listener is plaintext: .* Set the port of the TLS listener\."):
        connected(fake, ssl_options())
    assert fake.requests == [("ApiVersions", 0, ApiVersionsRequest())], "and nothing else without TLS"
    poller = Poller(ssl_options())
    poller.connect("127.0.0.1", fake.port)
    (broken,) = collect(poller, 1)
    assert isinstance(broken, ConnectionLost)
    assert isinstance(broken.error, TlsError)
    poller.close()


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(CLOSE, id="it closes the connection"),
        pytest.param(SILENCE, id="it says nothing"),
        pytest.param(OtherId(API_VERSIONS, 1), id="the answer is another's"),
        pytest.param(Raw(b"HTTP/1.1 400 Bad Request"), id="it speaks HTTP"),
        pytest.param(Raw(b"\x15\x03\x03\0\x02\x02\x50\0"), id="an alert of TLS"),
        pytest.param(Raw(b"\0\0\0"), id="the answer is not whole"),
    ],
)
def test_a_server_that_closes_on_tls_and_proves_nothing_is_a_lost_connection(
    answer: Any, broker: Start, ssl_options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("link", "tls.transport"):
        monkeypatch.setattr(f"streamgroup.kafka.net.{module}.PROBE_TIMEOUT_S", 0.1)
    fake = broker({ApiVersionsRequest: script(answer)})
    with pytest.raises(TransportError, match=r"in the TLS handshake: .*set kafka\.security\.protocol=PLAINTEXT"):
        connected(fake, ssl_options())


def test_plaintext_to_a_tls_listener_is_advised_to_use_tls(secured: Start, options: Options) -> None:
    with pytest.raises(Exception, match=r"the listener requires TLS\. Set kafka\.security\.protocol|then set 'kafka"):
        connected(secured(), options())


def test_key_material_that_cannot_be_read_is_an_error_of_the_connection(secured: Start, options: Options) -> None:
    tls = TlsOptions(truststore_type="PEM", truststore_location="/nowhere.pem")
    fake = secured()
    with pytest.raises(ConfigError, match=r"/nowhere\.pem: No such file"):
        connected(fake, options(security_protocol="SSL", tls=tls))
    fake.wait_for(lambda f: len(f.refused) == 1)


# -- rotation, and the way to the executors ------------------------------------------------------------------------


def test_options_travel_with_references_which_the_connection_follows(
    secured: Start, ssl_options: Options, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued = authority.issue(name="me")
    (tmp_path / "chain.pem").write_text(chain_text(issued))
    tls = {
        "keystore_type": "PEM",
        "keystore_key": Secret("env:CLIENT_KEY"),
        "keystore_certificate_chain": Secret(f"file:{tmp_path}/chain.pem"),
    }
    travelled = pickle.loads(sent := pickle.dumps(ssl_options(tls)))
    fake = secured(clients=authority)
    with pytest.raises(ConfigError, match=r"kafka\.ssl\.keystore\.key: the environment variable 'CLIENT_KEY' is not"):
        connected(fake, travelled)
    monkeypatch.setenv("CLIENT_KEY", key_text(issued))
    assert connected(fake, travelled).open
    assert b"PRIVATE KEY" not in sent


def test_errors_of_ssl_are_not_leaked(secured: Start, ssl_options: Options) -> None:
    """Damage behind the handshake is a lost connection, which is retried."""
    fake = secured()
    connection = connected(fake, ssl_options())
    (served,) = fake._sockets
    assert isinstance(served, ssl.SSLSocket)
    socket.socket.sendall(served, struct.pack(">BHH", 23, 0x0303, 32) + b"x" * 32)
    with pytest.raises(TransportError, match=r"lost the connection to broker .*BAD_RECORD_MAC"):
        connection.receive(soon())
