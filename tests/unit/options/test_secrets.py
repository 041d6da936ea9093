from __future__ import annotations

import pytest

from streamgroup.errors import ConfigError
from streamgroup.options.parse import parse_source
from streamgroup.options.secrets import HIDDEN, redact

SECRETS = [
    "kafka.ssl.keystore.password",
    "kafka.SSL.Key.Password",
    "kafka.sasl.jaas.config",
    "kafka.ssl.keystore.key",
    "kafka.ssl.keystore.certificate.chain",
    "kafka.ssl.truststore.certificates",
    "kafka.sasl.oauthbearer.client.credentials.client.secret",
    "kafka.listener.name.x.ssl.truststore.password",
]


@pytest.mark.parametrize("name", SECRETS)
def test_secrets_are_hidden_and_the_rest_is_shown(name: str) -> None:
    assert redact({name: "hunter2", "subscribe": "orders", "kafka.group.id": "etl"}) == {
        name: HIDDEN,
        "subscribe": "orders",
        "kafka.group.id": "etl",
    }


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("name", [*SECRETS, "kafka.sasl.password", "my.secret"])
def test_no_message_and_no_note_tells_a_secret(name: str, streaming: bool) -> None:
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "kafka.group.id": "g", name: "hunter2"}
    try:
        said = repr(parse_source(given, streaming=streaming))
    except ConfigError as error:
        said = str(error)
    assert "hunter2" not in said
    with pytest.raises(ConfigError) as caught:
        parse_source({**given, "minPartitions": "x"}, streaming=streaming)
    assert "hunter2" not in str(caught.value)
