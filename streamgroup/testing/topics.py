"""Topics of a cluster that is registered in ZooKeeper, made as Kafka's own TopicCommand makes them: by two nodes there.

Brokers before 0.10.1 have no request for it. The brokers must be 0.8.1 or later: 0.8.0 has no configuration of topics.
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
    """Make a topic and wait until every broker that runs knows a leader of each of its partitions.

    Raises ConfigError where it exists, where there are fewer brokers than replicas, or under KRaft (use the
    AdminClient of any client library); ServerStartError where a partition has no leader after `timeout_s`.
    """
    if not server.zookeeper_connect:
        raise ConfigError(f"topic {name}: Kafka {server.version} is not registered in ZooKeeper; use an AdminClient")
    if release_of(server.version).number < (0, 8):
        raise ConfigError(f"topic {name}: in Kafka {server.version} a topic comes with what is first produced to it")
    ids = [broker.node_id for broker in server.brokers]
    if not 1 <= replication <= len(ids):
        raise ConfigError(f"topic {name}: {replication} replicas on {len(ids)} brokers")
    assignment = {str(p): replicas for p, replicas in enumerate(spread(ids, partitions, replication))}
    with zookeeper_client(server.zookeeper_connect) as client:
        try:
            # The configuration first: the controller acts on the second node.
            client.ensure_path("/config/topics")
            _put(client, f"/config/topics/{name}", {"version": 1, "config": dict(config or {})})
            client.create(f"/brokers/topics/{name}", _json({"version": 1, "partitions": assignment}))
        except NodeExistsError as error:
            raise ConfigError(f"topic {name} exists at {server.zookeeper_connect}") from error
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
        while len(found := leaders_known_to(LOOPBACK, broker.port or 0, name)) < partitions:
            if time.monotonic() >= deadline:
                raise ServerStartError(
                    f"topic {name}: {broker.name} knows leaders of {len(found)} of {partitions} partitions after "
                    f"{timeout_s:.0f} s. The end of its log, {broker.log}:\n{broker.process.log_tail()}"
                )
            time.sleep(_POLL_S)
