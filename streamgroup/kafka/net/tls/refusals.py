"""Finds the cause of a failed TLS handshake, and the option to change.

If retrying will not help, the error is a TlsError. Other failures are lost connections, which the caller may retry.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any, Final

from streamgroup.errors import TlsError
from streamgroup.options.tls import BROKERS, TlsOptions, TlsServers

_EXPIRED, _NOT_YET_VALID = 10, 9
_UNKNOWN_AUTHORITY = frozenset({2, 18, 19, 20, 21, 27})
OTHER_HOST = frozenset({62, 64})
"""The X509_V_ERR_* numbers of OpenSSL that have a next step of their own."""

_TRANSIENT: Final = frozenset(
    {
        "DECRYPTION_FAILED_OR_BAD_RECORD_MAC",
        "SSLV3_ALERT_BAD_RECORD_MAC",
        "TLSV1_ALERT_DECODE_ERROR",
        "TLSV1_ALERT_DECRYPT_ERROR",
        "TLSV1_ALERT_INTERNAL_ERROR",
        "TLSV1_ALERT_USER_CANCELLED",
    }
)
"""Damage in transit, and temporary failures of the broker."""
_PLAINTEXT: Final = frozenset(
    {
        "BAD_PACKET_LENGTH",
        "BAD_RECORD_TYPE",
        "HTTP_REQUEST",
        "INVALID_RECORD",
        "PACKET_LENGTH_TOO_LONG",
        "RECORD_LAYER_FAILURE",
        "UNEXPECTED_MESSAGE",
        "UNKNOWN_PROTOCOL",
        "WRONG_VERSION_NUMBER",
    }
)
_NO_COMMON: Final = {
    "TLSV1_ALERT_PROTOCOL_VERSION": "enabled.protocols",
    "UNSUPPORTED_PROTOCOL": "enabled.protocols",
    "NO_PROTOCOLS_AVAILABLE": "enabled.protocols",
    "TLSV1_ALERT_INSUFFICIENT_SECURITY": "cipher.suites",
}
_CLIENT_CERTIFICATE: Final = frozenset(
    {
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED",
        "SSLV3_ALERT_CERTIFICATE_REVOKED",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
        "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
        "TLSV13_ALERT_CERTIFICATE_REQUIRED",
        "TLSV1_ALERT_ACCESS_DENIED",
        "TLSV1_ALERT_CERTIFICATE_REQUIRED",
        "TLSV1_ALERT_UNKNOWN_CA",
    }
)
"""Alerts that are about the client's certificate, or its absence."""


def refusal(error: OSError, peer: str, host: str, options: TlsOptions) -> TlsError | None:
    """Return the TlsError for a failed handshake with `peer`; None if the connection was only lost.

    `host` is the name that the server's certificate must contain.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        cause, next_step = _distrust(error, host, options)
    elif isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError):
        return None
    elif isinstance(error, ssl.SSLError) and (reason := getattr(error, "reason", None) or str(error)) not in _TRANSIENT:
        cause, next_step = _of_reason(reason, options)
    else:
        return None
    return tls_error(peer, cause, next_step, options.servers)


def tls_error(peer: str, cause: str, next_step: str, servers: TlsServers = BROKERS) -> TlsError:
    """Return the error for a failed handshake with `peer`. It also contains the name of this machine."""
    return TlsError(
        f"TLS handshake of host {socket.gethostname()} with {servers.noun} {peer} failed: {cause}. {next_step}"
    )


def suite_refusal(peer: str, suite: str, servers: TlsServers = BROKERS) -> TlsError:
    """Return the error if a server has chosen a cipher suite of TLS 1.3 that the options do not list."""
    return tls_error(
        peer,
        f"the {servers.noun} has chosen the cipher suite {suite}, which {servers.prefix}cipher.suites does not list",
        f"Add it, or set {servers.prefix}enabled.protocols=TLSv1.2 and list suites of TLS 1.2",
        servers,
    )


def plaintext_refusal(peer: str) -> TlsError:
    """Return the error if a Kafka broker answers only without TLS."""
    cause = "the listener is plaintext: it answers Kafka's requests only without TLS"
    return tls_error(peer, cause, BROKERS.without_tls)


def _distrust(error: ssl.SSLCertVerificationError, host: str, options: TlsOptions) -> tuple[str, str]:
    """Return why the server's certificate is not trusted, and the next step."""
    message, servers = error.verify_message.rstrip("."), options.servers
    if error.verify_code in OTHER_HOST:
        return (
            f"the certificate is not valid for the host name {host!r}",
            f"Correct the names in the certificate (subjectAltName) or {servers.addresses}. An empty "
            f"{servers.prefix}endpoint.identification.algorithm switches the verification of host names off",
        )
    if error.verify_code == _EXPIRED:
        return (
            f"the {servers.noun}'s certificate or its authority's is not valid any more ({message})",
            "Renew it, and check the clock of this host",
        )
    if error.verify_code == _NOT_YET_VALID:
        return (
            f"the {servers.noun}'s certificate or its authority's is not valid yet ({message})",
            "Check the clock of this host",
        )
    if error.verify_code in _UNKNOWN_AUTHORITY:
        return f"the authority of the {servers.noun}'s certificate is unknown ({message})", _how_to_trust(options)
    return f"the {servers.noun}'s certificate is not trusted ({message})", _how_to_trust(options)


