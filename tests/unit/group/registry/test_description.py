"""A group in ZooKeeper as the value that also describes one of a broker."""

from __future__ import annotations

import pytest

from streamgroup.group.identity import Identity, decode_identity, encode_identity
from streamgroup.group.registry.description import describe_holders, describe_members, host_in
from streamgroup.group.registry.formats import GroupPaths
from streamgroup.model import Dialect, GroupState
from streamgroup.run.lineage import find_duplicates
from streamgroup.znodes import ZNode

# -- who is in the group -----------------------------------------------------------------------------------------------

PATHS = GroupPaths("g", Dialect.KAFKA)
ME, TWIN, REAL = "g_h1-1-aa", "g_h2-2-bb", "g_h3-3-cc"
MY_IDENTITY, ANOTHERS = Identity("lineage", "run-2"), Identity("lineage", "run-1", admitted=True)


def node(owner: int = 0, data: bytes = b"", children: tuple[str, ...] = ()) -> ZNode:
    return ZNode(data, 0, 1, 1, 1, owner, children)


def group(told_by: int = 2) -> dict[str, ZNode]:
    """Two of ours, of which the other tells of itself in session `told_by`, and one of another make."""
    return {
        PATHS.ids: node(children=(ME, TWIN, REAL, "g_vanished-4-dd")),
        PATHS.consumer(ME): node(1),
        PATHS.consumer(TWIN): node(2),
        PATHS.consumer(REAL): node(3),
        PATHS.member(ME): node(1, encode_identity(MY_IDENTITY)),
        PATHS.member(TWIN): node(told_by, encode_identity(ANOTHERS)),
    }


def test_a_twin_in_zookeeper_is_found_as_one_in_kafka() -> None:
    described = describe_members(PATHS, group())
    assert [member.member_id for member in described.members] == [ME, TWIN, REAL]
    (twin,) = find_duplicates(described, MY_IDENTITY, ME).values()
    assert (twin.member_id, twin.host) == (TWIN, "h2")


def test_what_another_session_has_left_tells_nothing() -> None:
    assert find_duplicates(describe_members(PATHS, group(told_by=9)), MY_IDENTITY, ME) == {}
    assert describe_members(PATHS, {}).members == ()


@pytest.mark.parametrize(
    ("consumer", "host"), [("g_vm-1-1795200966157-84e1c6c3", "vm-1"), ("g_c1", "c1"), ("strange", "strange")]
)
def test_the_host_is_read_from_the_consumers_id(consumer: str, host: str) -> None:
    assert host_in("g", consumer) == host


def test_what_members_tell_is_their_user_data() -> None:
    described = describe_members(PATHS, group())
    assert [decode_identity(member.user_data) for member in described.members] == [MY_IDENTITY, ANOTHERS, None]


def test_a_group_that_is_not_there_is_dead() -> None:
    assert describe_holders("g", None).state == GroupState.DEAD
