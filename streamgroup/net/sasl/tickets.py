"""Kerberos tickets for GSSAPI, from a keytab or a ticket cache.

A ticket from a keytab is kept in the memory of the process until four fifths of its life have passed, and all
connections of the process use it. A ticket cache is read for each connection: whoever runs kinit renews it.
"""

from __future__ import annotations

import itertools
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from streamgroup.auth.gssapi import SecurityContext
from streamgroup.auth.kerberos_errors import KerberosFailure, remedy
from streamgroup.errors import AuthenticationError, ConfigError, StreamGroupError, TransportError
from streamgroup.net.sasl.kerberos import Credentials, GssapiLibrary, Kerberos
from streamgroup.net.sasl.renewals import RENEWED_AFTER, Renewals
from streamgroup.options.sasl import KerberosOptions

_NUMBERS = itertools.count(1)
"""Of the caches in memory, which live as long as the process."""
_NO_KEYTAB = "MEMORY:streamgroup-none"
"""An empty keytab. Without one the library takes the system's where the ticket cache has no ticket."""
_KEYTAB_BEGINS = (b"\x05\x01", b"\x05\x02")
_TYPED = re.compile(r"[A-Za-z]+:")


@dataclass(frozen=True, slots=True)
class Ticket:
    """A ticket of the client. Times are seconds since 1970."""

    credentials: Credentials
    renewed_at: float
    """When the next connection gets a new one from the keytab."""
    expires_at: float


class Tickets:
    """The tickets of this process, by their options. May be used by several threads; each ticket is got once.

    `library` returns the Kerberos library; it is called when the first ticket is asked for.
    """

    def __init__(self, library: Callable[[], Kerberos] = GssapiLibrary, clock: Callable[[], float] = time.time) -> None:
        self._library = library
        self._lock = threading.Lock()
        self._loaded: Kerberos | None = None
        self._renewals: Renewals[KerberosOptions, Ticket] = Renewals(clock)
        self._clock = clock

    def open(self, options: KerberosOptions, peer: str) -> tuple[SecurityContext, str]:
        """Return a context with the broker at `peer` (`host:port`), whose first token is there, and the principal.

        It takes as long as the KDC does. Raises AuthenticationError or ConfigError if no retry can help, TransportError
        otherwise.
        """
        library = self._kerberos()
        ticket = self._ticket(library, options)
        host = peer.rpartition(":")[0]
        principal = ticket.credentials.principal
        try:
            return library.open(ticket.credentials, options.service_name, host), principal
        except KerberosFailure as failure:
            what = (
                f"cannot authenticate to broker {peer} as user {principal!r} by SASL GSSAPI: the KDC gave no ticket "
                f"for {options.service_name}@{host}"
            )
            raise _error(what, failure) from None

    def forget(self, options: KerberosOptions) -> None:
        """Forget the ticket from the keytab, and with it the tickets for brokers, whose keys may have changed."""
        self._renewals.forget(options)

    def _kerberos(self) -> Kerberos:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._library()
            return self._loaded

    def _ticket(self, library: Kerberos, options: KerberosOptions) -> Ticket:
        if options.use_ticket_cache:
            try:
                return self._cached(library, options)
            except KerberosFailure as failure:
                # As in Java the keytab is the second choice.
                if not (failure.no_ticket and options.use_keytab):
                    raise _cache_error(options, failure) from None
        return self._renewals.get(options, lambda now: self._from_keytab(library, options, now))

    def _cached(self, library: Kerberos, options: KerberosOptions) -> Ticket:
        store = {"client_keytab": _NO_KEYTAB}
        if options.ticket_cache:
            store["ccache"] = _typed(options.ticket_cache)
        return _ticket_of(library.credentials(options.principal, store), self._clock())

    def _from_keytab(self, library: Kerberos, options: KerberosOptions, now: float) -> Ticket:
        # A new cache for each ticket: contexts that are being opened go on with the old one.
        store = {"ccache": f"MEMORY:streamgroup-{os.getpid()}-{next(_NUMBERS)}"}
        if options.keytab:
            _check_keytab(options.keytab)
            store["client_keytab"] = _typed(options.keytab)
        try:
            return _ticket_of(library.credentials(options.principal, store), now)
        except KerberosFailure as failure:
            keytab = f"keytab {options.keytab}" if options.keytab else "the default client keytab"
            if failure.no_ticket:
                raise ConfigError(
                    f"cannot get a Kerberos ticket for SASL GSSAPI: {keytab} has no key of {options.principal!r}. "
                    "Correct principal or keyTab in kafka.sasl.jaas.config; klist -k shows the principals of a keytab"
                ) from None
            what = f"cannot get a Kerberos ticket for SASL GSSAPI as {options.principal!r} from {keytab}"
            raise _error(what, failure) from None


TICKETS = Tickets()
"""The tickets of this process."""


def _ticket_of(credentials: Credentials, now: float) -> Ticket:
    life = credentials.lifetime_s
    return Ticket(credentials, now + RENEWED_AFTER * life, now + life)


def _typed(path: str) -> str:
    """Return the path of a file with its type; a cache or keytab of another type has one already."""
    return path if _TYPED.match(path) else f"FILE:{path}"


def _check_keytab(keytab: str) -> None:
    """Raise ConfigError if the file cannot be a keytab. The error of the library would name a missing ticket cache."""
    kind, _, rest = _typed(keytab).partition(":")
    if kind.upper() != "FILE":
        return
    what = f"cannot read the keytab for SASL GSSAPI: file {rest}"
    try:
        with Path(rest).open("rb") as file:
            begins = file.read(2)
    except OSError as error:
        raise ConfigError(
            f"{what}: {error.strerror}. Correct keyTab in kafka.sasl.jaas.config, or the permissions of the file, on "
            "each machine that connects"
        ) from None
    if begins not in _KEYTAB_BEGINS:
        raise ConfigError(f"{what}: it is not a keytab. Write it with ktadd of kadmin, or with ktutil")


def _cache_error(options: KerberosOptions, failure: KerberosFailure) -> StreamGroupError:
    cache = f"ticket cache {options.ticket_cache}" if options.ticket_cache else "the default ticket cache"
    who = f" as {options.principal!r}" if options.principal else ""
    what = f"cannot get a Kerberos ticket for SASL GSSAPI{who} from {cache}"
    if not failure.no_ticket:
        return _error(what, failure)
    cause = "the ticket has ended" if failure.expired else failure.text
    return AuthenticationError(
        f"{what}: {cause}. Run kinit on each machine that connects, and again before the ticket ends; a keytab "
        '(useKeyTab=true keyTab="/path") needs no kinit'
    )


def _error(what: str, failure: KerberosFailure) -> StreamGroupError:
    found = remedy(failure)
    kind = TransportError if found.retried else AuthenticationError
    return kind(f"{what}: {failure.text.rstrip('.')}. {found.next_step}")
