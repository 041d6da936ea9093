"""The scans of message sets: the two kernels are equal, and the compiled one trusts no caller."""

from __future__ import annotations

import importlib
import random
import sys
import types
import zlib
from typing import Any

import numpy as np
import pytest

from streamgroup.errors import ConfigError
from streamgroup.kafka.records import kernel
from streamgroup.kafka.records import scan as message_scan
from streamgroup.kafka.records.fields import BLOCK, Bytes
from streamgroup.kafka.records.message_sets import (
    OWN,
    MessageFaultKind,
    MessageFields,
    MessageFields07,
    MessageSetFault,
    MessageSets,
    MessageSets07,
)
from tests.unit.kafka.records.encoder_sets import (
    Message,
    encode_message,
    encode_set,
    encode_wrapper,
    message07,
    wrapper07,
)

compiled = pytest.importorskip("streamgroup.kafka.records._kernel", reason="the compiled kernel has not been built")

EXTREMES = (0, 1, 2, 7, 8, 14, 22, 0x7F, 0x80, 0xFF)


pytestmark = pytest.mark.usefixtures("kernel_as_before")


def both(scan: str, *arguments: Any) -> list[Any]:
    """The result of each kernel: all its arrays, or the very fault at the very place."""
    answers = []
    for name in ("python", "compiled"):
        kernel.use(name)
        try:
            found = getattr(kernel.current(), scan)(*arguments)
            answers.append([column.tolist() for column in found.arrays()] if hasattr(found, "arrays") else found)
        except MessageSetFault as error:
            answers.append((error.index, error.position, error.fault))
    return answers


