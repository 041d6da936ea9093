"""Transactions: all operations or none, by ZooKeeper's multi.

A ZooKeeper before 3.4 has no multi, and answers one with silence. There the operations are judged by what can be read,
then carried out one after the other: who is killed in between leaves a part of them, and what others write between the
judging and the writing is not noticed but for versions and for nodes that are there already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
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
}
_BYSTANDERS = (RolledBackError, RuntimeInconsistency)
"""What a multi says of the operations beside the one that failed."""


Refused = tuple[str, Refusal]
"""The path that stood in the way, and how."""


class Writer:
    """Writes for one session. What was refused is returned; what was not answered raises."""

    def __init__(self, client: KazooClient, options: ZooKeeperOptions, wait: Wait) -> None:
        self._client = client
        self._options = options
        self._wait = wait

    def ensure(self, paths: Iterable[str]) -> dict[str, Refused]:
        """Make persistent nodes, with their parents, where they do not exist; those of `paths` that cannot be made."""
        asked = [(path, self._client.exists_async(path)) for path in dict.fromkeys(paths)]
        refused = {}
        for path in [path for path, answer in asked if self._wait(answer) is None]:
            for step in _down_to(path):
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
        except (NoNodeError, NoAuthError) as error:
            # Who may not create a node may well use it: ZooKeeper looks at the list before it looks for the node.
            return None if self._wait(self._client.exists_async(path)) is not None else _REFUSALS[type(error)]
        return None

    def begin(self, operations: Sequence[Operation]) -> Any:
        """Send a multi; `end` takes its answer. Others may be sent before: a session's are carried out in order."""
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

    def end(self, operations: Sequence[Operation], begun: Any) -> Refused | None:
        """What became of a multi."""
        results = self._wait(begun)
        for operation, result in zip(operations, results, strict=True):
            if isinstance(result, Exception) and not isinstance(result, _BYSTANDERS):
                return operation.path, _refusal(result)
        return None

    def one_after_the_other(self, operations: Sequence[Operation]) -> Refused | None:
        """Without multi: see the module."""
        refused = self._judge(operations)
        if refused is not None:
            return refused
        for operation in operations:
            try:
                self._carry_out(operation)
            except tuple(_REFUSALS) as error:
                return operation.path, _refusal(error)
        return None

    def _judge(self, operations: Sequence[Operation]) -> Refused | None:
        asked = [(o.path, self._client.exists_async(o.path)) for o in operations]
        versions: dict[str, int | None] = {}
        for path, answer in asked:
            stat = self._wait(answer)
            versions[path] = None if stat is None else stat.version
        for operation in operations:
            refusal = _judged(operation, versions)
            if refusal is not None:
                return operation.path, refusal
        return None

    def _carry_out(self, operation: Operation) -> None:
        match operation:
            case Create(path, data, ephemeral):
                self._wait(self._client.create_async(path, data, acl_of(self._options, path), ephemeral))
            case Set(path, data, version):
                self._wait(self._client.set_async(path, data, version))
            case Delete(path, version):
                self._wait(self._client.delete_async(path, version))


def _judged(operation: Operation, versions: dict[str, int | None]) -> Refusal | None:
    """What a multi would say of `operation`, as far as versions tell; they are as after it then."""
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
    """Raises `error` where it is none of the node's."""
    refusal = _REFUSALS.get(type(error))
    if refusal is None:
        raise error
    return refusal


def _down_to(path: str) -> Iterator[str]:
    """`/a`, `/a/b`, `/a/b/c` of `/a/b/c`."""
    steps = path.strip("/").split("/")
    return ("/" + "/".join(steps[: n + 1]) for n in range(len(steps)))
