from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import pytest

from streamgroup.cli import _group_nodes as module
from streamgroup.cli._group_nodes import ChangeRefusedError, delete_group, delete_offsets, set_offsets
from streamgroup.group.registry.nodes import GroupPaths
from streamgroup.model import Dialect
from streamgroup.znodes import Create, Refusal
from streamgroup.zookeeper.errors import RefusedError
from streamgroup.zookeeper.session import Session
from tests.fakes.nodes import NodeTree
from tests.unit.cli.fake_session import FakeSession
from tests.unit.cli.shown import orders

PATHS = GroupPaths("g", Dialect.KAFKA)
GROUP = {
    "/consumers/g/ids/": "",
    "/consumers/g/offsets/orders/0": "5",
    "/consumers/g/offsets/orders/1": "6",
    "/consumers/g/streamgroup/orders/0": "{}",
    "/consumers/g/streamgroup-members": "",
    "/consumers/h/offsets/orders/0": "7",
}


def session(fake: FakeSession) -> Session:
    return cast("Session", fake)


def registers(tree: NodeTree) -> None:
    if "/consumers/g/ids" not in tree:
        tree.transact([Create("/consumers/g/ids")])
    tree.transact([Create("/consumers/g/ids/g_host-1-a", ephemeral=True)], 7)


def test_offsets_are_written_where_consumers_look_for_them() -> None:
    fake = FakeSession(GROUP)
    set_offsets(session(fake), PATHS, {orders(0): 50, orders(2): 60}, 1.0)
    found = [fake.data(f"/consumers/g/offsets/orders/{number}") for number in range(3)]
    assert found == [b"50", b"6", b"60"]
    assert fake.data("/consumers/g/streamgroup/orders/0") == b"{}", "it counts no more, as the offset is another (R32)"


def test_a_group_that_does_not_exist_gets_its_nodes() -> None:
    fake = FakeSession({"/consumers/h": ""})
    set_offsets(session(fake), PATHS, {orders(0): 50}, 1.0)
    assert fake.data("/consumers/g/offsets/orders/0") == b"50"
    assert "/consumers/g/ids" not in fake.paths()


@pytest.mark.parametrize("values", [GROUP, {"/consumers/g/offsets/orders/0": "5"}], ids=["ids", "no ids"])
@pytest.mark.parametrize(
    "change",
    [
        lambda fake: set_offsets(session(fake), PATHS, {orders(0): 50}, 1.0),
        lambda fake: delete_offsets(session(fake), PATHS, [orders(0)], 1.0),
        lambda fake: delete_group(session(fake), PATHS, 1.0),
    ],
    ids=["set", "delete offsets", "delete group"],
)
def test_a_consumer_that_registers_meanwhile_keeps_its_offsets(
    change: Callable[[FakeSession], None], values: Mapping[str, str]
) -> None:
    fake = FakeSession(values, registers)
    with pytest.raises(ChangeRefusedError, match="cannot change group 'g' in ZooKeeper zk1:2181: a consumer"):
        change(fake)
    assert fake.data("/consumers/g/offsets/orders/0") == b"5"


def test_an_offset_that_somebody_writes_meanwhile_is_not_overwritten() -> None:
    path = "/consumers/g/offsets/orders/0"
    fake = FakeSession(GROUP, lambda tree: tree.transact([tree.write(path, "9")]))
    with pytest.raises(ChangeRefusedError, match=f"somebody else has written {path}"):
        set_offsets(session(fake), PATHS, {orders(0): 50}, 1.0)
    assert fake.data(path) == b"9"


def test_a_right_that_is_missing_is_reported_with_the_advice() -> None:
    fake = FakeSession(GROUP)

    def refuse(*_: object) -> None:
        raise RefusedError("/consumers/g/offsets/orders/0", Refusal.NO_AUTH, fake.where)

    fake.before = refuse
    with pytest.raises(RefusedError, match="its access control list forbids it"):
        set_offsets(session(fake), PATHS, {orders(0): 50}, 1.0)


def test_deleted_offsets_go_with_our_metadata() -> None:
    fake = FakeSession(GROUP)
    delete_offsets(session(fake), PATHS, [orders(0), orders(7)], 1.0)
    gone = {"/consumers/g/ids", "/consumers/g/offsets/orders/0", "/consumers/g/streamgroup/orders/0"}
    assert FakeSession(GROUP).paths() - fake.paths() == gone


def test_a_deleted_group_leaves_nothing_and_the_others_alone() -> None:
    fake = FakeSession(GROUP)
    delete_group(session(fake), PATHS, 1.0)
    assert {path for path in fake.paths() if path.startswith("/consumers/g")} == set()
    assert fake.data("/consumers/h/offsets/orders/0") == b"7"


def test_many_offsets_are_written_in_several_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_OPERATIONS", 2)
    fake = FakeSession(GROUP)
    set_offsets(session(fake), PATHS, {orders(number): 50 for number in range(5)}, 1.0)
    assert {fake.data(f"/consumers/g/offsets/orders/{number}") for number in range(5)} == {b"50"}
    assert fake.transactions == 3
    delete_group(session(fake), PATHS, 1.0)
    assert "/consumers/g" not in fake.paths()
