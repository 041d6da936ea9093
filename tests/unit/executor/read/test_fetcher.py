"""A task fetches planned ranges from scripted leaders: each is delivered whole and once, or the task fails."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from streamgroup.advice import NO_LOCATION, StoredIn
from streamgroup.errors import ChecksumMismatch, DataLossError, TransportError
from streamgroup.executor.read import fetcher
from streamgroup.executor.read.fetcher import read
from streamgroup.executor.read.kafka import KAFKA_READ_FORMAT, KafkaReadFormat
from streamgroup.executor.read.read_format import Portion
from streamgroup.kafka.records.batches import Frames
from streamgroup.kafka.records.columns import SCHEMA
from streamgroup.kafka.wire.messages.log import AbortedTransaction
from streamgroup.logline import parse
from streamgroup.model import FetchTask
from streamgroup.options.types import FetchOptions, Isolation
from tests.clock import Clock
from tests.fakes.broker import CLOSE, SILENCE
from tests.unit.executor.leader import (
    PATIENT,
    QUICK,
    TOPIC_ID,
    Lead,
    Log,
    Options,
    Reading,
    batch,
    planned,
    with_a_damaged_batch,
)
from tests.unit.executor.lookups import ScriptedLookup, cursor
from tests.unit.executor.producing import SkippingClock
from tests.unit.kafka.records.encoder import ABORT, COMMIT, Record, encode_batch, end_marker


def test_a_range_is_delivered_whole_and_nothing_else(lead: Lead) -> None:
    leader = lead(Log([batch(0, 10), batch(10, 10), batch(20, 10)]))
    batches = Reading(leader).batches(planned(leader, 5, 25))
    assert [each["value"].to_pylist() for each in batches] == [[b"%d" % i for i in range(5, 25)]]
    assert batches[0].schema == SCHEMA
    assert set(batches[0]["topic"].to_pylist()) == {"orders"}
    assert leader.broker.asked("Metadata") == []


def test_an_empty_range_asks_nobody(options: Options) -> None:
    assert list(read(FetchTask((planned(None, 7, 7),)), options(), PATIENT)) == []


def test_the_request_carries_what_the_plan_says(lead: Lead) -> None:
    leader = lead(Log([batch(0, 10)]))
    fetch = FetchOptions(isolation=Isolation.READ_COMMITTED, max_wait_ms=77, min_bytes=5, max_partition_bytes=99_000)
    Reading(leader, fetch).offsets(planned(leader, 3, 10))
    (request,) = leader.broker.asked("Fetch")
    assert (request.max_wait_ms, request.min_bytes, request.isolation_level) == (77, 5, 1)
    assert (request.max_bytes, request.session_id, request.session_epoch) == (99_000, 0, -1)
    (topic,) = request.topics
    assert topic.topic_id == TOPIC_ID
    (partition,) = topic.partitions
    assert (partition.fetch_offset, partition.current_leader_epoch) == (3, 7)
    assert leader.broker.requests[-1][1] >= 13


@pytest.mark.parametrize("prefetch", [0, 1, 2, 5])
def test_any_prefetch_gives_the_same_records(prefetch: int, lead: Lead) -> None:
    leader = lead(Log([batch(i, 10) for i in range(0, 200, 10)]))
    fetch = FetchOptions(max_partition_bytes=1, prefetch=prefetch)
    assert Reading(leader, fetch).offsets(planned(leader, 0, 200)) == list(range(200))
    assert leader.fetches() == [[(0, offset)] for offset in range(0, 200, 10)]


def test_the_next_fetch_is_asked_before_this_one_is_decoded(lead: Lead) -> None:
    leader = lead(Log([batch(0, 10), batch(10, 10)]))
    for prefetch, asked in ((0, 1), (1, 2)):
        leader.broker.requests.clear()
        fetch = FetchOptions(max_partition_bytes=1, prefetch=prefetch)
        rows = read(FetchTask((planned(leader, 0, 20),)), leader.client(), fetch)
        next(rows)
        leader.broker.wait_for(lambda f, asked=asked: len(f.asked("Fetch")) == asked)  # type: ignore[misc]
        rows.close()


def test_a_range_ends_at_a_batch_beyond_it(lead: Lead) -> None:
    compacted = [batch(0, 5), batch(40, 5)]
    leader = lead(Log(compacted))
    assert Reading(leader).offsets(planned(leader, 0, 30)) == list(range(5))
    assert len(leader.fetches()) == 1


def test_a_range_that_is_compacted_away_to_its_end_is_done_when_the_leader_has_nothing_left(lead: Lead) -> None:
    leader = lead(Log([batch(0, 5)], high_watermark=30))
    fetch = FetchOptions(max_wait_ms=1)
    assert Reading(leader, fetch).offsets(planned(leader, 0, 30)) == list(range(5))


def test_one_or_two_answers_without_records_are_no_end(lead: Lead) -> None:
    """Nor do those count that came before others with records."""
    log = Log([batch(0, 10), batch(10, 10)], silences={0: 2, 10: 2})
    leader = lead(log)
    fetch = FetchOptions(max_partition_bytes=1, max_wait_ms=1)
    assert Reading(leader, fetch).offsets(planned(leader, 0, 20)) == list(range(20))
    assert log.silences == {0: 0, 10: 0}


def test_silence_behind_an_open_transaction_is_no_end_for_a_committed_reader(lead: Lead) -> None:
    """The broker has all of the range and shows it up to the last stable offset only."""
    log = Log([batch(0, 5)], high_watermark=10, last_stable=5)
    leader = lead(log)

    def commit() -> None:
        leader.broker.wait_for(lambda f: len(f.asked("Fetch")) >= 8)
        log.batches.append(batch(5, 5))
        log.last_stable = 10

    threading.Thread(target=commit, daemon=True).start()
    committed = FetchOptions(isolation=Isolation.READ_COMMITTED, max_wait_ms=1)
    assert Reading(leader, committed).offsets(planned(leader, 0, 10)) == list(range(10))


@pytest.mark.slow
def test_silence_of_a_tiered_log_is_no_end(lead: Lead) -> None:
    leader = lead(Log([batch(0, 5)], high_watermark=30, local=20))
    patient = FetchOptions(max_wait_ms=10, poll_timeout_ms=2_000)  # on a busy machine the first answer takes its time
    with pytest.raises(TransportError, match=r"orders-0 at offset 5 .*no records for"):
        Reading(leader, patient).offsets(planned(leader, 0, 30))


def test_an_empty_answer_of_a_throttling_broker_is_no_end(lead: Lead) -> None:
    leader = lead(Log([], high_watermark=10))
    leader.throttle = 100
    rows = read(FetchTask((planned(leader, 0, 10),)), leader.client(), FetchOptions(max_wait_ms=1))

    def fill() -> None:
        leader.broker.wait_for(lambda f: len(f.asked("Fetch")) >= 6)
        leader.logs[0].batches.append(batch(0, 10))

    threading.Thread(target=fill, daemon=True).start()
    assert sum(each.num_rows for each in rows) == 10


class Throttled:
    """A pipeline whose first answer has records. While they are decoded a throttle time of 60 s comes."""

    def __init__(self, clock: Clock, first: Portion, last: Portion) -> None:
        self.clock = clock
        self.answers: list[list[Portion] | None] = [[first], [], [last], None]

    def next(self) -> list[Portion] | None:
        if len(self.answers) == 3:
            self.clock.sleep(60.0)
        return self.answers.pop(0)

    def take_throttled_s(self) -> float:
        return 60.0 if len(self.answers) == 3 else 0.0

    def pump(self) -> None:
        """Nothing comes."""


def test_the_throttle_time_is_no_silence_of_other_ranges(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(100.0)
    ranges = [cursor(partition, until=10) for partition in range(2)]
    first, last = (Portion(each, 0, Frames(memoryview(batch(0, 10)), 0, 10), ()) for each in ranges)
    ranges[1].mark_waiting(0.0)
    monkeypatch.setattr(fetcher, "time", SimpleNamespace(sleep=clock.sleep))
    monkeypatch.setattr(fetcher, "POOL", Mock())
    monkeypatch.setattr(fetcher, "Pipeline", lambda *_: Throttled(clock, first, last))
    monkeypatch.setattr(KafkaReadFormat, "fetch_protocol", Mock())
    monkeypatch.setattr(KafkaReadFormat, "lookup", lambda *_: ScriptedLookup())
    fetch = FetchOptions(poll_timeout_ms=50_000)
    reader = fetcher.RangeReader(KAFKA_READ_FORMAT, options(), fetch, NO_LOCATION, fail_on_data_loss=True, clock=clock)
    assert [rows.num_rows for rows in reader.rows(ranges)] == [10, 10]


def test_a_high_watermark_below_the_range_is_waited_for(lead: Lead) -> None:
    log = Log([batch(0, 5)], high_watermark=5)
    leader = lead(log)

    def grow() -> None:
        leader.broker.wait_for(lambda f: len(f.asked("Fetch")) >= 5)
        log.high_watermark = None
        log.batches.append(batch(5, 5))

    threading.Thread(target=grow, daemon=True).start()
    patient = FetchOptions(max_wait_ms=1)
    assert Reading(leader, patient).offsets(planned(leader, 0, 10)) == list(range(10))


@pytest.mark.slow
def test_the_poll_timeout_ends_the_task_and_names_the_pending_answer(lead: Lead) -> None:
    leader = lead(Log([batch(0, 5)], high_watermark=5, log_end=10))
    with pytest.raises(TransportError, match=r"orders-0 at offset 5 .*pollTimeoutMs.*high watermark is 5"):
        Reading(leader, QUICK).offsets(planned(leader, 0, 10))


def test_the_poll_timeout_leaves_out_the_time_that_other_ranges_take(lead: Lead) -> None:
    leader = lead(Log([batch(i, 10) for i in range(0, 50, 10)]), Log([batch(0, 10)], errors=[6]))
    fetch = FetchOptions(max_partition_bytes=1, max_wait_ms=10, poll_timeout_ms=60_000)
    task = FetchTask((planned(leader, 0, 50), planned(leader, 0, 10, partition=1)))
    rows, clock = 0, SkippingClock()
    for each in read(task, leader.client(), fetch, clock=clock):
        clock.skipped += 40
        rows += each.num_rows
    assert rows == 60


def test_small_ranges_of_one_leader_share_a_request(lead: Lead) -> None:
    leader = lead(*(Log([batch(0, 10)]) for _ in range(5)))
    found = Reading(leader).batches(*(planned(leader, i, 10, partition=i) for i in range(5)))
    assert [(each["partition"][0].as_py(), each.num_rows) for each in found] == [(i, 10 - i) for i in range(5)]
    assert leader.fetches() == [[(i, i) for i in range(5)]]


def test_partitions_that_found_no_room_in_an_answer_come_first_in_the_next(lead: Lead) -> None:
    leader = lead(*(Log([batch(0, 100), batch(100, 100)]) for _ in range(3)))
    fetch = FetchOptions(max_partition_bytes=len(batch(0, 100)), max_wait_ms=1)
    found = Reading(leader, fetch).batches(*(planned(leader, 0, 200, partition=i) for i in range(3)))
    assert [(b["partition"][0].as_py(), b["offset"][0].as_py()) for b in found] == [
        (partition, offset) for offset in (0, 100) for partition in range(3)
    ]


@pytest.mark.slow
def test_no_more_is_asked_for_than_the_range_may_take(lead: Lead) -> None:
    leader = lead(Log([batch(i, 1000) for i in range(0, 50_000, 1000)]))
    fetch = FetchOptions(max_partition_bytes=8 << 20)
    Reading(leader, fetch).offsets(planned(leader, 0, 1000))
    Reading(leader, fetch).offsets(planned(leader, 0, 40_000))
    first, *_, last = [r.topics[0].partitions[0].partition_max_bytes for r in leader.broker.asked("Fetch")]
    assert first == int(1000 * 256 * 1.25)
    assert last < 40_000 * 20


def test_a_leader_that_moved_is_followed(lead: Lead) -> None:
    log = Log([batch(0, 10)])
    new = lead(log, node=2)
    old = lead(Log(errors=[6, 6]), node=1)
    old.lead_by, old.peers, old.epoch = [2], {1: old.broker.port, 2: new.broker.port}, 8
    assert Reading(old).offsets(planned(old, 0, 10)) == list(range(10))
    (request,) = new.broker.asked("Fetch")
    assert request.topics[0].partitions[0].current_leader_epoch == 8


@pytest.mark.parametrize("code", [3, 5, 6, 56, 74, 75, 100, 103])
def test_what_metadata_may_mend_is_tried_again(code: int, lead: Lead) -> None:
    leader = lead(Log([batch(0, 10)], errors=[code]))
    assert Reading(leader).offsets(planned(leader, 0, 10)) == list(range(10))
    assert len(leader.broker.asked("Metadata")) >= 1


def test_a_connection_that_is_lost_is_made_again_where_it_was(lead: Lead) -> None:
    leader = lead(Log([batch(i, 10) for i in range(0, 50, 10)]))
    fetch = FetchOptions(max_partition_bytes=1)
    rows = read(FetchTask((planned(leader, 0, 50),)), leader.client(), fetch)
    found = next(rows)["offset"].to_pylist()
    leader.instead.append(CLOSE)
    for each in rows:
        found += each["offset"].to_pylist()
    assert found == list(range(50))
    assert leader.broker.connections >= 2


@pytest.mark.slow
def test_a_silent_leader_is_given_up_after_the_request_timeout(lead: Lead) -> None:
    leader = lead(Log([batch(0, 10)]))
    leader.instead.append(SILENCE)
    reading = Reading(leader, FetchOptions(max_wait_ms=1), request_timeout_ms=1_000)
    assert reading.offsets(planned(leader, 0, 10)) == list(range(10))
    leader.broker.wait_for(lambda f: f.resets == 1)


def test_the_plan_may_name_bootstrap_servers_that_the_options_lack(lead: Lead) -> None:
    """The brokers of a Kafka 0.8 or later that was found in ZooKeeper: they are asked for a leader that has moved."""
    leader = lead(Log([batch(0, 10)]))
    task = FetchTask((planned(None, 0, 10),), brokers=(("127.0.0.1", leader.broker.port),))
    client = replace(leader.client(), bootstrap_servers=())
    assert sum(each.num_rows for each in read(task, client, PATIENT)) == 10


@pytest.mark.slow
def test_a_cluster_that_is_gone_is_an_error_with_the_range(lead: Lead) -> None:
    leader = lead(Log([batch(0, 10)]))
    leader.broker.stop()
    with pytest.raises(TransportError, match=r"orders-0 at offset 0 of .*Connection refused"):
        Reading(leader, QUICK).offsets(planned(leader, 0, 10))


def losses(caplog: pytest.LogCaptureFixture) -> list[tuple[str, ...]]:
    """The data losses in the log: partition, first offset, end and number of each."""
    events = [event for event in map(parse, caplog.messages) if event.get("event") == "data_loss"]
    return [(event["partition"], event["from"], event["to"], event["count"]) for event in events]


def test_records_that_retention_took_are_data_loss(lead: Lead, caplog: pytest.LogCaptureFixture) -> None:
    leader = lead(Log([batch(20, 10)], start=20))
    with pytest.raises(DataLossError, match=r"orders-0: the offsets \[5, 20\) were planned.*failOnDataLoss=false"):
        Reading(leader).offsets(planned(leader, 5, 30))
    found = Reading(leader).offsets(planned(leader, 5, 30), fail_on_data_loss=False)
    assert found == list(range(20, 30))
    assert losses(caplog) == [("orders-0", "5", "20", "15")]


@pytest.mark.slow
def test_a_log_that_ends_before_the_position_is_data_loss_only_after_waiting(lead: Lead) -> None:
    leader = lead(Log([batch(0, 5)]))
    with pytest.raises(DataLossError, match=r"offsets \[8, 10\).*the log has ended at offset 5"):
        Reading(leader, QUICK).offsets(planned(leader, 8, 10))
    assert len(leader.fetches()) > 1
    assert Reading(leader, QUICK).offsets(planned(leader, 8, 10), fail_on_data_loss=False) == []


@pytest.mark.slow
def test_a_log_cut_inside_the_range_is_data_loss_only_after_waiting(lead: Lead) -> None:
    leader = lead(Log([batch(0, 5)]))
    with pytest.raises(DataLossError, match=r"orders-0: the offsets \[5, 10\).*the log has ended at offset 5"):
        Reading(leader, QUICK).offsets(planned(leader, 0, 10))
    assert len(leader.fetches()) > 1
    assert leader.broker.asked("Metadata"), "the metadata was refreshed"
    assert leader.broker.asked("OffsetForLeaderEpoch")


@pytest.mark.slow
def test_the_rest_of_a_log_cut_inside_the_range_is_left_out_where_that_is_allowed(
    lead: Lead, caplog: pytest.LogCaptureFixture
) -> None:
    leader = lead(Log([batch(0, 5)]), Log([batch(0, 10)]))
    ranges = planned(leader, 0, 10), planned(leader, 0, 10, partition=1)
    found = Reading(leader, QUICK).offsets(*ranges, fail_on_data_loss=False)
    assert sorted(found) == sorted([*range(5), *range(10)])
    assert losses(caplog) == [("orders-0", "5", "10", "5")]


def test_a_log_compacted_away_before_its_cut_may_be_left_out(lead: Lead, caplog: pytest.LogCaptureFixture) -> None:
    leader = lead(Log([batch(0, 5)], high_watermark=8))
    fetch = FetchOptions(max_wait_ms=1, poll_timeout_ms=60_000)

    def clock() -> float:
        asked = [offset for each in leader.fetches() for _, offset in each]
        return time.monotonic() + 25 * asked.count(8)

    found = Reading(leader, fetch).offsets(planned(leader, 0, 10), fail_on_data_loss=False, clock=clock)
    assert found == list(range(5))
    assert losses(caplog) == [("orders-0", "8", "10", "2")]


@pytest.mark.slow
def test_a_log_that_cannot_be_looked_at_is_no_loss(lead: Lead) -> None:
    leader = lead(Log([batch(0, 5)]))
    handlers = leader.broker.handlers
    api = next(api for api in handlers if api.NAME == "ListOffsets")
    listed = handlers[api]
    # What was listed when the range began to wait may be another leader's by the time that the wait is over.
    handlers[api] = lambda *given: listed(*given) if len(leader.broker.asked("ListOffsets")) <= 2 else SILENCE
    for start in (8, 0):
        with pytest.raises(TransportError, match=rf"orders-0 at offset {max(start, 5)} of .*no records for"):
            Reading(leader, QUICK).offsets(planned(leader, start, 10), fail_on_data_loss=False)


@pytest.mark.slow
def test_an_old_leader_that_stays_behind_is_no_loss(lead: Lead) -> None:
    # It does not know yet that there is another leader, whose log goes on.
    new = lead(Log([batch(0, 10)]), node=2)
    old = lead(Log([batch(0, 5)]), node=1)
    new.peers = old.peers = {1: old.broker.port, 2: new.broker.port}
    old.lead_by, old.epoch, new.epoch = [2], 8, 8
    with pytest.raises(TransportError, match=r"orders-0 at offset 5 .*no records for.*high watermark is 10"):
        Reading(old, QUICK).offsets(planned(old, 0, 10), fail_on_data_loss=False)


@pytest.mark.slow
def test_an_old_leader_that_takes_itself_for_the_leader_is_no_loss(lead: Lead) -> None:
    # It is cut off from the controller and answers first; the other broker knows better.
    new = lead(Log([batch(0, 10)]), node=2)
    old = lead(Log([batch(0, 5)]), node=1)
    new.peers = old.peers = {1: old.broker.port, 2: new.broker.port}
    new.epoch = 8
    with pytest.raises(TransportError, match=r"orders-0 at offset 5 .*no records for.*do not agree on the leader"):
        Reading(old, QUICK).offsets(planned(old, 0, 10), fail_on_data_loss=False)


@pytest.mark.slow
def test_a_topic_that_is_deleted_is_data_loss_only_after_waiting(lead: Lead) -> None:
    leader = lead(Log([batch(0, 10)], errors=[100] * 1000))
    leader.known = False
    with pytest.raises(DataLossError, match="no broker has had the partition"):
        Reading(leader, QUICK).offsets(planned(leader, 0, 10))


def damage_error(lead: Lead, **others: Any) -> ChecksumMismatch:
    """The error of a read that meets a damaged batch at the offsets [10, 20)."""
    leader = with_a_damaged_batch(lead)
    with pytest.raises(ChecksumMismatch) as caught:
        Reading(leader).offsets(planned(leader, 0, 30), **others)
    assert (caught.value.base_offset, caught.value.next_offset) == (10, 20)
    return caught.value


def test_a_damaged_batch_names_the_command_that_steps_over_it(lead: Lead) -> None:
    error = str(damage_error(lead, group="etl"))
    assert error.startswith("cannot read orders-0: the record batch at offset 10")
    assert re.search(
        r"streamgroup groups --bootstrap-server 127\.0\.0\.1:\d+ --reset-offsets --group etl --topic orders:0 "
        r"--to-offset 20 --execute.*records before offset 10 that are not written yet are skipped, too",
        error,
    )


@pytest.mark.parametrize("stored_in", [StoredIn.ZOOKEEPER, StoredIn.BOTH])
def test_a_damaged_batch_of_a_group_in_zookeeper_is_stepped_over_there(lead: Lead, stored_in: StoredIn) -> None:
    """Kafka's tool would write where such a group does not read; where both have the offset the larger counts."""
    error = str(damage_error(lead, group="etl", stored_in=stored_in))
    assert "write 20 into ZooKeeper's node /consumers/etl/offsets/orders/0" in error
    assert "fetch them with spark.read, from the group's committed offset to endingOffsets 10" in error
    assert ("kafka-consumer-groups" in error) == (stored_in is StoredIn.BOTH)


