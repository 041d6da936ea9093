"""The errors of ZooKeeper operations. Exceptions of kazoo never leave this package."""

from __future__ import annotations

from streamgroup.errors import AuthError, StreamGroupError, TransportError
from streamgroup.znodes import Refusal


class RefusedError(StreamGroupError):
    """ZooKeeper refused an operation because of the node `path`. It read and wrote nothing."""

    def __init__(self, path: str, refusal: Refusal, where: str) -> None:
        self.path = path
        self.refusal = refusal
        advice = _NO_AUTH if refusal is Refusal.NO_AUTH else ""
        super().__init__(f"operation on {path} refused by {where}: {refusal.value}{advice}")


class UnansweredError(TransportError):
    """No response before the deadline or the loss of the connection. A write may have taken effect."""


class SessionOverError(UnansweredError):
    """The session has expired or was closed: its ephemeral nodes are deleted, or soon will be."""


class CredentialsError(AuthError):
    """ZooKeeper rejected the credentials."""


_NO_AUTH = ". Set zookeeper.username and zookeeper.password of a user whom the ACL allows, or change the ACL (setAcl)"
