"""A refusal of ZooKeeper that no retry mends ends the query, and names the group, the node and the next step."""

from __future__ import annotations

import pytest

from streamgroup.group.registry.events import RequestRefused, forbidden
from streamgroup.znodes import Refusal, Right, how_to_allow

FINAL = [Refusal.NO_AUTH, Refusal.INVALID_ACL]


@pytest.mark.parametrize("refusal", Refusal)
def test_only_a_refusal_about_rights_is_final(refusal: Refusal) -> None:
    """All others come from what other members do at the same time: a later look shows the group as it is."""
    assert RequestRefused(1, "/consumers/g/ids/me", refusal).is_final is (refusal in FINAL)


@pytest.mark.parametrize("refusal", FINAL)
def test_the_error_of_a_final_refusal_names_the_group_the_attempt_the_node_the_cause_and_the_next_step(
    refusal: Refusal,
) -> None:
    node = "/consumers/g/ids"
    event = RequestRefused(1, f"{node}/me", refusal, how_to_allow(node, Right.CREATE))
    text = forbidden("g", "cannot register", event)
    assert text.startswith(
        f"group g: cannot register: ZooKeeper refused the operation on /consumers/g/ids/me: {refusal.value}. "
    )
    assert "lacks the right CREATE (c) on /consumers/g/ids. Set zookeeper.username" in text
