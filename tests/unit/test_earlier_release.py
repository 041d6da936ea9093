"""This release reads the checkpoints, commits, group metadata and log lines that 0.1.0a1 and 0.1.0 wrote.

`tests/vectors/releases/0.1.0a1` holds them. The checkpoint and the commits are of a real query on Kafka 4.1.1 that
read two partitions in three batches. The other texts were written by that release's functions. An upgraded query
resumes from them, and during a rolling upgrade both releases are members of one group: never write these files anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamgroup.cli._checkpoint_files import CheckpointFiles, CheckpointHistory
from streamgroup.coordinator.planning.document import from_value, to_value
from streamgroup.group.assignment import read_assignment
from streamgroup.group.commits import CommitMetadata
from streamgroup.group.registry.nodes import GroupPaths, committed_in, metadata_data
from streamgroup.group.sticky import encode_user_data
from streamgroup.group.user_data import RunIdentity, decode_identity, encode_identity
from streamgroup.kafka.wire.consumer import ConsumerAssignment, by_topic, encode_assignment
from streamgroup.kafka.wire.messages.group import SyncGroupResponse
from streamgroup.logline import parse
from streamgroup.model import CommittedOffset, Dialect, Document, OffsetRange, Position, TopicPartition
from streamgroup.znodes import ZNode

STORED = Path(__file__).parents[1] / "vectors" / "releases" / "0.1.0a1"
GROUP: dict[str, Any] = json.loads((STORED / "group.json").read_text())

ORDERS = tuple(TopicPartition("orders", number) for number in (0, 1))
TOPIC_ID = "9aa68196-23c9-4da3-870e-c3c5405fb8e5"
LINEAGE, RUN = "44d92456d0074f04", "748f7385639a45c4"


def batch(number: int, lineage: str = LINEAGE, run: str = RUN, topic_id: str = TOPIC_ID) -> Document:
    """A batch that reads the next 10 records of both partitions."""
    ranges = tuple(OffsetRange(tp, 10 * number, 10 * number + 10) for tp in ORDERS)
    positions = {tp: Position(10 * number + 10, topic_id, 0) for tp in ORDERS}
    return Document("etl", lineage, run, number + 1, ranges, positions)


CHECKPOINTS = {
    **{str(number): batch(number) for number in range(3)},
    "kafka07": Document(
        "drain",
        "5ad1f0c6a5a94f77",
        "c31b9d6f2a7e4b10",
        3,
        (OffsetRange(TopicPartition("events", 10002), 194, 2048),),
        {TopicPartition("events", 10002): Position(2048)},
    ),
    "spark-connector": Document("", "", "", 0, (), {ORDERS[0]: Position(123), ORDERS[1]: Position(45)}),
}


def offset_in(name: str) -> str:
    """Return the text of the source's offset: Spark writes its own version and settings in two lines above it."""
    return (STORED / "checkpoint" / name).read_text().splitlines()[2]


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_is_read(name: str) -> None:
    assert from_value(json.loads(offset_in(name))) == CHECKPOINTS[name]


@pytest.mark.parametrize("name", [name for name in CHECKPOINTS if name != "spark-connector"])
def test_a_document_has_the_same_text_when_it_is_written_again(name: str) -> None:
    assert json.dumps(to_value(CHECKPOINTS[name])) == offset_in(name)


def test_the_commits_of_a_query_are_read() -> None:
    assert GROUP["commits"].keys() == {"orders-0", "orders-1"}
    for commit in GROUP["commits"].values():
        metadata = CommitMetadata(LINEAGE, RUN, sequence=3, asked=3, founding=1, topic_id=TOPIC_ID)
        assert CommitMetadata.parse(commit["metadata"]) == metadata
        assert metadata.text() == commit["metadata"]
    metadata = CommitMetadata(LINEAGE, RUN, sequence=9, asked=10, founding=1, topic_id=TOPIC_ID, batch=8)
    assert CommitMetadata.parse(GROUP["commit with Spark's batch"]) == metadata
    assert metadata.text() == GROUP["commit with Spark's batch"]


def test_the_user_data_of_a_subscription_are_read() -> None:
    admitted, joining = RunIdentity(LINEAGE, RUN, admitted=True), RunIdentity(LINEAGE, RUN, admitted=False)
    eager = GROUP["identity"].encode()
    cooperative = bytes.fromhex(GROUP["identity of cooperative-sticky"])
    assert (decode_identity(eager), decode_identity(cooperative)) == (admitted, joining)
    assert (encode_identity(admitted), encode_user_data(7, encode_identity(joining))) == (eager, cooperative)


