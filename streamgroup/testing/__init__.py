"""Real Kafka and ZooKeeper servers as local processes, for the demo, our tests and yours.

    with KafkaServer(version="4.1.1") as kafka:
        print(kafka.bootstrap_servers)

The names load when they are first used: the pytest plugin must not cost those who do not use it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamgroup.testing.kafka import KafkaServer, java_tool
    from streamgroup.testing.processes import ServerStartError
    from streamgroup.testing.zookeeper import ZooKeeperServer

__all__ = ["KafkaServer", "ServerStartError", "ZooKeeperServer", "java_tool"]

_HOMES = {
    "KafkaServer": "streamgroup.testing.kafka",
    "ServerStartError": "streamgroup.testing.processes",
    "ZooKeeperServer": "streamgroup.testing.zookeeper",
    "java_tool": "streamgroup.testing.kafka",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
