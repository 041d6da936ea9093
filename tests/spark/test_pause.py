"""Partitions of a running query are paused and resumed from a shell."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from streamgroup.cli.main import main
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.spark.support import Load, Streams, committed
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live]


def run(command: str, group: str, *arguments: str) -> list[dict[str, object]]:
    result = CliRunner().invoke(main, [command, "--group", group, *arguments, "--json"])
    assert result.exit_code == 0, result.output
    rows: list[dict[str, object]] = json.loads(result.stdout)
    return rows


@pytest.mark.timeout(180)
def test_a_paused_partition_waits_while_the_others_go_on_and_another_member_would_read_it(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    group = f"pause-{load.topic}"
    load.send(20)
    one = streams.to_parquet(streams.read(kafka4, load.topic, group), "one")
    wait_until(lambda: committed(kafka4, group, load.topic) == {0: 10, 1: 10}, "the first batch", 40)
    (row,) = run("pause", group, "--topic-partition", f"{load.topic}-1")
    assert row["paused"] == f"{load.topic}-1"
    load.send(20)
    wait_until(lambda: committed(kafka4, group, load.topic) == {0: 20, 1: 10}, "the other partition", 40)
    assert len(one.values()) == 30

    two = streams.to_parquet(streams.read(kafka4, load.topic, group), "two")
    # Partition 1 stays or moves: in each case everything is read once it is resumed where it is still paused.
    wait_until(lambda: len(run("pause", group, "--list")) == 2, "two members", 40)
    wait_until(
        lambda: {row["state"] for row in run("pause", group, "--list")} == {"stable"}, "the group is balanced", 60
    )
    for row in run("pause", group, "--list"):
        if row["paused"]:
            result = CliRunner().invoke(main, ["resume", "--member", str(row["member"]), "--json"])
            assert result.exit_code == 0, result.output
    wait_until(lambda: committed(kafka4, group, load.topic) == {0: 20, 1: 20}, "everything", 60)
    assert sorted(one.values() + two.values()) == sorted(load.sent)
