"""The table of what the consumers of Kafka 0.7 and 0.8 had beside today's properties, as `kafka.*`.

What has another name by now is refused with that name, so that nobody's setting is lost without a word. Not here, since
they are used: `offsets.storage` and `dual.commit.enabled` (`streamgroup.options.kafka`).
"""

from __future__ import annotations

from streamgroup.options.rows import Effect, Option

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
"""The old name and, in full, the option of this source that does it."""

_CONTRARY = {
    "auto.commit.enable autocommit.enable": (
        "offsets are committed when their batch has sunk, never by the clock: else records could be lost"
    ),
    "autooffset.reset": (
        "where to start is said by 'startingOffsets', and what to do when records are gone by 'failOnDataLoss'"
    ),
    "mirror.topics.whitelist mirror.topics.blacklist": "topics are named by 'subscribe' and 'subscribePattern'",
}

_WITHOUT_EFFECT = {
    "autocommit.interval.ms": "offsets are committed when their batch has sunk",
    "consumer.id consumerid": "each session with ZooKeeper registers an id of its own, by which commits are fenced",
    "rebalance.max.retries rebalance.retries.max rebalance.backoff.ms": (
        "a partition that another consumer still holds is claimed as soon as it is let go, without a limit"
    ),
    "zookeeper.sync.time.ms zk.synctime.ms": (
        "what was committed is read after a write of our own: no server lags behind it"
    ),
    "offsets.channel.backoff.ms offsets.channel.socket.timeout.ms offsets.commit.max.retries": (
        "commits are retried until they are accepted, by the waits of 'kafka.retry.backoff.ms'"
    ),
    "refresh.leader.backoff.ms backoff.increment.ms": "the waits of 'kafka.retry.backoff.ms' apply",
    "num.consumer.fetchers queued.max.message.chunks queuedchunks.max mirror.consumer.numthreads": (
        "records are fetched by Spark's tasks: 'minPartitions' and 'group.prefetch' say how many at once"
    ),
    "consumer.timeout.ms": "a stream waits for records: a trigger that ends (availableNow) says when enough is read",
}


def _rows(names: str, why: str, effect: Effect) -> tuple[Option, ...]:
    return tuple(Option(f"kafka.{name}", "", stream=effect, batch=effect, why=why) for name in names.split())


OLD_CONSUMERS: tuple[Option, ...] = (
    *(row for old, new in _RENAMED.items() for row in _rows(old, f"here it is '{new}'", Effect.REFUSED)),
    *(row for names, why in _CONTRARY.items() for row in _rows(names, why, Effect.REFUSED)),
    *(row for names, why in _WITHOUT_EFFECT.items() for row in _rows(names, why, Effect.WITHOUT_EFFECT)),
)
