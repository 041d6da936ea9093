"""A cluster is tried against the fake brokers that connections are tried against."""

from tests.unit.net.conftest import broker, fresh_memory, options

__all__ = ["broker", "fresh_memory", "options"]
