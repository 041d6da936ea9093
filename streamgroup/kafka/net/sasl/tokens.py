"""Gets bearer tokens for OAUTHBEARER: from a token endpoint, a file or a function.

All connections of the process use one token, until four fifths of its lifetime have passed, as in Java's login. A token
from a file is read for each connection: the program that writes the file renews it.

A request to an endpoint has one deadline for the whole exchange. It uses Python's own HTTP client, so that tasks need
no further package. The timeout of that client is for each wait: an endpoint that sends a byte now and then would hold
up the connections of the process forever.
"""

from __future__ import annotations

import base64
import binascii
import functools
import http.client
import importlib
import io
import json
import math
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from streamgroup.errors import AuthenticationError, ConfigError, StreamGroupError, TransportError
from streamgroup.frozen import frozen
from streamgroup.kafka.net.resolve import HostLookup
from streamgroup.kafka.net.sasl.renewals import RENEWED_AFTER, Renewals
from streamgroup.kafka.net.tls.refusals import OTHER_HOST, names_in_certificate
from streamgroup.options.sasl import OAuthOptions
from streamgroup.options.secrets import HIDDEN

_HTTPS_PORT = 443
_LEAST_S = 0.001
"""A timeout of 0 would mean not to wait at all."""


# --- one HTTP exchange with a deadline --------------------------------------------------------------------------------


@frozen
class HttpResponse:
    """The response of an HTTP server, with any status. `location` is the target of a redirect."""

    status: int
    body: bytes
    location: str | None = None


@frozen
class Advice:
    """The next steps in the errors of `exchange`, by cause."""

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
    """Send an HTTP request and return the response, within `timeout` seconds.

    Redirects are not followed: another host must not get the credentials. Error messages begin with `what`. `context`
    is for https. Raises AuthenticationError if the server's certificate is not trusted, else TransportError.
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
    """Return a server's text on one line, without control characters."""
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
    """Opens HTTP connections on which every wait ends by `until`, in monotonic seconds."""

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
    """The file of a socket, as `HTTPResponse` reads it. Each read may take the time that is left until the deadline.

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


TIMEOUT_S = 10.0
"""Seconds that a token endpoint may take, from the look-up of its name to the end of its answer."""
_LATEST_S = 1e11
_MOST_BYTES = 1 << 20
_LONGEST_URL = 300
_URL = "kafka.sasl.oauthbearer.token.endpoint.url"
_ADVICE = Advice(
    reach="Check that this machine reaches the token endpoint",
    trust="Add the endpoint's authority to the system's trusted certificates or to kafka.ssl.truststore.*",
    host_name=f"Name the endpoint in {_URL} as its certificate does, or add the host name to the certificate "
    "(subjectAltName)",
)
_OFTEN_TRANSIENT = (408, 429, 500, 502, 503, 504)
"""HTTP statuses after which a retry may succeed."""


# --- tokens ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class BearerToken:
    """A bearer token, and when it expires. Times are seconds since 1970."""

    value: str
    renewed_at: float
    """When the next connection gets a new one."""
    expires_at: float

    def __repr__(self) -> str:
        return HIDDEN


class Tokens:
    """The tokens of this process by their options. All connections of the process share a token. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._renewals: Renewals[OAuthOptions, BearerToken] = Renewals(clock)

    def get(self, options: OAuthOptions, context: Callable[[], ssl.SSLContext]) -> str:
        """Return a token. Waits for the endpoint or the function if necessary. `context` is for an endpoint with https.

        Raises AuthenticationError or ConfigError if retrying will not help, else TransportError.
        """
        return self._renewals.get(options, lambda now: new_token(options, now, context)).value

    def forget(self, options: OAuthOptions) -> None:
        """Forget a token that a broker has rejected, so that the next connection gets a new one."""
        self._renewals.forget(options)


TOKENS = Tokens()
"""The tokens of this process."""


