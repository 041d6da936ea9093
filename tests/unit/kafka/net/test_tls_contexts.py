"""Contexts: made once, and again when files have changed."""

from __future__ import annotations

import logging
import os
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from streamgroup.errors import ConfigError
from streamgroup.kafka.net.tls.contexts import Contexts, endpoint_context, fingerprint_of, make_context
from streamgroup.options.secrets import Secret
from streamgroup.options.tls import TlsOptions
from streamgroup.testing import Authority
from tests.certificates import ca_text
from tests.unit.kafka.net.tls_servers import trusting

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


def test_a_file_that_is_replaced_as_a_symbolic_link_is_a_change(
    authority: Authority, contexts: Contexts, tmp_path: Path
) -> None:
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


def test_a_token_endpoint_is_not_checked_more_strictly_than_a_broker(
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


def test_an_empty_algorithm_switches_off_the_host_name_alone(authority: Authority) -> None:
    context = make_context(trusting(authority, endpoint_identification=""))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert not context.check_hostname


@pytest.mark.parametrize(
    ("options", "oldest", "newest"),
    [
        ({"protocol": "TLSv1.2"}, "TLSv1_2", "TLSv1_2"),
        ({"enabled_protocols": ("TLSv1.3",)}, "TLSv1_3", "TLSv1_3"),
        ({"enabled_protocols": ("TLSv1.3", "TLSv1.2")}, "TLSv1_2", "TLSv1_3"),
    ],
)
def test_the_versions_are_those_of_the_options(
    options: dict[str, str], oldest: str, newest: str, authority: Authority
) -> None:
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


def test_a_key_that_openssl_refuses_is_named(
    files: TlsOptions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object, **__: object) -> None:
        error = ssl.SSLError(1, "[SSL: EE_KEY_TOO_SMALL] ee key too small")
        error.reason = "EE_KEY_TOO_SMALL"
        raise error

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", refuse)
    with pytest.raises(
        ConfigError, match=rf"option kafka\.ssl\.keystore\.location .*{tmp_path}/key\.p12.*KEY_TOO_SMALL"
    ):
        make_context(files)
