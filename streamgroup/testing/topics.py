"""Creates topics in ZooKeeper mode as Kafka's TopicCommand does: by two nodes in ZooKeeper.

Brokers before 0.10.1 have no CreateTopics request. The brokers must be 0.8.1 or later: 0.8.0 has no topic
configuration.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

from streamgroup.errors import ConfigError
from streamgroup.testing.kafka import KafkaServer
from streamgroup.testing.ports import LOOPBACK
from streamgroup.testing.probe import leaders_known_to
from streamgroup.testing.processes import ServerStartError
from streamgroup.testing.releases import release_of
from streamgroup.testing.zookeeper_mode import zookeeper_client

_TIMEOUT_S = 30.0
_POLL_S = 0.05


def create_topic(
    server: KafkaServer,
    name: str,
    partitions: int = 1,
    *,
    replication: int = 1,
    config: Mapping[str, str] | None = None,
    timeout_s: float = _TIMEOUT_S,
) -> None:
    """Create a topic and wait until every running broker knows a leader of each partition.

    Raises ConfigError if the topic exists, if there are fewer brokers than replicas, or in KRaft mode (use the
    AdminClient of any client library); ServerStartError if a partition has no leader after `timeout_s`.
    """
    if not server.zookeeper_connect:
        raise ConfigError(f"cannot create topic {name}: Kafka {server.version} runs in KRaft mode. Use an AdminClient")
    if release_of(server.version).number < (0, 8):
        raise ConfigError(
            f"cannot create topic {name}: Kafka {server.version} creates topics only by the first produce"
        )
    ids = [broker.node_id for broker in server.brokers]
    if not 1 <= replication <= len(ids):
        raise ConfigError(f"cannot create topic {name}: {replication} replicas on {len(ids)} brokers")
    assignment = {str(p): replicas for p, replicas in enumerate(spread(ids, partitions, replication))}
    with zookeeper_client(server.zookeeper_connect) as client:
        try:
            # The controller reacts to the second node, so the configuration must exist before.
            client.ensure_path("/config/topics")
            _put(client, f"/config/topics/{name}", {"version": 1, "config": dict(config or {})})
            client.create(f"/brokers/topics/{name}", _json({"version": 1, "partitions": assignment}))
        except NodeExistsError as error:
            raise ConfigError(f"cannot create topic {name}: it exists at {server.zookeeper_connect}") from error
    _await_leaders(server, name, partitions, timeout_s)


def spread(brokers: Sequence[int], partitions: int, replication: int) -> list[list[int]]:
    """Return the replicas of each partition, round robin, the leader first."""
    return [[brokers[(p + r) % len(brokers)] for r in range(replication)] for p in range(partitions)]


def _put(client: KazooClient, path: str, value: object) -> None:
    """A topic that was deleted leaves its configuration."""
    if client.exists(path):
        client.set(path, _json(value))
    else:
        client.create(path, _json(value))


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _await_leaders(server: KafkaServer, name: str, partitions: int, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    for broker in (each for each in server.brokers if each.alive):
        while len(found := leaders_known_to(LOOPBACK, broker.plan.plain_port or 0, name)) < partitions:
            if time.monotonic() >= deadline:
                raise ServerStartError(
                    f"no leaders of topic {name}: {broker.name} knows those of {len(found)} of {partitions} partitions "
                    f"after {timeout_s:.0f} s. The end of its log, {broker.log}:\n{broker.process.log_tail()}"
                )
            time.sleep(_POLL_S)
