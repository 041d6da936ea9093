"""A cluster of emulated 0.7 brokers, as processes: `KafkaServer` of version 0.7, and what only tests of 0.7 ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from streamgroup.errors import ConfigError
from streamgroup.testing.kafka import KafkaServer
from streamgroup.testing.kafka07.config import broker_config
from streamgroup.testing.metadata_mode import refuse_reserved
from streamgroup.testing.node import NodePlan
from streamgroup.testing.processes import START_TIMEOUT_S
from streamgroup.testing.releases import release_of
from streamgroup.testing.zookeeper_mode import RESERVED, ZooKeeperMode, zookeeper_client

VERSION = "0.7"


class Kafka07Server(KafkaServer):
    """A cluster of emulated 0.7 brokers, as local processes on free ports of 127.0.0.1, with ids from 0 on.

        with Kafka07Server(brokers=2, config={"num.partitions": 3}) as kafka:
            kafka.brokers[1].kill()
            kafka.brokers[1].restart()

    A `KafkaServer` whose brokers may differ: `broker_configs` goes before `config`, by broker. Both have the names of
    Kafka 0.7's `server.properties`; see `testing/kafka07/config.py` for those that the emulator knows.

    A broker that was killed stays in ZooKeeper until its session has expired; `restart` waits for that, as an operator
    has to. `brokers[1].process.start()` does not, and raises ServerStartError, as the real broker refuses.
    """

    def __init__(
        self,
        brokers: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        broker_configs: Mapping[int, Mapping[str, object]] | None = None,
        port: int | None = None,
        data_dir: str | Path | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
        detached: bool = False,
        proxied: bool = False,
        zookeeper: str | None = None,
    ) -> None:
        super().__init__(
            VERSION,
            brokers,
            config,
            port=port,
            data_dir=data_dir,
            start_timeout_s=start_timeout_s,
            detached=detached,
            proxied=proxied,
            zookeeper=zookeeper,
        )
        mode = _ZooKeeperMode07(
            release_of(VERSION), brokers, zookeeper=zookeeper, detached=detached, start_timeout_s=start_timeout_s
        )
        unknown = sorted((broker_configs or {}).keys() - set(range(brokers)))
        if unknown:
            raise ConfigError(f"broker_configs: {unknown[0]}: there are brokers 0 to {brokers - 1}")
        mode.differ = {broker: _texts(values) for broker, values in (broker_configs or {}).items()}
        for values in ({}, *mode.differ.values()):
            _check({**self._config, **values})
        self._mode = mode

    def log_dir(self, broker: int) -> Path:
        """Where a broker's logs lie: a directory for each partition, a `.kafka` file for each segment."""
        return self.data_dir / self.brokers[broker].name / "data"

    def registered(self) -> frozenset[int]:
        """Return the ids of the brokers that ZooKeeper has now. Raises TransportError where it does not answer."""
        with zookeeper_client(self.zookeeper_connect) as client:
            return frozenset(map(int, client.get_children("/brokers/ids")))


class _ZooKeeperMode07(ZooKeeperMode):
    """Brokers that need not be alike."""

    differ: Mapping[int, Mapping[str, str]]

    def properties(
        self, node: NodePlan, nodes: Sequence[NodePlan], home: Path, config: Mapping[str, str]
    ) -> dict[str, str]:
        return super().properties(node, nodes, home, {**config, **self.differ.get(node.node_id, {})})


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}


def _check(config: Mapping[str, str]) -> None:
    """Raises ConfigError for what a broker would refuse, before anything is started."""
    refuse_reserved(RESERVED, config)
    try:
        broker_config({**config, "brokerid": "0", "log.dir": "-", "zk.connect": "-"})
    except ConfigError as error:
        raise ConfigError(f"config: {error}") from error
