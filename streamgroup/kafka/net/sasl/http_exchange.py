"""One exchange with a token endpoint over HTTP, with one deadline.

It uses Python's own client, so that tasks need no further package for one request. The timeout of that client is for
each wait, so an endpoint that sends a byte now and then would hold up the connections of the process forever.
"""

from __future__ import annotations

import functools
import http.client
import io
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from streamgroup.errors import AuthenticationError, TransportError
from streamgroup.kafka.net.resolve import HostLookup
from streamgroup.kafka.net.tls.refusals import OTHER_HOST, names_in_certificate

_HTTPS_PORT = 443
_LEAST_S = 0.001
"""A timeout of 0 would mean not to wait at all."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The response of a server with any status. `location` is the target of a redirect."""

    status: int
    body: bytes
    location: str | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """The next steps in errors."""

    reach: str
    """If the server cannot be reached."""
    trust: str
    """If its certificate is not trusted."""
    host_name: str
    """If its certificate is for another host."""


def exchange(
    request: urllib.request.Request,
    what: str,
    advice: Advice,
    *,
    context: Callable[[], ssl.SSLContext],
    timeout: float,
    most_bytes: int,
) -> HttpResponse:
    """Send a request and return the response. Redirects are not followed: another host must not get the credentials.

    Errors begin with `what`. `context` is for https. The exchange takes at most `timeout` seconds.
    Raises AuthenticationError for a certificate that is not trusted, TransportError otherwise.
    """
    until = time.monotonic() + timeout
    # Without the handlers that `build_opener` adds every status is an answer, and no redirect is followed.
    opener = urllib.request.OpenerDirector()
    for handler in (urllib.request.ProxyHandler(), urllib.request.UnknownHandler(), _Within(until, context)):
        opener.add_handler(handler)
    try:
        with opener.open(request, timeout=timeout) as response:
            return HttpResponse(response.status, _body(response, most_bytes), response.headers.get("Location"))
    except OSError as error:  # URLError and TimeoutError are among them
        cause = error if isinstance(error, ssl.SSLCertVerificationError) else getattr(error, "reason", error)
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise _untrusted(what, advice, cause, request.full_url, context=context, until=until) from None
        if isinstance(cause, TimeoutError):
            cause = f"no complete answer within {timeout:g} s"
        raise TransportError(f"{what}: {cause}. {advice.reach}") from None
    except http.client.HTTPException as error:  # its text is from the server
        raise TransportError(
            f"{what}: the answer is not HTTP or is incomplete ({type(error).__name__}). Check the URL's scheme and port"
        ) from None


def printable(text: str) -> str:
    """Return the text of a server without control characters, on one line."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def _body(response: http.client.HTTPResponse, most_bytes: int) -> bytes:
    """Return the body of an answer. Raises OSError if it is too long."""
    body = b""
    while more := response.read1(most_bytes):
        body += more
        if len(body) > most_bytes:
            raise OSError(f"the answer has more than {most_bytes} bytes")
    return body


class _Within(urllib.request.AbstractHTTPHandler):
    """Opens connections on which every wait ends by `until`, in monotonic seconds."""

    http_request = https_request = urllib.request.AbstractHTTPHandler.do_request_

    def __init__(self, until: float, context: Callable[[], ssl.SSLContext]) -> None:
        super().__init__()
        self._until = until
        self._tls = context

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(functools.partial(self._bounded, http.client.HTTPConnection), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(functools.partial(self._bounded, http.client.HTTPSConnection), req, context=self._tls())

    def _bounded(self, kind: Callable[..., Any], host: str, **settings: Any) -> http.client.HTTPConnection:
        """Return a connection to `host` that is not open yet."""
        connection = kind(host, **settings)
        # http.client keeps this function in an attribute so that callers can replace it.
        connection._create_connection = lambda address, *_: _connected(address, self._until)
        connection.response_class = lambda opened, *arguments, **named: http.client.HTTPResponse(
            cast("socket.socket", _BoundedReader(opened, self._until)), *arguments, **named
        )
        return cast("http.client.HTTPConnection", connection)


def _connected(address: tuple[str, int], until: float) -> socket.socket:
    """Return a socket that is connected to one of the addresses of a host. Raises OSError."""
    lookup = HostLookup(*address)
    lookup.wait(_left(until))
    if not lookup.done:
        raise TimeoutError
    failure: OSError = OSError("its name has no address")
    found = lookup.addresses()
    for tried, each in enumerate(found):
        opened = socket.socket(each.family, socket.SOCK_STREAM)
        try:
            opened.settimeout(_left(until) / (len(found) - tried))
            opened.connect(each.sockaddr)
            opened.settimeout(_left(until))  # for the handshake of TLS and the request
        except OSError as error:
            opened.close()
            failure = error
        else:
            return opened
    raise failure


class _BoundedReader(io.RawIOBase):
    """The part of a socket that `HTTPResponse` uses: its file. Each read has the time that is left.

    The socket is open until the file is closed, as with a socket's own file.
    """

    def __init__(self, opened: socket.socket, until: float) -> None:
        self._opened, self._until = opened, until
        self._raw = opened.makefile("rb", buffering=0)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._opened.settimeout(_left(self._until))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _left(until: float) -> float:
    """Return the seconds until `until`. Raises TimeoutError if there are none."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _untrusted(
    what: str,
    advice: Advice,
    error: ssl.SSLCertVerificationError,
    url: str,
    *,
    context: Callable[[], ssl.SSLContext],
    until: float,
) -> AuthenticationError:
    """Return the error for a certificate that is not trusted, or is for another host."""
    if error.verify_code not in OTHER_HOST:
        return AuthenticationError(
            f"{what}: its certificate is not trusted: {error.verify_message.rstrip('.')}. {advice.trust}"
        )
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    seconds = max(_LEAST_S, until - time.monotonic())
    names = ", ".join(names_in_certificate(host, parts.port or _HTTPS_PORT, context(), seconds))
    those = f", but for {printable(names)}" if names else ""
    return AuthenticationError(
        f"{what}: its certificate is not valid for the host name {host!r}{those}. {advice.host_name}"
    )
