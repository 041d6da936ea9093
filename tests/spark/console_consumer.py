"""Kafka's own console consumers, beside queries in one group."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from streamgroup.testing import ClientSettings, java_tool
from tests.console_tools import console_consumer, console_option
from tests.spark.support import Load


class JavaConsumer:
    """A console consumer, and what it has printed until now."""

    def __init__(self, output: Path, errors: Path) -> None:
        self._output, self._errors = output, errors

    def values(self) -> list[str]:
        """Return whole lines only: the last one may be half written."""
        return self._output.read_text().split("\n")[:-1]

    def partitions(self, since: int = 0) -> set[int]:
        """Return the partitions of the values from the `since`th on."""
        return {int(value.split("-")[-2]) for value in self.values()[since:]}

    def errors(self) -> str:
        return self._errors.read_text()


@contextmanager
def java_consumer(
    home: Path, load: Load, group: str, assignor: str | None, client: ClientSettings | None = None
) -> Iterator[JavaConsumer]:
    """Run a member of `group` that knows this one strategy; None: a member under the consumer protocol.

    `client` has the settings for a secured server.
    """
    properties = {"group.id": group, "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    if assignor is not None:
        properties |= {
            "partition.assignment.strategy": f"org.apache.kafka.clients.consumer.{assignor}",
            "group.protocol": "classic",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "300",
        }
    config = home / "java-consumer.properties"
    own = "".join(f"{name}={value}\n" for name, value in properties.items())
    config.write_text(own if client is None else own + client.text())
    version = load.server.version
    arguments = (
        *("--bootstrap-server", load.server.bootstrap_servers, "--topic", load.topic),
        *(console_option(version, "--consumer.config"), str(config)),
    )
    flags = () if client is None else client.jvm_flags
    with _running(home, java_tool(version, console_consumer(version), *arguments, jvm_flags=flags)) as consumer:
        yield consumer


@contextmanager
def java_consumer_08(
    home: Path, load: Load, group: str, *, first: bool = False, storage: Mapping[str, str] | None = None
) -> Iterator[JavaConsumer]:
    """Run a consumer of 0.8.2.2 with its group in ZooKeeper. `first` reads from the beginning of the logs."""
    properties = {
        "group.id": group,
        "auto.commit.interval.ms": "500",
        "zookeeper.session.timeout.ms": "4000",
        "rebalance.backoff.ms": "1000",
        **(storage or {}),
    }
    config = home / "consumer.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    arguments = (
        *("--zookeeper", load.server.zookeeper_connect, "--topic", load.topic, "--consumer.config", str(config)),
        *(("--from-beginning",) if first else ()),
    )
    with _running(home, java_tool(load.server.version, console_consumer(load.server.version), *arguments)) as consumer:
        yield consumer


@contextmanager
def _running(home: Path, argv: Sequence[str]) -> Iterator[JavaConsumer]:
    """End the process with SIGTERM, on which it commits and leaves."""
    number = len(list(home.glob("java-values-*")))
    output, errors = home / f"java-values-{number}", home / f"java-errors-{number}"
    with (
        output.open("w") as out,
        errors.open("w") as err,
        subprocess.Popen(argv, stdout=out, stderr=err) as process,
    ):
        try:
            yield JavaConsumer(output, errors)
            process.terminate()
            process.wait(20)
        finally:
            process.kill()
