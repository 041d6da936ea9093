"""Kafka's console consumer and producer: their classes and options, which differ between releases."""

from __future__ import annotations

from streamgroup.testing.releases import release_of

_RENAMED_IN = (4, 2)
_RENAMED = {
    "--consumer.config": "--command-config",
    "--producer.config": "--command-config",
    "--consumer-property": "--command-property",
    "--property": "--formatter-property",
}
"""The consumer's and the producer's options that have another name since 4.2. With the old ones the consumer
prints a warning among the records."""


def console_consumer(version: str) -> str:
    """Return the class of the release's console consumer. 3.6.2 has the older name, 3.9.1 the newer one."""
    is_newer = release_of(version).number >= (3, 9)
    return "org.apache.kafka.tools.consumer.ConsoleConsumer" if is_newer else "kafka.tools.ConsoleConsumer"


def console_producer(version: str) -> str:
    """Return the class of the release's console producer. 3.9.1 has the older name, 4.0.1 the newer one."""
    is_newer = release_of(version).number >= (4,)
    return "org.apache.kafka.tools.ConsoleProducer" if is_newer else "kafka.tools.ConsoleProducer"


def console_option(version: str, name: str) -> str:
    """Return the release's name of an option that had this one before 4.2."""
    return _RENAMED[name] if release_of(version).number >= _RENAMED_IN else name
