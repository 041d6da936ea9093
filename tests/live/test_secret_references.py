"""Commands follow references to secrets, in the file of `--command-config` and behind `-X`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamgroup.cli.main import main
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

VARIABLE = "STREAMGROUP_TEST_PASSWORD"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="client" password="{}";'


@pytest.fixture(scope="module")
def secured() -> Iterator[KafkaServer]:
    with KafkaServer(security="SASL_SSL", mechanisms=["PLAIN"]) as server:
        yield server


@pytest.fixture(params=["env", "file"])
def reference(
    request: pytest.FixtureRequest, secured: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """A reference to the password of the user `client`."""
    password = secured.security.client("client", "PLAIN").librdkafka["sasl.password"]
    if request.param == "env":
        monkeypatch.setenv(VARIABLE, password)
        return f"env:{VARIABLE}"
    (tmp_path / "password").write_text(f"{password}\n")
    return f"file:{tmp_path / 'password'}"


def properties_of(secured: KafkaServer, reference: str) -> dict[str, str]:
    """The client's properties with the reference in place of the password."""
    properties = dict(secured.security.client("client", "PLAIN").properties)
    del properties["bootstrap.servers"]
    return {**properties, "sasl.jaas.config": JAAS.format(reference)}


def run(*arguments: str, records: bytes = b"") -> Result:
    return CliRunner().invoke(main, arguments, input=records)


def test_a_file_of_properties_may_refer_to_the_password(
    secured: KafkaServer, make_topic: MakeTopic, tmp_path: Path, reference: str
) -> None:
    topic = make_topic(secured)
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties_of(secured, reference).items()))
    cluster = ("-b", secured.bootstrap_servers, "--command-config", str(file))
    listed = run("topics", *cluster, "--list")
    assert (listed.exit_code, topic in listed.output) == (0, True), listed.output
    assert run("groups", *cluster, "--list").exit_code == 0
    broken = JAAS.format(f"env:{VARIABLE}_THAT_IS_NOT_SET")
    file.write_text(file.read_text().replace(JAAS.format(reference), broken))
    refused = run("topics", *cluster, "--list")
    assert refused.exit_code == 1
    assert f"the environment variable '{VARIABLE}_THAT_IS_NOT_SET' is not set" in refused.output


def test_a_property_of_a_read_or_write_may_refer_to_the_password(
    secured: KafkaServer, make_topic: MakeTopic, reference: str
) -> None:
    topic = make_topic(secured)
    pairs = properties_of(secured, reference).items()
    given = [text for name, value in pairs for text in ("-X", f"{name}={value}")]
    written = run("produce", "-b", secured.bootstrap_servers, "-t", topic, *given, records=b"one\ntwo\n")
    assert written.exit_code == 0, written.output
    read = run("consume", "-b", secured.bootstrap_servers, "-t", topic, "-o", "beginning", "-e", *given)
    assert read.exit_code == 0, read.output
    assert {"one", "two"} <= set(read.output.splitlines())
