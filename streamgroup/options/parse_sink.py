"""Parse the options of a write, as Spark passes them, into `SinkOptions`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from streamgroup.errors import ConfigError
from streamgroup.options import zookeeper
from streamgroup.options.producer import PRODUCER
from streamgroup.options.reading import OptionsReader, all_together
from streamgroup.options.rows import Option, Scope
from streamgroup.options.sink import SINK, SINK_HINTS, SINK_ZOOKEEPER
from streamgroup.options.types import ClientOptions, ProducerOptions, SinkOptions

SINK_OPTIONS: Mapping[str, Option] = {option.name.lower(): option for option in (*SINK, *SINK_ZOOKEEPER, *PRODUCER)}
"""All options of a write by their name in lower case: users may write names in any case."""

_OF_SPARK = frozenset(
    {
        "queryname",
        "checkpointlocation",
        "asyncprogresstrackingenabled",
        "asyncprogresstrackingcheckpointintervalms",
    }
)
"""Options of Spark's own that it passes to every sink."""

_MOST_IN_FLIGHT = 5
"""The batches of one producer id that a broker remembers per partition, to drop repeated ones."""


def parse_sink(options: Mapping[str, str], *, strict: bool = False) -> SinkOptions:
    """Return the options of a batch write or of a stream's sink as values. `strict` is the default of that option.

    Raises ConfigError that names all problems together: misspelled, contradictory and missing options, invalid values,
    and what is not supported. It never shows the value of a secret option.
    """
    reading = _SinkReader(strict)
    reading.take_all({key: text for key, text in options.items() if key.lower() not in _OF_SPARK})
    registry = zookeeper.section(reading.values, reading.given, reading.problems, reading.notes)
    client = reading.located(reading.client(registry))
    producer = reading.producer(client)
    if reading.problems or client is None:
        raise ConfigError(all_together(reading.problems))
    return SinkOptions(client=client, producer=producer, notes=reading.all_notes(), **reading.fields("sink"))


class _SinkReader(OptionsReader):
    """The options of one write while they are parsed."""

    def __init__(self, strict: bool) -> None:
        super().__init__(SINK_OPTIONS, Scope.WRITE, SINK_HINTS, strict=strict)

    def located(self, client: ClientOptions | None) -> ClientOptions | None:
        """Return `client` with one way to find the brokers: the bootstrap servers take precedence over ZooKeeper."""
        if client is None or client.zookeeper is None or not client.bootstrap_servers:
            return client
        self.ignored.setdefault("'kafka.bootstrap.servers' names the brokers", []).append(zookeeper.CONNECT)
        return dataclasses.replace(client, zookeeper=None)

    def producer(self, client: ClientOptions | None) -> ProducerOptions:
        """Return how tasks write. Options that contradict each other become problems, as in Java's producer."""
        producer: ProducerOptions = self.section("producer", ProducerOptions)
        if "kafka.max.request.size" in self.values:
            producer = dataclasses.replace(producer, max_message_size=producer.max_request_size)
        producer = self._with_level(self._with_partitioner(producer))
        if client is not None:
            producer = self._with_delivery_timeout(producer, client)
        return self._with_idempotence(producer)

    def _with_partitioner(self, producer: ProducerOptions) -> ProducerOptions:
        """Return the partitioner of either option. Both must agree."""
        by_class = self.values.get(_CLASS)
        if by_class is None:
            return producer
        if "partitioner" in self.values and producer.partitioner != by_class:
            self.problems.append(
                f"{_CLASS} and partitioner contradict each other: the class is the partitioner '{by_class}'. Remove "
                "one of them"
            )
        return dataclasses.replace(producer, partitioner=by_class)

    def _with_level(self, producer: ProducerOptions) -> ProducerOptions:
        """Return the level of the codec. The levels of other codecs have no effect."""
        for name in _LEVELS.values():
            if name in self.given and name != _LEVELS.get(producer.compression):
                why = f"kafka.compression.type is {producer.compression}"
                self.ignored.setdefault(why, []).append(name)
        level = self.values.get(_LEVELS.get(producer.compression, ""))
        return dataclasses.replace(producer, compression_level=level)

    def _with_delivery_timeout(self, producer: ProducerOptions, client: ClientOptions) -> ProducerOptions:
        """Return a delivery timeout that leaves time to linger and for one request."""
        least = min(producer.linger_ms + client.request_timeout_ms, 2**31 - 1)
        if producer.delivery_timeout_ms >= least:
            return producer
        sum_ = f"kafka.linger.ms ({producer.linger_ms}) plus kafka.request.timeout.ms ({client.request_timeout_ms})"
        if "kafka.delivery.timeout.ms" in self.given:
            self.problems.append(
                f"kafka.delivery.timeout.ms ({producer.delivery_timeout_ms}) must not be below {sum_}: a batch would "
                f"fail before its first response. Set {least} or more"
            )
        else:
            self.notes.append(f"kafka.delivery.timeout.ms is {least}, which is {sum_}")
        return dataclasses.replace(producer, delivery_timeout_ms=least)

    def _with_idempotence(self, producer: ProducerOptions) -> ProducerOptions:
        """Return whether to write idempotently, and whether that is required.

        As in Java's producer, an explicit `enable.idempotence` refuses what rules it out. The default gives way, except
        to too many requests in flight.
        """
        if not producer.enable_idempotence:
            return producer
        is_required = "kafka.enable.idempotence" in self.given
        excludes = []
        if producer.retries == 0:
            excludes.append(("kafka.retries", "0", "a batch that is sent once needs none. Remove kafka.retries"))
        if producer.acks != -1:
            why = "the leader alone may lose a batch that it has taken. Set kafka.acks=all"
            excludes.append(("kafka.acks", str(producer.acks), why))
        for name, value, why in excludes:
            if is_required:
                self.problems.append(f"cannot use kafka.enable.idempotence=true with {name}={value}: {why}")
            else:
                self.notes.append(f"idempotence is off, because {name} is {value}: a retry may repeat records")
        if producer.max_in_flight > _MOST_IN_FLIGHT:
            self.problems.append(
                f"kafka.max.in.flight.requests.per.connection ({producer.max_in_flight}) must not be above "
                f"{_MOST_IN_FLIGHT} with idempotence: brokers remember the last {_MOST_IN_FLIGHT} batches. Decrease "
                "it, or set kafka.enable.idempotence=false"
            )
        return dataclasses.replace(producer, enable_idempotence=not excludes, require_idempotence=is_required)


_CLASS = "kafka.partitioner.class"
_LEVELS = {codec: f"kafka.compression.{codec}.level" for codec in ("gzip", "lz4", "zstd")}
