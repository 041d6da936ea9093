"""A streaming query of a user whom Kafka's authorizer refuses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

import streamgroup
from streamgroup.testing import KafkaServer
from streamgroup.testing.security.acls import AclTarget
from tests.conftest import MakeTopic
from tests.live.transacting import read_committed
from tests.spark.support import Load, Streams
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.long, pytest.mark.timeout(300)]

TIMEOUT_S = 60.0
"""A refusal that was retried until default.api.timeout.ms or pollTimeoutMs would take longer."""
USERS = {
    "without-group": {"topic": "READ"},
    "without-read": {"topic": "DESCRIBE", "group": "READ"},
    "allowed": {"topic": "READ", "group": "READ"},
    "copying": {"topic": "ALL", "group": "READ"},
}
"""The rights of each on the topic and the group."""


@pytest.fixture(scope="module")
def guarded() -> Iterator[KafkaServer]:
    with KafkaServer(security="SASL_PLAINTEXT", mechanisms=["PLAIN"], acls=True, users=list(USERS)) as server:
        yield server


@pytest.mark.parametrize(("user", "missing"), [("without-group", "Read --group g"), ("without-read", "Read --topic")])
def test_a_query_ends_at_once_with_the_command_that_allows_it(
    streams: Streams, guarded: KafkaServer, make_topic: MakeTopic, user: str, missing: str
) -> None:
    """The first is refused in the coordinator process, the second in a task."""
    topic = make_topic(guarded)
    _load(guarded, topic)
    _allow(guarded, user, topic)
    sunk = streams.to_parquet(streams.read(guarded, topic, "g", **_options(guarded, user)))
    wait_until(lambda: not sunk.query.isActive, "the query is refused", TIMEOUT_S)
    error = sunk.query.exception()
    assert isinstance(error, StreamingQueryException)
    line = f"kafka-acls.sh --bootstrap-server {guarded.bootstrap_servers} --add --allow-principal User:{user}"
    assert f"{line} --operation {missing}" in str(error)
    assert str(guarded.security.client(user).options["kafka.sasl.jaas.config"]) not in str(error)


def test_a_query_with_the_least_rights_reads_and_commits(
    streams: Streams, guarded: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(guarded)
    load = _load(guarded, topic)
    _allow(guarded, "allowed", topic)
    options = _options(guarded, "allowed")
    sunk = streams.to_parquet(streams.read(guarded, topic, "g", **options), availableNow=True)
    assert sunk.query.awaitTermination(int(TIMEOUT_S))
    assert sorted(sunk.values()) == sorted(load.sent)


def test_a_transaction_needs_the_right_to_its_id(streams: Streams, guarded: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(guarded)
    load = _load(guarded, topic)
    _allow(guarded, "copying", topic)
    target = make_topic(guarded)
    guarded.security.add_acl("copying", "ALL", topic=target)
    client = guarded.security.client("copying").options
    sink = streamgroup.exactly_once(target, **client)
    options = {"offsets__store": "transaction", "kafka__transactional__id": "copy", **_options(guarded, "copying")}

    def run() -> StreamingQuery:
        rows = streams.read(guarded, topic, "g", **options).select("value")
        checkpoint = str(streams.home / "copy-checkpoint")
        query = rows.writeStream.foreachBatch(sink).trigger(availableNow=True).option("checkpointLocation", checkpoint)
        started = query.start()
        streams.add(started)
        return started

    refused = run()
    wait_until(lambda: not refused.isActive, "the query is refused", TIMEOUT_S)
    assert "--add --allow-principal User:copying --operation Write --transactional-id copy" in str(refused.exception())
    guarded.security.add_acl("copying", "WRITE", transactional_id="copy")
    assert run().awaitTermination(int(TIMEOUT_S))
    assert sorted(read_committed(guarded, target)) == sorted(load.sent)


def _load(server: KafkaServer, topic: str) -> Load:
    load = Load(server, topic, 1, {"bootstrap.servers": server.direct_servers})
    load.send(10)
    return load


def _allow(server: KafkaServer, user: str, topic: str) -> None:
    for kind, operation in USERS[user].items():
        target: AclTarget = {"topic": topic} if kind == "topic" else {"group": "g"}
        server.security.add_acl(user, operation, **target)


def _options(server: KafkaServer, user: str) -> dict[str, str]:
    return {name.replace(".", "__"): value for name, value in server.security.client(user).options.items()}
