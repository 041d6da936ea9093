"""The next steps about a group's offsets work where the offsets are stored."""

from __future__ import annotations

import pytest

from streamgroup.remediation import NO_LOCATION, OffsetLocation, StoredIn, how_to_look, how_to_reset, how_to_step_to

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
        assert text.index(TOOL) < text.index("where brokers before 0.8.2 keep them") < text.index(NODE)
        assert text.index(NODE) < text.index("new checkpointLocation")


def test_without_a_group_there_is_nothing_to_set() -> None:
    assert how_to_reset(NO_LOCATION) == ""


@pytest.mark.parametrize(
    ("stored_in", "option"),
    [
        (StoredIn.KAFKA, "with --bootstrap-server"),
        (StoredIn.BROKERS, "or --zookeeper for brokers before 0.9"),
        (StoredIn.ZOOKEEPER, "with --zookeeper"),
        (StoredIn.BOTH, "--zookeeper, then --bootstrap-server"),
    ],
)
def test_a_group_is_looked_at_where_it_is(stored_in: StoredIn, option: str) -> None:
    text = how_to_look(at(stored_in))
    assert text.startswith("streamgroup groups --describe --group etl, with ")
    assert text.endswith(option)
