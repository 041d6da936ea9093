"""The Kerberos library of the machine, by the package gssapi: tickets, and security contexts with brokers.

Its calls may take half a minute if no KDC answers. They do not hold Python's lock meanwhile.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from streamgroup.auth.gssapi import SecurityContext
from streamgroup.auth.kerberos_errors import KerberosFailure
from streamgroup.errors import ConfigError

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
