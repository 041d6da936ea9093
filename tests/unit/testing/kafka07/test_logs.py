"""The logs of an emulated 0.7 broker: opened from its directory, and created by the first PRODUCE to a partition."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamgroup.kafka.wire.kafka07 import RANDOM_PARTITION
from streamgroup.testing.kafka07 import Logs
from streamgroup.testing.kafka07.logs import CLEAN_SHUTDOWN, IllegalTopic, WrongPartition
from tests.unit.testing.kafka07.brokers import PARTITIONS, Broker, config
from tests.unit.testing.kafka07.test_log import MESSAGE, age, filled


def test_after_a_clean_shutdown_logs_are_not_recovered(tmp_path: Path) -> None:
    broker = filled(tmp_path, 2, log_flush_interval=100)
    broker.logs.close()
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
    with broker.segments()[0].open("ab") as file:
        file.write(b"\0\0")
    assert Broker(tmp_path).offsets(most=1) == [82]
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    assert Broker(tmp_path).offsets(most=1) == [80]


def test_other_files_in_the_directory_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "notes-1").write_text("no directory")
    (tmp_path / "name-x").mkdir()
    assert Broker(tmp_path).logs.topics == []


def test_a_topic_may_have_dashes(tmp_path: Path) -> None:
    Broker(tmp_path).produce(MESSAGE, topic="a-b-2", partition=1)
    again = Broker(tmp_path)
    assert again.logs.topics == ["a-b-2"]
    assert again.offsets(topic="a-b-2", partition=1) == [40, 0]


def test_a_log_that_was_not_produced_to_is_not_found_and_not_made(tmp_path: Path) -> None:
    logs = Logs(config(tmp_path))
    assert logs.find("t", 0) is None
    assert (logs.topics, list(tmp_path.glob("t-*"))) == ([], [])
    made = logs.find_or_make("t", 0)
    assert logs.find("t", 0) is made
    assert logs.find_or_make("t", 0) is made
    assert logs.find("t", 1) is None


def test_a_topic_is_announced_once_with_its_first_log(tmp_path: Path) -> None:
    logs, announced = Logs(config(tmp_path)), list[str]()
    logs.on_new_topic = announced.append
    for topic, partition in (("u", 0), ("t", 0), ("t", 1), ("t", 0)):
        logs.find_or_make(topic, partition)
    assert announced == ["u", "t"]
    assert logs.topics == ["t", "u"]
    again, announced = Logs(config(tmp_path)), []
    again.on_new_topic = announced.append
    again.find_or_make("t", 2)
    assert announced == [], "the topic was on disk before"


def test_a_random_partition_is_one_that_the_topic_has(tmp_path: Path) -> None:
    logs = Logs(config(tmp_path, **{"topic.partition.count.map": "one:1"}))
    found = {id(logs.find_or_make("t", RANDOM_PARTITION)) for _ in range(100)}
    assert found == {id(logs.find("t", partition)) for partition in range(PARTITIONS)}
    assert logs.find_or_make("one", RANDOM_PARTITION) is logs.find("one", 0)


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a\0b", "a\x7fb", "\ud800", "\uffff", "t" * 256])
def test_a_name_that_cannot_be_a_directory_is_refused(tmp_path: Path, topic: str) -> None:
    logs = Logs(config(tmp_path))
    for ask in (logs.find, logs.find_or_make):
        with pytest.raises(IllegalTopic, match="is not a valid topic name"):
            ask(topic, 0)
    assert [path.name for path in tmp_path.iterdir()] == []


@pytest.mark.parametrize("topic", ["a", "...", "a b", "ä", "t" * 200])
def test_any_other_name_is_a_topic(tmp_path: Path, topic: str) -> None:
    Logs(config(tmp_path)).find_or_make(topic, 1)
    assert (tmp_path / f"{topic}-1").is_dir()


@pytest.mark.parametrize(
    ("topic", "partition", "said"),
    [
        ("t", PARTITIONS, "invalid partition 3: t has 3 partitions on this broker"),
        ("t", -2, "invalid partition -2: t has 3 partitions on this broker"),
        ("one", 1, "invalid partition 1: one has 1 partition on this broker"),
    ],
)
def test_a_partition_that_the_topic_does_not_have_is_refused(
    tmp_path: Path, topic: str, partition: int, said: str
) -> None:
    logs = Logs(config(tmp_path, **{"topic.partition.count.map": "one:1"}))
    for ask in (logs.find, logs.find_or_make):
        with pytest.raises(WrongPartition, match=said):
            ask(topic, partition)
    assert logs.topics == []


def test_retention_counts_the_removed_segments_of_all_logs(tmp_path: Path) -> None:
    broker = Broker(tmp_path, log_file_size=1, log_retention_hours=1)
    for topic in ("t", "u"):
        for _ in range(3):
            broker.produce(MESSAGE, topic=topic)
        for path in broker.segments(topic)[:2]:
            age(path, 2)
    assert broker.logs.clean_up() == 4
    assert broker.logs.clean_up() == 0
    assert [len(broker.segments(topic)) for topic in ("t", "u")] == [1, 1]


def test_a_due_flush_makes_the_messages_of_all_logs_visible(tmp_path: Path) -> None:
    now = [1000.0]
    own = config(tmp_path, log_flush_interval=100, log_default_flush_interval_ms=500)
    logs = Logs(own, clock=lambda: now[0])
    made = [logs.find_or_make(topic, 0) for topic in ("t", "u")]
    for log in made:
        log.append(MESSAGE)
    logs.flush_due()
    assert [log.end for log in made] == [0, 0]
    now[0] += 0.6
    logs.flush_due()
    assert [log.end for log in made] == [40, 40]
