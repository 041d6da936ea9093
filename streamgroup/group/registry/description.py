"""A group that ZooKeeper keeps, as the value that also describes one of a broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streamgroup.group.registry.formats import GroupPaths
from streamgroup.group.registry.view import View
from streamgroup.model import GroupDescription, GroupState, MemberDescription, TopicPartition
from streamgroup.wire.consumer import PROTOCOL_TYPE
from streamgroup.znodes import Subtree, ZNode


def member_subtrees(paths: GroupPaths) -> tuple[Subtree, ...]:
    """Return the subtrees that `describe_members` needs."""
    return tuple(Subtree(path, 1, watch=False) for path in (paths.ids, paths.members))


def describe_members(paths: GroupPaths, nodes: Mapping[str, ZNode]) -> GroupDescription:
    """Describe who is registered, and what our own members tell of themselves (R28); not what they hold."""
    ids = nodes.get(paths.ids)
    members = []
    for name in () if ids is None else ids.children:
        consumer, beside = nodes.get(paths.consumer(name)), nodes.get(paths.member(name))
        if consumer is None:
            continue
        user_data = beside.data if beside is not None and beside.owner == consumer.owner else b""
        members.append(MemberDescription(name, name, host_in(paths.group, name), user_data=user_data))
    return GroupDescription(paths.group, GroupState.STABLE, PROTOCOL_TYPE, members=tuple(members))


def host_in(group: str, consumer_id: str) -> str:
    """Return the host in `<group>_<host>-<ms>-<8 hex>`, as consumers are called; the id itself if it is another."""
    return consumer_id.removeprefix(f"{group}_").rsplit("-", 2)[0]


def describe_holders(name: str, view: View | None) -> GroupDescription:
    """Describe the consumers and what they own; None: there is no such group.

    The group rebalances while a partition is not with the consumer that it falls to.
    """
    if view is None:
        return GroupDescription(name, GroupState.DEAD)
    held: dict[str, list[TopicPartition]] = {consumer_id: [] for consumer_id in view.consumers}
    for tp, owner in view.owners.items():
        held.setdefault(owner.consumer_id or "(unreadable)", []).append(tp)
    members = tuple(_holder(consumer_id, partitions, name) for consumer_id, partitions in sorted(held.items()))
    if not view.consumers:
        return GroupDescription(name, GroupState.EMPTY, PROTOCOL_TYPE, members=members)
    moves = any(_thread(view, tp) != thread for tp, thread in view.shares().items())
    state = GroupState.PREPARING_REBALANCE if moves else GroupState.STABLE
    return GroupDescription(name, state, PROTOCOL_TYPE, "range", members)


def _thread(view: View, tp: TopicPartition) -> str | None:
    owner = view.owners.get(tp)
    return None if owner is None else owner.thread


def _holder(consumer_id: str, held: Iterable[TopicPartition], group: str) -> MemberDescription:
    """The host is written as brokers write it; a consumer of another make may have none in its id."""
    host, *rest = consumer_id.removeprefix(f"{group}_").rsplit("-", 2)
    return MemberDescription(consumer_id, host=f"/{host}" if len(rest) == 2 else "", assigned=tuple(sorted(held)))
