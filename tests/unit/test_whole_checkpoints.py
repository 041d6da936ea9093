"""This release reads a whole checkpoint as Spark wrote it with release 0.1.0, and goes on from it.

`tests/vectors/checkpoints/0.1.0` is the directory of a real query on Kafka 4.1.1 with a Parquet sink: 60 records of two
partitions in three batches, all sunk. Never write these files anew.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamgroup.cli._checkpoint_files import CheckpointFiles, CheckpointHistory
from streamgroup.coordinator.planning.document import from_value, to_value
from streamgroup.model import Document, OffsetRange, Position, TopicPartition

STORED = Path(__file__).parents[1] / "vectors" / "checkpoints" / "0.1.0"
ORDERS = tuple(TopicPartition("orders", number) for number in (0, 1))
TOPIC_ID = "9b483285-7ee5-4809-aa27-8a048f8cda5f"
BATCHES = range(3)


def batch(number: int) -> Document:
    return Document(
        "etl",
        "93945b07092f420c",
        "070c828c39ce4eea",
        number + 1,
        tuple(OffsetRange(tp, 10 * number, 10 * number + 10) for tp in ORDERS),
        {tp: Position(10 * number + 10, TOPIC_ID, 0) for tp in ORDERS},
    )


@pytest.mark.parametrize("number", BATCHES)
def test_each_batch_is_read_and_written_alike(number: int) -> None:
    text = (STORED / "offsets" / str(number)).read_text().splitlines()[2]
    assert from_value(json.loads(text)) == batch(number)
    assert json.dumps(to_value(batch(number))) == text


def test_the_directory_is_the_history_of_a_query_whose_batches_have_sunk() -> None:
    history = CheckpointHistory(CheckpointFiles(str(STORED)))
    assert (history.last, history.is_sunk) == (BATCHES[-1], True)
    assert history.newest == {0: batch(BATCHES[-1])}
    assert history.lineages() == {"93945b07092f420c"}
