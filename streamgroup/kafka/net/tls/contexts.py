"""The `ssl.SSLContext`s of this process: one for each set of options, replaced when its files have changed.

Spark keeps worker processes for many tasks, and it takes milliseconds to make a context. New connections use changed
certificates without a restart; open connections continue with the old ones.
"""

from __future__ import annotations

import logging
import os
import ssl
import threading
from collections import OrderedDict
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from streamgroup.errors import ConfigError
from streamgroup.kafka.net.tls.stores import readable_path
from streamgroup.options.secrets import Secret
from streamgroup.options.tls import TLS13, TlsOptions

if TYPE_CHECKING:
    from streamgroup.kafka.net.tls.stores import KeyAndCertificate

log = logging.getLogger("streamgroup")

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_KEPT = 16

Fingerprint = tuple[tuple[str, int, int, int], ...]
"""Path, inode, time of the last change (ns) and size of each file; zeros for a file that cannot be found."""


class _Made(NamedTuple):
    """A context, and the state of its files when it was made or when the last attempt to do so failed."""

    fingerprint: Fingerprint
    context: ssl.SSLContext


class Contexts:
    """Keeps the SSL contexts that were used last, up to `_KEPT`, by their options. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: OrderedDict[TlsOptions, _Made] = OrderedDict()

    def get(self, options: TlsOptions) -> ssl.SSLContext:
        """Return the context for `options`. Raises ConfigError if it cannot be made.

        If a changed file cannot be used, for example because it is only half written, this returns the previous context
        and logs a warning once for each change.
        """
        with self._lock:
            # Taken before the files are read: a change in between is seen by the next connection.
            fingerprint = fingerprint_of(options)
            made = self._made.get(options)
            if made is None or made.fingerprint != fingerprint:
                made = _Made(fingerprint, self._context(options, made))
            self._made[options] = made
            self._made.move_to_end(options)
            while len(self._made) > _KEPT:
                self._made.popitem(last=False)
            return made.context

    def _context(self, options: TlsOptions, before: _Made | None) -> ssl.SSLContext:
        try:
            context = make_context(options)
        except ConfigError as error:
            if before is None:
                raise
            log.warning("cannot load the changed certificates: %s. New connections use the previous ones", error)
            return before.context
        if before is not None:
            log.info("the files of %s* have changed: new connections use their certificates", options.servers.prefix)
        return context


CONTEXTS = Contexts()
"""The contexts of this process."""


def fingerprint_of(options: TlsOptions) -> Fingerprint:
    """Return the state of all files that `options` name, files of secrets included. Any change makes it differ."""
    paths = [options.truststore_location, options.keystore_location]
    values = (getattr(options, field.name) for field in fields(options))
    paths += [value.file for value in values if isinstance(value, Secret)]
    found = []
    for path in paths:
        if path is None:
            continue
        try:
            state = os.stat(path)
        except OSError:
            found.append((path, 0, 0, 0))
        else:
            found.append((path, state.st_ino, state.st_mtime_ns, state.st_size))
    return tuple(found)


def endpoint_context(options: TlsOptions) -> ssl.SSLContext:
    """Return a context for a token endpoint. It trusts the system's authorities and those in `options`.

    It always verifies the host name, because the endpoint gets the client secret. It presents no client certificate.
    Raises ConfigError as `make_context`.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # From Python 3.13 on the default context refuses authorities without some extensions, such as many private ones.
    # Brokers' certificates are not checked for them, neither by Java nor by `make_context`.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    _trust(context, options)
    return context


def make_context(options: TlsOptions) -> ssl.SSLContext:
    """Return a client's SSL context for `options`. Raises ConfigError with the option and the cause."""
    from streamgroup.kafka.net.tls.stores import client_identity  # noqa: PLC0415  (it loads cryptography: a tenth of a second)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    versions = [_VERSIONS[version] for version in options.versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    _allow_suites(context, options)
    context.check_hostname = bool(options.endpoint_identification)
    context.options |= ssl.OP_NO_RENEGOTIATION  # Kafka's protocol has no use for it, and TLS 1.3 does not have it
    if not _trust(context, options):
        context.load_default_certs()
    identity = client_identity(options, datetime.now(UTC))
    if identity is not None:
        _present(context, identity)
    return context


def _trust(context: ssl.SSLContext, options: TlsOptions) -> bool:
    """Trust the certificates of the trust store. Return whether the options name one."""
    from streamgroup.kafka.net.tls.stores import trusted_certificates  # noqa: PLC0415  (it loads cryptography)

    # As in Java, every certificate of the trust store is trusted, also one that is not a root certificate.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    trusted = trusted_certificates(options)
    if trusted is not None:
        context.load_verify_locations(cadata=trusted)
    return trusted is not None


def _allow_suites(context: ssl.SSLContext, options: TlsOptions) -> None:
    """Offer only the allowed suites of TLS 1.2. Python cannot select suites of TLS 1.3: the transport checks them."""
    suites = [suite for suite in options.cipher_suites or () if suite not in TLS13]
    if not suites:
        return
    try:
        context.set_ciphers(":".join(suites))
    except ssl.SSLError:
        raise ConfigError(
            f"cannot use {options.servers.prefix}cipher.suites: {ssl.OPENSSL_VERSION} has none of them "
            f"({', '.join(suites)}). List suites that it has, or leave the option out"
        ) from None


def _present(context: ssl.SSLContext, identity: KeyAndCertificate) -> None:
    with readable_path(identity.pem) as path:
        try:
            # The empty password keeps OpenSSL from asking the terminal.
            context.load_cert_chain(path, password="")
        except (OSError, ValueError) as error:
            cause = getattr(error, "reason", None) or type(error).__name__
            raise ConfigError(
                f"cannot use the client certificate of {identity.origin}: OpenSSL refuses it: {cause}. Renew the "
                "certificate with a stronger key or signature"
            ) from None
