"""Changes of a group that ZooKeeper keeps: the operations on its nodes, refused as soon as a consumer has registered.

The node `ids` is the parent of all registrations. It cannot be deleted while it has children, so each transaction
deletes it first. The next consumer that registers creates it again, as the first one of a group does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from streamgroup.errors import StreamGroupError
from streamgroup.group.registry.nodes import GroupPaths, offset_data
from streamgroup.model import TopicPartition
from streamgroup.znodes import Create, Delete, Operation, Refusal, Set, Subtree
from streamgroup.zookeeper.errors import RefusedError
from streamgroup.zookeeper.session import Session

_MOST_OPERATIONS = 500
"""Of one transaction: some 100 KiB, where ZooKeeper takes a mebibyte (`jute.maxbuffer`)."""
_DEPTH = 8
"""Levels below a group's node that are deleted with it; consumers make three."""


class ChangeRefusedError(StreamGroupError):
    """A consumer has registered, or has written a node, since the command looked."""


def set_offsets(session: Session, paths: GroupPaths, offsets: Mapping[TopicPartition, int], deadline: float) -> None:
    """Write the offset nodes. Raises ChangeRefusedError if a consumer is registered; some may be written by then."""
    wanted = [Subtree(paths.offset(tp), 0, watch=False) for tp in offsets]
    nodes = session.read([Subtree(paths.ids, 0, watch=False), *wanted], deadline)
    operations: list[Operation] = []
    for tp, offset in sorted(offsets.items()):
        path, data = paths.offset(tp), offset_data(offset)
        node = nodes.get(path)
        operations.append(Create(path, data) if node is None else Set(path, data, node.version))
    parents = sorted({paths.offsets(tp.topic) for tp in offsets})
    _transact(session, paths, operations, parents, has_ids=paths.ids in nodes, deadline=deadline)


def delete_offsets(
    session: Session, paths: GroupPaths, partitions: Collection[TopicPartition], deadline: float
) -> None:
    """Delete the offset nodes, and our metadata beside them. Raises as `set_offsets`."""
    wanted = [path for tp in sorted(partitions) for path in (paths.metadata_of(tp), paths.offset(tp))]
    nodes = session.read([Subtree(path, 0, watch=False) for path in (paths.ids, *wanted)], deadline)
    operations = [Delete(path) for path in wanted if path in nodes]
    _transact(session, paths, operations, (), has_ids=paths.ids in nodes, deadline=deadline)


def delete_group(session: Session, paths: GroupPaths, deadline: float) -> None:
    """Delete the group's node and all below it. Raises as `set_offsets`."""
    nodes = session.read([Subtree(paths.root, _DEPTH, watch=False)], deadline)
    deepest_first = sorted((path for path in nodes if path != paths.ids), key=lambda path: (-path.count("/"), path))
    operations = [Delete(path) for path in deepest_first]
    _transact(session, paths, operations, (), has_ids=paths.ids in nodes, deadline=deadline)


def _transact(
    session: Session,
    paths: GroupPaths,
    operations: Sequence[Operation],
    parents: Sequence[str],
    *,
    has_ids: bool,
    deadline: float,
) -> None:
    try:
        for first in range(0, len(operations), _MOST_OPERATIONS):
            chunk = operations[first : first + _MOST_OPERATIONS]
            session.transact([*_without_consumers(paths, has_ids), *chunk], [paths.root, *parents], deadline)
            has_ids = False
    except RefusedError as error:
        if error.path == paths.ids and error.refusal in (Refusal.NOT_EMPTY, Refusal.NODE_EXISTS):
            cause = "a consumer is registered"
        elif error.refusal in (Refusal.NO_NODE, Refusal.NODE_EXISTS, Refusal.BAD_VERSION, Refusal.NOT_EMPTY):
            cause = f"somebody else has written {error.path} since this command looked"
        else:
            raise
        raise ChangeRefusedError(
            f"cannot change group {paths.group!r} in {session.where}: {cause}. Stop all "
            "consumers of the group, then run the command again"
        ) from error


def _without_consumers(paths: GroupPaths, has_ids: bool) -> Iterator[Operation]:
    """Yield what succeeds only while no consumer is registered."""
    if not has_ids:
        yield Create(paths.ids)
    yield Delete(paths.ids)
