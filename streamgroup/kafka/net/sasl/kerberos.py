"""Kerberos: the SASL mechanism GSSAPI (RFC 4752), next steps for its errors, the library, and the tickets.

The mechanism exchanges the tokens of a security context that the caller passes in, so only `GssapiLibrary` needs the
package gssapi.
"""

from __future__ import annotations

import itertools
import os
import platform
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from streamgroup.errors import AuthenticationError, ConfigError, StreamGroupError, TransportError
from streamgroup.frozen import frozen
from streamgroup.kafka.net.sasl.mechanisms import CHECK_BROKER, Exchange, Mechanism
from streamgroup.kafka.net.sasl.renewals import RENEWED_AFTER, Renewals
from streamgroup.options.sasl import KerberosOptions

GSSAPI = "GSSAPI"

MAX_ROUNDS = 16
"""The most tokens of the context. Kerberos needs one or two; a broker must not keep a client busy forever."""

_NO_LAYER = 1
"""The bit of "no security layer". Kafka never wraps its requests: TLS is there for that."""
_CHECK_TICKET = (
    "The log of the broker has the cause. Check that the keytab of the broker has the present key of its principal, "
    "and that the clocks of this machine, of the KDC and of the broker agree"
)


class SecurityContext(Protocol):
    """The client's side of a GSS-API security context. All methods may raise KerberosFailure."""

    @property
    def complete(self) -> bool:
        """Whether the context is established."""

    def step(self, token: bytes | None) -> bytes | None:
        """Return the next token to send, for the broker's last `token` (None at first).

        None if there is none to send.
        """

    def unwrap(self, message: bytes) -> bytes:
        """Check the integrity of a wrapped message, and return its content."""

    def wrap(self, message: bytes) -> bytes:
        """Return the message with its integrity protected, not encrypted."""


class GssapiMechanism(Mechanism):
    """The SASL mechanism GSSAPI: one exchange with the security context `context`.

    `principal` is the client's principal, "" for the principal of the ticket. It is also sent as the authorization id,
    as Java's client does. `on_rejected()` is called if the broker rejects the ticket.
    """

    shown = "ticket"

    def __init__(
        self, peer: str, context: SecurityContext, principal: str = "", on_rejected: Callable[[], None] | None = None
    ) -> None:
        super().__init__(GSSAPI, peer, principal, on_rejected=on_rejected)
        self._context = context
        self._authorization_id = self._bytes(principal, "principal")

    @property
    def after_rejection(self) -> str:
        return _CHECK_TICKET

    def _exchange(self) -> Exchange:
        token = self._step(None)
        rounds = 1
        while not self._context.complete:
            if rounds == MAX_ROUNDS:
                raise self.error(f"the security context is not established after {MAX_ROUNDS} tokens", _CHECK_TICKET)
            token = self._step((yield token or b""))
            rounds += 1
        challenge = yield token or b""
        if not challenge:  # a broker that had no token to send now offers its security layers
            challenge = yield b""
        answer = self._wrap(self._choice(self._unwrap(challenge)))
        self._done = True  # before KIP-152 the broker does not answer this token
        yield answer

    def _choice(self, offer: bytes) -> bytes:
        """Return the answer to the security layers that the broker offers: none, for this authorization id."""
        if len(offer) != 4:
            raise self.error(f"the offer of security layers has {len(offer)} bytes instead of 4", CHECK_BROKER)
        if not offer[0] & _NO_LAYER:
            raise self.error(
                "the broker requires a security layer of SASL, which Kafka does not have",
                "Set javax.security.sasl.qop=auth on the broker",
            )
        return bytes((_NO_LAYER, 0, 0, 0)) + self._authorization_id

    def _step(self, token: bytes | None) -> bytes | None:
        try:
            return self._context.step(token)
        except KerberosFailure as failure:
            raise self._failed(failure) from failure

    def _unwrap(self, message: bytes) -> bytes:
        try:
            return self._context.unwrap(message)
        except KerberosFailure as failure:
            raise self.error(
                f"cannot read the security layers that the broker offers: {self.excerpt(failure.text)}", CHECK_BROKER
            ) from failure

    def _wrap(self, message: bytes) -> bytes:
        try:
            return self._context.wrap(message)
        except KerberosFailure as failure:
            raise self._failed(failure) from failure

    def _failed(self, failure: KerberosFailure) -> StreamGroupError:
        """Return the error of a failed call of the library: a TransportError if a retry may succeed."""
        found = remedy(failure)
        error = self.error(f"Kerberos failed: {self.excerpt(failure.text)}", found.next_step)
        return TransportError(str(error)) if found.retried else error


