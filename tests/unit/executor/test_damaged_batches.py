"""Damaged record batches as rows: set aside with their bytes, with nothing lost and nothing repeated beside them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from streamgroup.errors import ChecksumMismatch, DecodeError, TransportError
from streamgroup.kafka.wire.messages.log import AbortedTransaction
from streamgroup.logline import parse
from streamgroup.model import FetchRange
from streamgroup.options.types import ClientOptions, FetchOptions, Isolation
from tests.fakes.broker import FakeBroker
from tests.unit.executor.leader import PATIENT, Leader, Log, Reading, batch, planned, with_a_poisoned_batch
from tests.unit.kafka.records.encoder import ABORT, Record, encode_batch, end_marker

Start = Callable[..., FakeBroker]
Options = Callable[..., ClientOptions]
NANOSECONDS = 1_700_000_000_123_456_789
WITH_DAMAGE = replace(PATIENT, include_damaged_batches=True, include_headers=True)


def damaged(sound: bytes) -> bytes:
    flipped = bytearray(sound)
    flipped[-1] ^= 1
    return bytes(flipped)


def damaged_rows(reading: Reading, *ranges: FetchRange) -> tuple[list[int], list[dict[str, Any]]]:
    """Return the offsets of the records, and the rows of damaged batches."""
    rows = [row for each in reading.batches(*ranges) for row in each.to_pylist()]
    return [row["offset"] for row in rows if row["damage"] is None], [row for row in rows if row["damage"] is not None]


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("at_once", [True, False], ids=["one answer", "an answer each"])
def test_a_damaged_batch_is_a_row_with_its_bytes_where_that_is_asked_for(
    broker: Start, options: Options, prefetch: int, at_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    leader = with_a_poisoned_batch(broker)
    fetch = replace(WITH_DAMAGE, prefetch=prefetch, max_partition_bytes=1 << 20 if at_once else 1)
    offsets, (row,) = damaged_rows(Reading(options, leader, fetch), planned(leader, 0, 30))
    assert offsets == [*range(10), *range(20, 30)]
    assert row["damage"].startswith("the record batch at offset 10: its CRC-32C is 0x")
    assert row["damage"].endswith("the bytes are damaged; the next batch begins at offset 20")
    assert {name: value for name, value in row.items() if name != "damage"} == {
        "key": None,
        "value": damaged(batch(10, 10)),
        "topic": "orders",
        "partition": 0,
        "offset": 10,
        "timestamp": None,
        "timestampType": -1,
        "headers": None,
    }
    (line,) = (parse(record.message) for record in caplog.records if "event=damaged_batch" in record.message)
    assert (line["partition"], line["from"], line["to"]) == ("orders-0", "10", "20")


@pytest.mark.parametrize("fetch", [PATIENT, WITH_DAMAGE], ids=["by default", "set aside"])
def test_a_record_with_a_timestamp_in_nanoseconds_is_the_only_one_set_aside(
    broker: Start, options: Options, fetch: FetchOptions, caplog: pytest.LogCaptureFixture
) -> None:
    stamps = [5, NANOSECONDS, 6, NANOSECONDS + 1]
    records = [Record(10 + n, stamp, b"k%d" % n, b"v%d" % n) for n, stamp in enumerate(stamps)]
    leader = Leader(broker, Log([batch(0, 10), encode_batch(records), batch(14, 6)]))
    rows = [row for each in Reading(options, leader, fetch).batches(planned(leader, 0, 20)) for row in each.to_pylist()]
    assert [row["offset"] for row in rows] == [*range(20)]
    assert [(row["key"], row["value"]) for row in rows[10:14]] == [(b"k%d" % n, b"v%d" % n) for n in range(4)]
    assert [row["offset"] for row in rows if row["timestamp"] is None] == [11, 13]
    if fetch is WITH_DAMAGE:
        reasons = {row["offset"]: row["damage"] for row in rows if row["damage"] is not None}
        assert reasons.keys() == {11, 13}
        assert reasons[11] == f"its timestamp of {NANOSECONDS} ms does not fit microseconds (was it written in ns?)"
    (line,) = (record.message for record in caplog.records if "written in ns" in record.message)
    assert line.startswith("orders-0: the record at offset 11 is ")


@dataclass
class DamagedOnce(Log):
    """A log whose first answer arrives damaged."""

    answers: int = 0

    def read(self, offset: int, most: int) -> bytes:
        self.answers += 1
        found = super().read(offset, most)
        return damaged(found) if self.answers == 1 else found


def test_a_batch_that_was_damaged_on_its_way_is_fetched_again(broker: Start, options: Options) -> None:
    leader = Leader(broker, DamagedOnce([batch(0, 10), batch(10, 10)]))
    offsets, rows = damaged_rows(Reading(options, leader, WITH_DAMAGE), planned(leader, 0, 20))
    assert (offsets, rows) == ([*range(20)], [])
    assert leader.fetches() == [[(0, 0)], [(0, 0)]]


def test_damaged_batches_side_by_side_and_at_the_ends_of_a_range(broker: Start, options: Options) -> None:
    log = [batch(0, 5), damaged(batch(5, 5)), damaged(batch(10, 5)), batch(15, 5), damaged(batch(20, 5))]
    leader = Leader(broker, Log(log))
    for start, until, whole, places in (
        (0, 25, [*range(5), *range(15, 20)], [5, 10, 20]),
        (7, 17, [15, 16], [5, 10]),
        (20, 22, [], [20]),
        (22, 25, [], [20]),
    ):
        offsets, rows = damaged_rows(Reading(options, leader, WITH_DAMAGE), planned(leader, start, until))
        assert (offsets, [row["offset"] for row in rows]) == (whole, places)


def test_other_partitions_lose_and_repeat_nothing_beside_a_damaged_batch(broker: Start, options: Options) -> None:
    log = [batch(0, 10), damaged(batch(10, 10)), batch(20, 10)]
    leader = Leader(broker, Log(log), Log([batch(i, 10) for i in range(0, 200, 10)]))
    reading = Reading(options, leader, replace(WITH_DAMAGE, prefetch=2, max_partition_bytes=200))
    offsets, rows = damaged_rows(reading, planned(leader, 0, 30), planned(leader, 0, 200, partition=1))
    assert sorted(offsets) == sorted([*range(10), *range(20, 30), *range(200)])
    assert len(rows) == 1


COMPACTED = damaged(encode_batch([Record(10, 0, None, b"x")], base_offset=10, last_offset=19))


@pytest.mark.parametrize(
    ("log", "fetch"),
    [
        ([batch(0, 10), COMPACTED], WITH_DAMAGE),
        ([batch(0, 10), COMPACTED, damaged(batch(20, 10))], WITH_DAMAGE),
    ],
    ids=["nothing follows", "a damaged one follows"],
)
def test_a_damaged_batch_whose_end_is_not_certain_is_an_error(
    broker: Start, options: Options, log: list[bytes], fetch: FetchOptions
) -> None:
    leader = Leader(broker, Log(log))
    with pytest.raises(ChecksumMismatch, match="the record batch at offset 10"):
        Reading(options, leader, fetch).offsets(planned(leader, 0, 30))


def test_a_damaged_batch_of_compacted_records_ends_where_a_sound_one_begins(broker: Start, options: Options) -> None:
    leader = Leader(broker, Log([batch(0, 10), COMPACTED, batch(25, 5)]))
    offsets, (row,) = damaged_rows(Reading(options, leader, WITH_DAMAGE), planned(leader, 0, 30))
    assert (offsets, row["offset"]) == ([*range(10), *range(25, 30)], 10)
    assert row["damage"].endswith("begins at offset 25")


@pytest.mark.parametrize("bit", range(6))
def test_nothing_is_read_where_a_damaged_size_says_that_the_next_batch_begins(
    broker: Start, options: Options, bit: int
) -> None:
    """The bytes there may look like a batch behind the range, so that nothing seems to be left."""
    bad = bytearray(batch(5, 5))
    bad[11] ^= 1 << bit
    leader = Leader(broker, Log([batch(0, 5), bytes(bad), *(batch(start, 5) for start in range(10, 40, 5))]))
    offsets, (row,) = damaged_rows(Reading(options, leader, WITH_DAMAGE), planned(leader, 0, 40))
    assert (offsets, row["offset"]) == ([*range(5), *range(10, 40)], 5)


def test_beside_aborted_transactions_a_damaged_batch_is_an_error(broker: Start, options: Options) -> None:
    """It may be the end of the transaction: without it later records of its producer would be hidden."""
    sent = [Record(0, 0, None, b"x")]
    marker = damaged(end_marker(1, producer_id=9, kind=ABORT))
    aborted = encode_batch(sent, producer_id=9, transactional=True)
    later = encode_batch([Record(2, 0, None, b"y")], producer_id=9, transactional=True)
    leader = Leader(broker, Log([aborted, marker, later], aborted=(AbortedTransaction(producer_id=9, first_offset=0),)))
    reading = Reading(options, leader, replace(WITH_DAMAGE, isolation=Isolation.READ_COMMITTED))
    with pytest.raises(ChecksumMismatch, match="the record batch at offset 1"):
        reading.offsets(planned(leader, 0, 3))
    offsets, rows = damaged_rows(Reading(options, leader, WITH_DAMAGE), planned(leader, 0, 3))
    assert (offsets, [row["offset"] for row in rows]) == ([0, 2], [1])


@dataclass
class ByTrueOffsets(Log):
    """A log of batches of five offsets, whose broker finds them whatever their headers say."""

    def read(self, offset: int, most: int) -> bytes:
        left = self.batches[offset // 5 :]
        return b"".join(left)[: max(most, len(left[0]) if left else 0)]


@pytest.mark.parametrize("seed", range(150))
def test_each_record_is_a_row_or_within_a_row_unless_the_read_fails(broker: Start, options: Options, seed: int) -> None:
    """Bits are flipped behind the magic, in the fields that tell the length of a batch, too, and in its size."""
    chance = Random(seed)
    sound, start = [], 0
    for _ in range(8):
        kept = sorted(chance.sample(range(start, start + 5), chance.choice([1, 3, 5, 5, 5, 5, 5])))
        records = [Record(offset, 0, None, b"v") for offset in kept]
        sound.append((kept, encode_batch(records, base_offset=start, last_offset=start + 4)))
        start += 5
    log = [bytearray(data) for _, data in sound]
    for _ in range(chance.randint(1, 3)):
        place = chance.choice(log)
        # The records, any field of the header, the field that tells the length, the size.
        at = chance.choice(
            [chance.randrange(61, len(place))] * 6
            + [chance.randrange(17, 61), chance.randrange(23, 27), chance.randrange(8, 12)]
        )
        place[at] ^= 1 << chance.randrange(8)
    leader = Leader(broker, ByTrueOffsets([bytes(data) for data in log], high_watermark=start))
    fetch = replace(WITH_DAMAGE, max_partition_bytes=chance.choice([1, 200, 1 << 20]), prefetch=chance.randrange(3))
    try:
        offsets, rows = damaged_rows(Reading(options, leader, fetch), planned(leader, 0, start))
    except (DecodeError, TransportError):
        return
    whole = {data for _, data in sound}
    within = [
        offset for row in rows for kept, data in sound if row["offset"] == kept[0] - kept[0] % 5 for offset in kept
    ]
    assert sorted([*offsets, *within]) == [offset for kept, _ in sound for offset in kept]
    # Where the size is damaged, the row ends elsewhere.
    places = list(itertools.accumulate(map(len, log), initial=0))
    assert all(b"".join(log).startswith(row["value"], places[row["offset"] // 5]) for row in rows)
    assert all(row["value"] not in whole for row in rows)
