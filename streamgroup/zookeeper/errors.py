"""The errors of ZooKeeper operations. Exceptions of kazoo never leave this package."""

from __future__ import annotations

from collections.abc import Iterable

from streamgroup.errors import AuthError, StreamGroupError, TransportError
from streamgroup.znodes import Operation, Refusal, Right, how_to_allow, needed


class RefusedError(StreamGroupError):
    """ZooKeeper refused an operation because of the node `path`. It read and wrote nothing."""

    def __init__(self, path: str, refusal: Refusal, where: str, asked: Iterable[Operation] = ()) -> None:
        """`asked` has the operations, among them that on `path`. Without it, `path` was read."""
        self.path = path
        self.refusal = refusal
        self.advice = _advice(path, refusal, asked)
        """The next step for the user; empty if the refusal is one of a race between members."""
        super().__init__(
            f"operation on {path} refused by {where}: {refusal.value}{'. ' * bool(self.advice)}{self.advice}"
        )


class UnansweredError(TransportError):
    """No response before the deadline or the loss of the connection. A write may have taken effect."""


class SessionOverError(UnansweredError):
    """The session has expired or was closed: its ephemeral nodes are deleted, or soon will be."""


class CredentialsError(AuthError):
    """ZooKeeper rejected the credentials."""


def _advice(path: str, refusal: Refusal, asked: Iterable[Operation]) -> str:
    if refusal is Refusal.INVALID_ACL:
        return (
            "With zookeeper.set.acl=true set zookeeper.username and zookeeper.password, or a client certificate that "
            "the server asks for (ssl.clientAuth)"
        )
    if refusal is not Refusal.NO_AUTH:
        return ""
    operation = next((each for each in asked if each.path == path), None)
    return how_to_allow(*((path, Right.READ) if operation is None else needed(operation)))
