"""Credentials and ACLs of a cluster in ZooKeeper mode: nodes that the brokers read, as Kafka's own tools write them."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from kazoo.client import KazooClient

from streamgroup.errors import StreamGroupError
from streamgroup.testing.security.acls import Acl
from streamgroup.testing.security.scram import ScramCredential
from streamgroup.testing.zookeeper_mode import node_data, zookeeper_client

_TIMEOUT_S = 60.0
_POLL_S = 0.05
_CHANGES = "/kafka-acl-changes"
_PROCESSING = f"Processing notification(s) to {_CHANGES}".encode()


def store_scram(connect: str, credentials: Collection[ScramCredential]) -> None:
    """Write the credentials before any broker starts: brokers read them at their start (`ScramCredentialProvider`)."""
    users: dict[str, dict[str, str]] = {}
    for each in credentials:
        users.setdefault(each.user, {})[each.mechanism] = each.text()
    with zookeeper_client(connect) as client:
        for user, config in users.items():
            _put(client, f"/config/users/{user}", {"version": 1, "config": config})


def create_acl(connect: str, acl: Acl, logs: Sequence[Path]) -> None:
    """Add an ACL, and wait until the brokers with these `logs` decide by it. Raises StreamGroupError."""
    path = f"/kafka-acl/{acl.resource_type.title}/{acl.name}"
    with zookeeper_client(connect) as client:
        known = json.loads(node_data(client, path) or b'{"acls": []}')["acls"]
        _put(client, path, {"version": 1, "acls": [*known, _entry(acl)]})
        # A broker logs that it begins to process a notification. It processes them one after the other, so it has
        # taken the first one when it begins with the second.
        for _ in range(2):
            seen = [_processed(log) for log in logs]
            change = f"{acl.resource_type.title}:{acl.name}".encode()
            client.create(f"{_CHANGES}/acl_changes_", change, sequence=True, makepath=True)
            for log, before in zip(logs, seen, strict=True):
                _await_more(log, before, acl)


def _entry(acl: Acl) -> dict[str, str]:
    return {
        "principal": acl.principal,
        "permissionType": "Allow" if acl.allow else "Deny",
        "operation": acl.operation.title,
        "host": "*",
    }


def _processed(log: Path) -> int:
    return log.read_bytes().count(_PROCESSING)


def _await_more(log: Path, before: int, acl: Acl) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while _processed(log) <= before:
        if time.monotonic() >= deadline:
            raise StreamGroupError(f"a broker did not take {acl} within {_TIMEOUT_S:.0f} s. Look at its log, {log}")
        time.sleep(_POLL_S)


def _put(client: KazooClient, path: str, value: Mapping[str, object]) -> None:
    client.ensure_path(path)
    client.set(path, json.dumps(value, separators=(",", ":")).encode())
