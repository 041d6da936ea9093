"""Next steps for users: set a group's offsets, get a group coordinator, grant a permission.

How to set offsets depends on where they are stored:

| stored | set by |
|---|---|
| in Kafka | `streamgroup groups --reset-offsets`, where the brokers are of 0.9 or later |
| in ZooKeeper | the number in the partition's node: members follow it (R32) |
| in both | both, since a start takes the larger |
| in a database | `streamgroup offsets --reset-offsets` |

A leaf module, because planning, the coordinator, the members and the tasks all use these texts.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from enum import Enum

from streamgroup.errors import BrokerAuthorizationError, ErrorCode
from streamgroup.frozen import frozen


class StoredIn(Enum):
    """The system that stores a group's offsets."""

    KAFKA = "kafka"
    BROKERS = "brokers"
    """Kafka; brokers older than 0.8.2 write them into their ZooKeeper."""
    ZOOKEEPER = "zookeeper"
    BOTH = "both"
    TABLE = "table"
    """A database (`offsets.store`); the commits in Kafka only follow it."""


@frozen
class OffsetLocation:
    """A group, and the system that stores its offsets. `group` is "" for a query without a group."""

    group: str = ""
    stored_in: StoredIn = StoredIn.KAFKA

    def node(self, topic: str = "<topic>", partition: str = "<partition>") -> str:
        """Return the path of the ZooKeeper node that stores the offset of a partition.

        `partition` is the name of the partition in the cluster: `1-2` in Kafka 0.7, `2` in later releases.
        """
        return f"/consumers/{self.group}/offsets/{topic}/{partition}"


NO_LOCATION = OffsetLocation()

_NO_COORDINATOR = (
    "usually the brokers cannot create the topic __consumer_offsets, because offsets.topic.replication.factor is above "
    "the number of brokers, or a partition of this topic has no leader. Set offsets.topic.replication.factor to the "
    "number of brokers or less and restart them, or start the missing brokers"
)


def with_remedy(cause: str) -> str:
    """Return `cause` (an error code's name or a text).

    COORDINATOR_NOT_AVAILABLE is returned with its usual reason and the next step.
    """
    return f"{cause} ({_NO_COORDINATOR})" if cause == "COORDINATOR_NOT_AVAILABLE" else cause


def how_to_reset(location: OffsetLocation) -> str:
    """Return the next step that sets all offsets of a group; "" for a query without a group."""
    if not location.group:
        return ""
    if location.stored_in is StoredIn.TABLE:
        command = f"streamgroup offsets --store URL --reset-offsets --group {location.group}"
        return f"stop the query and all members, and set the group's offsets in the database ({command}; {_STORE})"
    tool = f"set the group's offsets (streamgroup groups --reset-offsets --group {location.group}; {_OR})"
    nodes = f"write the group's offsets into ZooKeeper's nodes {location.node()} ({_CHROOT}; {_NAMED})"
    return f"stop the query and all members, and {_both_or_one(location.stored_in, tool, nodes)}"


def how_to_step_to(location: OffsetLocation, topic: str, partition: str, offset: int, servers: str) -> str:
    """Return the next step that makes a group continue at `offset` of a partition.

    `partition` is the name of the partition in the cluster (see `OffsetLocation.node`). `servers` is
    `host:port,host:port`.
    """
    reset = f"--reset-offsets --group {location.group} --topic {topic}:{partition} --to-offset {offset} --execute"
    if location.stored_in is StoredIn.TABLE:
        return f"stop the query and all members, and run: streamgroup offsets --store URL {reset} ({_STORE})"
    tool = f"run: streamgroup groups --bootstrap-server {servers} {reset} ({_OR})"
    node = f"write {offset} into ZooKeeper's node {location.node(topic, partition)} ({_CHROOT})"
    return f"stop the query and all members, and {_both_or_one(location.stored_in, tool, node)}"


