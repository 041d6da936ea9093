"""`streamgroup demo`: two spark-submit jobs share a group of a real Kafka, and every record arrives exactly once."""

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

from streamgroup.cli._demo_parts import COLUMNS, Job, Load, Watch, group_table, read_rows, result_table, settings_of
from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.testing import KafkaServer

TOPIC, GROUP, PARTITIONS = "orders", "orders-ingest", 6
STEP_TIMEOUT_S = 90.0


@click.command(short_help="Run two jobs that share a group of a real Kafka, on this machine.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, writable=True, path_type=Path),
    metavar="DIRECTORY",
    help="Where files and logs go; it must be empty.  [default: a new directory]",
)
@click.option(
    "--rate", type=click.IntRange(1, 100_000), default=2_000, show_default=True, metavar="N", help="Records per second."
)
def demo(output: Path | None, rate: int) -> None:
    """Run two jobs that share a group of a real Kafka, all on this machine.

    The second job joins and is drained while records arrive. At the end the command checks that every record arrived
    exactly once. The exit code is 1 if not.
    """
    console = Console()
    home = Path(tempfile.mkdtemp(prefix="streamgroup-demo-")) if output is None else output
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the directory {output}: {error.strerror}. Choose another --output") from None
    if any(home.iterdir()):
        raise ConfigError(f"cannot run the demo in {home}: the directory is not empty. Choose another --output")
    # SIGTERM must unwind the stack like Ctrl-C: the jobs have sessions of their own and would outlive the demo.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    began = time.monotonic()
    passed = _Demo(console, home, rate).run()
    console.print(f"\nFiles and logs are in {home}; it took {time.monotonic() - began:.0f} s.")
    sys.exit(0 if passed else 1)


class _Demo:
    """The steps of the demo."""

    def __init__(self, console: Console, home: Path, rate: int) -> None:
        self.console = console
        self.home = home
        self.rate = rate
        self.step = 0

    def run(self) -> bool:
        """Run all steps. Return whether every record arrived exactly once."""
        with ExitStack() as stack:
            self.say("starting Kafka 4.1.1 (one broker, KRaft)")
            kafka = stack.enter_context(KafkaServer("4.1.1", data_dir=self.home / "kafka"))
            watch = stack.enter_context(Watch(kafka.bootstrap_servers, GROUP))
            watch.create_topic(TOPIC, PARTITIONS)
            self.note(f"brokers at {kafka.bootstrap_servers}; topic {TOPIC} with {PARTITIONS} partitions")
            load = stack.enter_context(Load(kafka.bootstrap_servers, TOPIC, PARTITIONS, self.rate))
            self.note(f"producing {self.rate} records/s, each with its own number")

            conf = self.home / "ingest.toml"
            conf.write_text(settings_of(kafka.bootstrap_servers, GROUP, TOPIC, self.home))
            self.say(f"spark-submit jobs/ingest.py --config {conf.name} --member a")
            a = stack.enter_context(Job("a", conf, self.home, self.console))
            self.wait(lambda: watch.owners() == {"a": PARTITIONS}, "a holds all partitions", a)
            self.wait(lambda: a.batches >= 2, "a has written two batches", a)
            self.show(watch)

            self.say(f"spark-submit jobs/ingest.py --config {conf.name} --member b")
            b = stack.enter_context(Job("b", conf, self.home, self.console))
            half = PARTITIONS // 2
            self.wait(lambda: watch.owners() == {"a": half, "b": half}, "the partitions are shared", a, b)
            self.wait(lambda: b.batches >= 2, "b has written two batches", a, b)
            self.show(watch)

            self.say("SIGTERM to b: it finishes its batch, commits it and leaves the group")
            b.stop()
            self.wait(lambda: watch.owners() == {"a": PARTITIONS}, "a has all partitions again", a)
            self.show(watch)

            self.say("the producer stops; a reads the rest, then a stops too")
            produced = load.finish()
            self.wait(lambda: watch.lag() == 0, "the group's lag is 0", a)
            a.stop()
            self.show(watch)
        return self.check(produced)

    def check(self, produced: int) -> bool:
        """Compare the rows of the Parquet files with the produced records. Return whether they are equal."""
        self.console.print(Rule("result"))
        table, exact = result_table(produced, {member: read_rows(self.home, member, COLUMNS) for member in ("a", "b")})
        self.console.print(table)
        verdict = (
            "[bold green]every record arrived exactly once" if exact else "[bold red]records are missing or repeated"
        )
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
        """Wait for a condition while the jobs run. Raises StreamGroupError after STEP_TIMEOUT_S."""
        for _ in _until(time.monotonic() + STEP_TIMEOUT_S):
            for job in jobs:
                job.check()
            if condition():
                self.note(what)
                return
        raise StreamGroupError(
            f"the demo failed at step {self.step}: not within {STEP_TIMEOUT_S:.0f} s: {what}. Read the jobs' logs in "
            f"{self.home}"
        )


def _until(deadline: float) -> Iterator[None]:
    while time.monotonic() < deadline:
        yield
        time.sleep(0.2)
