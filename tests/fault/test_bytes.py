"""Damaged bytes at every decoder: each case ends soon, in a value or in a DecodeError, and allocates little.

The cases are mutations of what real brokers and clients wrote (`tests/vectors`), from a seed: bytes that are almost
right come further than random ones.
"""

from __future__ import annotations

import json
import random
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamgroup.errors import ConfigError, DecodeError
from streamgroup.group.commit_metadata import CommitMetadata
from streamgroup.group.userdata import AssignmentBasis, decode_basis, encode_basis
from streamgroup.model import TopicPartition
from streamgroup.planning.document import from_value
from streamgroup.records.decode import DecodeOptions
from streamgroup.records.messages07 import walk07
from streamgroup.wire.consumer import (
    ConsumerAssignment,
    ConsumerSubscription,
    by_topic,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from streamgroup.wire.frames import decode_response
from streamgroup.wire.schema import Request
from tests.unit.records import conftest as kernels
from tests.unit.records.encoder import reseal
from tests.unit.records.encoder_sets import message07, wrapper07
from tests.unit.records.encoder_sets import reseal as reseal_message
from tests.unit.records.rows import decode, decode07
from tests.unit.records.test_messages07 import CAPTURED
from tests.unit.wire.declared import REQUESTS
from tests.unit.wire.test_vectors import RELEASES, exchanges

kernel = kernels.kernel
RECORDS = sorted((Path(__file__).parents[1] / "vectors" / "records").glob("*.bin"))
MESSAGE_SETS = sorted((Path(__file__).parents[1] / "vectors" / "message_sets").glob("*.bin"))
END = 2**62
SLOWEST_S = 0.05
CAP = 1 << 20

CASES = pytest.mark.parametrize(
    "cases", [500, pytest.param(10_000, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)
"""How many at each decoder; the longer run is part of `make test-faults`."""

_EXTREMES = (b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff", b"\x7f\xff", b"\0\0\0\0", b"\xff" * 10)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """One to three changes: cut, cut out, put in, repeated, one bit, or lengths such as -1 and 2^31-1."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(6):
            case 0:
                data = data[:at]
            case 1:
                data = data[:at] + data[at + rng.randint(1, 8) :]
            case 2:
                data = data[:at] + rng.randbytes(rng.randint(1, 8)) + data[at:]
            case 3:
                data = data[:at] + data[at : at + 32] * rng.randint(2, 5) + data[at + 32 :]
            case 4 if at < len(data):
                data = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
            case _:
                extreme = rng.choice(_EXTREMES)
                data = data[:at] + extreme + data[at + len(extreme) :]
    return data


def only_decode_errors(read: Callable[[bytes], Any], data: bytes) -> None:
    """Any other exception fails the test with the bytes that caused it."""
    for _ in range(3):  # a busy machine makes one slow, not three in a row
        began = time.thread_time()
        try:
            read(data)
        except DecodeError:
            pass
        except Exception as error:
            raise AssertionError(f"{error!r} for {data.hex()}") from error
        if time.thread_time() - began < SLOWEST_S:
            return
    raise AssertionError(f"slower than {SLOWEST_S} s: {data.hex()}")


@CASES
@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.NAME)
def test_an_answer_of_a_broker(cls: type[Request[Any]], cases: int) -> None:
    rng = random.Random(cls.NAME)
    written = [(version, pair[1]) for r in RELEASES for version, pair in exchanges(r, cls).items()]
    for _ in range(cases):
        version, answer = rng.choice(written)
        only_decode_errors(lambda data, version=version: decode_response(cls, version, data), mutated(answer, rng))  # type: ignore[misc]


PARTITIONS = by_topic(TopicPartition(topic, n) for topic in ("orders", "payments") for n in range(5))
GROUP_BYTES: dict[str, tuple[Callable[[bytes], Any], bytes]] = {
    "subscription": (
        decode_subscription,
        encode_subscription(
            ConsumerSubscription(
                topics=("orders", "payments"), user_data=b"x" * 9, owned_partitions=PARTITIONS, generation_id=4
            )
        ),
    ),
    "assignment": (
        decode_assignment,
        encode_assignment(ConsumerAssignment(assigned_partitions=PARTITIONS, user_data=b"y" * 30)),
    ),
    "basis of an assignment": (decode_basis, encode_basis(AssignmentBasis({"orders": 5, "payments": 5}, 3))),
    "metadata of a commit": (
        lambda data: CommitMetadata.parse(data.decode("utf-8", "replace")),
        CommitMetadata("lineage", "run", 7, 7, 1, "id").text().encode(),
    ),
}


@CASES
@pytest.mark.parametrize(("read", "sound"), GROUP_BYTES.values(), ids=GROUP_BYTES)
def test_what_other_members_wrote(read: Callable[[bytes], Any], sound: bytes, cases: int) -> None:
    rng = random.Random(len(sound))
    read(sound)
    for _ in range(cases):
        only_decode_errors(read, mutated(sound, rng))


@CASES
@pytest.mark.parametrize("file", RECORDS, ids=lambda file: file.stem)
@pytest.mark.parametrize("checked", [True, False], ids=["checked", "under a right checksum"])
def test_record_batches(kernel: str, file: Path, checked: bool, cases: int) -> None:
    rng = random.Random(file.name)
    sound = file.read_bytes()
    options = DecodeOptions(include_headers=True, read_committed=rng.random() < 0.5, max_decompressed_bytes=CAP)
    for _ in range(cases // 5):  # as many by two kernels, two ways, and a dozen files
        data = mutated(sound, rng)
        if not checked and len(data) > 61:
            data = reseal(data)
        only_decode_errors(lambda data: decode(data, 0, END, options), data)


@CASES
@pytest.mark.parametrize("file", MESSAGE_SETS, ids=lambda file: file.stem)
@pytest.mark.parametrize("checked", [True, False], ids=["checked", "unchecked"])
def test_message_sets(kernel: str, file: Path, checked: bool, cases: int) -> None:
    rng = random.Random(file.name)
    sound = file.read_bytes()
    options = DecodeOptions(check_crcs=checked, max_decompressed_bytes=CAP)
    for _ in range(cases // 5):
        data = mutated(sound, rng)
        if rng.random() < 0.5 and len(data) > 16:
            data = reseal_message(data)
        only_decode_errors(lambda data: decode(data, 0, END, options), data)


@CASES
@pytest.mark.parametrize("checked", [True, False], ids=["checked", "unchecked"])
def test_messages_of_kafka_07(kernel: str, checked: bool, cases: int) -> None:
    rng = random.Random(7)
    # A wrapper with a right checksum around damage, too: behind it the codecs and the inner messages are reached.
    sound = [*filter(None, CAPTURED.values())]
    options = DecodeOptions(check_crcs=checked, include_inner_index=True, max_decompressed_bytes=CAP)
    for _ in range(cases):
        data = mutated(rng.choice(sound), rng)
        match rng.randrange(4):
            case 0:
                data = wrapper07(data, rng.choice(["gzip", "snappy", "snappy-raw"]))
            case 1:
                data = message07(data[10:], 1, rng.randrange(4))
        only_decode_errors(lambda data: decode07(data, 0, END, options), data)
        only_decode_errors(lambda data: walk07(data, 0, check_crcs=checked), data)


@pytest.mark.parametrize("file", MESSAGE_SETS, ids=lambda file: file.stem)
def test_each_flipped_bit_of_a_message_set_is_refused_or_changes_no_key_or_value(kernel: str, file: Path) -> None:
    sound = file.read_bytes()
    rows = keys_and_values(sound)
    for index in range(len(sound)):
        damaged = bytearray(sound)
        damaged[index] ^= 1 << index % 8
        try:
            found = keys_and_values(bytes(damaged))
        except DecodeError:
            continue
        assert found == rows[: len(found)]  # an offset, or a size that now reaches beyond the bytes


@pytest.mark.parametrize("file", MESSAGE_SETS, ids=lambda file: file.stem)
def test_what_a_damaged_message_set_allocates_is_bounded(kernel: str, file: Path) -> None:
    rng, sound = random.Random(2), file.read_bytes()
    options = DecodeOptions(check_crcs=False, max_decompressed_bytes=CAP)
    decode(sound, 0, END, options)
    for _ in range(20):
        data = mutated(sound, rng) + bytes(61)
        tracemalloc.start()
        try:
            only_decode_errors(lambda data: decode(data, 0, END, options), data)
            assert tracemalloc.get_traced_memory()[1] < 4 * len(data) + 2 * CAP, data.hex()
        finally:
            tracemalloc.stop()


def keys_and_values(data: bytes) -> list[tuple[bytes | None, bytes | None]]:
    decoded = decode(data, 0, END, DecodeOptions())
    return list(zip(decoded.key.to_pylist(), decoded.value.to_pylist(), strict=True))


@pytest.mark.parametrize("file", RECORDS, ids=lambda file: file.stem)
def test_each_flipped_bit_of_a_batch_is_refused_or_changes_no_key_or_value(kernel: str, file: Path) -> None:
    sound = file.read_bytes()
    first = 12 + int.from_bytes(sound[8:12], "big")
    for index in range(17, first):  # before it: base offset, size, leader epoch, magic, which no checksum covers
        damaged = bytearray(sound)
        damaged[index] ^= 1 << index % 8
        with pytest.raises(DecodeError):
            decode(bytes(damaged), 0, END, DecodeOptions())


@pytest.mark.parametrize("file", RECORDS, ids=lambda file: file.stem)
def test_what_a_damaged_batch_allocates_is_bounded(kernel: str, file: Path) -> None:
    rng, sound = random.Random(1), file.read_bytes()
    options = DecodeOptions(include_headers=True, max_decompressed_bytes=CAP)
    decode(sound, 0, END, options)
    for _ in range(40):
        data = reseal(mutated(sound, rng) + bytes(61))
        tracemalloc.start()
        try:
            only_decode_errors(lambda data: decode(data, 0, END, options), data)
            assert tracemalloc.get_traced_memory()[1] < 4 * len(data) + 2 * CAP, data.hex()
        finally:
            tracemalloc.stop()


def test_a_document_of_a_damaged_checkpoint_is_refused_with_a_sentence() -> None:

    rng = random.Random(4)
    files = sorted((Path(__file__).parents[1] / "vectors" / "documents").glob("*.json"))
    for _ in range(2_000):
        text = mutated(rng.choice(files).read_bytes(), rng).decode("utf-8", "replace")
        try:
            value = json.loads(text)
        except ValueError:
            continue
        if isinstance(value, dict):  # Spark gives nothing else
            try:
                from_value(value)
            except ConfigError:
                continue
