"""The properties that Java's consumer and producer share as `kafka.*`."""

from __future__ import annotations

from streamgroup.options import kinds
from streamgroup.options.rows import Option, ignored, refused, used
from streamgroup.options.sasl import TOKEN_PROVIDER

SASL: tuple[Option, ...] = (
    used(
        "sasl.mechanism",
        "How the client authenticates, if `kafka.security.protocol` has SASL: PLAIN, SCRAM-SHA-256, "
        "SCRAM-SHA-512, OAUTHBEARER or GSSAPI (Kerberos).",
        kinds.TEXT,
        default_text="`GSSAPI`",
    ),
    used(
        "sasl.jaas.config",
        "The login module of the mechanism with its options, as in Java: `...PlainLoginModule required "
        'username="..." password="...";`. A password may be `env:NAME` or `file:/path`.',
        kinds.SECRET,
    ),
    used(
        "sasl.kerberos.service.name",
        "GSSAPI: the first part of the brokers' principals, mostly `kafka`. `serviceName` in `kafka.sasl.jaas.config` "
        "is the older way.",
        kinds.TEXT,
    ),
    used(
        "sasl.oauthbearer.token.endpoint.url",
        "Where OAUTHBEARER gets tokens: `https:` or `http:` requests them from a token endpoint with the client's "
        "credentials, `file:` reads a file for each connection.",
        kinds.TEXT,
    ),
    used(
        "sasl.oauthbearer.client.credentials.client.id",
        "Name of the client at the token endpoint. `clientId` in `kafka.sasl.jaas.config` is the older way.",
        kinds.TEXT,
    ),
    used(
        "sasl.oauthbearer.client.credentials.client.secret",
        "Secret of the client at the token endpoint, or `env:NAME` or `file:/path`. `clientSecret` in "
        "`kafka.sasl.jaas.config` is the older way.",
        kinds.SECRET,
    ),
    used("sasl.oauthbearer.scope", "The scope to request from the token endpoint.", kinds.TEXT),
    used(
        "sasl.oauthbearer.header.urlencode",
        "Whether the client percent-encodes its credentials for the token endpoint, as RFC 6749 requires.",
        kinds.BOOLEAN,
        default_text="`false`",
    ),
    used(
        "sasl.login.callback.handler.class",
        "Java needs it in addition to a token endpoint. Only Kafka's own handlers are accepted, and change nothing.",
        kinds.LOGIN_HANDLER,
    ),
    used(
        "sasl.oauthbearer.jwt.retriever.class",
        "How Java gets a token since Kafka 4.1: `DefaultJwtRetriever`, `ClientCredentialsJwtRetriever` or "
        "`FileJwtRetriever` of Kafka itself. It must fit `kafka.sasl.oauthbearer.token.endpoint.url`, which decides.",
        kinds.JWT_RETRIEVER,
    ),
)

TOKEN_ROW = Option(
    TOKEN_PROVIDER,
    "A Python function `module:function` that returns a token for OAUTHBEARER, or a token and its end in "
    "milliseconds since 1970. No token endpoint is used. Set it for the signer of a cloud, such as that for "
    "Amazon MSK.",
    kinds.TEXT,
)
"""An option of our own, of reads and of writes."""

SASL_REFUSED: tuple[Option, ...] = (
    *(
        refused(
            name,
            "it names a Java class, which Python cannot run. For tokens of a cloud set "
            "'kafka.sasl.mechanism=OAUTHBEARER' and 'sasl.tokenProvider'",
        )
        for name in ("sasl.client.callback.handler.class", "sasl.login.class")
    ),
    *(
        refused(
            f"sasl.oauthbearer.assertion.{name}",
            "tokens for an assertion (RFC 7523) are not supported. Get them by a function: set 'sasl.tokenProvider'",
        )
        for name in (
            *("algorithm", "claim.aud", "claim.exp.seconds", "claim.iss", "claim.jti.include", "claim.nbf.seconds"),
            *("claim.sub", "file", "private.key.file", "private.key.passphrase", "template.file"),
        )
    ),
)

