"""A cluster is tried against the fake brokers that connections are tried against, and emulated ones of 0.7."""

from tests.fakes.broker07 import start_broker07
from tests.unit.net.conftest import broker, fresh_memory, options

__all__ = ["broker", "fresh_memory", "options", "start_broker07"]
