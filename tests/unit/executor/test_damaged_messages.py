"""Damaged messages of Kafka 0.8 to 0.10 as rows: those of a compressed message are set aside together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from streamgroup.errors import ChecksumMismatch, DecodeError, TransportError
from streamgroup.options.types import ClientOptions
from tests.fakes.broker import FakeBroker
from tests.unit.executor.leader import Leader, Log, Reading, of_old
from tests.unit.executor.test_damaged_batches import WITH_DAMAGE, damaged, damaged_rows
from tests.unit.kafka.records.encoder_sets import Message, encode_set, encode_wrapper

Start = Callable[..., FakeBroker]
Options = Callable[..., ClientOptions]

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


def reading(broker: Start, options: Options, pieces: list[Piece], most: int = 1 << 20) -> tuple[Reading, Leader]:
    leader = Leader(broker, OldLog(pieces=pieces), release="0.9")
    return Reading(options, leader, replace(WITH_DAMAGE, include_headers=False, max_partition_bytes=most)), leader


@MAGICS
@pytest.mark.parametrize("most", [1 << 20, 40], ids=["one answer", "an answer each"])
def test_a_damaged_message_is_a_row_with_its_bytes(broker: Start, options: Options, magic: int, most: int) -> None:
    pieces = [plain(offset, magic) for offset in range(5)]
    pieces[2] = pieces[2].damaged()
    read, leader = reading(broker, options, pieces, most)
    offsets, (row,) = damaged_rows(read, of_old(leader, 0, 5))
    assert offsets == [0, 1, 3, 4]
    assert (row["offset"], row["value"], row["timestamp"]) == (2, pieces[2].data, None)
    assert row["damage"] == (
        "the message at offset 2: its CRC-32 does not match; the bytes are damaged; the next message begins at offset 3"
    )


@MAGICS
@pytest.mark.parametrize("behind", [wrapped([20, 21]), plain(20)], ids=["compressed", "uncompressed"])
def test_a_damaged_compressed_message_is_a_row(broker: Start, options: Options, magic: int, behind: Piece) -> None:
    bad = wrapped(range(10, 20), magic).damaged()
    read, leader = reading(broker, options, [wrapped(range(10), magic), bad, behind])
    end = behind.offsets[-1] + 1
    offsets, (row,) = damaged_rows(read, of_old(leader, 0, end))
    assert offsets == [*range(10), *range(20, end)]
    assert (row["offset"], row["value"]) == (10, bad.data)
    assert row["damage"].startswith("the compressed messages up to offset 19: the CRC-32 is 0x")
    assert row["damage"].endswith("the next message begins at offset 20")


def test_a_damaged_message_of_a_compacted_log_ends_where_a_sound_one_begins(broker: Start, options: Options) -> None:
    for behind in (plain(9), wrapped([9, 12], 0), wrapped([9, 12], 1)):
        read, leader = reading(broker, options, [plain(0), plain(5).damaged(), behind])
        offsets, (row,) = damaged_rows(read, of_old(leader, 0, behind.offsets[-1] + 1))
        assert offsets == [0, *behind.offsets]
        assert (row["offset"], row["damage"].rsplit(" ", 1)[1]) == (5, "9")


def test_the_last_message_is_set_aside_where_its_offset_is_the_expected_one(broker: Start, options: Options) -> None:
    read, leader = reading(broker, options, [plain(0), plain(1), plain(2).damaged()])
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
def test_a_damaged_message_whose_end_is_not_certain_is_an_error(
    broker: Start, options: Options, pieces: list[Piece]
) -> None:
    read, leader = reading(broker, options, pieces)
    with pytest.raises(ChecksumMismatch):
        read.offsets(of_old(leader, 0, pieces[-1].offsets[-1] + 1))


@pytest.mark.parametrize("seed", range(150))
def test_each_record_is_a_row_or_within_a_row_unless_the_read_fails(broker: Start, options: Options, seed: int) -> None:
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
    read, leader = reading(broker, options, pieces, chance.choice([200, 1 << 20]))
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
