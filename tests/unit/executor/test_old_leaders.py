"""Leaders before 0.11: what Fetch v0 to v3 are otherwise than the later ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from streamgroup.errors import DataLossError, TooLarge, TransportError
from streamgroup.executor.read.fetcher import read
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest
from streamgroup.model import FetchTask
from streamgroup.options.types import ClientOptions, FetchOptions, Isolation
from tests.fakes.answers import api_versions
from tests.fakes.broker import FakeBroker
from tests.unit.executor.leader import PATIENT, QUICK, Leader, Log, Reading, batch, of_old
from tests.unit.kafka.records.encoder import Record, encode_batch

Start = Callable[..., FakeBroker]
Options = Callable[..., ClientOptions]

RELEASES = pytest.mark.parametrize("release", ["0.8.0", "0.8.2", "0.9"])


def large(offset: int, size: int) -> bytes:
    return encode_batch([Record(offset, 1000, b"k", b"x" * size)])


@RELEASES
def test_a_range_is_delivered_whole_and_nothing_else(release: str, broker: Start, options: Options) -> None:
    leader = Leader(broker, Log([batch(i, 10) for i in range(0, 50, 10)]), release=release)
    assert Reading(options, leader).offsets(of_old(leader, 5, 45)) == list(range(5, 45))
    (versions,) = {version for name, version, _ in leader.broker.requests if name == "Fetch"}
    assert versions == (1 if release == "0.9" else 0)


def test_a_task_does_not_ask_for_what_the_driver_has_reported(broker: Start, options: Options) -> None:
    leader = Leader(broker, Log([batch(0, 10)]), release="0.9")
    task = FetchTask((of_old(leader, 0, 10),), releases=((f"127.0.0.1:{leader.broker.port}", "0.9"),))
    rows = [each["offset"].to_pylist() for each in read(task, options(leader.broker.port), PATIENT)]
    assert rows == [list(range(10))]
    assert leader.broker.connections == 1
    assert {name for name, _, _ in leader.broker.requests} == {"Fetch"}


def test_a_kept_connection_that_the_broker_has_ended_has_it_asked_anew(broker: Start, options: Options) -> None:
    """A broker that was upgraded: spoken with as before it would hide headers and timestamps."""
    leader = Leader(broker, Log([batch(0, 20)]), release="0.9")
    reading = Reading(options, leader)
    assert reading.offsets(of_old(leader, 0, 10)) == list(range(10))
    leader.broker.hang_up()
    leader.broker._by_key |= {ApiVersionsRequest.API_KEY: ApiVersionsRequest}
    leader.broker.handlers[ApiVersionsRequest] = lambda *_: api_versions(fetch=(0, 1))
    assert reading.offsets(of_old(leader, 10, 20)) == list(range(10, 20))
    assert len(leader.broker.asked("ApiVersions")) == 1


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_read_committed_has_no_effect_where_there_are_no_transactions(
    version: int, broker: Start, options: Options
) -> None:
    """The answer tells no last stable offset; a range that is compacted away to its end is done all the same."""
    leader = Leader(broker, Log([batch(0, 10)], high_watermark=30))
    spoken = api_versions(fetch=(0, version), metadata=(0, 0), listoffsets=(0, 0))
    leader.broker.handlers[next(c for c in leader.broker.handlers if c.NAME == "ApiVersions")] = lambda *_: spoken
    fetch = replace(PATIENT, isolation=Isolation.READ_COMMITTED)
    assert Reading(options, leader, fetch).offsets(of_old(leader, 0, 30)) == list(range(10))
    assert {v for name, v, _ in leader.broker.requests if name == "Fetch"} == {version}


@pytest.mark.slow
@RELEASES
def test_the_rest_of_a_log_cut_inside_the_range_is_left_out_where_that_is_allowed(
    release: str, broker: Start, options: Options
) -> None:
    leader = Leader(broker, Log([batch(0, 5)]), release=release)
    assert Reading(options, leader, QUICK).offsets(of_old(leader, 0, 10), fail_on_data_loss=False) == list(range(5))


def test_a_message_larger_than_what_was_asked_for_is_asked_for_whole(broker: Start, options: Options) -> None:
    leader = Leader(broker, Log([batch(0, 10), large(10, 300_000), batch(11, 10)]), release="0.8.2")
    fetch = replace(PATIENT, max_partition_bytes=64 * 1024)
    assert Reading(options, leader, fetch).offsets(of_old(leader, 0, 21)) == list(range(21))
    sizes = [p.partition_max_bytes for r in leader.broker.asked("Fetch") for t in r.topics for p in t.partitions]
    assert sizes[:2] == [64 * 1024] * 2
    assert 300_000 < sizes[2] < 301_000
    assert all(size <= 64 * 1024 for size in sizes[3:])


def test_where_not_even_the_size_of_a_message_came_more_is_asked_for(broker: Start, options: Options) -> None:
    log = Log([large(0, 1000)])
    leader = Leader(broker, log, release="0.9")
    read, asked = log.read, []

    def stingy(offset: int, most: int) -> bytes:
        asked.append(most)
        return read(offset, most)[: 3 if len(asked) < 3 else most]

    log.read = stingy  # type: ignore[method-assign]
    assert Reading(options, leader).offsets(of_old(leader, 0, 1)) == [0]
    assert asked[1] >= 2 * asked[0]
    assert asked[2] >= 2 * asked[1]


def test_a_message_larger_than_any_answer_is_named_with_its_offset_and_size(broker: Start, options: Options) -> None:
    leader = Leader(broker, Log([batch(0, 10), large(10, 300_000)]), release="0.8.2")
    fetch = replace(PATIENT, max_partition_bytes=64 * 1024, max_bytes=128 * 1024)
    with pytest.raises(TooLarge, match=r"orders-0: the message at offset 10 takes 300\d\d\d bytes.*fetch\.max\.bytes"):
        Reading(options, leader, fetch).offsets(of_old(leader, 0, 11))


def test_what_is_asked_for_of_all_partitions_together_is_bounded(broker: Start, options: Options) -> None:
    """Before v3 an answer is as large as all that was asked for: a task must hold no more than the options say."""
    logs = [Log([large(i, 20_000) for i in range(20)]) for _ in range(6)]
    leader = Leader(broker, *logs, release="0.9")
    fetch = replace(PATIENT, max_partition_bytes=256 * 1024)
    ranges = [of_old(leader, 0, 20, partition) for partition in range(6)]
    assert Reading(options, leader, fetch).offsets(*ranges).count(19) == 6
    for request in leader.broker.asked("Fetch"):
        rows = [p for t in request.topics for p in t.partitions]
        assert len(rows) == 1 or sum(p.partition_max_bytes for p in rows) <= 256 * 1024


@pytest.mark.parametrize("code", [3, 5, 6, 9, -1])
def test_what_may_pass_is_tried_again(code: int, broker: Start, options: Options) -> None:
    leader = Leader(broker, Log([batch(0, 10)], errors=[code]), release="0.8.2")
    assert Reading(options, leader).offsets(of_old(leader, 0, 10)) == list(range(10))


@pytest.mark.slow
def test_a_lasting_server_error_is_reported_after_the_poll_timeout(broker: Start, options: Options) -> None:
    leader = Leader(broker, Log([batch(0, 10)], errors=[-1] * 1000), release="0.8.2")
    with pytest.raises(TransportError, match=r"nothing came for .* last: UNKNOWN_SERVER_ERROR"):
        Reading(options, leader, QUICK).offsets(of_old(leader, 0, 10))


def test_records_that_retention_took_are_data_loss(broker: Start, options: Options) -> None:
    leader = Leader(broker, Log([batch(10, 10)], start=10), release="0.8.2")
    with pytest.raises(DataLossError, match=r"orders-0: the offsets \[0, 10\) .* begins at offset 10"):
        Reading(options, leader).offsets(of_old(leader, 0, 20))


def test_a_leader_that_moved_is_followed(broker: Start, options: Options) -> None:
    log = Log([batch(0, 10)])
    old = Leader(broker, Log([batch(0, 10)], errors=[6] * 10), release="0.8.2")
    new = Leader(broker, log, node=2, release="0.8.2")
    old.lead_by = [2]
    old.peers[2] = new.broker.port
    fetch = FetchOptions(max_wait_ms=10, poll_timeout_ms=5_000)
    assert Reading(options, old, fetch).offsets(of_old(old, 0, 10)) == list(range(10))
    assert new.fetches()[0] == [(0, 0)]
