"""What a membership in ZooKeeper hears and wants done, beside the events and actions of every membership.

The contract is that of `group/events.py`. What is special to ZooKeeper:

- Every `Look` and `Transact` is answered, in the order of their sending, by one `Looked`, `Transacted`, `Refused` or
  `Unanswered` with its token, unless the session expires first: `Expired` fails all that is out.
- A session writes in order: of two `Transact`s the second is carried out after the first, or fails.
- What is asked before `SessionBegan` was heard is never carried out in the session that it tells of, and nothing of a
  session is told after `CloseSession`, which carries out what was asked before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamgroup.znodes import Operation, Refusal, Subtree, ZNode

# -- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionBegan:
    """A new session: nothing that an earlier one registered is ours any more. `session_id` is ZooKeeper's, `timeout_ms`
    what it grants, whatever was asked for."""

    session_id: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Suspended:
    """The connection is lost, the session may live (R36): watches may have been missed."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """The same session is connected again."""


@dataclass(frozen=True, slots=True)
class Expired:
    """The session is over: its ephemeral nodes are gone, or will be."""

    reason: str


@dataclass(frozen=True, slots=True)
class Changed:
    """Something that a `Look` watches has changed; told once."""

    path: str


@dataclass(frozen=True, slots=True)
class Looked:
    """What was found: by path, without what does not exist."""

    token: int
    nodes: Mapping[str, ZNode]


@dataclass(frozen=True, slots=True)
class Transacted:
    """All operations were carried out."""

    token: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was carried out, because of the operation on `path`."""

    token: int
    path: str
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The connection was lost or the time is over: a `Transact` may or may not have been carried out."""

    token: int
    reason: str


RegistryEvent = SessionBegan | Suspended | Resumed | Expired | Changed | Looked | Transacted | Refused | Unanswered


# -- actions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenSession:
    """Connect; `SessionBegan` follows, after an `Expired` another one without being asked for."""


@dataclass(frozen=True, slots=True)
class CloseSession:
    """End the session in order: its ephemeral nodes go at once."""


@dataclass(frozen=True, slots=True)
class Look:
    """Read these."""

    token: int
    subtrees: tuple[Subtree, ...]


@dataclass(frozen=True, slots=True)
class Transact:
    """Make the nodes `ensured` (persistent, with their parents, where they do not exist), then all of `operations` or
    none of them."""

    token: int
    operations: tuple[Operation, ...]
    ensured: tuple[str, ...] = ()


RegistryAction = OpenSession | CloseSession | Look | Transact
