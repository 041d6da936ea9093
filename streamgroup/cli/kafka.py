"""`streamgroup kafka`: run a real Kafka on this machine, for experiments."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streamgroup.cli._click import OUTPUT, SectionedCommand, flag, json_option, option
from streamgroup.testing.releases import NEWEST, RELEASES

if TYPE_CHECKING:
    from streamgroup.testing.background import BackgroundClient, BackgroundKafka

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_DEFAULT_MECHANISM = "SCRAM-SHA-512"
_FIRST_WITH_GROUPS = (0, 9)


@click.group(short_help="Run a real Kafka on this machine in the background.")
def kafka() -> None:
    """Run a real Kafka on this machine in the background, for experiments and tests."""


def _pairs(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    for value in values:
        if "=" not in value:
            raise click.BadParameter(f"invalid setting {value!r}: expected key=value")
    return dict(value.split("=", 1) for value in values)


_BROKERS = "Brokers"
_ZOOKEEPER = "ZooKeeper, for versions before 3"
_SECURITY = "Security"


@kafka.command(
    cls=SectionedCommand,
    examples={
        "streamgroup kafka up": "one broker of the newest version",
        "streamgroup kafka up --version 0.8.2.2 --brokers 3": "an old cluster with its ZooKeeper",
        "streamgroup kafka up --ui": "a broker, and the live page of its groups",
        "streamgroup kafka up --secure --mechanism PLAIN": "a broker with TLS and SASL",
    },
)
@option(
    _BROKERS,
    "--version",
    type=click.Choice(list(RELEASES)),
    default=NEWEST,
    show_default=True,
    help="Version of Kafka.",
)
@option(
    _BROKERS,
    "--brokers",
    type=click.IntRange(1, 9),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of brokers.",
)
@option(
    _BROKERS,
    "--port",
    type=click.IntRange(1024, 65535),
    metavar="PORT",
    help="Port of the first broker; the others follow.  [default: free ports]",
)
@option(
    _BROKERS,
    "--config",
    multiple=True,
    callback=_pairs,
    metavar="KEY=VALUE",
    help="Setting of the brokers; repeatable.",
)
@option(
    _BROKERS,
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path, resolve_path=True),
    metavar="DIRECTORY",
    help="Directory that keeps the data. Without it `streamgroup kafka down` removes them.",
)
@option(
    _ZOOKEEPER,
    "--zookeeper",
    metavar="HOST:PORT[/CHROOT]",
    help="A ZooKeeper that runs. Without it the command starts one.",
)
@option(
    _ZOOKEEPER,
    "--zookeeper-port",
    type=click.IntRange(1024, 65535),
    metavar="PORT",
    help="Port of the ZooKeeper that the command starts.  [default: a free port]",
)
@flag(_SECURITY, "--secure", help="Start brokers with TLS and SASL, and create a user `client`.")
@option(
    _SECURITY,
    "--mechanism",
    "mechanisms",
    type=click.Choice(_MECHANISMS),
    multiple=True,
    help=f"SASL mechanism of --secure; repeatable.  [default: {_DEFAULT_MECHANISM}]",
)
@flag(
    OUTPUT,
    "--ui",
    help="Then serve the live page of the cluster, as `streamgroup ui` does, until Ctrl-C. Kafka runs on.",
)
@json_option("Print the Kafka that runs as JSON, as `streamgroup kafka status --json` does.")
def up(
    *,
    version: str,
    brokers: int,
    port: int | None,
    config: dict[str, str],
    data_dir: Path | None,
    zookeeper: str | None,
    zookeeper_port: int | None,
    secure: bool,
    mechanisms: tuple[str, ...],
    ui: bool,
    as_json: bool,
) -> None:
    """Start Kafka in the background and print its bootstrap servers.

    For versions before 3 the command also prints zookeeper.connect. Version 0.7 is an emulated broker: clients find it
    only through ZooKeeper. With --secure the command also prints the options of a client, with its password. The first
    start of a version downloads its jars.
    """
    if mechanisms and not secure:
        raise click.UsageError("--mechanism needs --secure")
    if ui and as_json:
        raise click.UsageError("--ui and --json exclude each other: the page is served until Ctrl-C")
    from streamgroup.testing import background  # noqa: PLC0415

    known, ran_already = background.up(
        version,
        brokers,
        config,
        port,
        data_dir,
        zookeeper=zookeeper,
        zookeeper_port=zookeeper_port,
        mechanisms=tuple(dict.fromkeys(mechanisms)) or ((_DEFAULT_MECHANISM,) if secure else ()),
    )
    if ran_already:
        click.echo(f"Kafka {known.version} runs already, with its earlier options", err=True)
    if as_json:
        click.echo(_document(known))
        return
    for line in _addresses(known):
        click.echo(line)
    for client in known.clients:
        click.echo(options_text(client))
    if ui:
        _serve_page(known)


def _serve_page(known: BackgroundKafka) -> None:
    """Serve the live page of a Kafka. Groups of brokers before 0.9 are in ZooKeeper."""
    from streamgroup.cli._cluster import ClusterAddress  # noqa: PLC0415
    from streamgroup.cli.ui import serve_page  # noqa: PLC0415

    in_zookeeper = RELEASES[known.version].number < _FIRST_WITH_GROUPS
    serve_page(
        ClusterAddress(
            bootstrap_server=None if in_zookeeper else known.bootstrap_servers,
            zookeeper=known.zookeeper_connect if in_zookeeper else None,
            command_config=Path(known.clients[0].properties) if known.clients else None,
        )
    )


def _document(known: BackgroundKafka | None) -> str:
    """Return the Kafka in the background as JSON."""
    nodes = [{"name": n.name, "pid": n.pid, "alive": n.alive} for n in known.nodes] if known else []
    running = known is not None and known.running
    return json.dumps({**(known.as_json() if known else {}), "running": running, "nodes": nodes})


def _addresses(known: BackgroundKafka) -> Iterator[str]:
    """Yield the addresses that a client needs."""
    if not RELEASES[known.version].emulated:
        yield known.bootstrap_servers
    if known.zookeeper_connect:
        yield f"zookeeper.connect={known.zookeeper_connect}"


@kafka.command(cls=SectionedCommand)
@json_option("Print the Kafka that was stopped as JSON, as `streamgroup kafka status --json` does.")
def down(as_json: bool) -> None:
    """Stop Kafka, and remove its data unless they are in --data-dir."""
    from streamgroup.testing import background  # noqa: PLC0415

    known = background.down()
    if as_json:
        click.echo(_document(known))
    elif known is None:
        click.echo("no Kafka runs in the background")
    else:
        click.echo(f"Kafka {known.version} at {', '.join(_addresses(known))} has stopped")


@kafka.command(cls=SectionedCommand)
@json_option("Print addresses, data directory and processes as JSON.")
def status(as_json: bool) -> None:
    """Show the running Kafka.

    The exit code is 3 if no Kafka runs, as with `systemctl status`.
    """
    from streamgroup.testing import background  # noqa: PLC0415

    known = background.load()
    running = known is not None and known.running
    if as_json:
        click.echo(_document(known))
    elif known is None:
        click.echo("no Kafka runs in the background. Start one: streamgroup kafka up")
    else:
        click.echo(f"Kafka {known.version} at {', '.join(_addresses(known))}, data in {known.data_dir}")
        for client in known.clients:
            click.echo(f"  {client.mechanism}  {client.properties}")
        for node in known.nodes:
            click.echo(f"  {node.name}  pid {node.pid}  {'alive' if node.alive else 'dead'}")
    if not running:
        click.get_current_context().exit(3)


def options_text(client: BackgroundClient) -> str:
    """Return the options in Python and in TOML, and Java's properties, which are read from their file."""
    # A string of JSON is also one of Python and TOML. TOML refuses JSON's escape of a character beyond U+FFFF, which is
    # a pair of surrogates, so such characters stay as they are.
    pairs = [(name, json.dumps(value, ensure_ascii=False)) for name, value in client.options.items()]
    return "\n".join(
        (
            f"\n# {client.mechanism} in Python: .options(**options)",
            "options = {",
            *(f"    {json.dumps(name)}: {value}," for name, value in pairs),
            "}",
            f"\n# {client.mechanism} in TOML: conf/ingest.toml",
            "[source]",
            *(f"{name} = {value}" for name, value in pairs),
            f"\n# {client.mechanism} for streamgroup's commands and Java's tools: --command-config {client.properties}",
            *(f"# export KAFKA_OPTS={flag}" for flag in client.jvm_flags),
            Path(client.properties).read_text().rstrip("\n"),
        )
    )