def _how_to_trust(options: TlsOptions) -> str:
    prefix = options.servers.prefix
    if options.truststore_certificates is not None:
        return f"Add the authority's certificate to {prefix}truststore.certificates"
    if options.truststore_location is not None:
        return (
            f"Add the authority's certificate to the file of {prefix}truststore.location "
            f"({options.truststore_location})"
        )
    return (
        "No trust store is set, so the certificates of the operating system count. Set "
        f"{prefix}truststore.location to a file with the authority's certificate"
    )


def _of_reason(reason: str, options: TlsOptions) -> tuple[str, str]:
    """Return the cause and the next step for a reason of OpenSSL, such as the name of an alert."""
    servers, prefix = options.servers, options.servers.prefix
    if reason in _PLAINTEXT:
        return f"the listener is plaintext ({reason})", servers.without_tls
    if reason in _CLIENT_CERTIFICATE and not options.has_keystore:
        return f"the {servers.noun} demands a client certificate ({reason})", _set_keystore(prefix)
    if reason in _CLIENT_CERTIFICATE:
        return (
            f"the {servers.noun} refuses the client certificate ({reason})",
            f"Check that it is valid, and that its authority is in the {servers.noun}'s ssl.truststore. The client's "
            f"own is in {prefix}keystore.location or {prefix}keystore.certificate.chain",
        )
    if reason in _NO_COMMON:
        name = _NO_COMMON[reason]
        return (
            f"client and {servers.noun} have no version or cipher suite in common ({reason})",
            f"Compare {prefix}{name} with the {servers.noun}'s ssl.{name}",
        )
    if reason in ("SSLV3_ALERT_HANDSHAKE_FAILURE", "TLSV1_ALERT_HANDSHAKE_FAILURE"):
        demanded = f", or the {servers.noun} demands a client certificate. {_set_keystore(prefix)}"
        certificate = "" if options.has_keystore else demanded
        return (
            f"the {servers.noun} refuses the TLS parameters of the client ({reason})",
            f"Compare {prefix}enabled.protocols and {prefix}cipher.suites with the settings of the {servers.noun}"
            + certificate,
        )
    return (
        f"OpenSSL reports {reason}",
        f"Compare the options of {prefix}* with the ssl.* properties of the {servers.noun}",
    )


def _set_keystore(prefix: str) -> str:
    return f"Set {prefix}keystore.location, or {prefix}keystore.key and {prefix}keystore.certificate.chain"


# -- the names in a certificate, for the error about another host ------------------------------------------------------

_NAMES_SHOWN = 5


def names_in_certificate(host: str, port: int, context: ssl.SSLContext, timeout_s: float) -> tuple[str, ...]:
    """Return the first host names and addresses in the server's certificate, from a new connection.

    `context` must verify the server's authority. This function changes it: it no longer verifies the host name. The
    client sends only its handshake. The result is empty if the server cannot be reached, or if its certificate has no
    names.
    """
    context.check_hostname = False
    try:
        with (
            socket.create_connection((host, port), timeout=timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            certificate: Any = secured.getpeercert() or {}
    except (OSError, ValueError):  # the caller reports the error of its own connection
        return ()
    names = [str(value) for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    if not names:  # OpenSSL then compares the host name with the common name
        names = [str(value) for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"]
    return tuple(names[:_NAMES_SHOWN])
