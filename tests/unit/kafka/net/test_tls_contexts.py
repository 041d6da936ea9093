"""Contexts of TLS, made again when files have changed, and the errors of handshakes, also with alerts by hand."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from streamgroup.errors import AuthError, ConfigError, TlsError, TransportError
from streamgroup.kafka.net.tls.contexts import Contexts, endpoint_context, fingerprint_of, make_context
from streamgroup.kafka.net.tls.refusals import names_in_certificate, refusal
from streamgroup.options.secrets import Secret
from streamgroup.options.tls import TlsOptions
from streamgroup.testing import Authority, Identity
from tests.certificates import DAY, ca_text, server_context
from tests.unit.kafka.net.tls_servers import shake, trusting
from tests.waiting import TIMEOUT_S

Options = Callable[..., TlsOptions]


@pytest.fixture
def contexts() -> Contexts:
    return Contexts()


@pytest.fixture
def files(authority: Authority, tmp_path: Path) -> TlsOptions:
    """Options whose trust store and key store are files, and whose password is a reference to one."""
    (tmp_path / "trust.pem").write_text(ca_text(authority))
    (tmp_path / "password").write_text("pw")
    (tmp_path / "key.p12").write_bytes(authority.issue().pkcs12("pw"))
    return TlsOptions(
        truststore_type="PEM",
        truststore_location=str(tmp_path / "trust.pem"),
        keystore_location=str(tmp_path / "key.p12"),
        keystore_password=Secret(f"file:{tmp_path}/password"),
    )


def trusted_by(context: ssl.SSLContext) -> set[str]:
    return {certificate["subject"][0][0][1] for certificate in context.get_ca_certs()}  # type: ignore[index,misc]


def test_changed_files_make_a_new_context(
    files: TlsOptions, contexts: Contexts, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = contexts.get(files)
    assert trusted_by(before) == {"streamgroup test authority"}
    with caplog.at_level(logging.INFO, "streamgroup"):
        (tmp_path / "trust.pem").write_text(ca_text(Authority.create("Rotated")))
        after = contexts.get(files)
        assert contexts.get(files) is after
    assert trusted_by(after) == {"Rotated"}
    assert caplog.messages == ["the files of kafka.ssl.* have changed: new connections use their certificates"]


def test_a_replaced_symbolic_link_is_a_change(authority: Authority, contexts: Contexts, tmp_path: Path) -> None:
    """As Kubernetes rotates mounted secrets: the time of the last change may even be older."""
    for name, each in (("first", authority), ("second", Authority.create("Rotated"))):
        (tmp_path / name).write_text(ca_text(each))
        os.utime(tmp_path / name, (1, 1))
    link = tmp_path / "ca.pem"
    link.symlink_to("first")
    options = TlsOptions(truststore_type="PEM", truststore_location=str(link))
    contexts.get(options)
    (tmp_path / "next").symlink_to("second")
    (tmp_path / "next").rename(link)
    assert trusted_by(contexts.get(options)) == {"Rotated"}


def test_each_file_counts(files: TlsOptions, tmp_path: Path) -> None:
    found = fingerprint_of(files)
    assert [path for path, *_ in found] == [str(tmp_path / name) for name in ("trust.pem", "key.p12", "password")]
    for name in ("trust.pem", "key.p12", "password"):
        before = fingerprint_of(files)
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes() + b"\n")
        assert fingerprint_of(files) != before
    (tmp_path / "password").unlink()
    assert fingerprint_of(files)[-1] == (str(tmp_path / "password"), 0, 0, 0)


def test_a_half_written_file_is_warned_of_once_and_the_context_of_before_stays(
    files: TlsOptions, contexts: Contexts, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = contexts.get(files)
    whole = ca_text(Authority.create("Rotated"))
    (tmp_path / "trust.pem").write_text(whole[:100])
    assert contexts.get(files) is before
    assert contexts.get(files) is before
    (warning,) = caplog.messages
    assert warning.startswith("cannot load the changed certificates: cannot use the trusted certif")
    (tmp_path / "trust.pem").write_text(whole)
    assert trusted_by(contexts.get(files)) == {"Rotated"}


def test_a_first_context_that_cannot_be_made_is_an_error_until_it_can(
    files: TlsOptions, contexts: Contexts, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "trust.pem").unlink()
    for _ in range(2):
        with pytest.raises(ConfigError, match="No such file"):
            contexts.get(files)
    (tmp_path / "trust.pem").write_text(ca_text(authority))
    assert contexts.get(files)


def test_few_contexts_are_kept_and_the_used_ones_longest(authority: Authority, contexts: Contexts) -> None:
    used = trusting(authority)
    first = contexts.get(used)
    for number in range(40):
        contexts.get(trusting(authority, key_password=Secret(str(number))))
        assert contexts.get(used) is first
    assert len(contexts._made) == 16


def test_threads_share_a_context(files: TlsOptions, contexts: Contexts) -> None:
    found: list[ssl.SSLContext] = []
    threads = [threading.Thread(target=lambda: found.append(contexts.get(files))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(map(id, found))) == 1


# -- the settings of a context -------------------------------------------------------------------------------------


def test_a_context_verifies_authority_and_host_name(authority: Authority) -> None:
    context = make_context(trusting(authority))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    without_names = make_context(trusting(authority, endpoint_identification=""))
    assert (without_names.verify_mode, without_names.check_hostname) == (ssl.CERT_REQUIRED, False)


def test_a_token_endpoint_is_checked_as_strictly_as_a_broker(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    default = ssl.create_default_context

    def of_python_3_13() -> ssl.SSLContext:
        context = default()
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", of_python_3_13)
    made = (endpoint_context(trusting(authority)), make_context(trusting(authority)))
    assert [context.verify_flags & ssl.VERIFY_X509_STRICT for context in made] == [0, 0]


def test_a_token_endpoint_is_always_verified(authority: Authority) -> None:
    context = endpoint_context(trusting(authority, endpoint_identification=""))
    assert context.check_hostname
    assert context.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN
    assert context.verify_mode is ssl.CERT_REQUIRED
    trusted = context.get_ca_certs(binary_form=True)
    assert make_context(trusting(authority)).get_ca_certs(binary_form=True)[0] in trusted
    assert {*ssl.create_default_context().get_ca_certs(binary_form=True)} <= {*trusted}


@pytest.mark.parametrize(
    ("options", "oldest", "newest"),
    [
        ({"protocol": "TLSv1.2"}, "TLSv1_2", "TLSv1_2"),
        ({"enabled_protocols": ("TLSv1.3",)}, "TLSv1_3", "TLSv1_3"),
        ({"enabled_protocols": ("TLSv1.3", "TLSv1.2")}, "TLSv1_2", "TLSv1_3"),
    ],
)
def test_the_options_set_the_versions(options: dict[str, str], oldest: str, newest: str, authority: Authority) -> None:
    context = make_context(trusting(authority, **options))
    assert (context.minimum_version.name, context.maximum_version.name) == (oldest, newest)


def test_the_suites_of_tls_12_are_those_of_the_options(authority: Authority) -> None:
    suites = ("ECDHE-RSA-AES256-GCM-SHA384", "DHE-RSA-AES128-GCM-SHA256", "TLS_AES_128_GCM_SHA256")
    context = make_context(trusting(authority, cipher_suites=suites))
    old = [cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] == "TLSv1.2"]
    assert old == ["ECDHE-RSA-AES256-GCM-SHA384", "DHE-RSA-AES128-GCM-SHA256"]


def test_suites_that_openssl_lacks_are_named(authority: Authority) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.ssl\.cipher\.suites: OpenSSL .* has none of them \(NO-SUCH-SUITE\)"):
        make_context(trusting(authority, cipher_suites=("NO-SUCH-SUITE",)))


def test_the_certificates_of_the_system_are_trusted_without_a_trust_store(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "system.pem").write_text(ca_text(authority))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert trusted_by(make_context(TlsOptions())) == {"streamgroup test authority"}


def test_a_key_refused_by_openssl_is_named(files: TlsOptions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object, **__: object) -> None:
        error = ssl.SSLError(1, "[SSL: EE_KEY_TOO_SMALL] ee key too small")
        error.reason = "EE_KEY_TOO_SMALL"
        raise error

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", refuse)
    with pytest.raises(
        ConfigError, match=rf"option kafka\.ssl\.keystore\.location .*{tmp_path}/key\.p12.*KEY_TOO_SMALL"
    ):
        make_context(files)


# -- failed handshakes -------------------------------------------------------------------------------------------------

NOW = datetime.now(UTC)


def refused(issued: Identity, options: TlsOptions, tmp_path: Path, host: str = "localhost") -> str:
    """Return the error of a handshake with a server that shows this certificate."""
    with pytest.raises(TlsError) as caught:
        shake(options, server_context(issued, tmp_path), host)
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
    shake(trusting(alone, endpoint_identification=""), server_context(shown, tmp_path))


def test_an_intermediate_authority_may_be_trusted_alone_as_in_java(tmp_path: Path) -> None:
    intermediate = Authority.create("intermediate", issued_by=Authority.create("root"))
    shake(trusting(intermediate), server_context(intermediate.issue(), tmp_path))


def test_a_forged_authority_of_the_same_name_is_refused(authority: Authority, tmp_path: Path) -> None:
    forged = replace(authority, key=Authority.create().key)
    assert "certificate signature failure" in refused(forged.issue(), trusting(authority), tmp_path)


def test_a_certificate_for_another_host_is_refused(authority: Authority, tmp_path: Path) -> None:
    issued = authority.issue(hosts=["broker-1.example", "10.0.0.1"])
    for host in ("broker-2.example", "10.0.0.2"):
        text = refused(issued, trusting(authority), tmp_path, host)
        assert f"the certificate is not valid for the host name '{host}'. Correct the names" in text
        assert "advertised.listeners" in text
        shake(trusting(authority, endpoint_identification=""), server_context(issued, tmp_path), host)


def test_a_certificate_out_of_its_time_is_refused(authority: Authority, tmp_path: Path) -> None:
    old = authority.issue(since=NOW - 3 * DAY, until=NOW - 2 * DAY)
    assert "is not valid any more (certificate has expired). Renew it" in refused(old, trusting(authority), tmp_path)
    new = authority.issue(since=NOW + DAY, until=NOW + 2 * DAY)
    text = refused(new, trusting(authority), tmp_path)
    assert "is not valid yet (certificate is not yet valid). Check the clock of this host" in text


def test_the_key_of_an_expired_authority_is_refused(tmp_path: Path) -> None:
    expired = Authority.create("expired", until=NOW - DAY / 2)
    assert "is not valid any more" in refused(expired.issue(), trusting(expired), tmp_path)


def test_versions_and_suites_without_a_common_one_are_named(authority: Authority, tmp_path: Path) -> None:
    context = server_context(authority.issue(), tmp_path, newest="TLSv1.2")
    with pytest.raises(TlsError, match=r"in common .*Compare kafka\.ssl\.enabled\.protocols with the broker's ssl\."):
        shake(trusting(authority, enabled_protocols=("TLSv1.3",)), context)
    of_another_key = trusting(authority, cipher_suites=("ECDHE-RSA-AES128-GCM-SHA256",))  # the key is of a curve
    with pytest.raises(TlsError, match=r"refuses the TLS parameters of the client .*kafka\.ssl\.cipher\.suites"):
        shake(of_another_key, context)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x06\0\0\0\0\0\x23", b"x" * 64])
def test_a_listener_that_speaks_plaintext_is_named(answer: bytes, authority: Authority) -> None:
    options = trusting(authority)
    ours, theirs = socket.socketpair()
    with theirs, make_context(options).wrap_socket(ours, server_hostname="b", do_handshake_on_connect=False) as client:
        theirs.sendall(answer)
        with pytest.raises(ssl.SSLError) as caught:
            client.do_handshake()
    error = refusal(caught.value, "b:9092", "b", options)
    assert "the listener is plaintext (" in str(error)
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
