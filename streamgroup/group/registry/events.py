"""The events and actions of a member in ZooKeeper, beside those of every member.

The contract is that of `group/events.py`. ZooKeeper adds:

- Every `ReadSubtrees` and `Transact` is answered, in the order of their sending, by one `SubtreesRead`, `Transacted`,
  `RequestRefused` or `Unanswered` with its token, unless the session expires first: `Expired` fails all pending
  requests.
- A session writes in order: of two `Transact`s the second is carried out after the first, or fails.
- A request made before `SessionBegan` is never carried out in the new session. No event of a session follows
  `CloseSession`, which carries out the requests made before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamgroup.znodes import Operation, Refusal, Subtree, ZNode

# -- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionBegan:
    """A new session began: nothing that an earlier session registered is ours any more.

    `session_id` is ZooKeeper's. `timeout_ms` is the timeout that it grants, whatever the member asked for.
    """

    session_id: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Suspended:
    """The connection is lost, and the session may live (R36). Watches may have been missed."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """The same session is connected again."""


@dataclass(frozen=True, slots=True)
class Expired:
    """The session has expired: its ephemeral nodes are gone, or will be."""

    reason: str


@dataclass(frozen=True, slots=True)
class Changed:
    """A node that a `ReadSubtrees` watches has changed. It is reported once."""

    path: str


@dataclass(frozen=True, slots=True)
class SubtreesRead:
    """The nodes that a `ReadSubtrees` found, by path. Nodes that do not exist are absent."""

    token: int
    nodes: Mapping[str, ZNode]


@dataclass(frozen=True, slots=True)
class Transacted:
    """All operations were carried out."""

    token: int


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """No operation was carried out, because of the operation on `path`."""

    token: int
    path: str
    refusal: Refusal
    advice: str = ""
    """The next step for the user, for a refusal that no retry mends."""

    @property
    def is_final(self) -> bool:
        """Return whether only the user or an operator can mend the refusal."""
        return self.refusal in (Refusal.NO_AUTH, Refusal.INVALID_ACL)


def forbidden(group: str, what: str, event: RequestRefused) -> str:
    """Return the error of a refusal that is final."""
    return (
        f"group {group}: {what}: ZooKeeper refused the operation on {event.path}: {event.refusal.value}. {event.advice}"
    )


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The connection was lost, or the request timed out. A `Transact` may or may not have been carried out."""

    token: int
    reason: str


RegistryEvent = (
    SessionBegan | Suspended | Resumed | Expired | Changed | SubtreesRead | Transacted | RequestRefused | Unanswered
)


# -- actions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenSession:
    """Connect. `SessionBegan` follows, and another one by itself after each `Expired`."""


@dataclass(frozen=True, slots=True)
class CloseSession:
    """End the session: its ephemeral nodes are deleted at once."""


@dataclass(frozen=True, slots=True)
class ReadSubtrees:
    """Read these subtrees."""

    token: int
    subtrees: tuple[Subtree, ...]


@dataclass(frozen=True, slots=True)
class Transact:
    """Carry out all of `operations` or none of them.

    Before that create the persistent nodes `ensured` and their parents, where they do not exist.
    """

    token: int
    operations: tuple[Operation, ...]
    ensured: tuple[str, ...] = ()


RegistryAction = OpenSession | CloseSession | ReadSubtrees | Transact