def test_without_a_group_a_damaged_batch_is_read_around(lead: Lead) -> None:
    error = str(damage_error(lead))
    assert re.search(r'endingOffsets {"orders": {"0": 10}}.*startingOffsets {"orders": {"0": 20}}', error)
    assert "kafka-consumer-groups" not in error


def test_aborted_records_are_hidden_from_committed_readers_only(lead: Lead) -> None:
    sent = [Record(i, 0, None, b"x") for i in range(4)]
    batches = [
        encode_batch(sent[:2], producer_id=7, transactional=True),
        end_marker(2, 7, ABORT),
        encode_batch([Record(3, 0, None, b"x")], producer_id=8, transactional=True),
        end_marker(4, 8, COMMIT),
    ]
    aborted = (AbortedTransaction(producer_id=7, first_offset=0),)
    leader = lead(Log(batches, aborted=aborted))
    committed = FetchOptions(isolation=Isolation.READ_COMMITTED)
    assert Reading(leader, committed).offsets(planned(leader, 0, 5)) == [3]
    assert Reading(leader).offsets(planned(leader, 0, 5)) == [0, 1, 3]


def test_an_answer_too_large_to_hold_decompressed_is_decoded_in_steps(lead: Lead) -> None:
    leader = lead(Log([batch(i, 50, codec="zstd") for i in range(0, 500, 50)]))
    fetch = FetchOptions(max_decompressed_bytes=1_500)
    assert Reading(leader, fetch).offsets(planned(leader, 0, 500)) == list(range(500))
    assert len(leader.fetches()) == 1


