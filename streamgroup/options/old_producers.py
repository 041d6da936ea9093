"""The table of the `kafka.*` properties that only the producers of Kafka 0.7 and 0.8, and the first in Java, had.

A property with a new name is refused, and the error has the new name: the user's setting would be lost otherwise.
"""

from __future__ import annotations

from streamgroup.options.rows import Effect, Option, Scope

BYTES_ALREADY = "keys and values are written as bytes. Cast or encode the columns 'key' and 'value' in the query"
NO_JAVA_CLASS = (
    "a handler is a Java class, which Python cannot run, and it could change the records. Change them in the query "
    "instead"
)

_RENAMED = {
    # 0.7
    "zk.connect": "zookeeper.connect",
    "zk.sessiontimeout.ms": "zookeeper.session.timeout.ms",
    "zk.connectiontimeout.ms": "zookeeper.connection.timeout.ms",
    "buffer.size": "kafka.send.buffer.bytes",
    "connect.timeout.ms": "kafka.socket.connection.setup.timeout.ms",
    "socket.timeout.ms": "kafka.request.timeout.ms",
    "max.message.size": "kafka.max.request.size",
    "num.retries": "kafka.retries",
    "queue.time": "kafka.linger.ms",
    "queue.enqueueTimeout.ms": "kafka.max.block.ms",
    # 0.7 and 0.8
    "compression.codec": "kafka.compression.type",
    # 0.8
    "metadata.broker.list": "kafka.bootstrap.servers",
    "request.required.acks": "kafka.acks",
    "message.send.max.retries": "kafka.retries",
    "topic.metadata.refresh.interval.ms": "kafka.metadata.max.age.ms",
    "queue.buffering.max.ms": "kafka.linger.ms",
    "queue.enqueue.timeout.ms": "kafka.max.block.ms",
    # the first producers in Java
    "metadata.fetch.timeout.ms": "kafka.max.block.ms",
    "timeout.ms": "kafka.request.timeout.ms",
}
"""The old name, and the full name of the option that replaces it."""

_REFUSED = {
    "broker.list": (
        "brokers of Kafka 0.7 are found in ZooKeeper. Set 'zookeeper.connect', or 'kafka.bootstrap.servers' for later "
        "brokers"
    ),
    "serializer.class key.serializer.class": BYTES_ALREADY,
    "compressed.topics": (
        "all topics of one query have the compression of 'kafka.compression.type'. Write topics with another "
        "compression in a query of their own"
    ),
    "queue.size queue.buffering.max.messages": (
        "streamgroup limits the bytes that wait, not the messages. Set 'kafka.buffer.memory'"
    ),
    "batch.num.messages": "streamgroup limits the bytes of a batch, not the messages. Set 'kafka.batch.size'",
    "event.handler event.handler.props callback.handler callback.handler.props": NO_JAVA_CLASS,
}

_IGNORED = {
    "producer.type": "a task sends in the background, and ends when the brokers have acknowledged all its records",
    "zk.synctime.ms zk.read.num.retries": "ZooKeeper reports changes of brokers and topics as they happen",
    "reconnect.interval reconnect.time.interval.ms": ("connections stay open as long as the executor's worker process"),
    "block.on.buffer.full": "a task always waits for room in its buffer, up to 'kafka.max.block.ms'",
}


def _rows(names: str, why: str, effect: Effect) -> tuple[Option, ...]:
    return tuple(Option(f"kafka.{name}", scope=Scope.NONE, elsewhere=effect, why=why) for name in names.split())


OLD_PRODUCERS: tuple[Option, ...] = (
    *(
        row
        for old, new in _RENAMED.items()
        for row in _rows(old, f"streamgroup names it differently. Set '{new}'", Effect.REFUSED)
    ),
    *(row for names, why in _REFUSED.items() for row in _rows(names, why, Effect.REFUSED)),
    *(row for names, why in _IGNORED.items() for row in _rows(names, why, Effect.IGNORED)),
)
