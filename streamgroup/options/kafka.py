"""The table of Kafka's properties as `kafka.*`: every property of the Java consumer and of the Java producer.

A used property has Java's name and Java's default, unless `types` gives a reason for another default. An ignored
property is named once in the log. A refused property would break what Spark or streamgroup guarantees.
"""

from __future__ import annotations

from streamgroup.options import kinds
from streamgroup.options.old_consumers import COMMITS_FOLLOW_THE_SINK, OLD_CONSUMERS, STARTS_AND_LOSS
from streamgroup.options.rows import Effect, Option, Scope

PREFIX = "kafka."


def _used(
    name: str, doc: str, kind: kinds.Kind, target: str = "", *, default: str = "", scope: Scope = Scope.ALL
) -> Option:
    return Option(PREFIX + name, doc, kind, target, default, scope)


def _refused(name: str, why: str) -> Option:
    return Option(PREFIX + name, scope=Scope.NONE, elsewhere=Effect.REFUSED, why=why)


def _ignored(names: str, why: str) -> tuple[Option, ...]:
    return tuple(Option(PREFIX + name, scope=Scope.NONE, why=why) for name in names.split())


_CLIENT = (
    _used(
        "bootstrap.servers",
        "Addresses of some brokers, separated by commas; the driver asks them for all others. Write an IPv6 address in "
        "brackets. Required unless `zookeeper.connect` is set.",
        kinds.SERVERS,
        "client.bootstrap_servers",
    ),
    _used(
        "client.id",
        "Name of the client in the brokers' request logs and quotas. Set it to tell queries apart there.",
        kinds.TEXT,
        "client.client_id",
    ),
    _used(
        "security.protocol",
        "Protocol of the connection to the brokers. Only PLAINTEXT is supported.",
        kinds.SECURITY,
        "client.security_protocol",
    ),
    _used(
        "request.timeout.ms",
        "Milliseconds to wait for the response to one request.",
        kinds.POSITIVE,
        "client.request_timeout_ms",
    ),
    _used(
        "default.api.timeout.ms",
        "Milliseconds that one operation on the cluster, such as a lookup of offsets, may take with all its retries.",
        kinds.POSITIVE,
        "client.default_api_timeout_ms",
    ),
    _used(
        "socket.connection.setup.timeout.ms",
        "Milliseconds that one attempt to connect to a broker may take.",
        kinds.POSITIVE,
        "client.connection_setup_timeout_ms",
    ),
    _used(
        "retry.backoff.ms",
        "Milliseconds to wait before the first retry of a request. The wait doubles with every further retry.",
        kinds.integer(0),
        "client.retry_backoff_ms",
    ),
    _used(
        "retry.backoff.max.ms",
        "The longest wait before a retry, in milliseconds.",
        kinds.integer(0),
        "client.retry_backoff_max_ms",
    ),
    _used(
        "metadata.max.age.ms",
        "Milliseconds after which the driver refreshes its metadata. Decrease it to find new topics and partitions "
        "sooner.",
        kinds.POSITIVE_LONG,
        "client.metadata_max_age_ms",
    ),
    _used(
        "receive.buffer.bytes",
        "Bytes of the socket's receive buffer (SO_RCVBUF). -1 leaves the size to the operating system.",
        kinds.integer(-1),
        "client.receive_buffer_bytes",
    ),
    _used(
        "send.buffer.bytes",
        "Bytes of the socket's send buffer (SO_SNDBUF). -1 leaves the size to the operating system.",
        kinds.integer(-1),
        "client.send_buffer_bytes",
    ),
)

_FETCH = (
    _used(
        "isolation.level",
        "`read_committed` leaves out records of aborted transactions, and waits at open ones. `read_uncommitted` reads "
        "all records.",
        kinds.ISOLATION,
        "fetch.isolation",
        default="`read_uncommitted`",
    ),
    _used(
        "fetch.min.bytes",
        "Bytes that a broker collects before it answers a fetch request.",
        kinds.integer(0),
        "fetch.min_bytes",
    ),
    _used(
        "fetch.max.wait.ms",
        "The longest time that a broker waits for `kafka.fetch.min.bytes`, in milliseconds. Must be below "
        "`kafka.request.timeout.ms`.",
        kinds.integer(0),
        "fetch.max_wait_ms",
    ),
    _used("fetch.max.bytes", "The most bytes in one fetch response.", kinds.POSITIVE, "fetch.max_bytes"),
    _used(
        "max.partition.fetch.bytes",
        "The most bytes of one partition in a fetch response. With `group.prefetch` it bounds the memory of a task. "
        "Decrease it if executors run out of memory.",
        kinds.POSITIVE,
        "fetch.max_partition_bytes",
    ),
    _used("check.crcs", "Whether tasks verify the checksums of record batches.", kinds.BOOLEAN, "fetch.check_crcs"),
)

