"""The events and actions of a member of a group in ZooKeeper, in addition to those of every member.

The contract is that of `group/events.py`. ZooKeeper adds:

- Every `ReadSubtrees` and `Transact` is answered by one `SubtreesRead`, `Transacted`, `RequestRefused` or `Unanswered`
  with its token, in the order of the requests. `Expired` fails all pending requests without an answer to each.
- A session writes in order: the second of two `Transact`s takes effect after the first, or fails.
- A request made before `SessionBegan` is never carried out in the new session. `CloseSession` carries out the requests
  made before it; no event of that session follows.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamgroup.frozen import frozen
from streamgroup.znodes import Operation, Refusal, Subtree, ZNode

# -- events -----------------------------------------------------------------------------------------------------------


@frozen
class SessionBegan:
    """A new session started: nodes of an earlier session no longer belong to this member.

    `timeout_ms` is the timeout that ZooKeeper grants, which may differ from the requested one.
    """

    session_id: int
    timeout_ms: int


@frozen
class Suspended:
    """The connection is lost; the session may still be alive (R36). Watch events may be missed."""

    reason: str


@frozen
class Resumed:
    """The same session is connected again."""


@frozen
class Expired:
    """The session has expired: its ephemeral nodes are gone, or will be."""

    reason: str


@frozen
class Changed:
    """A node that a `ReadSubtrees` watches has changed. Reported once."""

    path: str


@frozen
class SubtreesRead:
    """The nodes that a `ReadSubtrees` found, by path. Nodes that do not exist are absent."""

    token: int
    nodes: Mapping[str, ZNode]


@frozen
class Transacted:
    """All operations were carried out."""

    token: int


@frozen
class RequestRefused:
    """ZooKeeper refused the operation on `path`, so none of the operations was carried out."""

    token: int
    path: str
    refusal: Refusal
    advice: str = ""
    """The next step for the user, if retrying will not help."""

    @property
    def is_final(self) -> bool:
        """Whether retrying will not help: permissions must be changed."""
        return self.refusal in (Refusal.NO_AUTH, Refusal.INVALID_ACL)


def forbidden(group: str, what: str, event: RequestRefused) -> str:
    """Return the error message for a refusal that is final; `what` failed."""
    return (
        f"group {group}: {what}: ZooKeeper refused the operation on {event.path}: {event.refusal.value}. {event.advice}"
    )


@frozen
class Unanswered:
    """The connection was lost, or the request timed out. A `Transact` may have taken effect or not."""

    token: int
    reason: str


RegistryEvent = (
    SessionBegan | Suspended | Resumed | Expired | Changed | SubtreesRead | Transacted | RequestRefused | Unanswered
)


# -- actions ----------------------------------------------------------------------------------------------------------


@frozen
class OpenSession:
    """Connect. `SessionBegan` follows; after each `Expired` a new session is opened automatically."""


@frozen
class CloseSession:
    """Close the session, which deletes its ephemeral nodes."""


@frozen
class ReadSubtrees:
    """Read these subtrees."""

    token: int
    subtrees: tuple[Subtree, ...]


@frozen
class Transact:
    """Carry out all of `operations` or none of them.

    Before that create the persistent nodes `ensured` and their parents, if they do not exist.
    """

    token: int
    operations: tuple[Operation, ...]
    ensured: tuple[str, ...] = ()


RegistryAction = OpenSession | CloseSession | ReadSubtrees | Transact
