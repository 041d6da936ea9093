"""Transactions by ZooKeeper's multi: all operations take effect, or none.

ZooKeeper before 3.4 has no multi and never answers one. The operations are then checked against a read and applied one
by one. A process that dies in between leaves a part of them. Writes of others between the check and the operations are
only detected by versions and by existing nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    InvalidACLError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    ZookeeperError,
)

from streamgroup.options.types import ZooKeeperOptions
from streamgroup.znodes import ANY_VERSION, Check, Create, Delete, Operation, Refusal, Set
from streamgroup.zookeeper.client import acl_of
from streamgroup.zookeeper.reading import Wait

_REFUSALS: dict[type[ZookeeperError], Refusal] = {
    NoNodeError: Refusal.NO_NODE,
    NodeExistsError: Refusal.NODE_EXISTS,
    BadVersionError: Refusal.BAD_VERSION,
    NotEmptyError: Refusal.NOT_EMPTY,
    NoAuthError: Refusal.NO_AUTH,
    InvalidACLError: Refusal.INVALID_ACL,
}
_NOT_THE_CAUSE = (RolledBackError, RuntimeInconsistency)
"""The results that a multi gives to the operations besides the failed one."""


RefusedOperation = tuple[str, Refusal]
"""The path of the refused operation, and the reason."""


class Writer:
    """Writes in one session. Refusals are returned; missing responses raise."""

    def __init__(self, client: KazooClient, options: ZooKeeperOptions, wait: Wait) -> None:
        self._client = client
        self._options = options
        self._wait = wait

    def ensure(self, paths: Iterable[str]) -> dict[str, RefusedOperation]:
        """Create missing persistent nodes with their parents, and return the refusals by path."""
        asked = [(path, self._client.exists_async(path)) for path in dict.fromkeys(paths)]
        refused = {}
        for path in [path for path, answer in asked if self._wait(answer) is None]:
            for step in _ancestors(path):
                refusal = self._ensure(step)
                if refusal is not None:
                    refused[path] = step, refusal
                    break
        return refused

    def _ensure(self, path: str) -> Refusal | None:
        try:
            self._wait(self._client.create_async(path, b"", acl_of(self._options, path)))
        except NodeExistsError:
            return None
        except (NoNodeError, NoAuthError, InvalidACLError) as error:
            # The node may exist all the same: ZooKeeper checks the ACL of the parent before it looks for the node.
            return None if self._wait(self._client.exists_async(path)) is not None else _REFUSALS[type(error)]
        return None

    def begin(self, operations: Sequence[Operation]) -> Any:
        """Send a multi, whose response `end` awaits. Several may be in flight: ZooKeeper applies them in order."""
        transaction = self._client.transaction()
        for operation in operations:
            match operation:
                case Check(path, version):
                    transaction.check(path, version)
                case Create(path, data, ephemeral):
                    transaction.create(path, data, acl_of(self._options, path), ephemeral)
                case Set(path, data, version):
                    transaction.set_data(path, data, version)
                case Delete(path, version):
                    transaction.delete(path, version)
        return transaction.commit_async()

    def end(self, operations: Sequence[Operation], begun: Any) -> RefusedOperation | None:
        """Wait for the response of a multi, and return the refusal, if any."""
        results = self._wait(begun)
        for operation, result in zip(operations, results, strict=True):
            if isinstance(result, Exception) and not isinstance(result, _NOT_THE_CAUSE):
                return operation.path, _refusal(result)
        return None

    def apply_one_by_one(self, operations: Sequence[Operation]) -> RefusedOperation | None:
        """Check all operations, then apply them one by one, for a ZooKeeper without multi."""
        refused = self._check_all(operations)
        if refused is not None:
            return refused
        for operation in operations:
            try:
                self._apply(operation)
            except tuple(_REFUSALS) as error:
                return operation.path, _refusal(error)
        return None

    def _check_all(self, operations: Sequence[Operation]) -> RefusedOperation | None:
        asked = [(o.path, self._client.exists_async(o.path)) for o in operations]
        versions: dict[str, int | None] = {}
        for path, answer in asked:
            stat = self._wait(answer)
            versions[path] = None if stat is None else stat.version
        for operation in operations:
            refusal = _refusal_of(operation, versions)
            if refusal is not None:
                return operation.path, refusal
        return None

    def _apply(self, operation: Operation) -> None:
        match operation:
            case Create(path, data, ephemeral):
                self._wait(self._client.create_async(path, data, acl_of(self._options, path), ephemeral))
            case Set(path, data, version):
                self._wait(self._client.set_async(path, data, version))
            case Delete(path, version):
                self._wait(self._client.delete_async(path, version))


def _refusal_of(operation: Operation, versions: dict[str, int | None]) -> Refusal | None:
    """Return the refusal that a multi would give, as far as `versions` tell; apply the operation to `versions`."""
    path, found = operation.path, versions[operation.path]
    if isinstance(operation, Create):
        versions[path] = 0
        return None if found is None else Refusal.NODE_EXISTS
    if found is None:
        return Refusal.NO_NODE
    if operation.version not in (ANY_VERSION, found):
        return Refusal.BAD_VERSION
    if isinstance(operation, Set):
        versions[path] = found + 1
    elif isinstance(operation, Delete):
        versions[path] = None
    return None


def _refusal(error: Any) -> Refusal:
    """Return the refusal that `error` stands for. Raises `error` if it does not concern the node."""
    refusal = _REFUSALS.get(type(error))
    if refusal is None:
        raise error
    return refusal


def _ancestors(path: str) -> Iterator[str]:
    """Yield `/a`, `/a/b` and `/a/b/c` for `/a/b/c`."""
    steps = path.strip("/").split("/")
    return ("/" + "/".join(steps[: n + 1]) for n in range(len(steps)))
