"""The table of Kafka's properties as `kafka.*`: every property of the Java consumer and producer.

USED properties have Java's names, and Java's defaults save where `types` gives the reason. WITHOUT_EFFECT ones are told
of once in the log. REFUSED ones would break what Spark or streamgroup promises.
"""

from __future__ import annotations

from streamgroup.options import kinds
from streamgroup.options.old_consumers import OLD_CONSUMERS
from streamgroup.options.rows import Effect, Option
from streamgroup.options.source import NO_GROUP_IN_BATCH

PREFIX = "kafka."


def _used(name: str, doc: str, kind: kinds.Kind, target: str, default: str = "") -> Option:
    return Option(PREFIX + name, doc, kind, target, default)


def _group(name: str, doc: str, kind: kinds.Kind, target: str = "", default: str = "") -> Option:
    return Option(PREFIX + name, doc, kind, target, default, batch=Effect.WITHOUT_EFFECT, why=NO_GROUP_IN_BATCH)


def _refused(name: str, why: str) -> Option:
    return Option(PREFIX + name, "", stream=Effect.REFUSED, batch=Effect.REFUSED, why=why)


def _without_effect(names: str, why: str) -> tuple[Option, ...]:
    return tuple(
        Option(PREFIX + name, "", stream=Effect.WITHOUT_EFFECT, batch=Effect.WITHOUT_EFFECT, why=why)
        for name in names.split()
    )


_CLIENT = (
    Option(
        PREFIX + "bootstrap.servers",
        "Brokers to ask first; required without `zookeeper.connect`. Several separated by commas, an IPv6 address in "
        "brackets.",
        kinds.SERVERS,
        "client.bootstrap_servers",
    ),
    _used("client.id", "The name under which brokers log and throttle.", kinds.TEXT, "client.client_id"),
    _used("security.protocol", "Only PLAINTEXT for now.", kinds.SECURITY, "client.security_protocol"),
    _used("request.timeout.ms", "How long one request may take.", kinds.POSITIVE, "client.request_timeout_ms"),
    _used(
        "default.api.timeout.ms",
        "How long an operation may take with all its retries.",
        kinds.POSITIVE,
        "client.default_api_timeout_ms",
    ),
    _used(
        "socket.connection.setup.timeout.ms",
        "How long one try to connect may take.",
        kinds.POSITIVE,
        "client.connection_setup_timeout_ms",
    ),
    _used(
        "retry.backoff.ms", "The first wait before a retry; it doubles.", kinds.integer(0), "client.retry_backoff_ms"
    ),
    _used("retry.backoff.max.ms", "The longest wait before a retry.", kinds.integer(0), "client.retry_backoff_max_ms"),
    _used("metadata.max.age.ms", "How old metadata may get.", kinds.POSITIVE_LONG, "client.metadata_max_age_ms"),
    _used("receive.buffer.bytes", "SO_RCVBUF; -1: the system's own.", kinds.integer(-1), "client.receive_buffer_bytes"),
    _used("send.buffer.bytes", "SO_SNDBUF; -1: the system's own.", kinds.integer(-1), "client.send_buffer_bytes"),
)

_FETCH = (
    _used(
        "isolation.level",
        "Whether records of aborted and open transactions are read.",
        kinds.ISOLATION,
        "fetch.isolation",
        "`read_uncommitted`",
    ),
    _used("fetch.min.bytes", "A broker answers once it has as much.", kinds.integer(0), "fetch.min_bytes"),
    _used("fetch.max.wait.ms", "The longest it waits for that.", kinds.integer(0), "fetch.max_wait_ms"),
    _used("fetch.max.bytes", "The most that one answer holds.", kinds.POSITIVE, "fetch.max_bytes"),
    _used(
        "max.partition.fetch.bytes",
        "The most that one answer holds of a partition; with the prefetch it bounds a task's memory.",
        kinds.POSITIVE,
        "fetch.max_partition_bytes",
    ),
    _used("check.crcs", "Whether the checksums of batches are verified.", kinds.BOOLEAN, "fetch.check_crcs"),
)

