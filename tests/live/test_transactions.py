"""Transactions against real brokers: V1 at 3.9, V2 at 4.x."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
from click.testing import CliRunner

from streamgroup.cli.main import main
from streamgroup.errors import ConfigError, FencedError, ProduceError
from streamgroup.kafka.cluster.transactions import TransactionRunner, end_earlier, open_transactions
from streamgroup.kafka.producer.transaction import GroupMember, GroupOffsets, TransactionalId
from streamgroup.model import CommittedOffset, TopicPartition
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.live.transacting import Transactions, read_committed
from tests.servers import each_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(240), pytest.mark.usefixtures("fresh_process")]

kafka = each_of("kafka39", "kafka4")


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


def test_a_timeout_above_the_brokers_limit_is_refused(transactions: Transactions) -> None:
    with pytest.raises(ConfigError, match=r"is above transaction\.max\.timeout\.ms of the brokers"):
        end_earlier(transactions.cluster, TransactionalId("any", 3_600_000), transactions.cluster.deadline())
