"""Servers and transports for the tests of TLS."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streamgroup.kafka.net.tls.contexts import Contexts
from streamgroup.kafka.net.tls.transport import TlsTransport
from streamgroup.options.secrets import Secret
from streamgroup.options.tls import TlsOptions
from streamgroup.testing import Authority
from tests.certificates import ca_text
from tests.waiting import TIMEOUT_S


def trusting(authority: Authority, **others: object) -> TlsOptions:
    """Return options that trust `authority` alone."""
    certificates = Secret(ca_text(authority))
    return TlsOptions(truststore_type="PEM", truststore_certificates=certificates, **others)  # type: ignore[arg-type]


@contextmanager
def conversation(
    options: TlsOptions, context: ssl.SSLContext, host: str = "localhost"
) -> Iterator[tuple[TlsTransport, ssl.SSLSocket]]:
    """Yield a transport whose handshake is done, and the server's blocking end. Close both, if the block has not."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(TIMEOUT_S)
    transport = TlsTransport(ours, f"{host}:9093", host, options, Contexts())
    served: list[ssl.SSLSocket] = []

    def serve() -> None:
        with contextlib.suppress(OSError):  # the test looks at the client's error
            served.append(context.wrap_socket(theirs, server_side=True))

    def end() -> None:
        if transport.fileno >= 0:
            transport.close(reset=True)

    with contextlib.ExitStack() as closing:
        closing.callback(end)
        accept = threading.Thread(target=serve)
        accept.start()
        closing.callback(accept.join)
        until(transport, lambda: transport.shake_hands(0.0))
        accept.join()
        closing.callback(served[0].close)
        yield transport, served[0]


def shake(options: TlsOptions, context: ssl.SSLContext, host: str = "localhost") -> None:
    """Do a handshake, and close the connection."""
    with conversation(options, context, host):
        pass


def until(transport: TlsTransport, condition: Callable[[], object], has_unsent: bool = False) -> None:
    """Call `condition` until it is true, each time that the events come in which the transport is interested."""
    poll = select.poll()
    while not condition():
        poll.register(transport.fileno, transport.interest(has_unsent))
        assert transport.pending or poll.poll(TIMEOUT_S * 1000), "nothing has come"