def new_token(options: OAuthOptions, now: float, context: Callable[[], ssl.SSLContext]) -> BearerToken:
    """Return a new token. `now` is in seconds since 1970. Raises as `Tokens.get`."""
    if options.provider:
        return _provided(options.provider, now)
    if options.unsecured_claims:
        value = unsecured_token(dict(options.unsecured_claims), now, options.unsecured_lifetime_s)
        return _token(value, now, now + options.unsecured_lifetime_s)
    parts = urllib.parse.urlsplit(options.token_endpoint_url)
    if parts.scheme == "file":
        return BearerToken(_read(Path(urllib.request.url2pathname(parts.path))), renewed_at=now, expires_at=now)
    return _granted(options, parts, now, context)


def _token(value: str, now: float, end: float) -> BearerToken:
    return BearerToken(value, now + RENEWED_AFTER * max(0.0, end - now), end)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(
            f"cannot read the token for SASL OAUTHBEARER: file {path}: {cause}. Correct "
            "kafka.sasl.oauthbearer.token.endpoint.url, or the permissions of the file, on each machine that connects"
        ) from None


def _provided(provider: str, now: float) -> BearerToken:
    """Return the token of `module:function`: a text, or a text and its end in milliseconds since 1970."""
    module, _, name = provider.partition(":")
    what = f"cannot get a token for SASL OAUTHBEARER from {provider}"
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{what}: {error}. Install its package for the driver and the executors, or correct sasl.tokenProvider"
        ) from None
    try:
        found: Any = function()
    except StreamGroupError:
        raise
    except Exception as error:
        # Its text is left out: it may contain a key of the function.
        raise TransportError(
            f"{what}: the function raised {type(error).__name__}. Call it in a Python shell to see why"
        ) from None
    value, end_ms = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
    if not isinstance(value, str) or not (end_ms is None or isinstance(end_ms, int | float)):
        raise ConfigError(f"{what}: the function must return a text, or a text and milliseconds since 1970")
    end = _expiry_of(value, now) if end_ms is None else _bounded(end_ms // 1000)
    return _token(value, now, end)


def _granted(
    options: OAuthOptions, parts: urllib.parse.SplitResult, now: float, context: Callable[[], ssl.SSLContext]
) -> BearerToken:
    """Return the token that an endpoint grants for the credentials of the client (RFC 6749, section 4.4)."""
    where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    what = f"cannot get a token for SASL OAUTHBEARER from {where}"
    form = {"grant_type": "client_credentials"} | ({"scope": options.scope} if options.scope else {})
    request = urllib.request.Request(
        options.token_endpoint_url,
        urllib.parse.urlencode(form).encode(),
        {
            "Accept": "application/json",
            "Authorization": f"Basic {_basic(options)}",
            "Content-Type": "application/x-www-form-urlencoded",
        },
    )
    answer = exchange(request, what, _ADVICE, context=context, timeout=TIMEOUT_S, most_bytes=_MOST_BYTES)
    if answer.status < 300:
        return _token_in(answer.body, what, now)
    cause = f"{what}: HTTP status {answer.status}{_without_secrets(_oauth_error(answer.body), options)}"
    if answer.status < 400 and answer.location:
        raise _redirected(cause, answer.location, options)
    if answer.status in _OFTEN_TRANSIENT:
        raise TransportError(f"{cause}. A retry may succeed")
    raise AuthenticationError(f"{cause}. Check the client id, the client secret and the scope")


def _without_secrets(text: str, options: OAuthOptions) -> str:
    """Return the text of an endpoint on one line, without the credentials that it may repeat."""
    secret = "" if options.client_secret is None else options.client_secret.reveal("clientSecret")
    for hidden in (_basic(options), secret, urllib.parse.quote_plus(secret), urllib.parse.quote(secret, safe="")):
        text = text.replace(hidden, HIDDEN) if hidden else text
    return printable(text)


def _bounded(seconds: float) -> float:
    """Return the time of a token within the range of clocks; NaN is in the past. JSON has larger numbers."""
    return float(max(-_LATEST_S, min(seconds, _LATEST_S)))


def _basic(options: OAuthOptions) -> str:
    """Return the client's credentials for HTTP. As in Java, an option encodes them as RFC 6749 demands."""
    secret = "" if options.client_secret is None else options.client_secret.reveal("clientSecret")
    pair = (options.client_id, secret)
    if options.header_urlencode:
        pair = (urllib.parse.quote_plus(pair[0]), urllib.parse.quote_plus(pair[1]))
    return base64.b64encode(":".join(pair).encode()).decode()


def _redirected(cause: str, location: str, options: OAuthOptions) -> AuthenticationError:
    """Return the error of an endpoint that redirects to `location`, without credentials and parameters in that."""
    try:
        to = urllib.parse.urlsplit(urllib.parse.urljoin(options.token_endpoint_url, location))
        target = f"{to.scheme}://{to.netloc.rpartition('@')[2]}{to.path}"
        host = to.hostname or ""
    except ValueError:  # such as http://[
        host = ""
    if not host:
        return AuthenticationError(f"{cause}, a redirect to an invalid address. Correct {_URL}")
    shown, host = (_without_secrets(text, options)[:_LONGEST_URL] for text in (target, host))
    return AuthenticationError(
        f"{cause}, a redirect to {shown}. It is not followed, because the client secret would go to host {host}. If "
        f"that is the token endpoint, set {_URL} to its address"
    )


def _oauth_error(body: bytes) -> str:
    """Return the fields of an error answer (RFC 6749, section 5.2); empty if it is something else."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(answer, dict):
        return ""
    shown = [str(answer[field])[:200] for field in ("error", "error_description") if answer.get(field)]
    return f" ({': '.join(shown)})" if shown else ""


def _token_in(body: bytes, what: str, now: float) -> BearerToken:
    try:
        answer = json.loads(body)
        value = answer["access_token"]
    except (ValueError, RecursionError, KeyError, TypeError):
        value = None
    if not isinstance(value, str) or not value:
        raise AuthenticationError(f"{what}: its answer has no access_token. Check that the URL is a token endpoint's")
    lifetime = answer.get("expires_in")
    end = now + _bounded(lifetime) if isinstance(lifetime, int | float) and not isinstance(lifetime, bool) else None
    return _token(value, now, _expiry_of(value, now) if end is None else end)


def _expiry_of(token: str, now: float) -> float:
    """Return the time `exp` of a JWT in seconds since 1970; `now` if the token has none."""
    end = end_of(token)
    return now if end is None else end


def end_of(token: str) -> float | None:
    """Return the time in the claim `exp` of a JWT (seconds since 1970); None for another token."""
    try:
        end = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))["exp"]
        if not isinstance(end, int | float) or isinstance(end, bool):
            return None
        seconds = float(end)
    except (ValueError, RecursionError, IndexError, KeyError, TypeError, OverflowError, binascii.Error):
        return None
    return seconds if math.isfinite(seconds) else None


def described_end(token: str) -> str:
    """Return the end of a JWT for error messages, such as `2026-01-31 12:00:00 UTC`; "" if it has none."""
    end = end_of(token)
    try:
        return "" if end is None else f"{datetime.fromtimestamp(end, UTC):%F %T} UTC"
    except (OverflowError, ValueError, OSError):  # a year that the calendar does not have
        return ""


def unsecured_token(claims: Mapping[str, str], now_s: float, lifetime_s: int) -> str:
    """Return an unsigned JWT with these claims, issued at `now_s` (seconds since 1970).

    It expires after `lifetime_s` seconds.
    """
    times = {"exp": int(now_s) + lifetime_s, "iat": int(now_s)}
    return f"{_part({'alg': 'none'})}.{_part({**claims, **times})}."


def _part(values: Mapping[str, str | int]) -> str:
    return base64.urlsafe_b64encode(json.dumps(values, separators=(",", ":")).encode()).decode().rstrip("=")
