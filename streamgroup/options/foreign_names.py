"""The properties that only old clients had (0.7, 0.8, the first Java producer), and librdkafka's names.

A property with a new name is refused, and the error has the new name. If it were ignored, the user's setting would be
lost.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamgroup.options.rows import Effect, Option, Scope

BYTES_ALREADY = "keys and values are written as bytes. Cast or encode the columns 'key' and 'value' in the query"
NO_JAVA_CLASS = (
    "a handler is a Java class, which Python cannot run, and it could change the records. Change them in the query "
    "instead"
)

# -- old producers -----------------------------------------------------------------------------------------------------

_RENAMED_OF_PRODUCERS = {
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

_REFUSED_OF_PRODUCERS = {
    "broker.list": (
        "brokers of Kafka 0.7 are found in ZooKeeper. Set 'zookeeper.connect', or 'kafka.bootstrap.servers' for later "
        "brokers"
    ),
    "serializer.class key.serializer.class": BYTES_ALREADY,
    "compressed.topics": (
        "all topics of one query have the compression of 'kafka.compression.type'. Write topics with another "
        "compression in a separate query"
    ),
    "queue.size queue.buffering.max.messages": (
        "streamgroup limits the bytes that wait, not the messages. Set 'kafka.buffer.memory'"
    ),
    "batch.num.messages": "streamgroup limits the bytes of a batch, not the messages. Set 'kafka.batch.size'",
    "event.handler event.handler.props callback.handler callback.handler.props": NO_JAVA_CLASS,
}

_IGNORED_OF_PRODUCERS = {
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
        for old, new in _RENAMED_OF_PRODUCERS.items()
        for row in _rows(old, f"streamgroup names it differently. Set '{new}'", Effect.REFUSED)
    ),
    *(row for names, why in _REFUSED_OF_PRODUCERS.items() for row in _rows(names, why, Effect.REFUSED)),
    *(row for names, why in _IGNORED_OF_PRODUCERS.items() for row in _rows(names, why, Effect.IGNORED)),
)


# -- librdkafka --------------------------------------------------------------------------------------------------------

_CREDENTIALS = (
    "it is librdkafka's name. Write the user and the password into 'kafka.sasl.jaas.config', as in Java: "
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="..." password="...";'
)
_TICKET = "it is librdkafka's name. Write useKeyTab=true, keyTab and principal into 'kafka.sasl.jaas.config'"
_CLIENT_FILE = (
    "it is librdkafka's name. Set 'kafka.ssl.keystore.type' to PEM, and 'kafka.ssl.keystore.location' to a file with "
    "the key and its certificates"
)
_CLIENT_PEM = (
    "it is librdkafka's name. Set 'kafka.ssl.keystore.type' to PEM, 'kafka.ssl.keystore.key' and "
    "'kafka.ssl.keystore.certificate.chain'"
)

LIBRDKAFKA_HINTS: Mapping[str, str] = {
    "kafka.sasl.username": _CREDENTIALS,
    "kafka.sasl.password": _CREDENTIALS,
    "kafka.sasl.kerberos.keytab": _TICKET,
    "kafka.sasl.kerberos.principal": _TICKET,
    "kafka.sasl.oauthbearer.method": "it is librdkafka's name. Leave it out: the token comes from where "
    "'kafka.sasl.oauthbearer.token.endpoint.url' leads",
    "kafka.ssl.ca.location": "it is librdkafka's name. Set 'kafka.ssl.truststore.type' to PEM, and "
    "'kafka.ssl.truststore.location' to the file",
    "kafka.ssl.ca.pem": "it is librdkafka's name. Set 'kafka.ssl.truststore.type' to PEM, and "
    "'kafka.ssl.truststore.certificates' to the text",
    "kafka.ssl.certificate.location": _CLIENT_FILE,
    "kafka.ssl.key.location": _CLIENT_FILE,
    "kafka.ssl.certificate.pem": _CLIENT_PEM,
    "kafka.ssl.key.pem": _CLIENT_PEM,
    "kafka.enable.ssl.certificate.verification": "it is librdkafka's name, and certificates of brokers are always "
    "verified. Add their authority to the file of 'kafka.ssl.truststore.location'",
}
"""The cause and the next step for these names, because their most similar names would mislead; keys in lower case."""


# -- old consumers -----------------------------------------------------------------------------------------------------

COMMITS_FOLLOW_THE_SINK = "streamgroup commits offsets only after their batch has reached the sink, never on a timer"

_RENAMED_OF_CONSUMERS = {
    "zookeeper.connect": "zookeeper.connect",
    "zookeeper.session.timeout.ms": "zookeeper.session.timeout.ms",
    "zookeeper.connection.timeout.ms": "zookeeper.connection.timeout.ms",
    "fetch.message.max.bytes": "kafka.max.partition.fetch.bytes",
    "fetch.wait.max.ms": "kafka.fetch.max.wait.ms",
    "socket.timeout.ms": "kafka.request.timeout.ms",
    "socket.receive.buffer.bytes": "kafka.receive.buffer.bytes",
    # 0.7
    "zk.connect": "zookeeper.connect",
    "zk.sessiontimeout.ms": "zookeeper.session.timeout.ms",
    "zk.connectiontimeout.ms": "zookeeper.connection.timeout.ms",
    "groupid": "kafka.group.id",
    "fetch.size": "kafka.max.partition.fetch.bytes",
    "socket.buffersize": "kafka.receive.buffer.bytes",
}
"""The old name, and the full name of the option that replaces it."""

STARTS_AND_LOSS = (
    "streamgroup has two options for it. Set 'startingOffsets' for where to start and 'failOnDataLoss' for what to do "
    "when records are gone"
)

_REFUSED_OF_CONSUMERS = {
    "auto.commit.enable autocommit.enable": f"{COMMITS_FOLLOW_THE_SINK}. Leave the option out",
    "autooffset.reset": STARTS_AND_LOSS,
    "mirror.topics.whitelist mirror.topics.blacklist": (
        "streamgroup has other options for topics. Set 'subscribe' or 'subscribePattern'"
    ),
}

_IGNORED_OF_CONSUMERS = {
    "autocommit.interval.ms": COMMITS_FOLLOW_THE_SINK,
    "consumer.id consumerid": (
        "streamgroup registers a new consumer id with each ZooKeeper session, to fence commits of older sessions"
    ),
    "rebalance.max.retries rebalance.retries.max rebalance.backoff.ms": (
        "a member claims a partition as soon as its previous owner releases it, without a limit of attempts"
    ),
    "zookeeper.sync.time.ms zk.synctime.ms": (
        "a member writes to ZooKeeper before it reads the committed offsets, so the server is up to date"
    ),
    "offsets.channel.backoff.ms offsets.channel.socket.timeout.ms offsets.commit.max.retries": (
        "commits are retried until the broker accepts them, with the backoff of 'kafka.retry.backoff.ms'"
    ),
    "refresh.leader.backoff.ms backoff.increment.ms": "the backoff of 'kafka.retry.backoff.ms' applies",
    "num.consumer.fetchers queued.max.message.chunks queuedchunks.max mirror.consumer.numthreads": (
        "Spark tasks fetch the records; 'minPartitions' and 'group.prefetch' set how many fetches run in parallel"
    ),
    "consumer.timeout.ms": "a stream waits for new records; use the trigger availableNow to end it",
}


OLD_CONSUMERS: tuple[Option, ...] = (
    *(
        row
        for old, new in _RENAMED_OF_CONSUMERS.items()
        for row in _rows(old, f"streamgroup names it differently. Set '{new}'", Effect.REFUSED)
    ),
    *(row for names, why in _REFUSED_OF_CONSUMERS.items() for row in _rows(names, why, Effect.REFUSED)),
    *(row for names, why in _IGNORED_OF_CONSUMERS.items() for row in _rows(names, why, Effect.IGNORED)),
)
