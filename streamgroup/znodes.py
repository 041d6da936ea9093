"""ZooKeeper's nodes as plain values: what is read and what is written, without a client.

A leaf: imports nothing of ours.
`group/registry/` decides in these words, `zookeeper/` carries them out, the simulation plays them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

ANY_VERSION = -1
NOT_EPHEMERAL = 0


@dataclass(frozen=True, slots=True)
class ZNode:
    """A node as it was read. `zxid`s are ZooKeeper's transaction ids: one order for all that is written anywhere.

    `pzxid` is that of the last child created or deleted. `owner` is the session of an ephemeral node.
    """

    data: bytes
    version: int
    czxid: int
    mzxid: int
    pzxid: int
    owner: int = NOT_EPHEMERAL
    children: tuple[str, ...] = ()
    """Names, sorted; empty for a node whose children were not asked for."""


@dataclass(frozen=True, slots=True)
class Subtree:
    """Read `path` and what is below it down to `depth` levels (0: the node alone).

    With `watch`, any later change of what was read (children, data, a node that was absent coming to be) is told once.
    Nodes that vanish while they are read are absent from the answer.
    """

    path: str
    depth: int = 1
    watch: bool = True


@dataclass(frozen=True, slots=True)
class Check:
    """`path` exists, in this version."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Create:
    """A new node; its parent must exist."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """New data for `path`, if it is in this version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """`path` goes, if it is in this version."""

    path: str
    version: int = ANY_VERSION


Operation = Check | Create | Set | Delete


class Refusal(Enum):
    """Why a transaction was refused: all of it, nothing was written."""

    NO_NODE = "there is no such node"
    NODE_EXISTS = "there is such a node already"
    BAD_VERSION = "the node has been written since"
    NOT_EMPTY = "the node has children"
    NO_AUTH = "its access control list forbids it"
