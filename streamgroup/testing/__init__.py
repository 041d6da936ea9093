"""Real Kafka and ZooKeeper servers as local processes, for the demo, our tests and yours.

    with KafkaServer(version="4.1.1") as kafka:
        print(kafka.bootstrap_servers)

The names load when they are first used: the pytest plugin must not cost those who do not use it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamgroup.testing.flow import End, Fault
    from streamgroup.testing.kafka import KafkaServer, java_tool
    from streamgroup.testing.processes import ServerStartError
    from streamgroup.testing.proxy import Direction, Proxy, Which
    from streamgroup.testing.zookeeper import ZooKeeperServer

__all__ = [
    "Direction",
    "End",
    "Fault",
    "KafkaServer",
    "Proxy",
    "ServerStartError",
    "Which",
    "ZooKeeperServer",
    "java_tool",
]

_HOMES = {
    "Direction": "streamgroup.testing.proxy",
    "End": "streamgroup.testing.flow",
    "Fault": "streamgroup.testing.flow",
    "KafkaServer": "streamgroup.testing.kafka",
    "Proxy": "streamgroup.testing.proxy",
    "ServerStartError": "streamgroup.testing.processes",
    "Which": "streamgroup.testing.proxy",
    "ZooKeeperServer": "streamgroup.testing.zookeeper",
    "java_tool": "streamgroup.testing.kafka",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
