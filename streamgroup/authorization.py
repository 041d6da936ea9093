"""Refusals of Kafka's authorizer: the user, the missing right, and the command that gives it.

A leaf: the tasks, the group's machines, the producer and the commands all word a refusal by this module.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from streamgroup.errors import BrokerAuthorizationError, ErrorCode

ANONYMOUS = "User:ANONYMOUS"
"""The principal of all clients of a listener without authentication."""


class Operation(Enum):
    """The operations that streamgroup's requests need, as kafka-acls.sh spells them."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    ALTER = "Alter"
    DELETE = "Delete"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    IDEMPOTENT_WRITE = "IdempotentWrite"


class Resource(Enum):
    """The kinds of resources. The value is the name of the kind in kafka-acls.sh."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional-id"
    DELEGATION_TOKEN = "delegation-token"


RESOURCES: Mapping[int, Resource] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Resource.TOPIC,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Resource.GROUP,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Resource.CLUSTER,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Resource.TRANSACTIONAL_ID,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: Resource.DELEGATION_TOKEN,
}
"""The kind of resource that each code of the authorizer is about."""

_INCLUDED_IN: Mapping[tuple[Resource, Operation], str] = {
    (Resource.TOPIC, Operation.DESCRIBE): " (Read and Write include it)",
    (Resource.GROUP, Operation.DESCRIBE): " (Read includes it)",
    (Resource.CLUSTER, Operation.IDEMPOTENT_WRITE): " (since Kafka 2.8 Write on any topic includes it, KIP-679)",
}


@dataclass(frozen=True, slots=True)
class Requester:
    """The user who sends the requests, and the brokers that get them.

    `principal` is the user's name in ACLs, such as `User:alice`; empty if only the brokers know it. `servers` is
    `host:port,...`.
    """

    principal: str = ""
    servers: str = ""


UNKNOWN = Requester()


def refusal(
    code: int, context: str, operation: Operation, name: str = "", requester: Requester = UNKNOWN
) -> BrokerAuthorizationError:
    """Return the exception for a code of the authorizer. `context` failed, for lack of `operation` on `name`."""
    return BrokerAuthorizationError(code, context, missing_right(code, operation, name, requester))


def missing_right(code: int, operation: Operation, name: str, requester: Requester) -> str:
    """Return who is not allowed which operation, and the command that allows it.

    `code` is a key of RESOURCES. `name` is the topic, group or id; a cluster has no name. An unknown name is empty.
    """
    kind = RESOURCES[code]
    who = requester.principal or "this user"
    noun = kind.value.replace("-", " ")
    what = f"the {noun}" if kind is Resource.CLUSTER else f"{noun} {name!r}" if name else f"a {noun}"
    included = _INCLUDED_IN.get((kind, operation), "")
    command = grant(kind, operation, name, requester)
    return f"{who} is not allowed the operation {operation.value} on {what}{included}. To allow it: `{command}`"


def grant(kind: Resource, operation: Operation, name: str, requester: Requester) -> str:
    """Return the command that gives the requester a right."""
    words = ["kafka-acls.sh", "--bootstrap-server", requester.servers or "...", "--add"]
    words += ["--allow-principal", requester.principal or "User:...", "--operation", operation.value, f"--{kind.value}"]
    if kind is not Resource.CLUSTER:
        words.append(name or "...")
    return shlex.join(words)
