"""ZooKeeper's nodes and operations as plain values, without a client.

`group/registry/` decides with these values, `zookeeper/` executes them, and the simulation replays them. A leaf module:
it imports nothing of this package but `frozen`.
"""

from __future__ import annotations

from enum import Enum

from streamgroup.frozen import frozen

ANY_VERSION = -1
NOT_EPHEMERAL = 0


@frozen
class ZNode:
    """A ZooKeeper node, as it was when it was read.

    The `zxid`s are ZooKeeper's transaction ids, which order all writes. `pzxid` is the transaction that last created or
    deleted a child of the node. `owner` is the session id of an ephemeral node.
    """

    data: bytes
    version: int
    czxid: int
    mzxid: int
    pzxid: int
    owner: int = NOT_EPHEMERAL
    children: tuple[str, ...] = ()
    """Sorted names; empty if the read did not include children."""


@frozen
class Subtree:
    """A request to read `path` and `depth` levels of nodes below it (0: the node only).

    With `watch`, the session reports the next change of data or children, or the creation of an absent node, once. The
    result has no nodes that are deleted during the read.
    """

    path: str
    depth: int = 1
    watch: bool = True


@frozen
class Check:
    """An operation of a transaction: it fails unless `path` exists and has this version."""

    path: str
    version: int = ANY_VERSION


@frozen
class Create:
    """An operation of a transaction that creates a node. The parent node must exist."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


@frozen
class Set:
    """An operation of a transaction that sets the data of `path`. It fails if the node has another version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@frozen
class Delete:
    """An operation of a transaction that deletes `path`. It fails if the node has another version."""

    path: str
    version: int = ANY_VERSION


Operation = Check | Create | Set | Delete


class Right(Enum):
    """The permissions in ZooKeeper's access control lists; the values are the letters of zookeeper-shell."""

    CREATE = "c"
    DELETE = "d"
    READ = "r"
    WRITE = "w"


def needed(operation: Operation) -> tuple[str, Right]:
    """Return the permission that `operation` needs, and the node whose access control list must grant it."""
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
    """Return the next step for a user who lacks the permission `right` on the node `node`."""
    return (
        f"The user lacks the permission {right.name} ({right.value}) on {node}. Set zookeeper.username and "
        "zookeeper.password of a user who has it. Or let the owner run in zookeeper-shell: addauth digest "
        f"<owner>:<password>, addauth digest <user>:<password>, setAcl {node} auth::cdrwa,world:anyone:r"
    )


class Refusal(Enum):
    """The reasons why ZooKeeper refuses a transaction. It then applies none of the operations."""

    NO_NODE = "the node does not exist"
    NODE_EXISTS = "the node exists already"
    BAD_VERSION = "another client has written the node since it was read"
    NOT_EMPTY = "the node has children"
    NO_AUTH = "the node's access control list forbids the operation"
    INVALID_ACL = "this session has no identity, so the node cannot be for its creator only"
