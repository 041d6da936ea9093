from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from streamgroup.cli import topics as module
from streamgroup.cli.main import main
from streamgroup.cli.topics import TopicChange, TransactionRow, carry_out
from streamgroup.errors import StreamGroupError
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.cluster.transactions import HeldUp, OpenProducer, OpenTransaction
from streamgroup.kafka.producer.batch import ProducerIdentity
from streamgroup.model import Dialect, TopicPartition
from tests.fakes.cluster import FakeCluster
from tests.unit.cli.shown import cells, orders, orders_cluster


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> FakeCluster:
    fake = orders_cluster(getattr(request, "param", Dialect.KAFKA))
    monkeypatch.setattr(module, "opened", lambda *_: fake)
    monkeypatch.setattr(module, "kafka_of", lambda *_: fake)
    return fake


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["topics", "-b", "broker:9092", *arguments])


def test_list_names_the_topics_and_internal_ones_can_be_left_out(cluster: FakeCluster) -> None:
    assert run("--list").stdout == "__own\norders\n"
    assert cluster.logs.closed
    assert run("--list", "--exclude-internal").stdout == "orders\n"
    assert json.loads(run("--list", "--exclude-internal", "--json").stdout) == ["orders"]


def test_describe_shows_each_partition_and_dashes_without_a_leader(cluster: FakeCluster) -> None:
    result = run("--describe", "--topic", "orders")
    assert cells(result.stdout) == [
        "TOPIC PARTITION LEADER REPLICAS ISR LOG-START-OFFSET LOG-END-OFFSET",
        "orders 0 1 1,1 1 10 100",
        "orders 1 1 1,1 1 10 100",
        "orders 2 2 2,1 2 10 100",
        "orders 3 - 3,1 3 - -",
    ]
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize("cluster", [Dialect.KAFKA07], indirect=True)
def test_partitions_of_kafka_07_have_the_names_that_they_have_there(cluster: FakeCluster) -> None:
    lines = cells(run("--describe", "--topic", "orders").stdout)
    assert [line.split()[1] for line in lines[1:]] == ["1-0", "1-1", "2-0", "3-0"]


def test_verbose_and_json_have_every_column_and_null_for_unknown_values(cluster: FakeCluster) -> None:
    titles, first, *_ = cells(run("--describe", "--topic", "orders", "--verbose").stdout)
    assert titles.split()[3:5] == ["ADDRESS", "LEADER-EPOCH"]
    assert first == "orders 0 1 one:9092 5 1,1 1 10 100 id-1"
    rows = json.loads(run("--describe", "--topic", "orders", "--json").stdout)
    known = {"topic": "orders", "partition": 3, "leader_epoch": 5, "replicas": "3,1", "isr": "3", "topic_id": "id-1"}
    unknown = dict.fromkeys(("leader", "address", "log_start_offset", "log_end_offset"))
    assert rows[3] == {**known, **unknown}


def test_a_topic_that_does_not_exist_fails_after_the_others_were_shown(cluster: FakeCluster) -> None:
    result = run("--describe", "--topic", "orders", "--topic", "ordres")
    assert len(result.stdout.splitlines()) == 5
    assert (result.exit_code, result.stderr) == (1, "Error: topic 'ordres' does not exist\n")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--list", "--describe"],
        ["--list", "--topic", "orders"],
        ["--list", "--verbose"],
        ["--describe", "--open-transactions"],
    ],
)
def test_arguments_that_contradict_each_other_are_refused(cluster: FakeCluster, arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 2


def test_without_a_cluster_the_error_names_the_options() -> None:
    result = CliRunner().invoke(main, ["topics", "--list"])
    assert result.exit_code == 2
    assert "name the cluster with --bootstrap-server, or --zookeeper" in result.stderr


# -- changes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["--alter", "--partitions", "6"], ("grow", {"old": 6})),
        (["--delete"], ("delete", ("old",))),
        (
            ["--create", "--partitions", "3", "--replication-factor", "2", "--if-not-exists"],
            ("create", {"old": 3}, {"replication_factor": 2, "configs": {"old": {}}}),
        ),
    ],
)
def test_an_action_reaches_the_cluster_with_its_options(
    words: list[str], asked: tuple[object, ...], cluster: FakeCluster, changes: list[tuple[object, ...]]
) -> None:
    result = run(*words, "--topic", "old", "--json")
    assert (result.exit_code, list(json.loads(result.stdout))) == (0, [words[0].removeprefix("--"), "messages"])
    ((action, topics, _, *settings),) = changes
    assert (action, topics, *settings) == asked


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (TopicChange("create", (), 3), "--create requires --topic"),
        (TopicChange("delete", ()), "--delete requires --topic"),
        (TopicChange("create", ("a",)), "--create requires --partitions"),
        (TopicChange("alter", ("a",)), "--alter requires --partitions"),
        (TopicChange("delete", ("a",), 3), "--delete does not take --partitions"),
        (TopicChange("alter", ("a",), 3, 2), "require --create"),
        (TopicChange("delete", ("a",), configs=("x=y",)), "require --create"),
        (TopicChange("delete", ("a",), if_not_exists=True), "require --create"),
        (TopicChange("create", ("a",), 3, configs=("x=y", "x")), "invalid value 'x' for --config"),
        (TopicChange("create", ("a",), 3, configs=("=y",)), "invalid value '=y' for --config: expected NAME=VALUE"),
    ],
)
def test_a_change_with_other_options_names_the_one_that_is_wrong(change: TopicChange, reason: str) -> None:
    with pytest.raises(click.UsageError, match=reason):
        change.check()


