"""What is said of a group's offsets is what works where they are."""

from __future__ import annotations

import pytest

from streamgroup.advice import NOT_KEPT, Keeper, KeptOffsets, look, reset, step_to

TOOL = "kafka-consumer-groups.sh"
NODE = "/consumers/etl/offsets/"


def kept(keeper: Keeper) -> KeptOffsets:
    return KeptOffsets("etl", keeper)


def test_offsets_in_kafka_are_set_by_its_tool_from_the_release_on_that_can() -> None:
    for text in (reset(kept(Keeper.KAFKA)), step_to(kept(Keeper.KAFKA), "orders", "3", 20, "b:1,c:2")):
        assert text.startswith("stop the query and all members, and ")
        assert f"{TOOL} --" in text
        assert "0.11 or later" in text
        assert "brokers before 0.10" in text
        assert "ZooKeeper" not in text
    assert (
        f"{TOOL} --bootstrap-server b:1,c:2 --group etl --topic orders:3 --reset-offsets --to-offset 20 --execute"
        in text
    )


def test_offsets_in_zookeeper_are_set_in_its_nodes_and_by_no_tool() -> None:
    text = step_to(kept(Keeper.ZOOKEEPER), "events", "1-2", 4711, "b:1")
    assert text.startswith(f"stop the query and all members, and write 4711 into ZooKeeper's node {NODE}events/1-2 (")
    assert "chroot" in text
    general = reset(kept(Keeper.ZOOKEEPER))
    assert general.startswith("stop the query and all members, and write the group's offsets into ZooKeeper's nodes")
    assert f"{NODE}<topic>/<partition>" in general
    assert "<broker>-<partition>" in general
    assert TOOL not in text + general


def test_where_both_have_them_both_are_set_since_the_larger_counts() -> None:
    for text in (reset(kept(Keeper.BOTH)), step_to(kept(Keeper.BOTH), "orders", "0", 7, "b:1")):
        assert "do both, since the larger offset counts" in text
        assert NODE in text
        assert TOOL in text


def test_what_brokers_before_0_8_2_keep_is_in_zookeeper_and_a_checkpoint_goes_before_it() -> None:
    for text in (reset(kept(Keeper.BROKERS)), step_to(kept(Keeper.BROKERS), "orders", "0", 7, "b:1")):
        assert text.index(TOOL) < text.index("where brokers before 0.8.2 keep them") < text.index(NODE)
        assert text.index(NODE) < text.index("new checkpointLocation")


def test_without_a_group_there_is_nothing_to_set() -> None:
    assert reset(NOT_KEPT) == ""


@pytest.mark.parametrize(
    ("keeper", "option"),
    [
        (Keeper.KAFKA, "with --bootstrap-server"),
        (Keeper.BROKERS, "or --zookeeper for brokers before 0.9"),
        (Keeper.ZOOKEEPER, "with --zookeeper"),
        (Keeper.BOTH, "--zookeeper, then --bootstrap-server"),
    ],
)
def test_a_group_is_looked_at_where_it_is(keeper: Keeper, option: str) -> None:
    text = look(kept(keeper))
    assert text.startswith("streamgroup groups --describe --group etl, with ")
    assert text.endswith(option)