@pytest.mark.parametrize("name", ["assignment", "assignment with partitions withheld"])
def test_the_partitions_of_an_assignment_with_user_data_are_read(name: str) -> None:
    tp = TopicPartition("orders", 1)
    assignment = ConsumerAssignment(assigned_partitions=by_topic([tp]), user_data=GROUP[name].encode())
    given = SyncGroupResponse(assignment=encode_assignment(assignment))
    assert read_assignment(given, {"orders"}).partitions == (tp,)


@pytest.mark.parametrize(
    ("name", "version", "committed"),
    [
        ("node in ZooKeeper", 7, CommittedOffset(194, GROUP["commit with Spark's batch"], 4)),
        ("node in ZooKeeper of another client's commit", 2, CommittedOffset(194, "by hand")),
    ],
)
def test_a_commit_in_zookeeper_is_read(name: str, version: int, committed: CommittedOffset) -> None:
    paths = GroupPaths("drain", Dialect.KAFKA07)
    tp = TopicPartition("events", 10002)
    nodes = {
        paths.offset(tp): ZNode(b"194", version, 1, 2, 1),
        paths.metadata_of(tp): ZNode(GROUP[name].encode(), 0, 1, 2, 1),
    }
    assert committed_in(paths, nodes) == {tp: committed}
    assert metadata_data(committed, version).decode() == GROUP[name]


HELD = "the checkpoint holds a batch that is not known to have sunk"
UNKNOWN = "the membership was lost before the batch in flight was known to have sunk"
STOPPED = "stopped before the commit of the last batch was acknowledged"
NOT_ASKED = "reported as done, its data was never asked for"
BEGINS = "the log begins at offset 9 (retention or DeleteRecords)"
LOG_LINES = [
    {"event": "rebalance", "count": "2", "kept": "1", "reason": "the member joins for the first time"},
    {"event": "replay", "count": "10", "of": "25", "document": "7", "reason": HELD},
    {"event": "fence", "count": "2", "reason": 'REBALANCE_IN_PROGRESS "with a quote"'},
    {"event": "repeat", "count": "25", "document": "7", "reason": UNKNOWN},
    {"event": "skip", "count": "25", "document": "8", "failed": "true", "reason": NOT_ASKED},
    {"event": "data_loss", "count": "4", "partition": "orders-1", "from": "5", "to": "9", "reason": BEGINS},
    {"event": "data_loss", "partition": "orders-0", "reason": "another topic of this name"},
    {"event": "repeat", "count": "12", "reason": STOPPED},
    {"event": "fence", "count": "0", "failed": "true", "reason": "FENCED_INSTANCE_ID"},
]


def test_log_lines_are_read() -> None:
    whose = {"group": "etl", "run": RUN, "member": "etl-6a1f (host 1)", "generation": "4"}
    lines = (STORED / "log-lines.txt").read_text().splitlines()
    assert [parse(line) for line in lines] == [{**whose, **fields} for fields in LOG_LINES]


# -- a whole checkpoint ------------------------------------------------------------------------------------------------

WHOLE = STORED.parents[1] / "checkpoints" / "0.1.0"
"""The directory of a real query of release 0.1.0 with a Parquet sink: 60 records in three batches, all sunk."""
BATCHES = range(3)
WHOLE_LINEAGE = "93945b07092f420c"


def whole_batch(number: int) -> Document:
    return batch(number, WHOLE_LINEAGE, "070c828c39ce4eea", "9b483285-7ee5-4809-aa27-8a048f8cda5f")


@pytest.mark.parametrize("number", BATCHES)
def test_each_batch_is_read_and_written_alike(number: int) -> None:
    text = (WHOLE / "offsets" / str(number)).read_text().splitlines()[2]
    assert from_value(json.loads(text)) == whole_batch(number)
    assert json.dumps(to_value(whole_batch(number))) == text


def test_the_directory_is_the_history_of_a_query_whose_batches_have_sunk() -> None:
    history = CheckpointHistory(CheckpointFiles(str(WHOLE)))
    assert (history.last, history.is_sunk) == (BATCHES[-1], True)
    assert history.newest == {"0": whole_batch(BATCHES[-1])}
    assert history.lineages() == {WHOLE_LINEAGE}
