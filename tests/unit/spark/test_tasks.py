"""What a task is told, and what it is not."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from streamgroup.advice import Keeper
from streamgroup.executor import fetcher
from streamgroup.model import FetchTask
from streamgroup.options.parse import parse_source
from streamgroup.spark.tasks import TaskPartition, read_task, task_options

REGISTERED = {
    "zookeeper.connect": "zk1:2181/kafka",
    "zookeeper.username": "etl",
    "zookeeper.password": "swordfish",
    "subscribe": "events",
}


@pytest.mark.parametrize(
    ("given", "group", "keeper"),
    [
        ({"kafka.group.id": "drain"}, "drain", Keeper.ZOOKEEPER),
        ({"kafka.group.id": "drain", "kafka.offsets.storage": "kafka"}, "drain", Keeper.BOTH),
        ({"group.mode": "off"}, None, Keeper.KAFKA),
    ],
)
def test_a_task_knows_who_keeps_the_offsets_and_not_where_zookeeper_is(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], group: str | None, keeper: Keeper
) -> None:
    told: dict[str, Any] = {}
    monkeypatch.setattr(fetcher, "read", lambda *args, **others: told.update(others) or iter(()))
    sent = pickle.dumps(task_options(parse_source(REGISTERED | given, streaming=True)))
    assert not any(word in sent for word in (b"zk1", b"swordfish"))
    assert list(read_task(TaskPartition(FetchTask(())), pickle.loads(sent))) == []
    assert (told["group"], told["keeper"]) == (group, keeper)


def test_a_batch_read_has_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}
    monkeypatch.setattr(fetcher, "read", lambda *args, **others: told.update(others) or iter(()))
    options = task_options(parse_source(REGISTERED, streaming=False))
    assert list(read_task(TaskPartition(FetchTask(())), options)) == []
    assert told["group"] is None
