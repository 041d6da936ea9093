"""Transactions against real brokers: V1 at 3.9, V2 at 4.x."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from streamgroup.cli.main import main
from streamgroup.errors import ConfigError, FencedError, ProduceError
from streamgroup.kafka.cluster.transactions import TransactionRunner, end_earlier, open_transactions
from streamgroup.kafka.producer.transaction import GroupMember, GroupOffsets, TransactionalId
from streamgroup.model import CommittedOffset, TopicPartition
from streamgroup.testing import KafkaServer
from streamgroup.testing.releases import NEWEST
from tests.conftest import MakeTopic
from tests.live.transacting import Transactions, read_committed
from tests.old_kafka import run_tool
from tests.servers import each_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(240), pytest.mark.usefixtures("fresh_process")]

kafka = each_of("kafka4", long=("kafka39",))


TOOL = "org.apache.kafka.tools.TransactionsCommand"
"""The class of kafka-transactions.sh."""


@pytest.fixture(scope="module", params=["3.9.1", NEWEST])
def unverified(request: pytest.FixtureRequest) -> Iterator[KafkaServer]:
    """A broker that accepts records of no transaction, as all before 3.6 did."""
    with KafkaServer(request.param, config={"transaction.partition.verification.enable": "false"}) as server:
        yield server


def shown(server: KafkaServer, topic: str) -> list[dict[str, Any]]:
    """Return the rows of `streamgroup topics --open-transactions`."""
    arguments = ["topics", "-b", server.bootstrap_servers, "--open-transactions", "--topic", topic, "--json"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


@pytest.fixture
def transactions(kafka: KafkaServer, make_topic: MakeTopic) -> Transactions:
    return Transactions(kafka, make_topic(kafka, 2))


def test_committed_records_are_visible_and_aborted_ones_are_not(kafka: KafkaServer, transactions: Transactions) -> None:
    sent = []
    for number in range(4):
        values = [f"{number}-{n}" for n in range(50)]
        transaction = transactions.begin()
        transactions.write(transaction, values)
        if number == 2:
            transactions.abort()
            with pytest.raises((FencedError, ProduceError)):
                transactions.write(transaction, ["late"])
        else:
            transactions.commit()
            sent += values
    topic = transactions.options.topic
    assert topic is not None
    assert sorted(read_committed(kafka, topic)) == sorted(sent)


def test_an_open_transaction_is_listed_until_a_later_run_ends_it(
    kafka: KafkaServer, transactions: Transactions
) -> None:
    transactions.write(transactions.begin(), ["a"])
    topic = transactions.options.topic
    assert topic is not None
    deadline = transactions.cluster.deadline()
    mine = transactions.producer.id.name
    (found,) = [one for one in open_transactions(transactions.cluster, deadline) if one.transactional_id == mine]
    assert (found.state, found.producer, found.timeout_ms) == ("Ongoing", transactions.producer.identity, 60_000)
    assert {tp.topic for tp in found.partitions} == {topic}
    assert found.is_overdue(found.started_ms + 120_000)
    assert not found.is_overdue(found.started_ms + 60_000)
    shown = CliRunner().invoke(main, ["doctor", "--bootstrap-server", kafka.bootstrap_servers, "--json"])
    assert "open transaction" in json.dumps(json.loads(shown.output))
    assert read_committed(kafka, topic) == []
    end_earlier(transactions.cluster, transactions.producer.id, deadline)
    wait_until(
        lambda: mine not in {one.transactional_id for one in open_transactions(transactions.cluster, deadline)},
        "the transaction has ended",
    )
    with pytest.raises(FencedError, match="Another run of this query"):
        transactions.abort()


@pytest.mark.long
@pytest.mark.parametrize("version", ["0.10.2.2", "1.1.1"])
def test_brokers_that_do_not_check_the_member_are_refused(version: str) -> None:
    """Kafka 0.10 has no transactions. Later ones before 2.5 would commit the offsets of any member."""
    with KafkaServer(version) as server:
        transactions = Transactions(server, "copy")
        runner = TransactionRunner(transactions.cluster, lambda group: GroupMember("member", 1))
        offsets = {TopicPartition("orders", 0): CommittedOffset(5)}

        def commit() -> None:
            transactions.begin()
            committing = transactions.producer.commit([GroupOffsets("shipping", offsets)])
            runner.run(committing, "end", transactions.cluster.deadline())

        with closing(transactions.cluster), pytest.raises(ConfigError, match=r"Kafka 2\.5"):
            commit()


def test_an_open_transaction_is_shown_with_the_offsets_that_wait_for_it(
    kafka: KafkaServer, transactions: Transactions
) -> None:
    topic = transactions.options.topic
    assert topic is not None
    assert shown(kafka, topic) == []
    transactions.write(transactions.begin(), ["a", "b"])
    rows = shown(kafka, topic)
    assert sum(row["waiting"] for row in rows) == 2
    for row in rows:
        assert row["log_end_offset"] - row["last_stable_offset"] == row["waiting"]
        assert row["start_offset"] == row["last_stable_offset"] == 0
        assert (row["transactional_id"], row["state"]) == (transactions.producer.id.name, "Ongoing")
        assert row["producer_id"] == transactions.producer.identity.producer_id
        assert row["age_s"] < 60
        assert row["next_step"].startswith("wait until its producer ends it")
    transactions.commit()
    wait_until(lambda: shown(kafka, topic) == [], "the transaction has ended")


@pytest.mark.long
def test_a_hanging_transaction_is_found_as_kafkas_tool_does_and_its_command_ends_it(
    unverified: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(unverified, 2)
    transactions = Transactions(unverified, topic)
    transactions.begin()
    transactions.hang(1)
    (row,) = shown(unverified, topic)
    identity = transactions.producer.identity
    assert (row["partition"], row["last_stable_offset"], row["log_end_offset"], row["waiting"]) == (1, 0, 1, 1)
    assert (row["state"], row["producer_id"], row["producer_epoch"]) == ("Hanging", *identity)
    assert row["transactional_id"] == transactions.producer.id.name
    server = ("--bootstrap-server", unverified.bootstrap_servers)
    of_tool = run_tool(unverified, TOOL, *server, "find-hanging", "--topic", topic, "--max-transaction-timeout", "0")
    found = of_tool.splitlines()[1].split()
    assert found[:3] == [topic, "1", str(identity.producer_id)]
    assert found[5] == str(row["start_offset"])
    checked = CliRunner().invoke(main, ["doctor", *server]).stdout
    assert f"hanging transaction of {transactions.producer.id.name!r} in {topic}-1" in checked
    command = row["next_step"].partition("Abort it: ")[2].split()
    assert command[0] == "kafka-transactions.sh"
    run_tool(unverified, TOOL, *command[1:])
    wait_until(lambda: shown(unverified, topic) == [], "the transaction is aborted")


@pytest.mark.long
def test_brokers_before_28_are_said_not_to_report_producers(kafka11: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka11, 1)
    producer = Producer({"bootstrap.servers": kafka11.direct_servers, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"a")
    assert producer.flush(30) == 0
    (row,) = shown(kafka11, topic)
    assert (row["waiting"], row["producer_id"]) == (1, None)
    assert "brokers before Kafka 2.8 do not report the producers of a partition" in row["next_step"]
    producer.abort_transaction(30)


def test_a_timeout_above_the_brokers_limit_is_refused(transactions: Transactions) -> None:
    with pytest.raises(ConfigError, match=r"is above transaction\.max\.timeout\.ms of the brokers"):
        end_earlier(transactions.cluster, TransactionalId("any", 3_600_000), transactions.cluster.deadline())