_GROUP = (
    _group(
        "group.id", "The group that a stream joins (see `group.mode`).", kinds.TEXT, "group.group_id", default="none"
    ),
    _group(
        "group.instance.id",
        "The name of a static member, which keeps its partitions over a restart.",
        kinds.TEXT,
        "group.instance_id",
        "none",
    ),
    _group(
        "session.timeout.ms",
        "How long the group waits for a member's heartbeat until its partitions move.",
        kinds.POSITIVE,
        "group.session_timeout_ms",
    ),
    _group(
        "heartbeat.interval.ms",
        "How often a member shows that it lives; below the session timeout.",
        kinds.POSITIVE,
        "group.heartbeat_interval_ms",
    ),
    _group(
        "max.poll.interval.ms",
        "How long a rebalance waits for a member to finish its batch.",
        kinds.POSITIVE,
        "group.max_poll_interval_ms",
    ),
    _group(
        "partition.assignment.strategy",
        "What the member offers, the preferred first: `streamgroup-range`, `range`, `roundrobin`, "
        "`cooperative-sticky`, or Java's class names of all but the first. The group settles on one that all members "
        "know. With `cooperative-sticky` alone batches go on while the group rebalances.",
        kinds.STRATEGIES,
        "group.strategies",
    ),
    _group(
        "offsets.storage",
        "Where the offsets of a group are committed that is registered in ZooKeeper: there, or at the brokers (0.8.2 "
        "and later), which then check no generation.",
        kinds.STORAGE,
        "group.offsets_storage",
        "`zookeeper` with `zookeeper.connect`, else the brokers",
    ),
    _group(
        "dual.commit.enabled",
        "With `kafka.offsets.storage=kafka`: commit to ZooKeeper as well, and start at the larger of both.",
        kinds.BOOLEAN,
        "group.dual_commit",
        "`true` with `kafka.offsets.storage=kafka`",
    ),
    _group("group.protocol", "Only `classic` for now.", kinds.PROTOCOL, default="`classic`"),
)

_REFUSED = (
    _refused(
        "auto.offset.reset",
        "where to start is said by 'startingOffsets', and what to do when records are gone by 'failOnDataLoss'",
    ),
    _refused("key.deserializer", "keys arrive as bytes: cast or decode the column 'key' in the query"),
    _refused("value.deserializer", "values arrive as bytes: cast or decode the column 'value' in the query"),
    _refused(
        "enable.auto.commit",
        "offsets are committed when their batch has sunk, never by the clock: else records could be lost",
    ),
    _refused("config.providers", "references such as ${file:…} would be taken literally: give the values themselves"),
    _refused("interceptor.classes", "an interceptor could change the records, and Java classes do not run in Python"),
)

_PLAIN = "the connection is PLAINTEXT"
_JAVA = "it is about the inside of the Java client"
_PRODUCER = "it is a producer's property"

_WITHOUT_EFFECT = (
    *_without_effect("allow.auto.create.topics", "a source never creates topics"),
    *_without_effect("auto.commit.interval.ms", "offsets are committed when their batch has sunk"),
    *_without_effect("client.dns.lookup", "all addresses of a host are tried"),
    *_without_effect("client.rack", "records are fetched from the leaders"),
    *_without_effect(
        "connections.max.idle.ms", "connections live as long as their query or the executor's worker process does"
    ),
    *_without_effect("exclude.internal.topics", "a pattern never matches internal topics"),
    *_without_effect("group.remote.assignor", "it belongs to the protocol of KIP-848"),
    *_without_effect("max.poll.records", "there is no poll: 'maxRecordsPerPartition' bounds a task"),
    *_without_effect(
        "metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms",
        "the bootstrap servers are asked whenever no known broker answers",
    ),
    *_without_effect("reconnect.backoff.ms reconnect.backoff.max.ms", "the waits of 'kafka.retry.backoff.ms' apply"),
    *_without_effect(
        "socket.connection.setup.timeout.max.ms",
        "every try to connect has the timeout of 'kafka.socket.connection.setup.timeout.ms'",
    ),
    *_without_effect("share.acknowledgement.mode", "it belongs to share groups"),
    *_without_effect(
        "auto.include.jmx.reporter enable.metrics.push internal.leave.group.on.close "
        "internal.throw.on.fetch.stable.offset.unsupported metric.reporters metrics.num.samples "
        "metrics.recording.level metrics.sample.window.ms",
        _JAVA,
    ),
    *_without_effect(
        "security.providers ssl.cipher.suites ssl.enabled.protocols ssl.endpoint.identification.algorithm "
        "ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain "
        "ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider "
        "ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates "
        "ssl.truststore.location ssl.truststore.password ssl.truststore.type",
        _PLAIN,
    ),
    *_without_effect(
        "sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd "
        "sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter "
        "sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class sasl.login.class "
        "sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds "
        "sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter "
        "sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism "
        "sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud "
        "sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss "
        "sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds "
        "sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file "
        "sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase "
        "sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id "
        "sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.clock.skew.seconds "
        "sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode "
        "sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms "
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url "
        "sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope "
        "sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url",
        _PLAIN,
    ),
    *_without_effect(
        "acks batch.size buffer.memory compression.gzip.level compression.lz4.level compression.type "
        "compression.zstd.level delivery.timeout.ms enable.idempotence key.serializer linger.ms max.block.ms "
        "max.in.flight.requests.per.connection max.request.size metadata.max.idle.ms "
        "partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class "
        "partitioner.ignore.keys retries transaction.timeout.ms transaction.two.phase.commit.enable transactional.id "
        "value.serializer",
        _PRODUCER,
    ),
)

KAFKA: tuple[Option, ...] = (*_CLIENT, *_FETCH, *_GROUP, *_REFUSED, *_WITHOUT_EFFECT, *OLD_CONSUMERS)
