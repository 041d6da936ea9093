"""What is stored: checkpoints, commits, the user data of members, nodes of ZooKeeper, files of the jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from streamgroup.coordinator.planning.document import from_value, to_value
from streamgroup.group.assignment import read_assignment
from streamgroup.group.commits import CommitMetadata
from streamgroup.group.registry.nodes import GroupPaths, committed_in, metadata_data
from streamgroup.group.sticky import encode_user_data
from streamgroup.group.user_data import RunIdentity, decode_identity, encode_identity
from streamgroup.jobs.backfill.command import BackfillPlan
from streamgroup.jobs.mirror.plan import MirrorPlan, Placement, TopicPlan
from streamgroup.jobs.sinkguard import SinkOwner
from streamgroup.kafka.wire.consumer import ConsumerAssignment, by_topic, encode_assignment
from streamgroup.kafka.wire.messages.group import SyncGroupResponse
from streamgroup.model import CommittedOffset, Dialect, Document, OffsetRange, Position, TopicPartition
from streamgroup.znodes import ZNode
from tests.golden.case import Case

ORDERS = tuple(TopicPartition("orders", number) for number in range(2))
EVENTS = TopicPartition("events", 10002)
TOPIC_ID = "9aa68196-23c9-4da3-870e-c3c5405fb8e5"
LINEAGE, RUN = "44d92456d0074f04", "748f7385639a45c4"
NODE_VERSION = 7

DOCUMENTS = {
    "a batch": Document(
        "etl",
        LINEAGE,
        RUN,
        7,
        tuple(OffsetRange(tp, 10, 20) for tp in ORDERS),
        {tp: Position(20, TOPIC_ID, 4) for tp in ORDERS},
    ),
    "a batch of Kafka 0.7": Document(
        "drain", LINEAGE, RUN, 3, (OffsetRange(EVENTS, 194, 2048),), {EVENTS: Position(2048)}
    ),
    "a member without partitions": Document("etl", LINEAGE, RUN, 8),
    "a query without a group": Document("", LINEAGE, RUN, 1, (), {ORDERS[0]: Position(5, TOPIC_ID, 0)}),
    "a first run that found no partition": Document("etl", LINEAGE, RUN, 1, is_founded=True),
}
COMMITS = {
    "without a listener": CommitMetadata(LINEAGE, RUN, sequence=3, asked=3, founding=1, topic_id=TOPIC_ID),
    "with Spark's batch": CommitMetadata(LINEAGE, RUN, 9, asked=10, founding=1, topic_id=TOPIC_ID, batch=8),
    "of a query with a table": CommitMetadata(LINEAGE, RUN, 3, asked=3, founding=1, topic_id=TOPIC_ID, in_table=True),
    "in a group that others founded": CommitMetadata(LINEAGE, RUN, sequence=1, asked=2, founding=-1),
}
IDENTITIES = {
    "joining": RunIdentity(LINEAGE, RUN),
    "admitted": RunIdentity(LINEAGE, RUN, admitted=True),
    "asking": RunIdentity(LINEAGE, RUN, admitted=True, asking=True),
    "with a weight": RunIdentity(LINEAGE, RUN, admitted=True, weight=3),
}
NODES = {
    "our commit": CommittedOffset(194, COMMITS["with Spark's batch"].text(), 4),
    "a commit of another client": CommittedOffset(194, "by hand"),
}
PLACES = {3: 0, 4: 1}


def cases() -> Iterator[Case]:
    """Yield a case for each text that outlives its process, or that another member reads."""
    for name, document in DOCUMENTS.items():
        yield Case("documents", name, document, partial(document_text, document), _read_document)
    for name, metadata in COMMITS.items():
        yield Case("commit-metadata", name, metadata, metadata.text, CommitMetadata.parse)
    for name, identity in IDENTITIES.items():
        yield Case("user-data", name, identity, partial(_identity_text, identity), _read_identity)
        yield Case("user-data", f"{name}, cooperative-sticky", identity, partial(_sticky_text, identity), _read_sticky)
    for name in ("an assignment", "an assignment with partitions withheld"):
        yield Case("user-data", name, ORDERS, None, _assigned)
    for name, committed in NODES.items():
        yield Case("zookeeper", name, committed, partial(_node_text, committed), _read_node)
    yield from _of_jobs()


def _of_jobs() -> Iterator[Case]:
    for name, owner in {
        "note of a sink before its query has started": SinkOwner("file:/ckpt/a"),
        "note of a sink": SinkOwner("file:/ckpt/a", "0f6a64d6-0000-4000-8000-c2b54d8e0001"),
    }.items():
        yield Case("jobs", name, owner, owner.text, SinkOwner.of)
    backfill = BackfillPlan(tuple(OffsetRange(tp, 5, 105) for tp in ORDERS), 50, {"topics": "orders"})
    yield Case("jobs", "plan of a backfill", backfill, backfill.to_json, BackfillPlan.from_json)
    mirror = MirrorPlan({"orders": TopicPlan("orders", "copy", Placement.KEEP, PLACES)})
    yield Case("jobs", "plan of a mirror", mirror, mirror.to_json, MirrorPlan.from_json)


def document_text(document: Document) -> str:
    """Return a document as Spark writes it."""
    return json.dumps(to_value(document))


def _read_document(text: str) -> Document:
    return from_value(json.loads(text))


def _identity_text(identity: RunIdentity) -> str:
    return encode_identity(identity).decode()


def _read_identity(text: str) -> RunIdentity | None:
    return decode_identity(text.encode())


def _sticky_text(identity: RunIdentity) -> str:
    return encode_user_data(NODE_VERSION, encode_identity(identity)).hex()


def _read_sticky(text: str) -> RunIdentity | None:
    return decode_identity(bytes.fromhex(text))


def _assigned(user_data: str) -> tuple[TopicPartition, ...]:
    """Read the partitions of an assignment that has this user data."""
    assignment = ConsumerAssignment(assigned_partitions=by_topic(ORDERS), user_data=user_data.encode())
    return read_assignment(SyncGroupResponse(assignment=encode_assignment(assignment)), {"orders"}).partitions


def _node_text(committed: CommittedOffset) -> str:
    return metadata_data(committed, NODE_VERSION).decode()


def _read_node(text: str) -> Any:
    paths = GroupPaths("drain", Dialect.KAFKA07)
    nodes = {
        paths.offset(EVENTS): ZNode(b"194", NODE_VERSION, 1, 2, 1),
        paths.metadata_of(EVENTS): ZNode(text.encode(), 0, 1, 2, 1),
    }
    return committed_in(paths, nodes)[EVENTS]
