"""The nodes of a commit in ZooKeeper: the offset that every consumer knows, and beside it our metadata (R32).

    /consumers/<group>/offsets/<topic>/<name>      194
    /consumers/<group>/streamgroup/<topic>/<name>  {"streamgroup":1,"offset":194,"version":7,"commit":{"lineage":...}}

Both are written in one transaction. The metadata counts only while the offset node has that version and that offset: a
real consumer or an operator who writes it since leaves the metadata behind, and with it all that R5 would conclude.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from streamgroup.errors import DecodeError
from streamgroup.group.registry.formats import GroupPaths, read_offset
from streamgroup.model import UNKNOWN_EPOCH, CommittedOffset, TopicPartition
from streamgroup.wire.registrations import partition_in
from streamgroup.znodes import Subtree, ZNode

FORMAT = 1


def metadata_data(committed: CommittedOffset, version: int) -> bytes:
    """Return the data of the metadata node for the offset node's next `version`."""
    value: dict[str, Any] = {"streamgroup": FORMAT, "offset": committed.offset, "version": version}
    if committed.leader_epoch != UNKNOWN_EPOCH:
        value["epoch"] = committed.leader_epoch
    value["commit"] = _embedded(committed.metadata)
    return _compact(value).encode()


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _embedded(text: str) -> object:
    """Readable, where nothing of it is changed by that: JSON as JSON, else as a string."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) and _compact(value) == text else text


def read_committed(path: str, offset: ZNode, metadata: ZNode | None) -> CommittedOffset:
    """Return the commit in the nodes; without metadata where that is of an earlier one. Raises DecodeError."""
    value = read_offset(path, offset.data)
    found = None if metadata is None else _read_metadata(metadata.data)
    if found is None or (found.get("offset"), found.get("version")) != (value, offset.version):
        return CommittedOffset(value)
    commit, epoch = found.get("commit"), found.get("epoch", UNKNOWN_EPOCH)
    text = commit if isinstance(commit, str) else _compact(commit)
    return CommittedOffset(value, text, epoch if type(epoch) is int else UNKNOWN_EPOCH)


def _read_metadata(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or type(value.get("streamgroup")) is not int or value["streamgroup"] != FORMAT:
        return None
    return value if isinstance(value.get("commit"), str | dict) else None


def committed_subtrees(paths: GroupPaths, partitions: Iterable[TopicPartition] | None) -> tuple[Subtree, ...]:
    """Return the subtrees that `committed_in` needs; `partitions` None are all that the group has."""
    if partitions is None:
        return (Subtree(paths.offsets(), 2, watch=False), Subtree(paths.metadata(), 2, watch=False))
    return tuple(
        Subtree(path, 0, watch=False) for tp in partitions for path in (paths.offset(tp), paths.metadata_of(tp))
    )


def committed_in(
    paths: GroupPaths, nodes: Mapping[str, ZNode], wanted: Callable[[TopicPartition], bool] = lambda _: True
) -> dict[TopicPartition, CommittedOffset]:
    """The commits of the group among the nodes found. Nodes that no partition is called by are nobody's.

    Others than those of `wanted` are not read. Raises DecodeError, which names the node, for an offset that is none:
    taken for absent it would be read past.
    """
    found: dict[TopicPartition, CommittedOffset] = {}
    prefix = f"{paths.offsets()}/"
    for path, node in nodes.items():
        topic, _, name = path.removeprefix(prefix).rpartition("/") if path.startswith(prefix) else ("", "", "")
        if not topic:
            continue
        try:
            tp = TopicPartition(topic, partition_in(paths.dialect.log_format, name))
        except DecodeError:
            continue
        if wanted(tp):
            found[tp] = read_committed(path, node, nodes.get(paths.metadata_of(tp)))
    return found
