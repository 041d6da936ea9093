"""What a ZooKeeper did not do, as exceptions of ours: kazoo's never leave this room."""

from __future__ import annotations

from streamgroup.errors import AuthError, StreamGroupError, TransportError
from streamgroup.znodes import Refusal


class RefusedError(StreamGroupError):
    """ZooKeeper refused an operation because of the node `path`: nothing was read or written."""

    def __init__(self, path: str, refusal: Refusal, where: str) -> None:
        self.path = path
        self.refusal = refusal
        advice = _NO_AUTH if refusal is Refusal.NO_AUTH else ""
        super().__init__(f"{where}: {path}: {refusal.value}{advice}")


class UnansweredError(TransportError):
    """No answer: the connection was lost, or the deadline has passed. What was to be written may have been."""


class SessionOverError(UnansweredError):
    """The session has expired or was closed: its ephemeral nodes are gone, or will be."""


class CredentialsError(AuthError):
    """ZooKeeper did not accept the credentials themselves."""


_NO_AUTH = (
    ": give zookeeper.username and zookeeper.password of a user whom it allows, or have an operator change the list "
    "(setAcl)"
)