SASL_IGNORED: tuple[Option, ...] = (
    *ignored(
        "sasl.kerberos.kinit.cmd",
        "the client runs no program: it gets tickets from a keytab itself, and reads a ticket cache unchanged",
    ),
    *ignored(
        "sasl.kerberos.min.time.before.relogin sasl.kerberos.ticket.renew.jitter "
        "sasl.kerberos.ticket.renew.window.factor",
        "a ticket from a keytab is renewed after four fifths of its life",
    ),
    *ignored("sasl.login.connect.timeout.ms sasl.login.read.timeout.ms", "a token endpoint has 10 s to answer"),
    *ignored(
        "sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor "
        "sasl.login.refresh.window.jitter",
        "a token is renewed after four fifths of its life",
    ),
    *ignored(
        "sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms",
        "after a failed request for a token the client tries again after 'kafka.retry.backoff.ms'",
    ),
    *ignored(
        "sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer "
        "sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms "
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url "
        "sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name",
        "the brokers verify tokens, the client does not",
    ),
)

_CONNECTION: tuple[Option, ...] = (
    used(
        "bootstrap.servers",
        "Addresses of some brokers, separated by commas; the client learns all others from them. Write an IPv6 address "
        "in brackets. Required unless `zookeeper.connect` is set.",
        kinds.SERVERS,
        "client.bootstrap_servers",
    ),
    used(
        "client.id",
        "Name of the client in the brokers' request logs and quotas, and in descriptions of a group. Set it to "
        "distinguish queries there.",
        kinds.TEXT,
        "client.client_id",
    ),
    used(
        "security.protocol",
        "Protocol of the connection to the brokers. SSL encrypts it with TLS. SASL authenticates the client by "
        "`kafka.sasl.mechanism`.",
        kinds.SECURITY,
        "client.security_protocol",
    ),
    used(
        "request.timeout.ms",
        "Milliseconds to wait for the response to one request.",
        kinds.POSITIVE,
        "client.request_timeout_ms",
    ),
    used(
        "socket.connection.setup.timeout.ms",
        "Milliseconds that one attempt to connect to a broker may take.",
        kinds.POSITIVE,
        "client.connection_setup_timeout_ms",
    ),
    used(
        "retry.backoff.ms",
        "Milliseconds to wait before the first retry of a request. The wait doubles with every further retry.",
        kinds.integer(0),
        "client.retry_backoff_ms",
    ),
    used(
        "retry.backoff.max.ms",
        "The longest wait before a retry, in milliseconds.",
        kinds.integer(0),
        "client.retry_backoff_max_ms",
    ),
    used(
        "metadata.max.age.ms",
        "Milliseconds after which the client refreshes its metadata. A stream that reads refreshes it every 5 s, to "
        "find new topics and partitions, or less often if it has more than some 6,000 partitions.",
        kinds.POSITIVE_LONG,
        "client.metadata_max_age_ms",
    ),
    used(
        "connections.max.idle.ms",
        "Milliseconds after which the client closes a connection that it does not use. Keep it below the idle timeout "
        "of each firewall and load balancer on the way: some drop connections without notice. -1 keeps connections "
        "open.",
        kinds.integer(-1, kinds.LONG_MAX),
        "client.connections_max_idle_ms",
    ),
    used(
        "receive.buffer.bytes",
        "Bytes of the socket's receive buffer (SO_RCVBUF). -1 leaves the size to the operating system.",
        kinds.integer(-1),
        "client.receive_buffer_bytes",
    ),
    used(
        "send.buffer.bytes",
        "Bytes of the socket's send buffer (SO_SNDBUF). -1 leaves the size to the operating system.",
        kinds.integer(-1),
        "client.send_buffer_bytes",
    ),
)

