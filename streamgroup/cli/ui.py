"""`streamgroup ui`: a live page of the cluster and its groups."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import click

from streamgroup.cli._click import Duration, SectionedCommand, option, timeout_option
from streamgroup.cli._cluster import ClusterAddress, client_options, cluster_options
from streamgroup.errors import ConfigError
from streamgroup.options.secrets import Secret

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9405
DEFAULT_INTERVAL_S = 5
DEFAULT_TIMEOUT_MS = 10_000
_PAGE = "The page"


@click.command(
    cls=SectionedCommand,
    short_help="Serve a live page of the cluster and its groups.",
    examples={
        "streamgroup ui -b localhost:9092": "a page on this machine",
        "streamgroup ui -b broker-1:9092 --host 0.0.0.0 --token env:STREAMGROUP_UI_TOKEN": "a page for other machines, "
        "which ask for the token",
    },
)
@option(
    _PAGE,
    "--host",
    default=DEFAULT_HOST,
    show_default=True,
    metavar="HOST",
    help="Address to listen at. Another one than loopback requires --token.",
)
@option(
    _PAGE,
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    metavar="PORT",
    help="Port to listen at; 0 is any free port.",
)
@option(
    _PAGE,
    "--token",
    metavar="TOKEN",
    help="Secret that browsers and programs must send. Other users of this machine can see it, but not that of "
    "env:NAME or file:PATH.",
)
@option(
    _PAGE,
    "--name",
    "names",
    multiple=True,
    metavar="HOST",
    help="Host name by which browsers may address the page; repeatable. Addresses, localhost and the name of this "
    "machine need none.",
)
@option(
    _PAGE,
    "--interval",
    type=Duration("s", 0.5, 3600),
    default=DEFAULT_INTERVAL_S,
    show_default=True,
    metavar="SECONDS",
    help="Time between two readings of the cluster.",
)
@option(
    "Groups", "--group", "groups", multiple=True, metavar="GROUP", help="Group to show; repeatable.  [default: all]"
)
@cluster_options
@timeout_option(DEFAULT_TIMEOUT_MS, "How long one reading of the cluster may take.")
def ui(
    *,
    where: ClusterAddress,
    host: str,
    port: int,
    token: str | None,
    names: tuple[str, ...],
    interval: float,
    groups: tuple[str, ...],
    timeout: int,
) -> None:
    """Serve a page that shows the cluster, its groups, their lag and who holds which partition, live.

    The page changes nothing. It has a history from the start of this command on, in memory. Members on this machine,
    of this user, also show their batches and events. Ctrl-C ends the command.
    """
    serve_page(where, host=host, port=port, token=token, names=names, groups=groups, interval=interval, timeout=timeout)


def serve_page(
    where: ClusterAddress,
    *,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    token: str | None = None,
    names: Sequence[str] = (),
    groups: Sequence[str] = (),
    interval: float = DEFAULT_INTERVAL_S,
    timeout: int = DEFAULT_TIMEOUT_MS,
) -> None:
    """Serve the page of the cluster until Ctrl-C, and print its address. Raises ConfigError without the extra `ui`."""
    try:
        from streamgroup.ui.access import Access  # noqa: PLC0415  (of the extra `ui`)
        from streamgroup.ui.server import serve  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            f"cannot serve the page: the package {error.name} is missing. Install it with: "
            "pip install 'streamgroup[ui]'"
        ) from None
    from streamgroup.cli._ui_groups import PageDataReader  # noqa: PLC0415

    secret = None if token is None else Secret(token).reveal("--token")
    access = Access(host, secret, frozenset({*names, socket.gethostname(), socket.getfqdn()}))
    options = client_options(where, "streamgroup-ui", timeout)
    serve(
        PageDataReader(options, groups, timeout).opened,
        access,
        port=port,
        interval=interval,
        on_start=lambda url: click.echo(f"{url}  (Ctrl-C ends the page)"),
    )
