"""Real Kafka and ZooKeeper servers as local processes, for the demo and for tests.

    with KafkaServer(version="4.1.1") as kafka:
        print(kafka.bootstrap_servers)

The names are imported on first use: the pytest plugin must cost nothing for test suites that do not use it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamgroup.testing.flow import End, Fault
    from streamgroup.testing.kafka import KafkaServer
    from streamgroup.testing.kafka07 import Compressed, Kafka07Server, Producer07
    from streamgroup.testing.processes import ServerStartError
    from streamgroup.testing.proxy import Direction, Proxy, Which
    from streamgroup.testing.tools import java_tool
    from streamgroup.testing.topics import create_topic
    from streamgroup.testing.zookeeper import ZooKeeperServer

__all__ = [
    "Compressed",
    "Direction",
    "End",
    "Fault",
    "Kafka07Server",
    "KafkaServer",
    "Producer07",
    "Proxy",
    "ServerStartError",
    "Which",
    "ZooKeeperServer",
    "create_topic",
    "java_tool",
]

_HOMES = {
    "Compressed": "streamgroup.testing.kafka07",
    "Direction": "streamgroup.testing.proxy",
    "End": "streamgroup.testing.flow",
    "Fault": "streamgroup.testing.flow",
    "Kafka07Server": "streamgroup.testing.kafka07",
    "KafkaServer": "streamgroup.testing.kafka",
    "Producer07": "streamgroup.testing.kafka07",
    "Proxy": "streamgroup.testing.proxy",
    "ServerStartError": "streamgroup.testing.processes",
    "Which": "streamgroup.testing.proxy",
    "ZooKeeperServer": "streamgroup.testing.zookeeper",
    "create_topic": "streamgroup.testing.topics",
    "java_tool": "streamgroup.testing.tools",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
