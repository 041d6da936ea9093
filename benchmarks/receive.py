"""Bytes per second to receive large frames from a local server, in plaintext and over TLS.

    python -m benchmarks.receive [--megabytes 2048] [--frame 4194304] [--repeats 3]

The server is a process of its own. "per CPU s" counts the client's CPU time alone, which includes the kernel's copy
and, with TLS, the decryption. The best of the repeats counts: slower ones measure other load on the machine.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import socket
import ssl
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import click

from streamgroup.kafka.net.frames import FrameReader
from streamgroup.kafka.net.tls.transport import TlsTransport
from streamgroup.kafka.net.transport import PlainTransport, Transport
from streamgroup.options.secrets import Secret
from streamgroup.options.tls import TlsOptions
from tests.certificates import Authority, server_context

MODES = {"plaintext": None, "TLS 1.2": "TLSv1.2", "TLS 1.3": "TLSv1.3"}


def serve(port: Connection, context: ssl.SSLContext | None, frame: int, count: int) -> None:
    """Send `count` frames to one client. Writes its port into the pipe first."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port.send(listener.getsockname()[1])
        connected, _ = listener.accept()
    if context is not None:
        connected = context.wrap_socket(connected, server_side=True)
    data = frame.to_bytes(4, "big") + os.urandom(frame)
    for _ in range(count):
        connected.sendall(data)
    with contextlib.suppress(OSError):  # until the client closes the connection
        connected.recv(1)


def wait(transport: Transport) -> None:
    """Wait until the transport can go on."""
    if not transport.pending:
        poll = select.poll()
        poll.register(transport.fileno, transport.interest(has_unsent=False))
        poll.poll()


def receive(transport: Transport, frame: int, count: int) -> None:
    """Receive `count` frames, as a connection does."""
    reader = FrameReader(frame)
    while count:
        space = reader.space()
        got = transport.receive_into(space)
        if got is None:
            wait(transport)
            continue
        assert got, "the server has gone"
        count -= len(reader.received(got))


def measure(newest: str | None, frame: int, count: int, directory: Path) -> tuple[float, float]:
    """Return the seconds of wall clock and of the client's CPU to receive `count` frames."""
    authority = Authority()
    context = None if newest is None else server_context(authority.issue(), directory, newest=newest)
    ours, theirs = multiprocessing.Pipe()
    # A context cannot be pickled, so the server is a fork.
    server = multiprocessing.get_context("fork").Process(target=serve, args=(theirs, context, frame, count))
    server.start()
    connected = socket.create_connection(("127.0.0.1", ours.recv()))
    connected.setblocking(False)
    transport: Transport = PlainTransport(connected)
    if newest is not None:
        options = TlsOptions(truststore_type="PEM", truststore_certificates=Secret(authority.pem))
        transport = TlsTransport(connected, "127.0.0.1", "127.0.0.1", options)
    while not transport.shake_hands():
        wait(transport)
    began, began_cpu = time.perf_counter(), time.process_time()
    receive(transport, frame, count)
    took = time.perf_counter() - began, time.process_time() - began_cpu
    transport.close(reset=True)
    server.join()
    return took


@click.command(help=__doc__)
@click.option("--megabytes", default=2048, show_default=True)
@click.option("--frame", default=4 * 1024 * 1024, show_default=True, help="Bytes of one frame.")
@click.option("--repeats", default=3, show_default=True)
def main(megabytes: int, frame: int, repeats: int) -> None:
    count = megabytes * 1024 * 1024 // frame
    with tempfile.TemporaryDirectory() as directory:
        for name, newest in MODES.items():
            runs = [measure(newest, frame, count, Path(directory)) for _ in range(repeats)]
            wall, cpu = (min(run[which] for run in runs) for which in (0, 1))
            size = count * frame / 1e6
            click.echo(f"{name:10} {size / wall:6.0f} MB/s {size / cpu:6.0f} MB per CPU s")


if __name__ == "__main__":
    main()
