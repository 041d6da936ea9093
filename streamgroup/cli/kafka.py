"""`streamgroup kafka`: a real Kafka on this machine, for trying things out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streamgroup.testing.releases import DEFAULT_VERSION, RELEASES

if TYPE_CHECKING:
    from streamgroup.testing.background import BackgroundKafka


@click.group()
def kafka() -> None:
    """A real Kafka on this machine, in the background."""


def _pairs(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    for value in values:
        if "=" not in value:
            raise click.BadParameter(f"{value!r} is not of the form key=value")
    return dict(value.split("=", 1) for value in values)


@kafka.command()
@click.option("--version", type=click.Choice(list(RELEASES)), default=DEFAULT_VERSION, show_default=True)
@click.option("--brokers", type=click.IntRange(1, 9), default=1, show_default=True)
@click.option(
    "--port", type=click.IntRange(1024, 65535), help="Of the first broker; the others follow. [default: free]"
)
@click.option("--config", multiple=True, callback=_pairs, metavar="KEY=VALUE", help="Of the brokers; repeatable.")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path, resolve_path=True),
    help="Keep the data here; without it `down` removes them.",
)
@click.option(
    "--zookeeper", metavar="HOST:PORT/CHROOT", help="Of versions before 3; without it one is started with the brokers."
)
@click.option("--zookeeper-port", type=click.IntRange(1024, 65535), help="Of the one that is started. [default: free]")
def up(
    *,
    version: str,
    brokers: int,
    port: int | None,
    config: dict[str, str],
    data_dir: Path | None,
    zookeeper: str | None,
    zookeeper_port: int | None,
) -> None:
    """Start it and print its bootstrap servers; of versions before 3 its zookeeper.connect, too.

    Version 0.7 is an emulated broker: consumers find its brokers in ZooKeeper alone.
    """
    from streamgroup.testing import background  # noqa: PLC0415

    known, ran_already = background.up(
        version, brokers, config, port, data_dir, zookeeper=zookeeper, zookeeper_port=zookeeper_port
    )
    if ran_already:
        click.echo(f"Kafka {known.version} runs already; its options were left as they are", err=True)
    for line in _ways_in(known):
        click.echo(line)


def _ways_in(known: BackgroundKafka) -> Iterator[str]:
    """What a client is to be given."""
    if not RELEASES[known.version].emulated:
        yield known.bootstrap_servers
    if known.zookeeper_connect:
        yield f"zookeeper.connect={known.zookeeper_connect}"


@kafka.command()
def down() -> None:
    """End it; remove its data unless they lie in a --data-dir."""
    from streamgroup.testing import background  # noqa: PLC0415

    known = background.down()
    if known is None:
        click.echo("no Kafka runs in the background")
    else:
        click.echo(f"Kafka {known.version} at {', '.join(_ways_in(known))} has ended")


@kafka.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def status(as_json: bool) -> None:
    """Show what runs; exit code 3 where nothing does, as `systemctl status`."""
    from streamgroup.testing import background  # noqa: PLC0415

    known = background.load()
    running = known is not None and known.running
    if as_json:
        nodes = [{"name": n.name, "pid": n.pid, "alive": n.alive} for n in known.nodes] if known else []
        click.echo(json.dumps({**(known.as_json() if known else {}), "running": running, "nodes": nodes}))
    elif known is None:
        click.echo("no Kafka runs in the background; start one: streamgroup kafka up")
    else:
        click.echo(f"Kafka {known.version} at {', '.join(_ways_in(known))}, data in {known.data_dir}")
        for node in known.nodes:
            click.echo(f"  {node.name}  pid {node.pid}  {'alive' if node.alive else 'dead'}")
    if not running:
        click.get_current_context().exit(3)
