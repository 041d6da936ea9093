"""Real delegation tokens (KIP-48), made by Kafka's own tool, as credentials of a read and a write."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from streamgroup.errors import AuthenticationError
from streamgroup.executor.write.sink_writer import write
from streamgroup.options.parse import parse_sink
from streamgroup.testing import KafkaServer
from streamgroup.testing.releases import NEWEST
from tests.conftest import MakeTopic
from tests.old_kafka import run_tool
from tests.read_back import read_by_the_source
from tests.waiting import wait_until

pytestmark = [pytest.mark.live, pytest.mark.long, pytest.mark.timeout(300), pytest.mark.usefixtures("fresh_process")]

SECRET_KEYS = {NEWEST: "delegation.token.secret.key", "1.1.1": "delegation.token.master.key"}
"""The brokers' property with the key that makes the tokens."""
TOOLS = {NEWEST: "org.apache.kafka.tools.DelegationTokenCommand", "1.1.1": "kafka.admin.DelegationTokenCommand"}
SEEN_S = 30.0
"""Until all brokers know a token, and have forgotten one that was expired."""


@pytest.fixture(params=SECRET_KEYS)
def server(request: pytest.FixtureRequest) -> Iterator[KafkaServer]:
    version: str = request.param
    with KafkaServer(
        version,
        config={SECRET_KEYS[version]: "a key of this test alone"},
        security="SASL_SSL",
        mechanisms=["SCRAM-SHA-256", "PLAIN"],
        acls=True,
    ) as started:
        yield started


def ask(server: KafkaServer, *arguments: str) -> list[str]:
    """Run the tool as the user `client`. Return the last line that it prints, in words."""
    properties = server.security.client_properties("client", "PLAIN")
    where = ("--bootstrap-server", server.bootstrap_servers, "--command-config", str(properties))
    said = run_tool(server, TOOLS[server.version], *where, *arguments)
    return said.strip().splitlines()[-1].split()


def test_a_delegation_token_reads_and_writes_until_it_expires(server: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(server)
    for operation in ("READ", "WRITE"):
        server.security.add_acl("client", operation, topic=topic)
    token_id, hmac, *_ = ask(server, "--create", "--max-life-time-period", "-1")
    options = {
        **server.security.client("client", "SCRAM-SHA-256").options,
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{token_id}" password="{hmac}" tokenauth="true";',
    }
    # Before 2.8 a producer with an id needs a right on the cluster, too (KIP-679).
    sink = parse_sink({**options, "topic": topic, "kafka.enable.idempotence": "false"})

    def is_written() -> bool:
        try:
            return write([pa.record_batch({"value": pa.array([b"by a token"])})], sink).records == 1
        except AuthenticationError:
            return False

    wait_until(is_written, "the broker takes the token", SEEN_S)
    assert read_by_the_source(topic, **options) == {0: [(None, b"by a token")]}

    without_the_mark = {**options, "kafka.sasl.jaas.config": options["kafka.sasl.jaas.config"].replace("true", "false")}
    with pytest.raises(AuthenticationError, match="user has a password for SCRAM-SHA-256"):
        read_by_the_source(topic, **without_the_mark)

    ask(server, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)

    def is_refused() -> str:
        try:
            read_by_the_source(topic, **options)
        except AuthenticationError as error:
            return str(error)
        return ""

    text = wait_until(is_refused, "the broker refuses the token", SEEN_S)
    assert "with kafka-delegation-tokens that the token exists and has not expired" in text
    assert hmac not in text
