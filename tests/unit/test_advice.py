"""The next steps about a group's offsets work where the offsets are stored."""

from __future__ import annotations

import pickle
import shlex
from pathlib import Path

import pytest

from streamgroup.advice import (
    NO_LOCATION,
    RESOURCES,
    OffsetLocation,
    Operation,
    Requester,
    Resource,
    StoredIn,
    how_to_look,
    how_to_reset,
    how_to_step_to,
    refusal,
)
from streamgroup.errors import KAFKA_ERRORS, AuthorizationError, BrokerError, ErrorCode
from tests.least_rights import page_row, read_table

TOOL = "streamgroup groups --"
NODE = "/consumers/etl/offsets/"


def at(stored_in: StoredIn) -> OffsetLocation:
    return OffsetLocation("etl", stored_in)


def test_offsets_in_kafka_are_set_by_the_command_and_by_kafkas_tool() -> None:
    for text in (how_to_reset(at(StoredIn.KAFKA)), how_to_step_to(at(StoredIn.KAFKA), "orders", "3", 20, "b:1,c:2")):
        assert text.startswith("stop the query and all members, and ")
        assert TOOL in text
        assert "kafka-consumer-groups.sh of Kafka 0.11 or later does the same" in text
        assert "brokers before 0.9" in text
        assert "ZooKeeper" not in text
    assert (
        f"{TOOL}bootstrap-server b:1,c:2 --reset-offsets --group etl --topic orders:3 --to-offset 20 --execute" in text
    )


def test_offsets_in_zookeeper_are_set_in_its_nodes_and_by_no_tool() -> None:
    text = how_to_step_to(at(StoredIn.ZOOKEEPER), "events", "1-2", 4711, "b:1")
    assert text.startswith(f"stop the query and all members, and write 4711 into ZooKeeper's node {NODE}events/1-2 (")
    assert "chroot" in text
    general = how_to_reset(at(StoredIn.ZOOKEEPER))
    assert general.startswith("stop the query and all members, and write the group's offsets into ZooKeeper's nodes")
    assert f"{NODE}<topic>/<partition>" in general
    assert "<broker>-<partition>" in general
    assert TOOL not in text + general


def test_where_both_have_them_both_are_set_since_the_larger_counts() -> None:
    for text in (how_to_reset(at(StoredIn.BOTH)), how_to_step_to(at(StoredIn.BOTH), "orders", "0", 7, "b:1")):
        assert "do both, since the larger offset counts" in text
        assert NODE in text
        assert TOOL in text


def test_what_brokers_before_0_8_2_keep_is_in_zookeeper_and_a_checkpoint_goes_before_it() -> None:
    for text in (how_to_reset(at(StoredIn.BROKERS)), how_to_step_to(at(StoredIn.BROKERS), "orders", "0", 7, "b:1")):
        assert text.index(TOOL) < text.index("with brokers before 0.8.2") < text.index(NODE)
        assert text.index(NODE) < text.index("new checkpointLocation")


def test_offsets_in_a_database_are_set_there_and_by_no_tool_of_kafka() -> None:
    for text in (how_to_reset(at(StoredIn.TABLE)), how_to_step_to(at(StoredIn.TABLE), "orders", "3", 20, "b:1")):
        assert "streamgroup offsets --store URL --reset-offsets --group" in text
        assert "URL is the option offsets.store of the query" in text
        assert "streamgroup groups" not in text
    assert "--topic orders:3 --to-offset 20 --execute" in text


def test_without_a_group_there_is_nothing_to_set() -> None:
    assert how_to_reset(NO_LOCATION) == ""


@pytest.mark.parametrize(
    ("stored_in", "option"),
    [
        (StoredIn.KAFKA, "with --bootstrap-server"),
        (StoredIn.BROKERS, "or --zookeeper for brokers before 0.9"),
        (StoredIn.ZOOKEEPER, "with --zookeeper"),
        (StoredIn.BOTH, "--zookeeper, then --bootstrap-server"),
        (StoredIn.TABLE, "with --bootstrap-server"),
    ],
)
def test_a_group_is_looked_at_where_it_is(stored_in: StoredIn, option: str) -> None:
    text = how_to_look(at(stored_in))
    assert text.startswith("streamgroup groups --describe --group etl, with ")
    assert text.endswith(option)


ALICE = Requester("User:alice", "broker-1:9092,broker-2:9092")


def test_a_refusal_names_the_user_the_right_and_the_command_that_grants_it() -> None:
    error = refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "fetching orders-3", Operation.READ, "orders", ALICE)
    assert str(error) == (
        "fetching orders-3: TOPIC_AUTHORIZATION_FAILED (29): User:alice is not allowed the operation Read "
        "on topic 'orders'. To allow it: `kafka-acls.sh --bootstrap-server broker-1:9092,broker-2:9092 --add "
        "--allow-principal User:alice --operation Read --topic orders`"
    )
    assert isinstance(error, AuthorizationError)
    assert isinstance(error, BrokerError)
    assert not error.retriable


