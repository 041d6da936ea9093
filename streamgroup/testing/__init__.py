"""Real Kafka, ZooKeeper, PostgreSQL and MariaDB servers as local processes, for the demo and for tests.

    with KafkaServer(brokers=3) as kafka:
        print(kafka.bootstrap_servers)

The names are imported on first use: the pytest plugin must cost nothing for test suites that do not use it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamgroup.testing.flow import End, Fault
    from streamgroup.testing.jars import java_tool
    from streamgroup.testing.kafka import KafkaServer, archive_classes, create_topic
    from streamgroup.testing.kafka07 import Compressed, Kafka07Server, Producer07
    from streamgroup.testing.mariadb import MariaDbServer
    from streamgroup.testing.postgres import PostgresServer
    from streamgroup.testing.processes import ServerStartError
    from streamgroup.testing.proxy import Direction, Proxy, Which
    from streamgroup.testing.security.certificates import Authority, Identity, write_jks, write_pem, write_pkcs12
    from streamgroup.testing.security.client import ClientSettings
    from streamgroup.testing.zookeeper import ZooKeeperServer

__all__ = [
    "Authority",
    "ClientSettings",
    "Compressed",
    "Direction",
    "End",
    "Fault",
    "Identity",
    "Kafka07Server",
    "KafkaServer",
    "MariaDbServer",
    "PostgresServer",
    "Producer07",
    "Proxy",
    "ServerStartError",
    "Which",
    "ZooKeeperServer",
    "archive_classes",
    "create_topic",
    "java_tool",
    "write_jks",
    "write_pem",
    "write_pkcs12",
]

_HOMES = {
    "Authority": "streamgroup.testing.security.certificates",
    "ClientSettings": "streamgroup.testing.security.client",
    "Compressed": "streamgroup.testing.kafka07",
    "Direction": "streamgroup.testing.proxy",
    "End": "streamgroup.testing.flow",
    "Fault": "streamgroup.testing.flow",
    "Identity": "streamgroup.testing.security.certificates",
    "Kafka07Server": "streamgroup.testing.kafka07",
    "KafkaServer": "streamgroup.testing.kafka",
    "MariaDbServer": "streamgroup.testing.mariadb",
    "PostgresServer": "streamgroup.testing.postgres",
    "Producer07": "streamgroup.testing.kafka07",
    "Proxy": "streamgroup.testing.proxy",
    "ServerStartError": "streamgroup.testing.processes",
    "Which": "streamgroup.testing.proxy",
    "ZooKeeperServer": "streamgroup.testing.zookeeper",
    "archive_classes": "streamgroup.testing.kafka",
    "create_topic": "streamgroup.testing.kafka",
    "java_tool": "streamgroup.testing.jars",
    "write_jks": "streamgroup.testing.security.certificates",
    "write_pem": "streamgroup.testing.security.certificates",
    "write_pkcs12": "streamgroup.testing.security.certificates",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