_GROUP = (
    _used(
        "group.id",
        "Name of the consumer group. `group.mode` says how the stream uses it.",
        kinds.TEXT,
        "group.group_id",
        default="none",
        scope=Scope.GROUP,
    ),
    _used(
        "group.instance.id",
        "Name of a static member, which keeps its partitions if it rejoins within `kafka.session.timeout.ms`. Each "
        "member needs its own.",
        kinds.TEXT,
        "group.instance_id",
        default="none",
        scope=Scope.MEMBER,
    ),
    _used(
        "session.timeout.ms",
        "Milliseconds without a heartbeat after which the coordinator moves a member's partitions to other members.",
        kinds.POSITIVE,
        "group.session_timeout_ms",
        scope=Scope.MEMBER,
    ),
    _used(
        "heartbeat.interval.ms",
        "Milliseconds between two heartbeats of a member. Must be below `kafka.session.timeout.ms`.",
        kinds.POSITIVE,
        "group.heartbeat_interval_ms",
        scope=Scope.MEMBER,
    ),
    _used(
        "max.poll.interval.ms",
        "Milliseconds that a rebalance waits for a member to finish its batch. Increase it if batches take longer.",
        kinds.POSITIVE,
        "group.max_poll_interval_ms",
        scope=Scope.MEMBER,
    ),
    _used(
        "partition.assignment.strategy",
        "Assignors that the member supports, the preferred one first: `streamgroup-range`, `range`, `roundrobin`, "
        "`cooperative-sticky`. Java's class names work for all but the first. The group uses one that all members "
        "support. With `cooperative-sticky` alone, batches continue during a rebalance.",
        kinds.STRATEGIES,
        "group.strategies",
        scope=Scope.MEMBER,
    ),
    _used(
        "offsets.storage",
        "Where a group that is registered in ZooKeeper commits its offsets: in ZooKeeper, or at the brokers (0.8.2 and "
        "later). For such a group the brokers do not check the generation of a commit.",
        kinds.STORAGE,
        "group.offsets_storage",
        default="`zookeeper` with `zookeeper.connect`, else the brokers",
        scope=Scope.GROUP,
    ),
    _used(
        "dual.commit.enabled",
        "With `kafka.offsets.storage=kafka`, also commits to ZooKeeper, and starts at the larger of both offsets. Set "
        "`false` once no consumer reads offsets from ZooKeeper.",
        kinds.BOOLEAN,
        "group.dual_commit",
        default="`true` with `kafka.offsets.storage=kafka`",
        scope=Scope.GROUP,
    ),
    _used(
        "group.protocol",
        "Protocol of the group. Only `classic` is supported.",
        kinds.PROTOCOL,
        default="`classic`",
        scope=Scope.MEMBER,
    ),
)

_REFUSED = (
    _refused("auto.offset.reset", STARTS_AND_LOSS),
    _refused("key.deserializer", "keys arrive as bytes. Cast or decode the column 'key' in the query"),
    _refused("value.deserializer", "values arrive as bytes. Cast or decode the column 'value' in the query"),
    _refused("enable.auto.commit", f"{COMMITS_FOLLOW_THE_SINK}. Leave the option out"),
    _refused(
        "config.providers",
        "streamgroup would take references such as ${file:…} literally. Set the values themselves",
    ),
    _refused(
        "interceptor.classes",
        "an interceptor is a Java class, which Python cannot run, and it could change the records. Change them in the "
        "query instead",
    ),
)

_PLAIN = "only PLAINTEXT connections are supported"
_JAVA = "the property concerns the internals of the Java client"
_PRODUCER = "the property is for producers"

_IGNORED = (
    *_ignored("allow.auto.create.topics", "a source never creates topics"),
    *_ignored("auto.commit.interval.ms", COMMITS_FOLLOW_THE_SINK),
    *_ignored("client.dns.lookup", "every address of a host name is tried"),
    *_ignored("client.rack", "tasks fetch only from partition leaders"),
    *_ignored("connections.max.idle.ms", "connections stay open as long as the query or the executor's worker process"),
    *_ignored("exclude.internal.topics", "a pattern never matches internal topics"),
    *_ignored("group.remote.assignor", "the property is for the group protocol of KIP-848"),
    *_ignored("max.poll.records", "tasks do not poll; 'maxRecordsPerPartition' limits a task"),
    *_ignored(
        "metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms",
        "the client always asks the bootstrap servers when no known broker answers",
    ),
    *_ignored("reconnect.backoff.ms reconnect.backoff.max.ms", "the backoff of 'kafka.retry.backoff.ms' applies"),
    *_ignored(
        "socket.connection.setup.timeout.max.ms",
        "every attempt to connect has the timeout of 'kafka.socket.connection.setup.timeout.ms'",
    ),
    *_ignored("share.acknowledgement.mode", "the property is for share groups"),
    *_ignored(
        "auto.include.jmx.reporter enable.metrics.push internal.leave.group.on.close "
        "internal.throw.on.fetch.stable.offset.unsupported metric.reporters metrics.num.samples "
        "metrics.recording.level metrics.sample.window.ms",
        _JAVA,
    ),
    *_ignored(
        "security.providers ssl.cipher.suites ssl.enabled.protocols ssl.endpoint.identification.algorithm "
        "ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain "
        "ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider "
        "ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates "
        "ssl.truststore.location ssl.truststore.password ssl.truststore.type",
        _PLAIN,
    ),
    *_ignored(
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
    *_ignored(
        "acks batch.size buffer.memory compression.gzip.level compression.lz4.level compression.type "
        "compression.zstd.level delivery.timeout.ms enable.idempotence key.serializer linger.ms max.block.ms "
        "max.in.flight.requests.per.connection max.request.size metadata.max.idle.ms "
        "partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class "
        "partitioner.ignore.keys retries transaction.timeout.ms transaction.two.phase.commit.enable transactional.id "
        "value.serializer",
        _PRODUCER,
    ),
)

KAFKA: tuple[Option, ...] = (*_CLIENT, *_FETCH, *_GROUP, *_REFUSED, *_IGNORED, *OLD_CONSUMERS)