# -- failures of the library, and what to do about them ----------------------------------------------------------------


class KerberosFailure(Exception):
    """A call of the Kerberos library has failed.

    `code` is the error code of MIT's library (`krb5.h`), 0 if there is none. `text` is the library's message; it never
    contains key material. `expired` is true if the ticket has expired.
    """

    def __init__(self, code: int, text: str, *, expired: bool = False) -> None:
        super().__init__(text)
        self.code, self.text, self.expired = code, text, expired

    @property
    def no_ticket(self) -> bool:
        """Whether the client has no valid ticket: none at all, or an expired one."""
        return self.expired or self.code in _NO_TICKET


@frozen
class Remedy:
    """The next step for the user after a KerberosFailure. `retried` is true if the same call may succeed later."""

    next_step: str
    retried: bool = False


_BASE = -1_765_328_384
"""The code of error 0 of the Kerberos protocol (RFC 4120, section 7.5.9); the library's own errors follow from 128."""

_OTHER_PRINCIPAL = 39_756_032
"""KG_CCACHE_NOMATCH: the ticket cache is of another principal than the one that was asked for."""
_NO_TICKET = frozenset((_BASE + 141, _BASE + 142, _BASE + 195))
"""KRB5_CC_NOTFOUND, KRB5_CC_END, KRB5_FCC_NOFILE."""

_CLOCKS = "Set the clocks of this machine, of the KDC and of the brokers by one time server (NTP)"
_NEW_KEYTAB = "Write the keytab again with the current key: kadmin's ktadd, or ktpass for Active Directory"
_ADMINISTRATOR = "The realm's administrator has to enable the principal again"
_REACH_KDC = (
    "Check that this machine reaches the KDC that krb5.conf names for the realm; KRB5_CONFIG names another krb5.conf"
)
_KRB5_CONF = "Correct krb5.conf, or name another one by the environment variable KRB5_CONFIG"
_ENCRYPTION = "Give the principals keys of a type that client, brokers and KDC allow, such as aes256-cts"

_REMEDIES = {
    _BASE + 1: Remedy(_ADMINISTRATOR),  # the client's entry has expired
    _BASE + 6: Remedy("Correct principal in kafka.sasl.jaas.config, or create the principal in the realm"),
    _BASE + 7: Remedy(  # the KDC does not know the broker's principal
        "Correct kafka.sasl.kerberos.service.name. Brokers must be reached by the host name in their principal: "
        "compare kafka.bootstrap.servers, advertised.listeners, and rdns and dns_canonicalize_hostname in krb5.conf"
    ),
    _BASE + 14: Remedy(_ENCRYPTION),
    _BASE + 18: Remedy(_ADMINISTRATOR),
    _BASE + 23: Remedy(_ADMINISTRATOR),  # the key has expired
    _BASE + 24: Remedy(_NEW_KEYTAB),  # preauthentication failed
    _BASE + 29: Remedy("The KDC is not available now. A retry may succeed", retried=True),
    _BASE + 31: Remedy(_NEW_KEYTAB),  # the integrity check failed
    _BASE + 33: Remedy(_CLOCKS, retried=True),  # the ticket is not valid yet
    _BASE + 34: Remedy("A retry may succeed", retried=True),  # the request is a repeat, as two at one moment look
    _BASE + 37: Remedy(_CLOCKS),
    _BASE + 135: Remedy(_KRB5_CONF),
    _BASE + 136: Remedy(_KRB5_CONF),
    _BASE + 148: Remedy(_CLOCKS),  # the clock of the KDC differs
    _BASE + 154: Remedy(_KRB5_CONF),  # no KDC is known for the realm
    _BASE + 156: Remedy(_REACH_KDC, retried=True),
    _BASE + 194: Remedy("Give this process permission to read the ticket cache"),
    _BASE + 210: Remedy(_NEW_KEYTAB),  # preauthentication failed, in the library's own code
    _BASE + 217: Remedy(_KRB5_CONF),  # no realm is known for the host
    _BASE + 220: Remedy(_REACH_KDC, retried=True),  # the name of the KDC does not resolve
    _BASE + 224: Remedy(_KRB5_CONF),  # no default realm
    _BASE + 237: Remedy(_ENCRYPTION),
    _OTHER_PRINCIPAL: Remedy("Correct principal in kafka.sasl.jaas.config, or run kinit for this principal"),
}
_UNKNOWN = Remedy(
    "Check the ticket or the keytab, kafka.sasl.kerberos.service.name and krb5.conf. To trace the library, set "
    "the environment variable KRB5_TRACE to the path of a file"
)


