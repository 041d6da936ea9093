"""A complete broker: its server and its registration, from start to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable

from streamgroup.testing.kafka07.config import BrokerConfig
from streamgroup.testing.kafka07.registry import Registry
from streamgroup.testing.kafka07.server import BrokerServer

STARTED = "Kafka server started"
"""The log line of a broker that is registered and serves."""


def serve(config: BrokerConfig, stop: threading.Event, report: Callable[[str], None]) -> None:
    """Run a broker until `stop` is set. `report` receives the lines of its log, from any thread.

    Raises OSError if its port is taken, DamagedLog, AlreadyRegistered, and TransportError without ZooKeeper.
    """
    server = BrokerServer(config, report)
    try:
        server.start()
        registry = _registered(config, server, report) if config.use_zookeeper else None
        server.open()
        report(f"{STARTED}: broker {config.broker_id} at {server.address}, logs in {config.log_dir}")
        stop.wait()
        report("shutting down")
    except BaseException:
        server.stop()
        raise
    # As in the real broker, the port closes before the nodes are deleted.
    server.stop()
    if registry is not None:
        registry.stop()


def _registered(config: BrokerConfig, server: BrokerServer, report: Callable[[str], None]) -> Registry:
    registry = Registry(config, config.advertised_port or server.port, lambda: server.logs.topics, report)
    server.logs.on_new_topic = registry.announce
    registry.start()
    return registry