@pytest.mark.parametrize(
    ("code", "operation", "name", "told", "option"),
    [
        (29, Operation.DESCRIBE, "t", "Describe on topic 't' (Read and Write include it)", "--topic t"),
        (29, Operation.CREATE, "t", "Create on topic 't'", "--topic t"),
        (30, Operation.DESCRIBE, "g", "Describe on group 'g' (Read includes it)", "--group g"),
        (30, Operation.READ, "a group's", 'Read on group "a group\'s"', "--group 'a group'\"'\"'s'"),
        (
            31,
            Operation.IDEMPOTENT_WRITE,
            "",
            "IdempotentWrite on the cluster (since Kafka 2.8 Write on any topic includes it, KIP-679)",
            "--cluster",
        ),
        (31, Operation.DESCRIBE, "", "Describe on the cluster", "--cluster"),
        (53, Operation.WRITE, "x", "Write on transactional id 'x'", "--transactional-id x"),
        (65, Operation.DESCRIBE, "x", "Describe on delegation token 'x'", "--delegation-token x"),
    ],
)
def test_each_code_is_about_one_kind_of_resource(
    code: int, operation: Operation, name: str, told: str, option: str
) -> None:
    text = str(refusal(code, "cannot ask", operation, name, ALICE))
    assert f"User:alice is not allowed the operation {told}. To allow it: `kafka-acls.sh" in text
    assert f"--operation {operation.value} {option}`" in text


def test_a_name_cannot_add_words_to_the_command() -> None:
    text = str(refusal(30, "cannot join", Operation.READ, "g; rm -r /", Requester("User:CN=a b,O=c", "h:1")))
    words = shlex.split(text.rpartition(": `")[2].removesuffix("`"))
    assert words[4:] == ["--allow-principal", "User:CN=a b,O=c", "--operation", "Read", "--group", "g; rm -r /"]


def test_without_a_known_user_and_name_the_command_has_gaps() -> None:
    text = str(refusal(29, "cannot read", Operation.READ))
    assert "this user is not allowed the operation Read on a topic" in text
    assert "--bootstrap-server ... --add --allow-principal User:... --operation Read --topic ...`" in text


def test_every_code_of_the_authorizer_has_a_kind_of_resource() -> None:
    of_authorizer = {code for code, row in KAFKA_ERRORS.items() if row.name.endswith("AUTHORIZATION_FAILED")}
    assert of_authorizer == set(RESOURCES)
    assert set(RESOURCES.values()) == set(Resource)


def test_a_refusal_crosses_processes() -> None:
    error = refusal(30, "group g: cannot join", Operation.READ, "g", ALICE)
    raised = pickle.loads(pickle.dumps(error))
    assert type(raised) is type(error)
    assert str(raised) == str(error)
    assert raised.code == ErrorCode.GROUP_AUTHORIZATION_FAILED


# -- the table of rights, which docs/least-rights.md shows and tests/live/test_least_rights.py tries -------------------

PAGE = Path(__file__).parents[2] / "docs" / "least-rights.md"
MODES = read_table()


def test_the_page_has_the_rows_of_the_table_and_no_others() -> None:
    shown = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and line.count("|") == 6]
    heads = [line for line in shown if line.endswith("| topic | group | cluster | without one |")]
    assert len(heads) == 2, "a table of modes and one of commands"
    assert [line for line in shown if line not in heads] == [page_row(mode) for mode in MODES]


def test_the_table_knows_only_rights_that_errors_can_name() -> None:
    operations, kinds = {each.value for each in Operation}, {each.value for each in Resource}
    for mode in MODES:
        for needed in mode.rights:
            for right in filter(None, (needed.right, needed.fails, needed.instead)):
                operation, kind = right.split()
                assert operation in operations, right
                assert kind in kinds, right


def test_every_right_of_the_table_has_one_result() -> None:
    for mode in MODES:
        for needed in mode.rights:
            assert bool(needed.fails) is not bool(needed.degrades), (mode.name, needed)
            assert not (needed.since and needed.before), (mode.name, needed)


def test_releases_bound_a_right_on_both_sides() -> None:
    (sink,) = (mode for mode in MODES if mode.name == "sink into a topic that the brokers create")
    assert sink.least((1, 1, 1)) == ["Write topic", "Create cluster", "IdempotentWrite cluster"]
    assert sink.least((2, 0)) == ["Write topic", "Create topic", "IdempotentWrite cluster"]
    assert sink.least((2, 8)) == ["Write topic", "Create topic"]
