"""The properties `kafka.sasl.*`. `sasl.py` combines those that are used."""

from __future__ import annotations

from streamgroup.options import kinds
from streamgroup.options.properties import ignored, refused, used
from streamgroup.options.rows import Option
from streamgroup.options.sasl import TOKEN_PROVIDER

SASL: tuple[Option, ...] = (
    used(
        "sasl.mechanism",
        "How the client authenticates, if `kafka.security.protocol` has SASL: PLAIN, SCRAM-SHA-256, "
        "SCRAM-SHA-512, OAUTHBEARER or GSSAPI (Kerberos).",
        kinds.TEXT,
        default="GSSAPI",
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
        "Where OAUTHBEARER gets tokens: `https:` or `http:` asks a token endpoint with the client's credentials, "
        "`file:` reads a file for each connection.",
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
    used("sasl.oauthbearer.scope", "The scope to ask the token endpoint for.", kinds.TEXT),
    used(
        "sasl.oauthbearer.header.urlencode",
        "Whether the client percent-encodes its credentials for the token endpoint, as RFC 6749 says.",
        kinds.BOOLEAN,
        default="false",
    ),
    used(
        "sasl.login.callback.handler.class",
        "Java needs it beside a token endpoint. Only the handlers of Kafka itself are accepted, and change nothing.",
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
    "milliseconds since 1970. No token endpoint is asked. Set it for the signer of a cloud, such as that for "
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
        "the client runs no program: it gets tickets from a keytab by itself, and reads a ticket cache as it is",
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
