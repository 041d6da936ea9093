"""The errors of failed handshakes with real servers, and with alerts that they cannot be made to send."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from streamgroup.errors import AuthError, TlsError, TransportError
from streamgroup.kafka.net.tls.contexts import endpoint_context, make_context
from streamgroup.kafka.net.tls.refusals import names_in_certificate, refusal
from streamgroup.options.secrets import Secret
from streamgroup.options.tls import TlsOptions
from streamgroup.testing import Authority, Identity
from tests.certificates import DAY, ca_text, server_context
from tests.unit.kafka.net.tls_servers import conversation, trusting
from tests.waiting import TIMEOUT_S

NOW = datetime.now(UTC)


def refused(issued: Identity, options: TlsOptions, tmp_path: Path, host: str = "localhost") -> str:
    """Return the error of a handshake with a server that shows this certificate."""
    with (
        pytest.raises(TlsError) as caught,
        conversation(options, server_context(issued, tmp_path), host),
    ):
        pass
    assert str(caught.value).startswith(
        f"TLS handshake of host {socket.gethostname()} with broker {host}:9093 failed: "
    )
    assert isinstance(caught.value, AuthError)
    assert not isinstance(caught.value, TransportError), "a retry would not mend it"
    return str(caught.value)


def test_an_unknown_authority_is_named_with_the_store_to_change(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority.create("stranger").issue()
    text = refused(stranger, trusting(authority), tmp_path)
    assert (
        "the authority of the broker's certificate is unknown (self-signed certificate in certificate chain). Add"
        in text
    )
    assert text.endswith("to kafka.ssl.truststore.certificates")
    (tmp_path / "ca.pem").write_text(ca_text(authority))
    text = refused(stranger, TlsOptions(truststore_type="PEM", truststore_location=f"{tmp_path}/ca.pem"), tmp_path)
    assert text.endswith(f"to the file of kafka.ssl.truststore.location ({tmp_path}/ca.pem)")
    text = refused(stranger, TlsOptions(), tmp_path)
    assert "No trust store is set, so the certificates of the operating system count. Set kafka.ssl.trust" in text


def test_a_self_signed_certificate_is_unknown_until_it_is_trusted(authority: Authority, tmp_path: Path) -> None:
    alone = Authority.create("alone")
    shown = Identity("alone", alone.key, alone.certificate)
    text = refused(shown, trusting(authority), tmp_path)
    assert "is unknown (self-signed certificate)" in text
    with conversation(trusting(alone, endpoint_identification=""), server_context(shown, tmp_path)):
        pass


def test_an_intermediate_authority_may_be_trusted_alone_as_in_java(tmp_path: Path) -> None:
    intermediate = Authority.create("intermediate", issued_by=Authority.create("root"))
    with conversation(trusting(intermediate), server_context(intermediate.issue(), tmp_path)):
        pass


def test_a_forged_authority_of_the_same_name_is_refused(authority: Authority, tmp_path: Path) -> None:
    forged = replace(authority, key=Authority.create().key)
    assert "certificate signature failure" in refused(forged.issue(), trusting(authority), tmp_path)


def test_a_certificate_for_another_host_is_refused(authority: Authority, tmp_path: Path) -> None:
    issued = authority.issue(hosts=["broker-1.example", "10.0.0.1"])
    for host in ("broker-2.example", "10.0.0.2"):
        text = refused(issued, trusting(authority), tmp_path, host)
        assert f"the certificate is not valid for the host name '{host}'. Correct the names" in text
        assert "advertised.listeners" in text
        with conversation(trusting(authority, endpoint_identification=""), server_context(issued, tmp_path), host):
            pass


def test_a_certificate_out_of_its_time_is_refused(authority: Authority, tmp_path: Path) -> None:
    old = authority.issue(since=NOW - 3 * DAY, until=NOW - 2 * DAY)
    assert "is not valid any more (certificate has expired). Renew it" in refused(old, trusting(authority), tmp_path)
    new = authority.issue(since=NOW + DAY, until=NOW + 2 * DAY)
    text = refused(new, trusting(authority), tmp_path)
    assert "is not valid yet (certificate is not yet valid). Check the clock of this host" in text


def test_the_key_of_an_expired_authority_is_refused(tmp_path: Path) -> None:
    expired = Authority.create("expired", until=NOW - DAY / 2)
    assert "is not valid any more" in refused(expired.issue(), trusting(expired), tmp_path)


def test_versions_without_a_common_one_are_named(authority: Authority, tmp_path: Path) -> None:
    context = server_context(authority.issue(), tmp_path, newest="TLSv1.2")
    options = trusting(authority, enabled_protocols=("TLSv1.3",))
    with pytest.raises(TlsError, match=r"in common .*Compare kafka\.ssl\.enabled\.protocols with the broker's ssl\."):
        _shake(options, context)


def test_suites_without_a_common_one_are_named(authority: Authority, tmp_path: Path) -> None:
    context = server_context(authority.issue(), tmp_path, newest="TLSv1.2")
    options = trusting(authority, cipher_suites=("ECDHE-RSA-AES128-GCM-SHA256",))  # the key is of a curve
    with pytest.raises(TlsError, match=r"refuses what the client offers .*kafka\.ssl\.cipher\.suites"):
        _shake(options, context)


def _shake(options: TlsOptions, context: ssl.SSLContext) -> None:
    with conversation(options, context):
        pass


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x06\0\0\0\0\0\x23", b"x" * 64])
def test_a_listener_that_speaks_plaintext_is_named(answer: bytes, authority: Authority) -> None:
    options = trusting(authority)
    ours, theirs = socket.socketpair()
    with theirs, make_context(options).wrap_socket(ours, server_hostname="b", do_handshake_on_connect=False) as client:
        theirs.sendall(answer)
        with pytest.raises(ssl.SSLError) as caught:
            client.do_handshake()
    error = refusal(caught.value, "b:9092", "b", options)
    assert "the listener speaks plaintext (" in str(error)
    assert "Set the port of the TLS listener. If the cluster has none, set kafka.security.protocol to" in str(error)


def alert(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}]")
    error.reason = reason
    return error


@pytest.mark.parametrize("reason", ["SSLV3_ALERT_BAD_CERTIFICATE", "TLSV13_ALERT_CERTIFICATE_REQUIRED"])
def test_a_demand_for_a_client_certificate_names_the_key_store(reason: str, authority: Authority) -> None:
    text = str(refusal(alert(reason), "b:1", "b", trusting(authority)))
    assert f"the broker demands a client certificate ({reason}). Set kafka.ssl.keystore.location, or" in text


@pytest.mark.parametrize("reason", ["TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_CERTIFICATE_EXPIRED"])
def test_a_refused_client_certificate_names_the_brokers_trust_store(reason: str, authority: Authority) -> None:
    options = trusting(authority, keystore_key=Secret("x"), keystore_certificate_chain=Secret("y"))
    text = str(refusal(alert(reason), "b:1", "b", options))
    assert f"the broker refuses the client certificate ({reason}). Check that it is valid" in text


def test_an_unknown_reason_is_an_error_with_its_name(authority: Authority) -> None:
    assert "OpenSSL reports DH_KEY_TOO_SMALL. Compare" in str(
        refusal(alert("DH_KEY_TOO_SMALL"), "b:1", "b", trusting(authority))
    )
    assert "OpenSSL reports " in str(refusal(ssl.SSLError(1, "strange"), "b:1", "b", trusting(authority)))


@pytest.mark.parametrize(
    "error",
    [
        alert("TLSV1_ALERT_INTERNAL_ERROR"),
        alert("DECRYPTION_FAILED_OR_BAD_RECORD_MAC"),
        ssl.SSLEOFError(8, "EOF"),
        ssl.SSLZeroReturnError(6, "closed"),
        ConnectionResetError("reset"),
        TimeoutError("timed out"),
    ],
)
def test_a_failure_that_may_pass_is_not_a_refusal(error: OSError, authority: Authority) -> None:
    assert refusal(error, "b:1", "b", trusting(authority)) is None


# -- the names in a certificate, for the error about another host ------------------------------------------------------


def names_of(context: ssl.SSLContext | None, authority: Authority) -> tuple[str, ...]:
    """Return the names that a server shows to a client that trusts the authority; without a context it closes."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError), listener.accept()[0] as accepted:
                accepted.settimeout(TIMEOUT_S)
                if context is not None:
                    with context.wrap_socket(accepted, server_side=True) as secured:
                        received.append(secured.recv(100))

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        port = listener.getsockname()[1]
        found = names_in_certificate("127.0.0.1", port, endpoint_context(trusting(authority)), TIMEOUT_S)
        server.join(TIMEOUT_S)
    assert received in ([], [b""]), "the client sends nothing but its handshake"
    return found


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (("b.example.com", "*.a.example.com", "10.0.0.7"), ("b.example.com", "*.a.example.com", "10.0.0.7")),
        ((), ("id.example.com",)),
        (tuple("abcdef"), tuple("abcde")),
    ],
    ids=["in their order", "the common name without others", "at most five"],
)
def test_the_names_of_a_certificate(
    hosts: tuple[str, ...], expected: tuple[str, ...], authority: Authority, tmp_path: Path
) -> None:
    assert names_of(server_context(authority.issue("id.example.com", hosts), tmp_path), authority) == expected


def test_a_server_without_tls_or_with_an_unknown_authority_or_without_an_answer_shows_no_names(
    authority: Authority, tmp_path: Path
) -> None:
    assert names_of(None, authority) == ()
    assert names_in_certificate("127.0.0.1", 1, endpoint_context(trusting(authority)), 1.0) == (), "no listener"
    assert names_of(server_context(Authority.create("another").issue(), tmp_path), authority) == ()
    with socket.create_server(("127.0.0.1", 0)) as listener:  # the kernel accepts, and no process answers
        port = listener.getsockname()[1]
        assert names_in_certificate("127.0.0.1", port, endpoint_context(trusting(authority)), 0.05) == ()
