"""Stop and start again: with the checkpoint, without it, with a batch in flight, after an operator's hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.spark.support import Load, Streams, Sunk, committed, log_ends, reset_offsets
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live]


def run_to_end(streams: Streams, load: Load, group: str, name: str, **options: object) -> Sunk:
    frame = streams.read(load.server, load.topic, group, **options)
    sunk = streams.to_parquet(frame, name, availableNow=True)
    sunk.finish()
    return sunk


def forget_last_batch_in_sink(streams: Streams, name: str, batch: int) -> None:
    """Make the sink that of a query which died before this batch had sunk."""
    for file in (streams.home / f"{name}-out" / "_spark_metadata").glob(f"*{batch}*"):
        file.unlink()


def forget_last_commit(streams: Streams, name: str) -> int:
    """Make the checkpoint that of a query which died with its last batch planned but not sunk; the batch's number."""
    checkpoint = streams.home / f"{name}-checkpoint"
    last = max(int(p.name) for p in (checkpoint / "commits").iterdir() if p.name.isdigit())
    for path in (checkpoint / "commits").glob(f"*{last}*"):
        path.unlink()
    return last


def forget_sink(streams: Streams, name: str) -> None:
    shutil.rmtree(streams.home / f"{name}-out")


def last_document(checkpoint: Path) -> dict[str, object]:
    last = max(int(p.name) for p in (checkpoint / "offsets").iterdir() if p.name.isdigit())
    lines = (checkpoint / "offsets" / str(last)).read_text().splitlines()
    document: dict[str, object] = json.loads(lines[-1])
    return document


def test_with_the_checkpoint_it_goes_on(streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(100)
    run_to_end(streams, load, "with", "q")
    load.send(60)
    again = run_to_end(streams, load, "with", "q")
    assert sorted(again.values()) == sorted(load.sent)


def test_without_the_checkpoint_it_goes_on_from_the_group(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(100)
    run_to_end(streams, load, "without", "first")
    new = load.send(60)
    second = run_to_end(streams, load, "without", "second")
    assert sorted(second.values()) == sorted(new)


def test_a_batch_planned_but_not_sunk_is_replayed_exactly(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(100)
    run_to_end(streams, load, "replay", "q", maxOffsetsPerTrigger=30)
    before = last_document(streams.home / "q-checkpoint")
    forget_last_batch_in_sink(streams, "q", forget_last_commit(streams, "q"))
    # The group's offsets are where they were before that batch: nobody has committed it.
    ranges = {int(p): r for p, r in before["ranges"][load.topic].items()}  # type: ignore[index]
    reset_offsets(kafka4, "replay", load.topic, {p: start for p, (start, _) in ranges.items()})
    load.send(40)
    again = run_to_end(streams, load, "replay", "q", maxOffsetsPerTrigger=30)
    assert sorted(again.values()) == sorted(load.sent)
    assert committed(kafka4, "replay", load.topic) == log_ends(kafka4, load.topic, 2)


def test_batch_0_planned_but_not_sunk_is_replayed_exactly(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    """With a fresh initialOffset instead of a constant, what came between was lost."""
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(100)
    run_to_end(streams, load, "zero", "q", startingOffsets="earliest")
    assert forget_last_commit(streams, "q") == 0
    forget_sink(streams, "q")
    reset_offsets(kafka4, "zero", load.topic, {0: 0, 1: 0})
    load.send(50)
    again = run_to_end(streams, load, "zero", "q", startingOffsets="earliest")
    assert sorted(again.values()) == sorted(load.sent)


def test_a_replay_leaves_out_what_the_group_has_committed(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(100)
    run_to_end(streams, load, "taken", "q")
    forget_last_commit(streams, "q")
    forget_sink(streams, "q")
    # Another member took over and sank the half of partition 0.
    reset_offsets(kafka4, "taken", load.topic, {0: 25, 1: 0})
    again = run_to_end(streams, load, "taken", "q")
    expected = [v for n, v in enumerate(load.sent) if n % 2 or n // 2 >= 25]
    assert sorted(again.values()) == sorted(expected)


def test_an_operators_reset_is_followed(streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(100)
    run_to_end(streams, load, "reset", "q")
    reset_offsets(kafka4, "reset", load.topic, {0: 40, 1: 50})
    again = run_to_end(streams, load, "reset", "q")
    back = [v for n, v in enumerate(load.sent) if n % 2 == 0 and n // 2 >= 40]
    assert sorted(again.values()) == sorted(load.sent + back)
    assert committed(kafka4, "reset", load.topic) == {0: 50, 1: 50}


def test_a_new_checkpoint_on_an_old_parquet_directory_is_an_error_that_loses_nothing(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(100)
    run_to_end(streams, load, "skip", "q")
    before = committed(kafka4, "skip", load.topic)
    shutil.rmtree(streams.home / "q-checkpoint")
    new = load.send(60)
    with pytest.raises(Exception, match=r"SkippedBatchError: .*the sink skipped a batch"):
        run_to_end(streams, load, "skip", "q")
    assert committed(kafka4, "skip", load.topic) == before
    mended = run_to_end(streams, load, "skip", "mended")
    assert sorted(mended.values()) == sorted(new)


def test_a_checkpoint_of_sparks_own_connector_is_a_legal_start(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(100)
    run_to_end(streams, load, "own", "q")
    checkpoint = streams.home / "q-checkpoint"
    last = max(int(p.name) for p in (checkpoint / "offsets").iterdir() if p.name.isdigit())
    path = checkpoint / "offsets" / str(last)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:-1], json.dumps({load.topic: {"0": 30, "1": 20}})]))
    for checksum in (checkpoint / "offsets").glob(".*.crc"):
        checksum.unlink()
    again = run_to_end(streams, load, "another-group", "q")
    assert len(again.values()) == 100 + 20 + 30
    assert committed(kafka4, "another-group", load.topic) == {0: 50, 1: 50}


def test_stopped_without_a_drain_it_repeats_at_most_the_batch_in_flight(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(2_000)
    frame = streams.read(kafka4, load.topic, "stopped", maxOffsetsPerTrigger=100)
    sunk = streams.to_parquet(frame, "q")
    wait_until(lambda: len(sunk.rows("offset")) >= 300, "some batches")
    sunk.query.stop()
    again = run_to_end(streams, load, "stopped", "q", maxOffsetsPerTrigger=100)
    assert sorted(again.values()) == sorted(load.sent)
