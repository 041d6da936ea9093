"""The table of the `kafka.*` properties that only the consumers of Kafka 0.7 and 0.8 had.

A property with a new name is refused, and the error has the new name: the user's setting would be lost otherwise.
`offsets.storage` and `dual.commit.enabled` still take effect, so they are in `streamgroup.options.kafka`.
"""

from __future__ import annotations

from streamgroup.options.rows import Effect, Option, Scope

COMMITS_FOLLOW_THE_SINK = "streamgroup commits offsets only after their batch has reached the sink, never on a timer"

_RENAMED = {
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

_REFUSED = {
    "auto.commit.enable autocommit.enable": f"{COMMITS_FOLLOW_THE_SINK}. Leave the option out",
    "autooffset.reset": STARTS_AND_LOSS,
    "mirror.topics.whitelist mirror.topics.blacklist": (
        "streamgroup has other options for topics. Set 'subscribe' or 'subscribePattern'"
    ),
}

_IGNORED = {
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


def _rows(names: str, why: str, effect: Effect) -> tuple[Option, ...]:
    return tuple(Option(f"kafka.{name}", scope=Scope.NONE, elsewhere=effect, why=why) for name in names.split())


OLD_CONSUMERS: tuple[Option, ...] = (
    *(
        row
        for old, new in _RENAMED.items()
        for row in _rows(old, f"streamgroup names it differently. Set '{new}'", Effect.REFUSED)
    ),
    *(row for names, why in _REFUSED.items() for row in _rows(names, why, Effect.REFUSED)),
    *(row for names, why in _IGNORED.items() for row in _rows(names, why, Effect.IGNORED)),
)
