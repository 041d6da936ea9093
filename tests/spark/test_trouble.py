"""Queries refused as one member too many (R28), and events that `groups --describe --members` shows."""

from __future__ import annotations

import json
import shutil
import uuid
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from streamgroup.cli.groups import groups
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.spark.support import Load, Streams
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(300)]

TIMEOUT_S = 120.0


def refusal(query: StreamingQuery, timeout: float = TIMEOUT_S) -> str:
    """The error that ends a query."""
    wait_until(lambda: not query.isActive, "the query is refused", timeout)
    error = query.exception()
    assert isinstance(error, StreamingQueryException)
    return str(error)


def told(server: KafkaServer, group: str) -> list[dict[str, Any]]:
    """The members of a group, as `groups --describe --members --json` shows them."""
    arguments = ["-b", server.bootstrap_servers, "--describe", "--group", group, "--members", "--json"]
    result = CliRunner().invoke(groups, arguments, catch_exceptions=False)
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    return rows


def counts(row: dict[str, Any]) -> dict[str, int]:
    return {kind: counter["count"] for kind, counter in (row["trouble"] or {}).items() if counter["count"]}


def test_a_second_member_of_one_application_needs_a_name_and_both_show_their_rebalances(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 4), 4)
    load.send(40)
    group = "one-application"
    first = streams.to_parquet(streams.read(kafka4, load.topic, group, named=False))
    wait_until(lambda: sorted(first.values()) == sorted(load.sent), "the first reads", TIMEOUT_S)

    second = streams.to_parquet(streams.read(kafka4, load.topic, group, named=False))
    text = refusal(second.query)
    assert "another query of this Spark application is already a member of this group (run " in text
    for way in ("group.member", "its own kafka.group.id", "group.mode=commit"):
        assert way in text
    (member,) = told(kafka4, group)
    assert counts(member) == {"rebalance": 1}, "who is refused never joined"

    streams.to_parquet(streams.read(kafka4, load.topic, group, group__member="third"))
    wait_until(lambda: [row["partitions"] for row in told(kafka4, group)] == [2, 2], "they share", TIMEOUT_S)
    rows = told(kafka4, group)
    assert sorted(counts(row)["rebalance"] for row in rows) == [1, 2]
    assert {row["trouble"]["rebalance"]["reason"] for row in rows} == {"the query starts", "the group rebalances"}

    first.query.stop()
    streams.to_parquet(streams.read(kafka4, load.topic, group, named=False, kafka__client__id="again"))
    wait_until(
        lambda: sorted(row["client_id"] for row in told(kafka4, group)) == ["again", "streamgroup-third"],
        "free",
        TIMEOUT_S,
    )


def test_a_copied_checkpoint_is_refused_and_the_first_goes_on(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(20)
    first = streams.to_parquet(streams.read(kafka4, load.topic, "copied"), "original")
    wait_until(lambda: sorted(first.values()) == sorted(load.sent), "the first has sunk a batch", TIMEOUT_S)
    first.query.stop()
    copy = streams.home / "copy-checkpoint"
    shutil.copytree(streams.home / "original-checkpoint", copy, ignore=shutil.ignore_patterns(".metadata.crc"))
    # In one application Spark itself stops the first query of an id: a copy elsewhere has the same.
    (copy / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))

    first = streams.to_parquet(streams.read(kafka4, load.topic, "copied", kafka__client__id="the-first"), "original")
    load.send(20)
    wait_until(lambda: sorted(first.values()) == sorted(load.sent), "its own predecessor holds up nobody", TIMEOUT_S)

    second = streams.to_parquet(streams.read(kafka4, load.topic, "copied"), "copy")
    text = refusal(second.query)
    assert "another live member uses a copy of this query's checkpoint: client id 'the-first'" in text
    assert "longer than the session of an ended process" in text
    assert second.values() == []
    load.send(20)
    wait_until(lambda: sorted(first.values()) == sorted(load.sent), "the first reads all again", TIMEOUT_S)


def test_a_replay_is_counted_and_shown(streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    load = Load(kafka4, make_topic(kafka4, 1), 1)
    load.send(10)
    sunk = streams.to_parquet(streams.read(kafka4, load.topic, "shown"), "q", availableNow=True)
    sunk.finish()
    checkpoint = streams.home / "q-checkpoint"
    for place in (checkpoint / "commits", streams.home / "q-out" / "_spark_metadata"):
        last = max(int(p.name) for p in place.iterdir() if p.name.isdigit())
        for path in place.glob(f"*{last}*"):
            path.unlink()
    streams.to_parquet(streams.read(kafka4, load.topic, "shown", kafka__client__id="again"), "q")
    replayed = wait_until(
        lambda: [row for row in told(kafka4, "shown") if counts(row).get("replay")], "shown", TIMEOUT_S
    )
    (row,) = replayed
    assert row["client_id"] == "again"
    assert row["trouble"]["replay"]["reason"] == "the checkpoint holds a batch that is not known to have sunk"
    arguments = ["-b", kafka4.bootstrap_servers, "--describe", "--group", "shown", "--members"]
    text = CliRunner().invoke(groups, arguments).stdout
    assert text.splitlines()[-2].split() == [
        "CONSUMER-ID",
        "REBALANCE",
        "FENCE",
        "REPLAY",
        "SKIP",
        "REPEAT",
        "DATA-LOSS",
    ]
    assert text.splitlines()[-1].split()[1:] == ["1", "0", "1", "0", "0", "0"]
