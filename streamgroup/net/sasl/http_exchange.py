"""One exchange with a token endpoint over HTTP.

Python's own client does: for one request tasks need no further package.
"""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamgroup.errors import AuthenticationError, TransportError
from streamgroup.net.tls.certificate_names import names_in_certificate
from streamgroup.net.tls.refusals import OTHER_HOST

_HTTPS_PORT = 443


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The response of a server, whatever its status. `location` is where a redirect points."""

    status: int
    body: bytes
    location: str | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """The next steps that errors name."""

    reach: str
    """Where the server cannot be reached."""
    trust: str
    """Where nobody trusts its certificate."""
    host_name: str
    """Where its certificate is for another host."""


def exchange(
    request: urllib.request.Request,
    what: str,
    advice: Advice,
    *,
    context: Callable[[], ssl.SSLContext],
    timeout: float,
    most_bytes: int,
) -> HttpResponse:
    """Send a request and return the answer. Redirects are not followed: another host must not get the credentials.

    `what` begins the errors, and `context` is for https. The server has `timeout` seconds to connect, to begin its
    answer, and to end it. Raises AuthenticationError for a certificate that is not trusted, TransportError otherwise.
    """
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    if urllib.parse.urlsplit(request.full_url).scheme == "https":
        handlers.append(urllib.request.HTTPSHandler(context=context()))
    try:
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=timeout) as response:
                return HttpResponse(response.status, _body(response, timeout, most_bytes))
        except urllib.error.HTTPError as error:
            with error:
                return HttpResponse(error.code, error.read(most_bytes), error.headers.get("Location"))
    except OSError as error:  # URLError and TimeoutError are among them
        cause = error if isinstance(error, ssl.SSLCertVerificationError) else getattr(error, "reason", error)
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise _untrusted(what, advice, cause, request.full_url, context=context, timeout=timeout) from None
        raise TransportError(f"{what}: {cause}. {advice.reach}") from None
    except http.client.HTTPException as error:  # its text is what the server sent
        raise TransportError(
            f"{what}: the answer is not HTTP or is not whole ({type(error).__name__}). Check the URL's scheme and port"
        ) from None


def printable(text: str) -> str:
    """Return the text of a server on one line."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def _body(response: http.client.HTTPResponse, timeout: float, most_bytes: int) -> bytes:
    """Return the body of an answer. Raises TimeoutError if it is too long or does not end in time."""
    until = time.monotonic() + timeout
    body = b""
    while more := response.read1(most_bytes):
        body += more
        if len(body) > most_bytes or time.monotonic() > until:
            raise TimeoutError(f"the answer has not ended within {timeout:.0f} s and {most_bytes} bytes")
    return body


def _untrusted(
    what: str,
    advice: Advice,
    error: ssl.SSLCertVerificationError,
    url: str,
    *,
    context: Callable[[], ssl.SSLContext],
    timeout: float,
) -> AuthenticationError:
    """Return the error of a server whose certificate is not trusted, or is for another host."""
    if error.verify_code not in OTHER_HOST:
        return AuthenticationError(
            f"{what}: its certificate is not trusted: {error.verify_message.rstrip('.')}. {advice.trust}"
        )
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    names = ", ".join(names_in_certificate(host, parts.port or _HTTPS_PORT, context(), timeout))
    those = f", but for {printable(names)}" if names else ""
    return AuthenticationError(
        f"{what}: its certificate is not valid for the host name {host!r}{those}. {advice.host_name}"
    )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Lets no redirect be followed. Python itself also raises for invalid addresses."""

    def http_error_302(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any) -> None:
        return None

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302
