"""Kerberos tickets for GSSAPI, from a keytab or a ticket cache.

A ticket from a keytab is kept in the memory of the process until four fifths of its life have passed, and all
connections of the process use it. A ticket cache is read for each connection: whoever runs kinit renews it.
"""

from __future__ import annotations

import itertools
import os
import platform
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from streamgroup.auth.gssapi import SecurityContext
from streamgroup.auth.kerberos_errors import KerberosFailure, remedy
from streamgroup.errors import AuthenticationError, ConfigError, StreamGroupError, TransportError
from streamgroup.kafka.net.sasl.renewals import RENEWED_AFTER, Renewals
from streamgroup.options.sasl import KerberosOptions

T = TypeVar("T")

_FOREVER_S = 86_400.0
"""The life of a ticket of which the library knows no end."""


class Credentials(NamedTuple):
    """A ticket with which a client asks the KDC for tickets of services."""

    handle: Any
    """The library's own object."""
    principal: str
    lifetime_s: float
    """Seconds until the ticket ends."""


class Kerberos(Protocol):
    """The calls of the library. All of them may ask the KDC, and raise KerberosFailure."""

    def credentials(self, principal: str, store: Mapping[str, str]) -> Credentials:
        """Return the ticket of `principal`, of any if it is empty.

        `store` names a `ccache` (ticket cache) and a `client_keytab`. The system's are used where one is missing.
        """

    def open(self, credentials: Credentials, service: str, host: str) -> SecurityContext:
        """Return a context for the service at `host`. Its first token is there, so that no step asks the KDC."""


class GssapiLibrary:
    """The package gssapi. Raises ConfigError if it cannot be imported."""

    def __init__(self) -> None:
        try:
            import gssapi  # noqa: PLC0415 - an extra, which most installations lack
        except (ImportError, OSError) as error:
            raise ConfigError(
                f"cannot use kafka.sasl.mechanism=GSSAPI on {platform.node()}: the package gssapi cannot be imported: "
                f"{error}. Install it for the driver and the executors: pip install 'streamgroup[kerberos]', behind "
                "apt-get install libkrb5-dev gcc python3-dev on Debian"
            ) from None
        self._gssapi = gssapi
        self._mechanism = gssapi.MechType.kerberos

    def credentials(self, principal: str, store: Mapping[str, str]) -> Credentials:
        gssapi = self._gssapi

        def acquire() -> Credentials:
            name = gssapi.Name(principal, gssapi.NameType.kerberos_principal) if principal else None
            handle = gssapi.Credentials(usage="initiate", name=name, mechs=[self._mechanism], store=dict(store))
            return Credentials(handle, str(handle.name), _FOREVER_S if handle.lifetime is None else handle.lifetime)

        return self._called(acquire)

    def open(self, credentials: Credentials, service: str, host: str) -> SecurityContext:
        gssapi = self._gssapi

        def begin() -> Any:
            return gssapi.SecurityContext(
                name=gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service),
                creds=credentials.handle,
                mech=self._mechanism,
                usage="initiate",
                # The broker must prove that it has the key of its principal, and messages must be protected.
                flags=gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity,
            )

        context = self._called(begin)
        return _Context(context, self._called(context.step), self._called)

    def _called(self, call: Callable[..., T], *arguments: Any) -> T:
        """Return the result of a call. Raises KerberosFailure with the code of the library."""
        exceptions = self._gssapi.exceptions
        try:
            return call(*arguments)
        except exceptions.GSSError as error:
            texts = error.get_all_statuses(error.min_code, False) if error.min_code else ()
            text = "; ".join(text for text in texts if text not in ("", "Success"))
            expired = isinstance(error, exceptions.ExpiredCredentialsError | exceptions.ExpiredContextError)
            whole = text or "; ".join(error.get_all_statuses(error.maj_code, True))
            raise KerberosFailure(_signed(error.min_code), whole, expired=expired) from None


class _Context:
    """A context whose `first` token is there. `called` makes the failures of a call those of SecurityContext."""

    def __init__(self, context: Any, first: bytes | None, called: Callable[..., Any]) -> None:
        self._context, self._first, self._called = context, first, called
        self._begun = False

    @property
    def complete(self) -> bool:
        """True if the context is established, and the first token has been taken."""
        return self._begun and bool(self._context.complete)

    def step(self, token: bytes | None) -> bytes | None:
        if not self._begun:
            self._begun = True
            return self._first
        answer: bytes | None = self._called(self._context.step, token)
        return answer

    def unwrap(self, message: bytes) -> bytes:
        content: bytes = self._called(self._context.unwrap, message).message
        return content

    def wrap(self, message: bytes) -> bytes:
        wrapped: bytes = self._called(self._context.wrap, message, False).message
        return wrapped


def _signed(code: int) -> int:
    """Return a code as `krb5.h` writes it: the library returns 32 bits without a sign."""
    return code - 2**32 if code >= 2**31 else code


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
