"""The partitioners against those of the Java client and of the Scala producer of 0.8, each in one JVM."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from streamgroup.kafka.producer.partitioners import Partitioner, ProducerTopic
from streamgroup.model import PartitionInfo, TopicInfo
from tests.live.java.cases import RELEASES, ask_java
from tests.live.java.write_partitioner_vectors import KEYS, PROGRAM, VECTORS, questions, rows

pytestmark = pytest.mark.live

COUNTS = (1, 3, 12, 1_000)
OLD = PROGRAM.parent / "OldPartitioners.java"


def partitions(name: str, count: int) -> list[int]:
    topic = ProducerTopic.of(TopicInfo("orders", tuple(PartitionInfo(p, 0) for p in range(count))))
    by = Partitioner(name, batch_size=16_384, rng=np.random.default_rng(1))
    return by.partitions(topic, pa.array(KEYS, pa.binary()), np.ones(len(KEYS), np.int64)).tolist()


@pytest.mark.parametrize("release", RELEASES)
def test_the_java_client_hashes_and_chooses_alike(release: str) -> None:
    asked = [f"partition\t{key.hex()}\t{count}" for count in COUNTS for key in KEYS]
    answers = ask_java(release, [*questions(), *asked], program=PROGRAM)
    assert rows(answers[: len(KEYS)]) == VECTORS.read_text().splitlines()
    ours = [partition for count in COUNTS for partition in partitions("default", count)]
    assert list(map(int, answers[len(KEYS) :])) == ours


def test_the_scala_producer_of_08_chooses_alike() -> None:
    asked = [f"{key.hex()}\t{count}" for count in COUNTS for key in KEYS]
    answers = ask_java("0.8.2.2", asked, program=OLD, module="kafka_2.11")
    theirs = [tuple(map(int, answer.split("\t"))) for answer in answers]
    for column, name in enumerate(("hashcode", "hashcode_bytes")):
        ours = [partition for count in COUNTS for partition in partitions(name, count)]
        assert [answer[column] for answer in theirs] == ours, name