def how_to_look(location: OffsetLocation) -> str:
    """Return the command that shows the members of a group."""
    where = {
        StoredIn.KAFKA: "--bootstrap-server",
        StoredIn.BROKERS: "--bootstrap-server, or --zookeeper for brokers before 0.9",
        StoredIn.ZOOKEEPER: "--zookeeper",
        StoredIn.BOTH: "--zookeeper, then --bootstrap-server",
        StoredIn.TABLE: "--bootstrap-server",
    }
    return f"streamgroup groups --describe --group {location.group}, with {where[location.stored_in]}"


def _both_or_one(stored_in: StoredIn, in_kafka: str, in_zookeeper: str) -> str:
    return {
        StoredIn.KAFKA: in_kafka,
        StoredIn.BROKERS: f"{in_kafka}; with brokers before 0.8.2, {in_zookeeper}, and {_ANEW}",
        StoredIn.ZOOKEEPER: in_zookeeper,
        StoredIn.BOTH: f"do both, since the larger offset counts: {in_zookeeper}, and {in_kafka}",
    }[stored_in]


_OR = "kafka-consumer-groups.sh of Kafka 0.11 or later does the same; brokers before 0.9 need a client that commits"
_ANEW = "start with a new checkpointLocation, since a reset in ZooKeeper looks like a commit of a member"
_CHROOT = "below the brokers' chroot, if they have one"
_STORE = "URL is the option offsets.store of the query"
_NAMED = "Kafka 0.7 calls a partition <broker>-<partition>"


ANONYMOUS = "User:ANONYMOUS"
"""The principal of all clients of a listener without authentication."""


class Operation(Enum):
    """The operations of Kafka's ACLs that streamgroup's requests need, spelled as in kafka-acls.sh."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    ALTER = "Alter"
    DELETE = "Delete"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    IDEMPOTENT_WRITE = "IdempotentWrite"


class Resource(Enum):
    """The kinds of resources that Kafka's ACLs protect. The value is the name in kafka-acls.sh."""

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
"""The kind of resource that each code of the authorizer concerns."""

_INCLUDED_IN: Mapping[tuple[Resource, Operation], str] = {
    (Resource.TOPIC, Operation.DESCRIBE): " (Read and Write include it)",
    (Resource.GROUP, Operation.DESCRIBE): " (Read includes it)",
    (Resource.CLUSTER, Operation.IDEMPOTENT_WRITE): " (since Kafka 2.8 Write on any topic includes it, KIP-679)",
}


@frozen
class Requester:
    """The user who sends requests, and the brokers that receive them, for authorization errors.

    `principal` is the user's name in ACLs, such as `User:alice`; it is "" if only the brokers know the name. `servers`
    is `host:port,...`.
    """

    principal: str = ""
    servers: str = ""


UNKNOWN = Requester()


def refusal(
    code: int, context: str, operation: Operation, name: str = "", requester: Requester = UNKNOWN
) -> BrokerAuthorizationError:
    """Return the exception for an authorization error code of a broker.

    `context` says what failed. The user lacks the permission for `operation` on the topic, group or id `name`.
    """
    return BrokerAuthorizationError(code, context, missing_right(code, operation, name, requester))


def missing_right(code: int, operation: Operation, name: str, requester: Requester) -> str:
    """Return a text: which user lacks which permission, and the command that grants it.

    `code` is a key of RESOURCES. `name` is the topic, group or id. It is "" for the cluster, or if it is unknown.
    """
    kind = RESOURCES[code]
    who = requester.principal or "this user"
    noun = kind.value.replace("-", " ")
    what = f"the {noun}" if kind is Resource.CLUSTER else f"{noun} {name!r}" if name else f"a {noun}"
    included = _INCLUDED_IN.get((kind, operation), "")
    command = grant(kind, operation, name, requester)
    return f"{who} is not allowed the operation {operation.value} on {what}{included}. To allow it: `{command}`"


def grant(kind: Resource, operation: Operation, name: str, requester: Requester) -> str:
    words = ["kafka-acls.sh", "--bootstrap-server", requester.servers or "...", "--add"]
    words += ["--allow-principal", requester.principal or "User:...", "--operation", operation.value, f"--{kind.value}"]
    if kind is not Resource.CLUSTER:
        words.append(name or "...")
    return shlex.join(words)
