"""`streamgroup demo`: two spark-submit jobs share a group of a real Kafka, and every record is accounted for."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import click
from rich.console import Console
from rich.rule import Rule

from streamgroup.cli._demo_parts import (
    COLUMNS,
    Job,
    Load,
    Watch,
    group_table,
    read_rows,
    result_table,
    settings_of,
)
from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.testing import KafkaServer

TOPIC, GROUP, PARTITIONS = "orders", "orders-ingest", 6
PATIENCE_S = 90.0


@click.command()
@click.option(
    "--output", type=click.Path(path_type=Path), help="Keep files and logs there.  [default: a new directory]"
)
@click.option("--rate", type=click.IntRange(1, 100_000), default=2_000, show_default=True, help="Records per second.")
def demo(output: Path | None, rate: int) -> None:
    """Show two jobs sharing one group: join, rebalance, drain, and the account at the end."""
    console = Console()
    home = output or Path(tempfile.mkdtemp(prefix="streamgroup-demo-"))
    home.mkdir(parents=True, exist_ok=True)
    if any(home.iterdir()):
        raise ConfigError(f"{home} is not empty: the demo starts from nothing, give another --output")
    # Unwound as by Ctrl-C: else the jobs, which have sessions of their own, would outlive the demo.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    began = time.monotonic()
    passed = _Demo(console, home, rate).run()
    console.print(f"\nFiles and logs are in {home}; it took {time.monotonic() - began:.0f} s.")
    sys.exit(0 if passed else 1)


class _Demo:
    """The scenes, in their order."""

    def __init__(self, console: Console, home: Path, rate: int) -> None:
        self.console = console
        self.home = home
        self.rate = rate
        self.step = 0

    def run(self) -> bool:
        """Play it; whether every record arrived exactly once."""
        with ExitStack() as stack:
            self.say("starting Kafka 4.1.1 (one broker, KRaft)")
            kafka = stack.enter_context(KafkaServer("4.1.1", data_dir=self.home / "kafka"))
            watch = stack.enter_context(Watch(kafka.bootstrap_servers, GROUP))
            watch.create_topic(TOPIC, PARTITIONS)
            self.note(f"brokers at {kafka.bootstrap_servers}; topic {TOPIC} with {PARTITIONS} partitions")
            load = stack.enter_context(Load(kafka.bootstrap_servers, TOPIC, PARTITIONS, self.rate))
            self.note(f"producing {self.rate} records/s, each with a number of its own")

            conf = self.home / "ingest.toml"
            conf.write_text(settings_of(kafka.bootstrap_servers, GROUP, TOPIC, self.home))
            self.say(f"spark-submit jobs/ingest.py --config {conf.name} --member a")
            a = stack.enter_context(Job("a", conf, self.home, self.console))
            self.wait(lambda: watch.owners() == {"a": PARTITIONS}, "a holds all partitions", a)
            self.wait(lambda: a.batches >= 2, "a has sunk two batches", a)
            self.show(watch)

            self.say(f"spark-submit jobs/ingest.py --config {conf.name} --member b")
            b = stack.enter_context(Job("b", conf, self.home, self.console))
            half = PARTITIONS // 2
            self.wait(lambda: watch.owners() == {"a": half, "b": half}, "the partitions are shared", a, b)
            self.wait(lambda: b.batches >= 2, "b has sunk two batches", a, b)
            self.show(watch)

            self.say("SIGTERM to b: it finishes its batch, commits it and leaves")
            b.stop()
            self.wait(lambda: watch.owners() == {"a": PARTITIONS}, "a has all partitions again", a)
            self.show(watch)

            self.say("the producer stops; a reads the rest, then it is stopped too")
            produced = load.finish()
            self.wait(lambda: watch.lag() == 0, "the group's lag is 0", a)
            a.stop()
            self.show(watch)
        return self.account(produced)

    def account(self, produced: int) -> bool:
        """Hold what stands in the Parquet files against what was produced."""
        self.console.print(Rule("the account"))
        table, exact = result_table(produced, {member: read_rows(self.home, member, COLUMNS) for member in ("a", "b")})
        self.console.print(table)
        verdict = "[bold green]every record arrived exactly once" if exact else "[bold red]the account does not balance"
        self.console.print(verdict)
        return exact

    def say(self, text: str) -> None:
        self.step += 1
        self.console.print(f"\n[bold cyan]{self.step}.[/] [bold]{text}")

    def note(self, text: str) -> None:
        self.console.print(f"   {text}", style="dim")

    def show(self, watch: Watch) -> None:
        self.console.print(group_table(watch.describe()))

    def wait(self, condition: Callable[[], bool], what: str, *jobs: Job) -> None:
        """Wait for a scene, as long as its jobs live."""
        for _ in _until(time.monotonic() + PATIENCE_S):
            for job in jobs:
                job.check()
            if condition():
                self.note(what)
                return
        raise StreamGroupError(f"not within {PATIENCE_S:.0f} s: {what}; the jobs' logs are in {self.home}")


def _until(deadline: float) -> Iterator[None]:
    while time.monotonic() < deadline:
        yield
        time.sleep(0.2)
