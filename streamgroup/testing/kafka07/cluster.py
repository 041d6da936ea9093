"""A cluster of emulated 0.7 brokers as processes: a `KafkaServer` of version 0.7 with additions for tests of 0.7."""

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
    """A cluster of emulated 0.7 brokers, as local processes on free ports of 127.0.0.1, with ids from 0.

        with Kafka07Server(brokers=2, config={"num.partitions": 3}) as kafka:
            kafka.brokers[1].kill()
            kafka.brokers[1].restart()

    A `KafkaServer` whose brokers may configs_by_broker: `broker_configs` overrides `config` for single brokers. Both
    use the names of Kafka 0.7's `server.properties`; `testing/kafka07/config.py` has those that the emulator supports.

    A killed broker stays registered until its session expires. `restart` waits for that, as an operator must.
    `brokers[1].process.start()` does not wait and raises ServerStartError, as the real broker refuses to start.
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
            raise ConfigError(
                f"invalid broker_configs: unknown broker {unknown[0]}, the brokers are 0 to {brokers - 1}"
            )
        mode.configs_by_broker = {broker: _texts(values) for broker, values in (broker_configs or {}).items()}
        for values in ({}, *mode.configs_by_broker.values()):
            _check({**self._config, **values})
        self._mode = mode

    def log_dir(self, broker: int) -> Path:
        """Return the log directory of a broker: a directory per partition, a `.kafka` file per segment."""
        return self.data_dir / self.brokers[broker].name / "data"

    def registered(self) -> frozenset[int]:
        """Return the ids of the registered brokers. Raises TransportError if ZooKeeper does not answer."""
        with zookeeper_client(self.zookeeper_connect) as client:
            return frozenset(map(int, client.get_children("/brokers/ids")))


class _ZooKeeperMode07(ZooKeeperMode):
    """ZooKeeper mode with a configuration per broker."""

    configs_by_broker: Mapping[int, Mapping[str, str]]

    def properties(
        self, node: NodePlan, nodes: Sequence[NodePlan], home: Path, config: Mapping[str, str]
    ) -> dict[str, str]:
        return super().properties(node, nodes, home, {**config, **self.configs_by_broker.get(node.node_id, {})})


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}


def _check(config: Mapping[str, str]) -> None:
    """Raise ConfigError before the start for a configuration that a broker would refuse."""
    refuse_reserved(RESERVED, config)
    try:
        broker_config({**config, "brokerid": "0", "log.dir": "-", "zk.connect": "-"})
    except ConfigError as error:
        raise ConfigError(f"invalid config: {error}") from error
