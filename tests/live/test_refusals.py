"""A refusal in the middle of a run, and the command in its message, run by Kafka's own tool."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from streamgroup.coordinator.batch_read import plan_batch
from streamgroup.errors import AuthorizationError
from streamgroup.executor.read.fetcher import read
from streamgroup.executor.write.sink_writer import write
from streamgroup.options.parse import parse_sink, parse_source
from streamgroup.testing import KafkaServer
from streamgroup.testing.security.acls import AclTarget
from tests.conftest import MakeTopic
from tests.fault.harness import Stream
from tests.old_kafka import run_tool
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.live,
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("fresh_process"),
]

AT_ONCE_S = 30.0
ROW = pa.record_batch({"value": pa.array([b"x"])})
MOST_COMMANDS = 4
"""More than any user here has to run."""


@pytest.fixture(scope="module")
def mutual() -> Iterator[KafkaServer]:
    with KafkaServer(security="SSL", mutual_tls=True, acls=True, users=["reader", "writer"]) as server:
        yield server


@pytest.fixture(scope="module")
def sasl() -> Iterator[KafkaServer]:
    users = ["group", "topic"]
    with KafkaServer(security="SASL_PLAINTEXT", mechanisms=["PLAIN"], acls=True, users=users) as server:
        yield server


def obeyed(server: KafkaServer, act: Callable[[], object]) -> list[str]:
    """Do `act`, and run the command of each refusal until there is none. Return the operations that were added."""
    added = []
    for _ in range(MOST_COMMANDS):
        try:
            act()
        except AuthorizationError as error:
            words = shlex.split(str(error).partition("To allow it: `")[2].partition("`")[0])
            assert words[:3] == ["kafka-acls.sh", "--bootstrap-server", server.bootstrap_servers]
            # The administrator of the test is whoever uses the listener without security.
            run_tool(server, "org.apache.kafka.tools.AclCommand", words[1], server.direct_servers, *words[3:])
            added.append(words[words.index("--operation") + 1])
        else:
            return added
    raise AssertionError(f"still refused after {added}")


def test_a_user_of_a_certificate_who_runs_the_command_of_each_refusal_reads_at_last(
    mutual: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(mutual)
    fill(mutual, topic)
    options = parse_source({**mutual.security.client("reader").options, "subscribe": topic}, streaming=False)

    def act() -> None:
        rows = [rows for task in plan_batch(options) for rows in read(task, options.client, options.fetch, group="in")]
        assert sum(map(len, rows)) == 1

    assert obeyed(mutual, act) == ["Describe", "Read"]


def test_a_user_of_a_certificate_who_runs_the_command_of_each_refusal_writes_at_last(
    mutual: KafkaServer, make_topic: MakeTopic
) -> None:
    options = parse_sink({**mutual.security.client("writer").options, "topic": make_topic(mutual)})
    assert obeyed(mutual, lambda: write([ROW], options)) == ["Write"]


@pytest.mark.parametrize("lost", ["group", "topic"])
def test_a_right_that_is_withdrawn_ends_a_running_query_at_once(
    sasl: KafkaServer, make_topic: MakeTopic, lost: str
) -> None:
    topic = make_topic(sasl)
    fill(sasl, topic)
    names = {"topic": topic, "group": f"g-{lost}"}
    for kind, name in names.items():
        sasl.security.add_acl(lost, "READ", **target(kind, name))
    options = {"kafka.group.id": names["group"], "subscribe": topic, "startingOffsets": "earliest"}
    with Stream(lost, {**sasl.security.client(lost).options, **options}) as query:
        wait_until(lambda: query.error or query.rows, "the query reads")
        sasl.security.add_acl(lost, "READ", **{**target(lost, names[lost]), "allow": False})
        fill(sasl, topic)
        wait_until(lambda: not query.runs, "the query ends", AT_ONCE_S)
        error = query.error
    assert isinstance(error, AuthorizationError)
    assert f"--allow-principal User:{lost} --operation Read --{lost} {names[lost]}`" in str(error)


def target(kind: str, name: str) -> AclTarget:
    return {"topic": name} if kind == "topic" else {"group": name}


def fill(server: KafkaServer, topic: str) -> None:
    """Write one record past the authorizer."""
    producer = Producer({"bootstrap.servers": server.direct_servers})
    producer.produce(topic, b"x", partition=0)
    assert producer.flush(30) == 0
