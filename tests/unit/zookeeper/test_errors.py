from __future__ import annotations

from collections.abc import Sequence

import pytest

from streamgroup.znodes import Check, Create, Delete, Operation, Refusal, Set
from streamgroup.zookeeper.errors import RefusedError


@pytest.mark.parametrize(
    ("path", "asked", "node", "right"),
    [
        ("/g/a", [Create("/g/a")], "/g", "CREATE (c)"),
        ("/g", [Create("/g")], "/", "CREATE (c)"),
        ("/g/a", [Check("/g/b"), Delete("/g/a")], "/g", "DELETE (d)"),
        ("/g/a", [Set("/g/b", b""), Set("/g/a", b"")], "/g/a", "WRITE (w)"),
        ("/g/a", [Check("/g/a")], "/g/a", "READ (r)"),
        ("/g/a", [], "/g/a", "READ (r)"),
    ],
)
def test_a_denied_operation_names_the_right_and_the_node_that_lacks_it(
    path: str, asked: Sequence[Operation], node: str, right: str
) -> None:
    error = RefusedError(path, Refusal.NO_AUTH, "ZooKeeper zk1:2181", asked)
    assert str(error).startswith(
        f"operation on {path} refused by ZooKeeper zk1:2181: its access control list forbids it. "
    )
    assert f"lacks the right {right} on {node}. " in error.advice
    assert f"setAcl {node} auth::cdrwa,world:anyone:r" in str(error)


@pytest.mark.parametrize("refusal", [Refusal.NO_NODE, Refusal.NODE_EXISTS, Refusal.BAD_VERSION, Refusal.NOT_EMPTY])
def test_a_race_between_members_needs_no_advice(refusal: Refusal) -> None:
    error = RefusedError("/g/a", refusal, "zk", [Create("/g/a")])
    assert (error.advice, str(error)) == ("", f"operation on /g/a refused by zk: {refusal.value}")


def test_a_session_without_an_identity_is_advised_to_have_one() -> None:
    assert "zookeeper.set.acl=true" in RefusedError("/g/a", Refusal.INVALID_ACL, "zk", [Create("/g/a")]).advice
