"""Names the causes of failed TLS handshakes, and the option to change.

A cause that no retry mends becomes a TlsError. Everything else is a failed connection, which the caller may retry.
"""

from __future__ import annotations

import socket
import ssl
from typing import Final

from streamgroup.errors import TlsError
from streamgroup.options.tls import TlsOptions

_EXPIRED, _NOT_YET_VALID = 10, 9
_UNKNOWN_AUTHORITY = frozenset({2, 18, 19, 20, 21, 27})
_OTHER_HOST = frozenset({62, 64})
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
"""Damage on the way and troubles of the broker."""
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
    "TLSV1_ALERT_PROTOCOL_VERSION": "kafka.ssl.enabled.protocols",
    "UNSUPPORTED_PROTOCOL": "kafka.ssl.enabled.protocols",
    "NO_PROTOCOLS_AVAILABLE": "kafka.ssl.enabled.protocols",
    "TLSV1_ALERT_INSUFFICIENT_SECURITY": "kafka.ssl.cipher.suites",
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
    """Return the error of a handshake with `peer` that no retry mends; None for a failed connection.

    `host` is the name that the broker's certificate must have.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        cause, next_step = _distrust(error, host, options)
    elif isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError):
        return None
    elif isinstance(error, ssl.SSLError) and (reason := getattr(error, "reason", None) or str(error)) not in _TRANSIENT:
        cause, next_step = _of_reason(reason, options)
    else:
        return None
    return tls_error(peer, cause, next_step)


def tls_error(peer: str, cause: str, next_step: str) -> TlsError:
    """Return the error of a handshake with `peer`, with the name of this machine."""
    return TlsError(f"TLS handshake of host {socket.gethostname()} with broker {peer} failed: {cause}. {next_step}")


def suite_refusal(peer: str, suite: str) -> TlsError:
    """Return the error for a broker that has chosen a suite of TLS 1.3 that the options do not list."""
    return tls_error(
        peer,
        f"the broker has chosen the cipher suite {suite}, which kafka.ssl.cipher.suites does not list",
        "Add it, or set kafka.ssl.enabled.protocols=TLSv1.2 and list suites of TLS 1.2",
    )


def _distrust(error: ssl.SSLCertVerificationError, host: str, options: TlsOptions) -> tuple[str, str]:
    """Return why the broker's certificate is not trusted, and the next step."""
    message = error.verify_message.rstrip(".")
    if error.verify_code in _OTHER_HOST:
        return (
            f"the certificate is not valid for the host name {host!r}",
            "Correct the names in the certificate (subjectAltName) or the broker's advertised.listeners. An empty "
            "kafka.ssl.endpoint.identification.algorithm switches the verification of host names off",
        )
    if error.verify_code == _EXPIRED:
        return (
            f"the broker's certificate or that of its authority is not valid any more ({message})",
            "Renew it, and check the clock of this host",
        )
    if error.verify_code == _NOT_YET_VALID:
        return (
            f"the broker's certificate or that of its authority is not valid yet ({message})",
            "Check the clock of this host",
        )
    if error.verify_code in _UNKNOWN_AUTHORITY:
        return f"the authority of the broker's certificate is unknown ({message})", _how_to_trust(options)
    return f"the broker's certificate is not trusted ({message})", _how_to_trust(options)


def _how_to_trust(options: TlsOptions) -> str:
    if options.truststore_certificates is not None:
        return "Add the authority's certificate to kafka.ssl.truststore.certificates"
    if options.truststore_location is not None:
        return (
            "Add the authority's certificate to the file of kafka.ssl.truststore.location "
            f"({options.truststore_location})"
        )
    return (
        "No trust store is set, so the certificates of the operating system count. Set kafka.ssl.truststore.location "
        "to a file with the authority's certificate"
    )


def _of_reason(reason: str, options: TlsOptions) -> tuple[str, str]:
    """Return the cause and the next step for a reason of OpenSSL, such as the name of an alert."""
    if reason in _PLAINTEXT:
        return (
            f"the listener speaks plaintext ({reason})",
            "Set kafka.security.protocol=PLAINTEXT, or the port of the TLS listener",
        )
    if reason in _CLIENT_CERTIFICATE and not options.has_keystore:
        return f"the broker demands a client certificate ({reason})", _SET_KEYSTORE
    if reason in _CLIENT_CERTIFICATE:
        return (
            f"the broker refuses the client certificate ({reason})",
            "Check that it is valid, and that its authority is in the broker's ssl.truststore. The client's own is in "
            "kafka.ssl.keystore.location or kafka.ssl.keystore.certificate.chain",
        )
    if reason in _NO_COMMON:
        option = _NO_COMMON[reason]
        return (
            f"client and broker have no version or cipher suite in common ({reason})",
            f"Compare {option} with the broker's {option.removeprefix('kafka.')}",
        )
    if reason in ("SSLV3_ALERT_HANDSHAKE_FAILURE", "TLSV1_ALERT_HANDSHAKE_FAILURE"):
        certificate = "" if options.has_keystore else f", or the broker demands a client certificate. {_SET_KEYSTORE}"
        return (
            f"the broker refuses what the client offers ({reason})",
            "Compare kafka.ssl.enabled.protocols and kafka.ssl.cipher.suites with those of the broker" + certificate,
        )
    return f"OpenSSL reports {reason}", "Compare the options of kafka.ssl.* with the ssl.* properties of the broker"


_SET_KEYSTORE = "Set kafka.ssl.keystore.location, or kafka.ssl.keystore.key and kafka.ssl.keystore.certificate.chain"