def test_connections_are_used_again_by_the_next_task(lead: Lead) -> None:
    leader = lead(Log([batch(0, 10)]))
    reading = Reading(leader)
    for _ in range(3):
        assert len(reading.offsets(planned(leader, 0, 10))) == 10
    assert leader.broker.connections == 1


def test_a_reader_that_stops_early_leaves_no_answer_behind(lead: Lead) -> None:
    leader = lead(Log([batch(i, 10) for i in range(0, 100, 10)]))
    reading = Reading(leader, FetchOptions(max_partition_bytes=1))
    rows = read(FetchTask((planned(leader, 0, 100),)), reading.client, reading.fetch)
    assert next(rows)["offset"].to_pylist() == list(range(10))
    rows.close()  # type: ignore[attr-defined]
    leader.broker.wait_for(lambda f: f.resets == 1)
    assert reading.offsets(planned(leader, 30, 60)) == list(range(30, 60))


@pytest.mark.slow
def test_a_task_imports_neither_the_cluster_nor_the_decoder_of_0_7_before_it_needs_them() -> None:
    """A worker process imports what its first task needs: that is a part of the time of a small batch."""
    program = (
        "import streamgroup.executor.read.fetcher, sys; print(*sorted(m for m in sys.modules if 'streamgroup' in m))"
    )
    imported = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    late = {
        "streamgroup.kafka.cluster.kafka",
        "streamgroup.executor.read.kafka07",
        "streamgroup.kafka.records.messages07",
    }
    assert "streamgroup.executor.read.kafka" in imported
    assert not late.intersection(imported)
