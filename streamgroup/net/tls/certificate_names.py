"""Reads the names of a server's certificate, for the error of a server that has other names than the client expects."""

from __future__ import annotations

import socket
import ssl
from typing import Any

_MOST = 5


def names_in_certificate(host: str, port: int, context: ssl.SSLContext, timeout_s: float) -> tuple[str, ...]:
    """Return the first host names and addresses in the certificate that the server shows over a new connection.

    `context` must verify the server's authority. It is changed: it no longer verifies the host name. The client sends
    nothing but its handshake. Empty if the server cannot be reached, or if its certificate has no names.
    """
    context.check_hostname = False
    try:
        with (
            socket.create_connection((host, port), timeout=timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            certificate: Any = secured.getpeercert() or {}
    except (OSError, ValueError):  # the caller has an error already, which this would only add to
        return ()
    names = [str(value) for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    if not names:  # OpenSSL then compares the host name with the common name
        names = [str(value) for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"]
    return tuple(names[:_MOST])
