"""ZooKeeper's nodes and operations as plain values, without a client.

`group/registry/` decides with these values, `zookeeper/` executes them, and the simulation replays them. A leaf module:
it imports nothing of this package.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

ANY_VERSION = -1
NOT_EPHEMERAL = 0


@dataclass(frozen=True, slots=True)
class ZNode:
    """A node as it was read. `zxid`s are ZooKeeper's transaction ids, which order all writes.

    `pzxid` is the zxid of the last child that was created or deleted. `owner` is the session of an ephemeral node.
    """

    data: bytes
    version: int
    czxid: int
    mzxid: int
    pzxid: int
    owner: int = NOT_EPHEMERAL
    children: tuple[str, ...] = ()
    """Sorted names; empty if the read did not include children."""


@dataclass(frozen=True, slots=True)
class Subtree:
    """A read of `path` and `depth` levels below it (0: the node only).

    With `watch`, the session reports the next change of children or data, or the creation of an absent node, once.
    Nodes that are deleted during the read are absent from its result.
    """

    path: str
    depth: int = 1
    watch: bool = True


@dataclass(frozen=True, slots=True)
class Check:
    """Requires that `path` exists, in this version."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Create:
    """Creates a node, whose parent must exist."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Sets the data of `path` if it has this version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes `path` if it has this version."""

    path: str
    version: int = ANY_VERSION


Operation = Check | Create | Set | Delete


class Right(Enum):
    """The permissions of an access control list; the values are the letters of zookeeper-shell."""

    CREATE = "c"
    DELETE = "d"
    READ = "r"
    WRITE = "w"


def needed(operation: Operation) -> tuple[str, Right]:
    """Return the node whose access control list applies to `operation`, and the permission that it must give."""
    parent = operation.path.rpartition("/")[0] or "/"
    match operation:
        case Create():
            return parent, Right.CREATE
        case Delete():
            return parent, Right.DELETE
        case Set(path):
            return path, Right.WRITE
        case Check(path):
            return path, Right.READ


def how_to_allow(node: str, right: Right) -> str:
    """Return the next step for a user who lacks the permission `right` on `node`."""
    return (
        f"The user lacks the right {right.name} ({right.value}) on {node}. Set zookeeper.username and "
        "zookeeper.password of a user who has it. Or let the owner run in zookeeper-shell: addauth digest "
        f"<owner>:<password>, addauth digest <user>:<password>, setAcl {node} auth::cdrwa,world:anyone:r"
    )


class Refusal(Enum):
    """The reasons for which ZooKeeper refuses a transaction, of which no operation then takes effect."""

    NO_NODE = "the node does not exist"
    NODE_EXISTS = "the node exists already"
    BAD_VERSION = "the node has been written since it was read"
    NOT_EMPTY = "the node has children"
    NO_AUTH = "its access control list forbids it"
    INVALID_ACL = "the server knows no identity of this session, so the node cannot be for its creator only"