def damaged(data: bytes, chance: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(chance.randrange(3)):
        out[chance.randrange(len(out))] = chance.choice([*EXTREMES, chance.randrange(256)])
    return bytes(out)


def longs(*values: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(values, np.int64)


def messages(chance: random.Random, first: int) -> list[Message]:
    return [
        Message(
            first + index * chance.choice([1, 1, 2]) if chance.random() < 0.1 else first + index,
            chance.choice([None, chance.randbytes(chance.randrange(40))]),
            chance.choice([None, b"key"]),
            chance.choice([-1, 0, 10**12, 2**63 - 1]) if chance.random() < 0.05 else 10**12,
        )
        for index in range(chance.randrange(1, 5))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("block", [1, 3, BLOCK])
def test_random_sets_and_random_damage_are_the_same_to_both(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_scan, "BLOCK", block)
    chance = random.Random(5)
    agreed, faults = 0, set()
    for _ in range(1_500):
        parts, rows = [], []
        for _ in range(chance.randrange(1, 4)):
            magic, first = chance.randrange(2), chance.randrange(5)
            found = messages(chance, first)
            parts.append(encode_set(found, magic))
            last = found[-1].offset if chance.random() < 0.9 else 3
            rows.append((first, last, chance.random() < 0.5, 77, chance.choice([OWN, -1, 0, 1])))
        ends = np.cumsum([len(part) for part in parts])
        data = np.frombuffer(damaged(b"".join(parts), chance), np.uint8)
        least, last, relative, stamp, kind = (longs(*column) for column in zip(*rows, strict=True))
        least = np.minimum(least, last)
        sets = MessageSets(ends - [len(p) for p in parts], ends, least, last, relative.astype(np.bool_), stamp, kind)
        checked = chance.random() < 0.3
        slow, fast = both("messages", data, sets, checked)
        assert slow == fast
        agreed += isinstance(fast, list)
        faults |= {fast[2]} if isinstance(fast, tuple) else set()
    assert agreed > 300
    assert faults == set(MessageFaultKind)


@pytest.mark.slow
@pytest.mark.parametrize("block", [1, 4, BLOCK])
def test_random_sets_of_kafka_07_are_the_same_to_both(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_scan, "BLOCK", block)
    chance = random.Random(6)
    agreed, faults = 0, set()
    for _ in range(1_000):
        parts = [
            b"".join(message07(chance.randbytes(chance.randrange(20)), chance.randrange(2)) for _ in range(3))
            for _ in range(3)
        ]
        ends = np.cumsum([len(part) for part in parts])
        data = np.frombuffer(damaged(b"".join(parts), chance), np.uint8)
        wrapped = np.array([chance.random() < 0.5 for _ in parts])
        sets = MessageSets07(ends - [len(p) for p in parts], ends, longs(5, 1_000, 2_000), wrapped)
        checked = chance.random() < 0.5
        slow, fast = both("messages07", data, sets, checked)
        assert slow == fast
        agreed += isinstance(fast, list)
        faults |= {fast[2]} if isinstance(fast, tuple) else set()
    assert agreed > 200
    assert faults == {
        MessageFaultKind.FRAME,
        MessageFaultKind.MAGIC,
        MessageFaultKind.NESTED,
        MessageFaultKind.CHECKSUM,
    }


def test_the_look_ahead_is_the_same_to_both() -> None:
    chance = random.Random(7)
    steps = 0
    for _ in range(600):
        data = encode_set(messages(chance, 3), 0) + encode_set(messages(chance, 9), 1)
        data += encode_wrapper([Message(20)], "gzip", 1) + encode_message(Message(21), 0)
        view = memoryview(damaged(data, chance)[: len(data) - chance.choice([0, 0, 5])])
        least, until = chance.choice([0, 4, 9]), chance.choice([5, 11, 2**62])
        slow, fast = both("walk", view, 0, least, until)
        assert slow == fast
        steps += fast.messages
        old = message07(b"a") + message07(b"bb", 0) + wrapper07(message07(b"c"), "gzip") + message07(b"d")
        view = memoryview(damaged(old, chance)[: len(old) - chance.choice([0, 0, 5])])
        position = chance.choice([0, 0, 11, 80])
        slow, fast = both("walk07", view, min(position, len(view)), len(view))
        assert slow == fast
        steps += fast.messages
    assert steps > 1_000


def test_both_know_the_same_faults() -> None:
    source = importlib.resources.files("streamgroup.kafka.records").joinpath("_messages.h").read_text()
    for fault in MessageFaultKind:
        assert fault.text
        assert f"{fault.name} = {fault.value}," in source


def test_the_checksum_is_zlibs_by_either_way_and_at_any_alignment() -> None:
    chance = random.Random(8)
    data = memoryview(chance.randbytes(1_200))
    for size in [*range(300), 511, 512, 1_000]:
        piece = data[size % 17 : size % 17 + size]
        assert compiled.crc32(piece, False) == compiled.crc32(piece, True) == zlib.crc32(piece)
    kernel.use("python")
    assert kernel.current().crc32(data) == compiled.crc32(data, False)


def test_no_byte_behind_a_set_is_read_as_its_own() -> None:
    for data, count, scan in (
        (encode_message(Message(0, b"v" * 20, b"k"), 1), compiled.count, "messages"),
        (message07(b"v" * 20), compiled.count07, "messages07"),
    ):
        buffer = np.frombuffer(data * 2, np.uint8)
        for size in range(1, len(data)):
            assert count(buffer, longs(0), longs(size)) == (0, 0, MessageFaultKind.FRAME)
            sets = one_set(0, size) if scan == "messages" else one_set07(0, size)
            for cut in (buffer, buffer[:size].copy()):
                answers = both(scan, cut, sets, False)
                assert answers == [(0, 0, MessageFaultKind.FRAME)] * 2


def one_set(begin: int, end: int) -> MessageSets:
    return MessageSets(longs(begin), longs(end), longs(0), longs(0), np.array([False]), longs(0), longs(OWN))


def one_set07(begin: int, end: int) -> MessageSets07:
    return MessageSets07(longs(begin), longs(end), longs(0), np.array([False]))


BUFFER: Bytes = np.frombuffer(encode_message(Message(0), 0), np.uint8)


@pytest.mark.parametrize(("begin", "end"), [(-1, 5), (3, 2), (0, 27), (2**62, 2**62)])
def test_sets_outside_of_the_buffer_are_refused(begin: int, end: int) -> None:
    for ask in (
        lambda: compiled.count(BUFFER, longs(begin), longs(end)),
        lambda: compiled.count07(BUFFER, longs(begin), longs(end)),
        lambda: compiled.messages(BUFFER, *one_set(begin, end).arrays(), True, *MessageFields.empty(0).arrays()),
        lambda: compiled.messages07(BUFFER, *one_set07(begin, end).arrays(), True, *MessageFields07.empty(0).arrays()),
    ):
        with pytest.raises(ValueError, match="outside of the buffer"):
            ask()


@pytest.mark.parametrize("rows", [0, 2])
def test_as_many_messages_as_there_is_room_for_and_no_more(rows: int) -> None:
    with pytest.raises(ValueError, match="not as many as have been counted"):
        compiled.messages(BUFFER, *one_set(0, 26).arrays(), True, *MessageFields.empty(rows).arrays())
    old = np.frombuffer(message07(b"x"), np.uint8)
    with pytest.raises(ValueError, match="not as many as have been counted"):
        compiled.messages07(old, *one_set07(0, len(old)).arrays(), True, *MessageFields07.empty(rows).arrays())


def test_arrays_of_other_sizes_are_refused() -> None:
    wrong = list(one_set(0, 26).arrays())
    wrong[3] = longs(0, 0)
    with pytest.raises(ValueError, match="an array of sets"):
        compiled.messages(BUFFER, *wrong, True, *MessageFields.empty(1).arrays())
    out = list(MessageFields.empty(1).arrays())
    out[4] = np.empty(0, np.int32)
    with pytest.raises(ValueError, match="an array of messages"):
        compiled.messages(BUFFER, *one_set(0, 26).arrays(), True, *out)
    with pytest.raises(ValueError, match="end has"):
        compiled.count(BUFFER, longs(0), longs(0, 1))


@pytest.mark.parametrize("position", [-1, 27])
def test_a_walk_does_not_begin_outside_of_the_data(position: int) -> None:
    for ask in (
        lambda: compiled.walk(memoryview(BUFFER), position, 0, 1),
        lambda: compiled.walk07(memoryview(BUFFER), position, 1),
        lambda: compiled.walk07(memoryview(BUFFER), 0, position),
    ):
        with pytest.raises(ValueError, match="outside of the data"):
            ask()


def test_an_extension_of_older_sources_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "streamgroup.kafka.records._kernel", types.ModuleType("_kernel"))
    assert kernel._load(None).name == "python"
    with pytest.raises(ConfigError, match="C compiler"):
        kernel.use("compiled")