TLS: tuple[Option, ...] = (
    used(
        "ssl.enabled.protocols",
        "Versions of TLS that the client offers.",
        kinds.TLS_VERSIONS,
        "tls.enabled_protocols",
    ),
    used(
        "ssl.protocol",
        "The newest version of TLS to use. Set TLSv1.2 for brokers that fail with TLS 1.3. TLS means the newest.",
        kinds.TLS_PROTOCOL,
        "tls.protocol",
    ),
    used(
        "ssl.cipher.suites",
        "Cipher suites that are allowed, by their names in Java, separated by commas. Suites of TLS 1.3 are all "
        "offered if one of them is listed; a broker that chooses an unlisted one is refused. By default those that "
        "OpenSSL enables.",
        kinds.CIPHER_SUITES,
        "tls.cipher_suites",
    ),
    used(
        "ssl.endpoint.identification.algorithm",
        "How the client verifies that a broker's certificate is valid for its host name. An empty value switches the "
        "verification off, and the log warns.",
        kinds.ENDPOINT_IDENTIFICATION,
        "tls.endpoint_identification",
    ),
    used(
        "ssl.truststore.type",
        "Format of the trusted certificates. PKCS12 files are also read with `jks`. JKS files are refused, with the "
        "command that converts them.",
        kinds.STORE_TYPE,
        "tls.truststore_type",
    ),
    used(
        "ssl.truststore.location",
        "Path of the file with the certificates to trust. It must exist on the driver and on each executor. By default "
        "the client trusts what the operating system trusts.",
        kinds.TEXT,
        "tls.truststore_location",
    ),
    used(
        "ssl.truststore.password",
        "Password of the PKCS12 file, or a reference to it: `env:NAME` or `file:/path`.",
        kinds.SECRET,
        "tls.truststore_password",
    ),
    used(
        "ssl.truststore.certificates",
        "The certificates to trust as PEM, in place of a file. May be a reference: `env:NAME` or `file:/path`.",
        kinds.SECRET,
        "tls.truststore_certificates",
    ),
    used(
        "ssl.keystore.type",
        "Format of the client's key and certificate, as in `kafka.ssl.truststore.type`.",
        kinds.STORE_TYPE,
        "tls.keystore_type",
    ),
    used(
        "ssl.keystore.location",
        "Path of the file with the client's private key and certificate chain, for brokers that demand a client "
        "certificate. It must exist on the driver and on each executor.",
        kinds.TEXT,
        "tls.keystore_location",
    ),
    used(
        "ssl.keystore.password",
        "Password of the PKCS12 file, or a reference to it: `env:NAME` or `file:/path`.",
        kinds.SECRET,
        "tls.keystore_password",
    ),
    used(
        "ssl.keystore.key",
        "The client's private key as PEM, in place of a file. Prefer a reference: `env:NAME` or `file:/path`.",
        kinds.SECRET,
        "tls.keystore_key",
    ),
    used(
        "ssl.keystore.certificate.chain",
        "The client's certificate as PEM, then its authorities' certificates. Requires `kafka.ssl.keystore.key`.",
        kinds.SECRET,
        "tls.keystore_certificate_chain",
    ),
    used(
        "ssl.key.password",
        "Password of the private key if it is encrypted PEM, or a reference to it: `env:NAME` or `file:/path`.",
        kinds.SECRET,
        "tls.key_password",
    ),
)

CLIENT: tuple[Option, ...] = (*_CONNECTION, *TLS, *SASL)

CLIENT_REFUSED: tuple[Option, ...] = (
    refused(
        "config.providers",
        "streamgroup would take references such as ${file:…} literally. Set the values themselves",
    ),
    refused(
        "interceptor.classes",
        "an interceptor is a Java class, which Python cannot run, and it could change the records. Change them in the "
        "query instead",
    ),
    refused(
        "ssl.engine.factory.class",
        "the engine is a Java class, which Python cannot run. Set the other options of 'kafka.ssl.' instead",
    ),
    refused(
        "security.providers",
        "the providers are Java classes, which Python cannot run. TLS is implemented by OpenSSL",
    ),
    *SASL_REFUSED,
)

_OPENSSL = "TLS is implemented by OpenSSL, which has no such setting"
JAVA = "the property concerns the internals of the Java client"

CLIENT_IGNORED: tuple[Option, ...] = (
    *ignored("client.dns.lookup", "every address of a host name is tried"),
    *ignored(
        "metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms",
        "the client always requests metadata from the bootstrap servers when no other broker answers",
    ),
    *ignored("reconnect.backoff.ms reconnect.backoff.max.ms", "the backoff of 'kafka.retry.backoff.ms' applies"),
    *ignored(
        "socket.connection.setup.timeout.max.ms",
        "every attempt to connect has the timeout of 'kafka.socket.connection.setup.timeout.ms'",
    ),
    *ignored(
        "auto.include.jmx.reporter enable.metrics.push metric.reporters metrics.num.samples metrics.recording.level "
        "metrics.sample.window.ms",
        JAVA,
    ),
    *ignored(
        "ssl.keymanager.algorithm ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm",
        _OPENSSL,
    ),
    *SASL_IGNORED,
)
