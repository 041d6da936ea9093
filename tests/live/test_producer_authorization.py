"""The producer of a task at a real broker that refuses the user, or slows the client down."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from streamgroup.errors import ErrorCode, ProduceError
from streamgroup.executor.write.sink_writer import write
from streamgroup.options.parse import parse_sink
from streamgroup.options.types import SinkOptions
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.old_kafka import run_tool
from tests.read_back import read_back
from tests.waiting import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(240), pytest.mark.usefixtures("fresh_process")]

CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": True,
}
TIMEOUT_S = 30
SLOW = "slow-client"
BYTES_PER_S = 50_000
"""A broker takes the rate over about ten seconds, so that the first 500 kB pass at once."""
ROUNDS = 6
ROWS = pa.record_batch({"value": pa.array([b"x" * 1_000] * 100)})

Rule = tuple[ResourceType, str, AclOperation, AclPermissionType]
CLUSTER = "kafka-cluster"
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaServer]:
    with KafkaServer(config=CONFIG) as server:
        yield server


def options_for(server: KafkaServer, topic: str, **options: str) -> SinkOptions:
    given = {f"kafka.{name.replace('_', '.')}": value for name, value in options.items()}
    return parse_sink({"kafka.bootstrap.servers": server.bootstrap_servers, "topic": topic, **given})


@contextmanager
def rules(server: KafkaServer, *given: Rule) -> Iterator[None]:
    """Have these rules for the user whom a PLAINTEXT listener knows. A resource without a rule is open to all."""
    who = ("User:ANONYMOUS", "*")
    literal = ResourcePatternType.LITERAL
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    made = [AclBinding(kind, name, literal, *who, operation, allowed) for kind, name, operation, allowed in given]
    for future in admin.create_acls(made).values():
        future.result(TIMEOUT_S)
    # The controller has them now. The broker, which answers this, may learn of them a little later.
    for kind, name, operation, allowed in given:
        wanted = AclBindingFilter(kind, name, literal, *who, operation, allowed)
        wait_until(lambda wanted=wanted: admin.describe_acls(wanted).result(TIMEOUT_S), "the broker knows the rule")  # type: ignore[misc]
    try:
        yield
    finally:
        filters = [AclBindingFilter(kind, name, literal, *who, operation, a) for kind, name, operation, a in given]
        for future in admin.delete_acls(filters).values():
            future.result(TIMEOUT_S)


def refused(options: SinkOptions) -> ProduceError:
    with pytest.raises(ProduceError) as raised:
        write([ROWS], options)
    assert not raised.value.maybe_written
    return raised.value


def test_a_topic_that_the_user_may_not_see(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka)
    with rules(kafka, (ResourceType.TOPIC, topic, AclOperation.WRITE, DENY)):
        error = refused(options_for(kafka, topic))
    assert error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert f"cannot write topic {topic}: TOPIC_AUTHORIZATION_FAILED (29)" in str(error)
    assert f"--add --allow-principal User:ANONYMOUS --operation Write --topic {topic}`" in str(error)


@pytest.mark.parametrize("idempotence", ["true", "false"])
def test_a_topic_that_the_user_may_see_and_not_write(
    kafka: KafkaServer, make_topic: MakeTopic, idempotence: str
) -> None:
    topic = make_topic(kafka)
    with rules(kafka, (ResourceType.TOPIC, topic, AclOperation.DESCRIBE, ALLOW)):
        error = refused(options_for(kafka, topic, enable_idempotence=idempotence))
    assert error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert f"to {topic}-0 at broker 0: TOPIC_AUTHORIZATION_FAILED (29)" in str(error)
    assert "--operation Write --topic" in str(error)
    assert read_back(kafka, topic) == [[]]


def test_a_user_who_may_not_write_idempotently(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    """Since Kafka 2.8 whoever may write any topic may write idempotently, too (KIP-679)."""
    topic = make_topic(kafka)
    with rules(
        kafka,
        (ResourceType.BROKER, CLUSTER, AclOperation.ALL, ALLOW),  # librdkafka's name for the cluster
        (ResourceType.BROKER, CLUSTER, AclOperation.IDEMPOTENT_WRITE, DENY),
        (ResourceType.TOPIC, "*", AclOperation.WRITE, DENY),
        (ResourceType.TOPIC, "*", AclOperation.DESCRIBE, ALLOW),
    ):
        error = refused(options_for(kafka, topic))
    assert error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert re.search(r"could not get a producer id \(from broker .*\): CLUSTER_AUTHORIZATION_FAILED \(31\)", str(error))
    assert "--operation IdempotentWrite --cluster" in str(error)


def test_a_quota_slows_the_client_down_and_loses_nothing(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka)
    entity = ("--entity-type", "clients", "--entity-name", SLOW)
    quota = ("--alter", "--add-config", f"producer_byte_rate={BYTES_PER_S}")
    run_tool(kafka, "kafka.admin.ConfigCommand", "--bootstrap-server", kafka.bootstrap_servers, *entity, *quota)
    took = {}
    for client in ("unknown-client", SLOW):
        began = time.monotonic()
        write([ROWS] * ROUNDS, options_for(kafka, topic, client_id=client, batch_size="50000"))
        took[client] = time.monotonic() - began
    assert took[SLOW] > took["unknown-client"] + 1, took
    assert len(read_back(kafka, topic)[0]) == 2 * ROUNDS * ROWS.num_rows
