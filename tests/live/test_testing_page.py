"""The Python blocks of docs/testing.md run as they stand, one after the other."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.old_kafka import librdkafka
from tests.peers.librdkafka import commit
from tests.unit.test_doc_blocks import blocks

pytestmark = [pytest.mark.live, pytest.mark.long, pytest.mark.timeout(300)]

BLOCKS = [(line, text) for page, line, text in blocks("python") if page == "testing.md" and "def test_" not in text]


def test_the_blocks_of_the_page_run(make_topic: MakeTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(BLOCKS) >= 8
    names: dict[str, Any] = {"tmp_path": tmp_path}
    with_servers = [(line, text) for line, text in BLOCKS if "with " in text]
    for line, text in with_servers:
        exec(compile("\n" * line + text, "testing.md", "exec"), names)
    with KafkaServer() as kafka:
        make_topic(kafka, 1, name="orders")
        with closing(Consumer({**librdkafka(kafka), "group.id": "orders"})) as consumer:
            commit(consumer, [TopicPartition("orders", 0, 0)])
        for line, text in BLOCKS:
            if (line, text) not in with_servers:
                exec(compile("\n" * line + text, "testing.md", "exec"), names | {"kafka": kafka})