def test_new_topics_have_the_brokers_default_replication_and_the_text_behind_the_first_equals_sign(
    changes: list[tuple[object, ...]], cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    carry_out(TopicChange("create", ("a", "b"), 3, configs=("x=y=z", "n=")), cluster, 7.5, as_json=False)
    configs = {name: {"x": "y=z", "n": ""} for name in "ab"}
    assert changes == [("create", {"a": 3, "b": 3}, 7.5, {"replication_factor": -1, "configs": configs})]
    assert capsys.readouterr() == ("Created topic a.\nCreated topic b.\n", "")


def test_a_topic_that_exists_is_passed_over_only_where_the_user_says_so(
    changes: list[tuple[object, ...]], cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(click.ClickException, match=r"topic 'old' exists already\. Set --if-not-exists to pass over it"):
        carry_out(TopicChange("create", ("new", "old"), 3), cluster, 0.0, as_json=False)
    assert capsys.readouterr().out == ""
    carry_out(TopicChange("create", ("new", "old"), 3, if_not_exists=True), cluster, 0.0, as_json=False)
    assert capsys.readouterr().out == "Created topic new.\nThere is a topic old.\n"


def test_json_has_the_topics_and_the_warning_of_more_partitions_stays_on_standard_error(
    changes: list[tuple[object, ...]], cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    carry_out(TopicChange("alter", ("a", "b"), 1), cluster, 1.0, as_json=True)
    shown, warned = capsys.readouterr()
    assert json.loads(shown) == {
        "alter": ["a", "b"],
        "messages": ["Topic a has 1 partition.", "Topic b has 1 partition."],
    }
    assert warned.startswith("Warning: records with a key may now go to another partition")
    carry_out(TopicChange("delete", ("a",)), cluster, 1.0, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"delete": ["a"], "messages": ["Deleted topic a."]}
    assert changes == [("grow", {"a": 1, "b": 1}, 1.0), ("delete", ("a",), 1.0)]


def test_a_refusal_of_the_brokers_prints_nothing(
    cluster: KafkaCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StreamGroupError("cannot grow topic 'a'")

    monkeypatch.setattr(module, "grow_topics", refuse)
    with pytest.raises(StreamGroupError, match="cannot grow topic 'a'"):
        carry_out(TopicChange("alter", ("a",), 1), cluster, 1.0, as_json=False)
    assert capsys.readouterr() == ("", "")


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """The changes that the cluster was asked for, each with its deadline; the topic `old` exists there."""
    made: list[tuple[object, ...]] = []

    def create(_: object, topics: dict[str, int], deadline: float, **settings: object) -> frozenset[str]:
        made.append(("create", topics, deadline, settings))
        return frozenset(topics) - {"old"}

    monkeypatch.setattr(module, "create_topics", create)
    monkeypatch.setattr(module, "grow_topics", lambda _, counts, deadline: made.append(("grow", counts, deadline)))
    monkeypatch.setattr(module, "delete_topics", lambda _, names, deadline: made.append(("delete", names, deadline)))
    return made


# -- open transactions -------------------------------------------------------------------------------------------------

NOW_MS = 1_000_000
PRODUCER = OpenProducer(ProducerIdentity(7, 2), 40, NOW_MS - 90_000, 5)
TRANSACTION = OpenTransaction("shop-1", "Ongoing", ProducerIdentity(7, 2), NOW_MS - 20_000, 60_000, (orders(1),))
HELD = HeldUp(orders(1), 40, 100, PRODUCER, TRANSACTION)
ABORT = "kafka-transactions.sh --bootstrap-server one:9092 abort --topic orders --partition 1 --start-offset 40"


@pytest.mark.parametrize(
    ("found", "state", "age_s", "step"),
    [
        (
            HELD,
            "Ongoing",
            20,
            "wait until its producer ends it, or until the brokers abort it after its timeout, in 40 s",
        ),
        (
            replace(HELD, transaction=replace(TRANSACTION, state="PrepareCommit")),
            "PrepareCommit",
            20,
            "its coordinator is",
        ),
        (
            replace(HELD, transaction=replace(TRANSACTION, started_ms=0)),
            "Ongoing",
            1_000,
            "older than its timeout of 60 s. Restart the broker that is its coordinator, or upgrade it (KAFKA-19999). "
            f"To abort it: {ABORT}",
        ),
        (
            replace(HELD, is_hanging=True),
            "Hanging",
            90,
            f"hanging: its coordinator does not have this partition in an open transaction. Abort it: {ABORT}",
        ),
        (
            replace(HELD, transaction=None, is_hanging=True),
            "Hanging",
            90,
            "hanging: no broker lists a transaction of producer id 7. If this user may describe all transactional ids, "
            f"abort it: {ABORT}",
        ),
        (
            replace(HELD, transaction=None),
            None,
            90,
            "no broker lists a transaction of producer id 7. Run the command as a user that may describe",
        ),
        (
            replace(HELD, transaction=None, problem="old"),
            None,
            90,
            f"old. Wait until its producer ends it. To abort it: {ABORT}",
        ),
        (
            HeldUp(orders(1), 40, 100, None, problem="old"),
            None,
            None,
            "the producer of the open transaction is unknown: old",
        ),
    ],
)
def test_an_open_transaction_is_shown_with_what_ends_it(
    found: HeldUp, state: str | None, age_s: int | None, step: str
) -> None:
    row = TransactionRow(found, NOW_MS, ABORT if found.producer is not None else "")
    assert (row.state, row.age_s) == (state, age_s)
    assert row.next_step.startswith(step)


@pytest.fixture
def held(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> list[HeldUp]:
    """Return the list that the lookup returns."""
    found: list[HeldUp] = []
    monkeypatch.setattr(
        module, "held_up", lambda _, partitions, *__: [one for one in found if one.partition in partitions]
    )
    monkeypatch.setattr(FakeCluster, "__str__", lambda _: "one:9092")
    return found


def test_open_transactions_are_a_table_with_a_next_step_for_each(held: list[HeldUp]) -> None:
    held.append(replace(HELD, is_hanging=True))
    titles, row, empty, step = cells(run("--open-transactions", "--topic", "orders").stdout)
    assert titles == (
        "TOPIC PARTITION LAST-STABLE-OFFSET LOG-END-OFFSET WAITING TRANSACTIONAL-ID STATE AGE-S PRODUCER-ID "
        "START-OFFSET"
    )
    assert row.split()[:7] == ["orders", "1", "40", "100", "60", "shop-1", "Hanging"]
    assert (empty, step) == ("", f"orders-1: {held_step()}")
    titles, *_ = cells(run("--open-transactions", "--verbose").stdout)
    assert titles.endswith("PRODUCER-EPOCH COORDINATOR-EPOCH LAST-TIMESTAMP TIMEOUT-MS")
    (shown,) = json.loads(run("--open-transactions", "--json").stdout)
    assert (shown["producer_epoch"], shown["coordinator_epoch"], shown["timeout_ms"]) == (2, 5, 60_000)
    assert shown["next_step"] == held_step()


def held_step() -> str:
    return f"hanging: its coordinator does not have this partition in an open transaction. Abort it: {ABORT}"


def test_the_command_that_aborts_has_the_file_of_the_connection(held: list[HeldUp], tmp_path: Path) -> None:
    held.append(replace(HELD, is_hanging=True))
    file = tmp_path / "client.properties"
    file.write_text("")
    (row,) = json.loads(run("--open-transactions", "--command-config", str(file), "--json").stdout)
    assert f"--bootstrap-server one:9092 --command-config {file} abort --topic orders" in row["next_step"]


def test_without_an_open_transaction_the_command_says_so(held: list[HeldUp]) -> None:
    assert run("--open-transactions").stdout == (
        "No open transaction: consumers of read_committed can read to the end of each partition.\n"
    )
    assert json.loads(run("--open-transactions", "--json").stdout) == []
    missing = run("--open-transactions", "--topic", "ordres")
    assert (missing.exit_code, missing.stderr) == (1, "Error: topic 'ordres' does not exist\n")


@pytest.mark.parametrize("cluster", [Dialect.KAFKA07], indirect=True)
def test_kafka_07_has_no_transactions(held: list[HeldUp]) -> None:
    held.append(replace(HELD, partition=TopicPartition("orders", 10000)))
    assert run("--open-transactions").stdout.startswith("No open transaction")
