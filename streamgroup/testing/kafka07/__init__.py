"""An emulated Kafka 0.7, which reproduces the observed behaviour of real brokers byte by byte: no registry has its
jars.

    with Kafka07Server(brokers=2, config={"num.partitions": 3}) as kafka:
        with Producer07(zookeeper=kafka.zookeeper_connect) as producer:
            producer.produce("events", [b"one", b"two"], codec="gzip")

Brokers are processes of their own, registered in a real ZooKeeper. `BrokerServer` is a broker in threads of this
process, and `RequestHandler` one without sockets.
"""

from __future__ import annotations

from streamgroup.testing.kafka07.cluster import Kafka07Server
from streamgroup.testing.kafka07.config import BrokerConfig, broker_config
from streamgroup.testing.kafka07.handler import Reply, RequestHandler
from streamgroup.testing.kafka07.log import Logs
from streamgroup.testing.kafka07.producer import Compressed, Producer07, message_set
from streamgroup.testing.kafka07.server import BrokerServer, serve

__all__ = [
    "BrokerConfig",
    "BrokerServer",
    "Compressed",
    "Kafka07Server",
    "Logs",
    "Producer07",
    "Reply",
    "RequestHandler",
    "broker_config",
    "message_set",
    "serve",
]
