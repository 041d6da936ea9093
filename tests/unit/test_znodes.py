"""Operations on ZooKeeper's nodes: the right that each one needs, and the advice for a user who lacks it."""

from __future__ import annotations

import pytest

from streamgroup.znodes import Check, Create, Delete, Operation, Right, Set, how_to_allow, needed


@pytest.mark.parametrize(
    ("operation", "node", "right"),
    [
        (Check("/g/a"), "/g/a", Right.READ),
        (Check("/g/a", 3), "/g/a", Right.READ),
        (Set("/g/a", b"x"), "/g/a", Right.WRITE),
        (Set("/", b"x", 0), "/", Right.WRITE),
        (Create("/g/a"), "/g", Right.CREATE),
        (Create("/g/a/b", b"x", ephemeral=True), "/g/a", Right.CREATE),
        (Create("/g"), "/", Right.CREATE),
        (Delete("/g/a"), "/g", Right.DELETE),
        (Delete("/g", 2), "/", Right.DELETE),
    ],
)
def test_the_parent_decides_about_creation_and_deletion_and_the_node_about_its_data(
    operation: Operation, node: str, right: Right
) -> None:
    assert needed(operation) == (node, right)


@pytest.mark.parametrize(("right", "letter"), [("CREATE", "c"), ("DELETE", "d"), ("READ", "r"), ("WRITE", "w")])
def test_the_advice_names_the_right_by_its_letter_the_node_and_both_ways_to_get_it(right: str, letter: str) -> None:
    advice = how_to_allow("/consumers/g", Right[right])
    assert advice.startswith(f"The user lacks the right {right} ({letter}) on /consumers/g. ")
    assert "Set zookeeper.username and zookeeper.password of a user who has it." in advice
    assert advice.endswith("setAcl /consumers/g auth::cdrwa,world:anyone:r")


def test_operations_without_a_version_apply_to_every_version() -> None:
    assert Check("/a") == Check("/a", -1), "ZooKeeper takes the version -1 for any version"
    assert Set("/a", b"") == Set("/a", b"", -1)
    assert Delete("/a") == Delete("/a", -1)
    assert Set("/a", b"") != Set("/a", b"", 0)
