"""`kafka.sasl.*` among the options of a read: how they combine with the protocol, and what the log says."""

from __future__ import annotations

import pytest

from streamgroup.errors import ConfigError
from streamgroup.options.parse import parse_sink
from streamgroup.options.sasl import OAuthOptions, SaslOptions
from streamgroup.options.secrets import Secret
from streamgroup.options.types import SinkOptions

PLAIN_JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="hunter2";'
OAUTH = {"kafka.sasl.mechanism": "OAUTHBEARER"}


def write(protocol: str, options: dict[str, str]) -> SinkOptions:
    return parse_sink({"kafka.bootstrap.servers": "b1:9092", "kafka.security.protocol": protocol, **options})


def test_the_mechanism_and_the_login_module_give_the_credentials() -> None:
    options = write("sasl_ssl", {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": PLAIN_JAAS})
    assert options.client.security_protocol == "SASL_SSL"
    assert options.client.sasl == SaslOptions("PLAIN", "ann", Secret("hunter2"))
    assert options.client.tls is not None
    assert "hunter2" not in repr(options)
    assert options.notes == ()


def test_a_password_in_the_clear_is_warned_of() -> None:
    options = write("SASL_PLAINTEXT", {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": PLAIN_JAAS})
    assert options.client.tls is None
    assert any("with PLAIN anyone on the network can read the credentials. Use SASL_SSL" in n for n in options.notes)


def test_a_token_endpoint_without_tls_is_warned_of() -> None:
    name = "kafka.sasl.oauthbearer"
    credentials = {f"{name}.client.credentials.client.id": "me", f"{name}.client.credentials.client.secret": "s"}
    options = write("SASL_SSL", {**OAUTH, **credentials, f"{name}.token.endpoint.url": "http://idp/token"})
    assert any("begins with http: anyone on the network can read the client secret" in note for note in options.notes)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_without_sasl_its_options_are_ignored(protocol: str) -> None:
    options = write(protocol, {"kafka.sasl.mechanism": "nonsense"})
    assert options.client.sasl is None
    assert f"ignored option kafka.sasl.mechanism: kafka.security.protocol is {protocol}, which has no SASL" in (
        options.notes
    )


def test_a_function_for_tokens_has_no_effect_without_sasl() -> None:
    options = write("SSL", {"sasl.tokenProvider": "m:f"})
    assert "ignored option sasl.tokenProvider: kafka.security.protocol is SSL, which has no SASL" in options.notes


ENDPOINT = "kafka.sasl.oauthbearer.token.endpoint.url"
SCOPE = {"kafka.sasl.oauthbearer.scope": "kafka"}
PLAIN = {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": PLAIN_JAAS}
UNSECURED_JAAS = (
    'org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="ann";'
)


@pytest.mark.parametrize(
    ("options", "note"),
    [
        (
            {**PLAIN, "kafka.sasl.kerberos.service.name": "kafka", "sasl.tokenProvider": "m:f", **SCOPE},
            "ignored options kafka.sasl.kerberos.service.name, kafka.sasl.oauthbearer.scope, sasl.tokenProvider: "
            "kafka.sasl.mechanism is PLAIN",
        ),
        (
            {**OAUTH, "sasl.tokenProvider": "m:f", **SCOPE},
            "ignored option kafka.sasl.oauthbearer.scope: sasl.tokenProvider gives the tokens",
        ),
        (
            {**OAUTH, ENDPOINT: "file:/token", **SCOPE},
            "ignored option kafka.sasl.oauthbearer.scope: the token is read from a file",
        ),
        (
            {**OAUTH, "kafka.sasl.jaas.config": UNSECURED_JAAS, **SCOPE},
            "ignored option kafka.sasl.oauthbearer.scope: the token is unsecured, and no token endpoint gives it",
        ),
    ],
)
def test_options_that_the_mechanism_does_not_use_are_named(options: dict[str, str], note: str) -> None:
    assert write("SASL_SSL", options).notes == (note,)


def test_a_function_gives_tokens_without_a_login_module() -> None:
    options = write("SASL_SSL", {**OAUTH, "sasl.tokenProvider": "my_company.tokens:for_kafka"})
    assert options.client.sasl == SaslOptions("OAUTHBEARER", oauth=OAuthOptions(provider="my_company.tokens:for_kafka"))


def test_credentials_for_a_token_endpoint_need_no_login_module() -> None:
    credentials = "kafka.sasl.oauthbearer.client.credentials.client"
    endpoint = {"kafka.sasl.oauthbearer.token.endpoint.url": "https://idp/token", f"{credentials}.id": "me"}
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    others = {"kafka.sasl.oauthbearer.header.urlencode": "true", "kafka.sasl.login.callback.handler.class": handler}
    options = write("SASL_SSL", {**OAUTH, **endpoint, **others, f"{credentials}.secret": "s3cret"})
    asked = OAuthOptions("https://idp/token", "me", Secret("s3cret"), header_urlencode=True)
    assert options.client.sasl == SaslOptions("OAUTHBEARER", oauth=asked)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.sasl.mechanism": "PLAIN"}, "option kafka.sasl.jaas.config is not set. Set it to: org.apache"),
        ({"kafka.sasl.mechanism": "SCRAM-SHA-512"}, r"spark\.kafka\.clusters\.\* passes tokens only to Java classes"),
        (
            {"sasl.tokenProvider": "m:f"},
            r"mechanism is not set, and its default is GSSAPI\. Set kafka\.sasl\.mechanism=OA",
        ),
        ({**OAUTH, "sasl.tokenProvider": "no colon"}, "expected module:function, for example"),
        (
            {**OAUTH, "sasl.tokenProvider": "m:f", "kafka.sasl.oauthbearer.token.endpoint.url": "https://idp"},
            "cannot use sasl.tokenProvider together with kafka.sasl.oauthbearer.token.endpoint.url",
        ),
        ({**OAUTH, "kafka.sasl.login.callback.handler.class": "com.acme.X"}, "Set kafka|set sasl.tokenProvider"),
        ({"kafka.sasl.client.callback.handler.class": "com.acme.X"}, "it names a Java class, which Python cannot run"),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        write("SASL_SSL", options)