def remedy(failure: KerberosFailure) -> Remedy:
    return _REMEDIES.get(failure.code, _UNKNOWN)


# -- the library -------------------------------------------------------------------------------------------------------

T = TypeVar("T")

_FOREVER_S = 86_400.0
"""The lifetime of a ticket if the library reports none."""


class Credentials(NamedTuple):
    """A ticket of the client (TGT), with which it requests tickets for services from the KDC."""

    handle: Any
    """The library's own object."""
    principal: str
    lifetime_s: float
    """Seconds until the ticket ends."""


class Kerberos(Protocol):
    """The calls of the Kerberos library. All may contact the KDC, and may raise KerberosFailure."""

    def credentials(self, principal: str, store: Mapping[str, str]) -> Credentials:
        """Return the ticket of `principal`; the ticket of any principal if it is "".

        `store` has the paths `ccache` (ticket cache) and `client_keytab`. If one is missing, the system's default is
        used.
        """

    def open(self, credentials: Credentials, service: str, host: str) -> SecurityContext:
        """Return a security context for the service at `host`.

        It has its first token already, so that none of its steps contacts the KDC.
        """


class GssapiLibrary:
    """The calls of the Kerberos library, by the package gssapi. Raises ConfigError if it cannot be imported."""

    def __init__(self) -> None:
        try:
            import gssapi  # noqa: PLC0415 - an extra, which most installations lack
        except (ImportError, OSError) as error:
            raise ConfigError(
                f"cannot use kafka.sasl.mechanism=GSSAPI on {platform.node()}: the package gssapi cannot be imported: "
                f"{error}. Install it for the driver and the executors: pip install 'streamgroup[kerberos]', after "
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
            shown = text or "; ".join(error.get_all_statuses(error.maj_code, True))
            raise KerberosFailure(_signed(error.min_code), shown, expired=expired) from None


class _Context:
    """A `SecurityContext` with its `first` token. `called` converts the library's exceptions to KerberosFailure."""

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


# -- tickets -----------------------------------------------------------------------------------------------------------

_NUMBERS = itertools.count(1)
"""Numbers of the caches in memory, which exist as long as the process."""
_NO_KEYTAB = "MEMORY:streamgroup-none"
"""An empty keytab. Without it the library would use the system's if the ticket cache has no ticket."""
_KEYTAB_BEGINS = (b"\x05\x01", b"\x05\x02")
_TYPED = re.compile(r"[A-Za-z]+:")


@frozen
class Ticket:
    """A ticket of the client, and when it expires. Times are seconds since 1970."""

    credentials: Credentials
    renewed_at: float
    """When the next connection gets a new one from the keytab."""
    expires_at: float


class Tickets:
    """The tickets of this process by their options. All connections of the process share a ticket. Thread-safe.

    `library()` returns the Kerberos library. It is called for the first ticket.
    """

    def __init__(self, library: Callable[[], Kerberos] = GssapiLibrary, clock: Callable[[], float] = time.time) -> None:
        self._library = library
        self._lock = threading.Lock()
        self._loaded: Kerberos | None = None
        self._renewals: Renewals[KerberosOptions, Ticket] = Renewals(clock)
        self._clock = clock

    def open(self, options: KerberosOptions, peer: str) -> tuple[SecurityContext, str]:
        """Return a security context for the broker at `peer` (`host:port`), and the principal. Waits for the KDC.

        Raises AuthenticationError or ConfigError if retrying will not help, else TransportError.
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
        """Forget the ticket from the keytab, and its tickets for brokers: the keys of the brokers may have changed."""
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
        # A new cache for each ticket: contexts that are being opened still use the old one.
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
