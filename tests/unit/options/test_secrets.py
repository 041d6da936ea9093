from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from streamgroup.errors import ConfigError
from streamgroup.options import kinds
from streamgroup.options.parse import OPTIONS, SINK_OPTIONS, parse_source
from streamgroup.options.secrets import REDACTION_REGEX, Secret, has_secret, is_secret

SECRETS = [
    "zookeeper.password",
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
    shown = [option for option in (name, "subscribe", "kafka.group.id") if not is_secret(option)]
    assert shown == ["subscribe", "kafka.group.id"]


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("name", [*SECRETS, "kafka.sasl.password", "my.secret"])
def test_no_message_and_no_note_shows_a_secret(name: str, streaming: bool) -> None:
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "kafka.group.id": "g", name: "hunter2"}
    try:
        said = repr(parse_source(given, streaming=streaming))
    except ConfigError as error:
        said = str(error)
    assert "hunter2" not in said
    with pytest.raises(ConfigError) as caught:
        parse_source({**given, "minPartitions": "x"}, streaming=streaming)
    assert "hunter2" not in str(caught.value)


# -- references to secrets ---------------------------------------------------------------------------------------


def test_a_reference_is_followed_once_where_the_secret_is_used_and_travels_to_tasks_without_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    for secret in ("hunter2", "env:HOME", "file:/etc/passwd"):
        monkeypatch.setenv("ZK_PASSWORD", secret)
        file.write_text(f"{secret}\n")
        for reference in (Secret("env:ZK_PASSWORD"), Secret(f"file:{file}")):
            assert reference.reveal("zookeeper.password") == secret
            assert secret.encode() not in pickle.dumps(reference)
    assert Secret("envy:9").reveal("zookeeper.password") == "envy:9"


@pytest.mark.parametrize("reference", ["env:NO_SUCH_VARIABLE", "file:/no/such/file"])
def test_a_broken_reference_names_the_option(reference: str) -> None:
    expected = r"^cannot read the secret for option zookeeper\.password: .*(NO_SUCH_VARIABLE|/no/such/file)"
    with pytest.raises(ConfigError, match=expected):
        Secret(reference).reveal("zookeeper.password")


def test_a_secret_shows_itself_in_no_text() -> None:
    secret = Secret("hunter2")
    assert "hunter2" not in f"{secret} {secret!r} {[secret]}"


# -- Spark's redaction -------------------------------------------------------------------------------------------------

SPARKS_DEFAULT = "(?i)secret|password|token|access[.]?key"
SECRET_OPTIONS = sorted({row.name for row in (*OPTIONS.values(), *SINK_OPTIONS.values()) if row.kind is kinds.SECRET})


def test_the_redaction_covers_every_option_that_takes_a_secret_and_sparks_default_does_not() -> None:
    assert len(SECRET_OPTIONS) >= 9
    assert [name for name in (*SECRET_OPTIONS, *SECRETS) if not re.search(REDACTION_REGEX, name)] == []
    assert [name for name in SECRET_OPTIONS if not is_secret(name)] == []
    assert "kafka.sasl.jaas.config" in [name for name in SECRET_OPTIONS if not re.search(SPARKS_DEFAULT, name)]


def test_the_redaction_covers_what_sparks_default_covers_and_leaves_the_rest() -> None:
    for name in ("fs.s3a.secret.key", "javax.jdo.option.ConnectionPassword", "my.TOKEN", "fs.s3a.access.key"):
        assert re.search(SPARKS_DEFAULT, name)
        assert re.search(REDACTION_REGEX, name)
    shown = ("kafka.bootstrap.servers", "kafka.group.id", "subscribe", "kafka.sasl.mechanism", "spark.master")
    assert [name for name in (*shown, "kafka.ssl.keystore.location") if re.search(REDACTION_REGEX, name)] == []


SECRET_NAMES = (
    "fs.azure.account.key.name.dfs.core.windows.net",
    "spark.hadoop.fs.azure.account.key.name",
    "fs.azure.sas.container.name.blob.core.windows.net",
    "fs.azure.account.oauth2.client.secret",
    "fs.s3a.encryption.key",
    "fs.gs.auth.service.account.private.key",
    "my.api_key",
    "es.net.http.auth.pass",
    "mapred.jdbc.passwd",
)


def test_the_redaction_covers_the_secrets_of_storage_and_sinks_by_name() -> None:
    assert [name for name in SECRET_NAMES if not re.search(REDACTION_REGEX, name)] == []
    shown = ("kafka.key.serializer", "fs.s3a.endpoint", "fs.azure.account.auth.type", "spark.sql.shuffle.partitions")
    assert [name for name in shown if has_secret(name)] == []


@pytest.mark.parametrize(
    "value",
    [
        "jdbc:mysql://db/x?user=u&password=hunter2",
        "jdbc:postgresql://u:hunter2@db:5432/x",
        "jdbc:oracle:thin:u/hunter2@db:1521:x",
        "https://u:hunter2@proxy:3128",
        "redis://:hunter2@cache:6379/0",
        "https://name.blob.core.windows.net/c?sv=2022&sig=hunter2%3D",
        "DefaultEndpointsProtocol=https;AccountName=n;AccountKey=hunter2",
        "Endpoint=sb://n.servicebus.windows.net/;SharedAccessKey=hunter2",
        "https://bucket/x?X-Amz-Signature=hunter2",
        "-Djavax.net.ssl.keyStorePassword=hunter2",
        "server=db;uid=u;pwd=hunter2",
        "-----BEGIN PRIVATE KEY-----",
    ],
)
def test_a_secret_in_a_value_is_found(value: str) -> None:
    assert has_secret(value)


@pytest.mark.parametrize(
    "value",
    [
        *("broker-1:9092,broker-2:9092", "s3a://bucket/orders/{member}", "http://host:8080/path", "user@example.com"),
        *("jdbc:postgresql://db:5432/x", "kafka-log@2", "a@b://c", "hdfs://nn:8020/rows", "id AS key"),
    ],
)
def test_a_value_without_a_secret_is_shown(value: str) -> None:
    assert not has_secret(value)
