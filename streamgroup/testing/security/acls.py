"""ACLs: which principal may do what with which resource (KIP-11)."""

from __future__ import annotations

from enum import Enum
from typing import TypedDict, Unpack

from streamgroup.errors import ConfigError
from streamgroup.frozen import frozen
from streamgroup.testing.releases import Release

CLUSTER_NAME = "kafka-cluster"
"""The only name of a cluster in ACLs."""

_PREFIXED_SINCE = (2, 0)
_TRANSACTIONS_SINCE = (0, 11)


class ResourceType(Enum):
    """The kinds of resources: their number in requests, and their name in ZooKeeper."""

    TOPIC = (2, "Topic")
    GROUP = (3, "Group")
    CLUSTER = (4, "Cluster")
    TRANSACTIONAL_ID = (5, "TransactionalId")

    def __init__(self, code: int, title: str) -> None:
        self.code = code
        self.title = title


class AclOperation(Enum):
    """The operations: their number in requests, and their name in ZooKeeper."""

    ALL = (2, "All")
    READ = (3, "Read")
    WRITE = (4, "Write")
    CREATE = (5, "Create")
    DELETE = (6, "Delete")
    ALTER = (7, "Alter")
    DESCRIBE = (8, "Describe")
    CLUSTER_ACTION = (9, "ClusterAction")
    DESCRIBE_CONFIGS = (10, "DescribeConfigs")
    ALTER_CONFIGS = (11, "AlterConfigs")
    IDEMPOTENT_WRITE = (12, "IdempotentWrite")

    def __init__(self, code: int, title: str) -> None:
        self.code = code
        self.title = title


_SINCE_011 = (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.IDEMPOTENT_WRITE)


@frozen
class Acl:
    """One ACL, from any host. `prefixed`: `name` is the beginning of the names that it is about (KIP-290)."""

    principal: str
    operation: AclOperation
    resource_type: ResourceType
    name: str
    prefixed: bool = False
    allow: bool = True

    def __str__(self) -> str:
        rule = "ALLOW" if self.allow else "DENY"
        return f"the ACL {rule} {self.operation.name} on {self.resource_type.name} {self.name} for {self.principal}"


class AclTarget(TypedDict, total=False):
    """The resource of an ACL, exactly one of the first four, and how the ACL applies to it."""

    topic: str | None
    group: str | None
    transactional_id: str | None
    cluster: bool
    prefixed: bool
    """Whether the name is the beginning of names; not if it is left out."""
    allow: bool
    """False denies the operation; an ACL allows it if this is left out."""


def acl_of(principal: str, operation: str, **target: Unpack[AclTarget]) -> Acl:
    """Return the ACL about the one resource that is given. Raises ConfigError for another number of them."""
    named = {
        ResourceType.TOPIC: target.get("topic"),
        ResourceType.GROUP: target.get("group"),
        ResourceType.TRANSACTIONAL_ID: target.get("transactional_id"),
        ResourceType.CLUSTER: CLUSTER_NAME if target.get("cluster") else None,
    }
    given = [(kind, name) for kind, name in named.items() if name is not None]
    if len(given) != 1:
        raise ConfigError(f"invalid ACL for {principal}: expected one of topic, group, transactional_id and cluster")
    wanted = operation.upper()
    if wanted not in AclOperation.__members__:
        raise ConfigError(f"invalid operation {operation!r} of an ACL: expected {', '.join(AclOperation.__members__)}")
    (kind, name) = given[0]
    return Acl(principal, AclOperation[wanted], kind, name, target.get("prefixed", False), target.get("allow", True))


def check_release(acl: Acl, release: Release) -> None:
    """Raise ConfigError if brokers of `release` do not know such an ACL: they would stop applying any."""
    if acl.prefixed and release.number < _PREFIXED_SINCE:
        raise ConfigError(
            f"cannot add an ACL for names that begin with {acl.name!r} to Kafka {release.version}: "
            "brokers have prefixes since 2.0 (KIP-290). Name each resource, or use a newer version"
        )
    new = acl.operation in _SINCE_011 or acl.resource_type is ResourceType.TRANSACTIONAL_ID
    if new and release.number < _TRANSACTIONS_SINCE:
        raise ConfigError(
            f"cannot add an ACL for {acl.operation.name} of a {acl.resource_type.name} to Kafka {release.version}: "
            "brokers support it since 0.11. Use a newer version"
        )
