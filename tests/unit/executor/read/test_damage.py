"""Damaged record batches as rows: set aside with their bytes, with nothing lost and nothing repeated beside them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from streamgroup.errors import ChecksumMismatch, DecodeError, TransportError
from streamgroup.kafka.wire.messages.log import AbortedTransaction
from streamgroup.logline import parse
from streamgroup.model import FetchRange
from streamgroup.options.types import FetchOptions, Isolation
from tests.unit.executor.leader import (
    PATIENT,
    Lead,
    Leader,
    Log,
    Reading,
    batch,
    damaged,
    of_old,
    planned,
    with_a_damaged_batch,
)
from tests.unit.kafka.records.encoder import ABORT, Record, encode_batch, end_marker
from tests.unit.kafka.records.encoder_sets import Message, encode_set, encode_wrapper

NANOSECONDS = 1_700_000_000_123_456_789
WITH_DAMAGE = replace(PATIENT, include_damaged_batches=True, include_headers=True)


def damaged_rows(reading: Reading, *ranges: FetchRange) -> tuple[list[int], list[dict[str, Any]]]:
    """Return the offsets of the records, and the rows of damaged batches."""
    rows = [row for each in reading.batches(*ranges) for row in each.to_pylist()]
    return [row["offset"] for row in rows if row["damage"] is None], [row for row in rows if row["damage"] is not None]


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("at_once", [True, False], ids=["one answer", "an answer each"])
def test_a_damaged_batch_is_a_row_with_its_bytes_where_that_is_asked_for(
    lead: Lead, prefetch: int, at_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    leader = with_a_damaged_batch(lead)
    fetch = replace(WITH_DAMAGE, prefetch=prefetch, max_partition_bytes=1 << 20 if at_once else 1)
    offsets, (row,) = damaged_rows(Reading(leader, fetch), planned(leader, 0, 30))
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
    lead: Lead, fetch: FetchOptions, caplog: pytest.LogCaptureFixture
) -> None:
    stamps = [5, NANOSECONDS, 6, NANOSECONDS + 1]
    records = [Record(10 + n, stamp, b"k%d" % n, b"v%d" % n) for n, stamp in enumerate(stamps)]
    leader = lead(Log([batch(0, 10), encode_batch(records), batch(14, 6)]))
    rows = [row for each in Reading(leader, fetch).batches(planned(leader, 0, 20)) for row in each.to_pylist()]
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


def test_a_batch_that_was_damaged_on_its_way_is_fetched_again(lead: Lead) -> None:
    leader = lead(DamagedOnce([batch(0, 10), batch(10, 10)]))
    offsets, rows = damaged_rows(Reading(leader, WITH_DAMAGE), planned(leader, 0, 20))
    assert (offsets, rows) == ([*range(20)], [])
    assert leader.fetches() == [[(0, 0)], [(0, 0)]]


def test_damaged_batches_side_by_side_and_at_the_ends_of_a_range(lead: Lead) -> None:
    log = [batch(0, 5), damaged(batch(5, 5)), damaged(batch(10, 5)), batch(15, 5), damaged(batch(20, 5))]
    leader = lead(Log(log))
    for start, until, whole, places in (
        (0, 25, [*range(5), *range(15, 20)], [5, 10, 20]),
        (7, 17, [15, 16], [5, 10]),
        (20, 22, [], [20]),
        (22, 25, [], [20]),
    ):
        offsets, rows = damaged_rows(Reading(leader, WITH_DAMAGE), planned(leader, start, until))
        assert (offsets, [row["offset"] for row in rows]) == (whole, places)


def test_other_partitions_lose_and_repeat_nothing_beside_a_damaged_batch(lead: Lead) -> None:
    log = [batch(0, 10), damaged(batch(10, 10)), batch(20, 10)]
    leader = lead(Log(log), Log([batch(i, 10) for i in range(0, 200, 10)]))
    reading = Reading(leader, replace(WITH_DAMAGE, prefetch=2, max_partition_bytes=200))
    offsets, rows = damaged_rows(reading, planned(leader, 0, 30), planned(leader, 0, 200, partition=1))
    assert sorted(offsets) == sorted([*range(10), *range(20, 30), *range(200)])
    assert len(rows) == 1


COMPACTED = damaged(encode_batch([Record(10, 0, None, b"x")], base_offset=10, last_offset=19))


@pytest.mark.parametrize(
    ("log", "fetch"),
    [([batch(0, 10), COMPACTED], WITH_DAMAGE), ([batch(0, 10), COMPACTED, damaged(batch(20, 10))], WITH_DAMAGE)],
    ids=["nothing follows", "a damaged one follows"],
)
def test_a_damaged_batch_without_a_certain_end_is_an_error(lead: Lead, log: list[bytes], fetch: FetchOptions) -> None:
    leader = lead(Log(log))
    with pytest.raises(ChecksumMismatch, match="the record batch at offset 10"):
        Reading(leader, fetch).offsets(planned(leader, 0, 30))


def test_a_damaged_batch_of_compacted_records_ends_where_a_sound_one_begins(lead: Lead) -> None:
    leader = lead(Log([batch(0, 10), COMPACTED, batch(25, 5)]))
    offsets, (row,) = damaged_rows(Reading(leader, WITH_DAMAGE), planned(leader, 0, 30))
    assert (offsets, row["offset"]) == ([*range(10), *range(25, 30)], 10)
    assert row["damage"].endswith("begins at offset 25")


@pytest.mark.parametrize("bit", range(6))
def test_nothing_is_read_where_a_damaged_size_says_that_the_next_batch_begins(lead: Lead, bit: int) -> None:
    """The bytes there may look like a batch behind the range, so that nothing seems to be left."""
    bad = bytearray(batch(5, 5))
    bad[11] ^= 1 << bit
    leader = lead(Log([batch(0, 5), bytes(bad), *(batch(start, 5) for start in range(10, 40, 5))]))
    offsets, (row,) = damaged_rows(Reading(leader, WITH_DAMAGE), planned(leader, 0, 40))
    assert (offsets, row["offset"]) == ([*range(5), *range(10, 40)], 5)


def test_beside_aborted_transactions_a_damaged_batch_is_an_error(lead: Lead) -> None:
    """It may be the end of the transaction: without it later records of its producer would be hidden."""
    sent = [Record(0, 0, None, b"x")]
    marker = damaged(end_marker(1, producer_id=9, kind=ABORT))
    aborted = encode_batch(sent, producer_id=9, transactional=True)
    later = encode_batch([Record(2, 0, None, b"y")], producer_id=9, transactional=True)
    leader = lead(Log([aborted, marker, later], aborted=(AbortedTransaction(producer_id=9, first_offset=0),)))
    reading = Reading(leader, replace(WITH_DAMAGE, isolation=Isolation.READ_COMMITTED))
    with pytest.raises(ChecksumMismatch, match="the record batch at offset 1"):
        reading.offsets(planned(leader, 0, 3))
    offsets, rows = damaged_rows(Reading(leader, WITH_DAMAGE), planned(leader, 0, 3))
    assert (offsets, [row["offset"] for row in rows]) == ([0, 2], [1])


@dataclass
class ByTrueOffsets(Log):
    """A log of batches of five offsets, whose broker finds them whatever their headers say."""

    def read(self, offset: int, most: int) -> bytes:
        left = self.batches[offset // 5 :]
        return b"".join(left)[: max(most, len(left[0]) if left else 0)]


@pytest.mark.parametrize("seed", range(150))
def test_each_record_is_a_row_or_within_a_row_unless_the_read_fails(lead: Lead, seed: int) -> None:
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
    leader = lead(ByTrueOffsets([bytes(data) for data in log], high_watermark=start))
    fetch = replace(WITH_DAMAGE, max_partition_bytes=chance.choice([1, 200, 1 << 20]), prefetch=chance.randrange(3))
    try:
        offsets, rows = damaged_rows(Reading(leader, fetch), planned(leader, 0, start))
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


MAGICS = pytest.mark.parametrize("magic", [0, 1])


@dataclass(frozen=True)
class Piece:
    """A message, or a compressed one: the offsets of its records, and its bytes."""

    offsets: Sequence[int]
    data: bytes

    def damaged(self) -> Piece:
        return replace(self, data=damaged(self.data))


def plain(offset: int, magic: int = 1) -> Piece:
    return Piece([offset], encode_set([Message(offset, b"%d" % offset)], magic))


def wrapped(offsets: Sequence[int], magic: int = 1, codec: str = "gzip") -> Piece:
    return Piece(offsets, encode_wrapper([Message(offset, b"%d" % offset) for offset in offsets], codec, magic))


@dataclass
class OldLog(Log):
    """A log that its broker reads by its index, whatever the headers say. It cuts an answer at any byte."""

    pieces: list[Piece] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.pieces[-1].offsets[-1] + 1

    def read(self, offset: int, most: int) -> bytes:
        return b"".join(piece.data for piece in self.pieces if piece.offsets[-1] >= offset)[:most]


def reading(lead: Lead, pieces: list[Piece], most: int = 1 << 20) -> tuple[Reading, Leader]:
    leader = lead(OldLog(pieces=pieces), release="0.9")
    return Reading(leader, replace(WITH_DAMAGE, include_headers=False, max_partition_bytes=most)), leader


@MAGICS
@pytest.mark.parametrize("most", [1 << 20, 40], ids=["one answer", "an answer each"])
def test_a_damaged_message_is_a_row_with_its_bytes(lead: Lead, magic: int, most: int) -> None:
    pieces = [plain(offset, magic) for offset in range(5)]
    pieces[2] = pieces[2].damaged()
    read, leader = reading(lead, pieces, most)
    offsets, (row,) = damaged_rows(read, of_old(leader, 0, 5))
    assert offsets == [0, 1, 3, 4]
    assert (row["offset"], row["value"], row["timestamp"]) == (2, pieces[2].data, None)
    assert row["damage"] == (
        "the message at offset 2: its CRC-32 does not match; the bytes are damaged; the next message begins at offset 3"
    )


@MAGICS
@pytest.mark.parametrize("behind", [wrapped([20, 21]), plain(20)], ids=["compressed", "uncompressed"])
def test_a_damaged_compressed_message_is_a_row(lead: Lead, magic: int, behind: Piece) -> None:
    bad = wrapped(range(10, 20), magic).damaged()
    read, leader = reading(lead, [wrapped(range(10), magic), bad, behind])
    end = behind.offsets[-1] + 1
    offsets, (row,) = damaged_rows(read, of_old(leader, 0, end))
    assert offsets == [*range(10), *range(20, end)]
    assert (row["offset"], row["value"]) == (10, bad.data)
    assert row["damage"].startswith("the compressed messages up to offset 19: the CRC-32 is 0x")
    assert row["damage"].endswith("the next message begins at offset 20")


def test_a_damaged_message_of_a_compacted_log_ends_where_a_sound_one_begins(lead: Lead) -> None:
    for behind in (plain(9), wrapped([9, 12], 0), wrapped([9, 12], 1)):
        read, leader = reading(lead, [plain(0), plain(5).damaged(), behind])
        offsets, (row,) = damaged_rows(read, of_old(leader, 0, behind.offsets[-1] + 1))
        assert offsets == [0, *behind.offsets]
        assert (row["offset"], row["damage"].rsplit(" ", 1)[1]) == (5, "9")


def test_the_last_message_is_set_aside_where_its_offset_is_the_expected_one(lead: Lead) -> None:
    read, leader = reading(lead, [plain(0), plain(1), plain(2).damaged()])
    offsets, (row,) = damaged_rows(read, of_old(leader, 0, 3))
    assert (offsets, row["offset"]) == ([0, 1], 2)


@pytest.mark.parametrize(
    "pieces",
    [
        [plain(0), plain(5).damaged()],
        [wrapped([0, 1]), wrapped([2, 3]).damaged()],
        [wrapped([0, 1]), wrapped([2, 3]).damaged(), wrapped([4, 5]).damaged()],
    ],
    ids=["behind a gap, at the end", "compressed, at the end", "a damaged one follows"],
)
def test_a_damaged_message_whose_end_is_not_certain_is_an_error(lead: Lead, pieces: list[Piece]) -> None:
    read, leader = reading(lead, pieces)
    with pytest.raises(ChecksumMismatch):
        read.offsets(of_old(leader, 0, pieces[-1].offsets[-1] + 1))


@pytest.mark.parametrize("seed", range(150))
def test_each_old_message_is_a_row_or_within_a_row_unless_the_read_fails(lead: Lead, seed: int) -> None:
    """Bits are flipped anywhere but in the magic, and in offsets: where one is alone wrong, nothing shows it."""
    chance = Random(seed)
    pieces: list[Piece] = []
    offset = 0
    while len(pieces) < 8:
        count = chance.choice([1, 3])
        offset += chance.choice([0, 0, 0, 2])
        kept = range(offset, offset + count)
        magic = chance.randrange(2)
        pieces.append(plain(offset, magic) if count == 1 else wrapped(kept, magic, chance.choice(["gzip", "lz4"])))
        offset += count
    for _ in range(chance.randint(1, 3)):
        number = chance.randrange(len(pieces))
        data = bytearray(pieces[number].data)
        at = chance.choice([chance.randrange(17, len(data))] * 6 + [chance.randrange(12, 16), chance.randrange(8, 12)])
        data[at] ^= 1 << chance.randrange(8)
        pieces[number] = replace(pieces[number], data=bytes(data))
    read, leader = reading(lead, pieces, chance.choice([200, 1 << 20]))
    try:
        offsets, rows = damaged_rows(read, of_old(leader, 0, pieces[-1].offsets[-1] + 1))
    except (DecodeError, TransportError):
        return
    log = b"".join(piece.data for piece in pieces)
    spans = [(log.index(row["value"]), log.index(row["value"]) + len(row["value"])) for row in rows]
    place, within = 0, set()
    for piece in pieces:
        end = place + len(piece.data)
        if any(begin < end and place < until for begin, until in spans):
            within.update(piece.offsets)
        place = end
    assert len(offsets) == len(set(offsets))
    assert within.union(offsets) >= {offset for piece in pieces for offset in piece.offsets}
