"""Each flipped bit of what Java and librdkafka wrote is refused, or changes no key and no value."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamgroup.errors import DecodeError
from streamgroup.kafka.records.decode import DecodeOptions
from tests.unit.kafka.records.rows import decode

pytestmark = pytest.mark.usefixtures("kernel")

VECTORS = Path(__file__).parents[3] / "vectors"
RECORDS = sorted((VECTORS / "records").glob("*.bin"))
MESSAGE_SETS = sorted((VECTORS / "message_sets").glob("*.bin"))
END = 2**62


def keys_and_values(data: bytes) -> list[tuple[bytes | None, bytes | None]]:
    decoded = decode(data, 0, END, DecodeOptions())
    return list(zip(decoded.key.to_pylist(), decoded.value.to_pylist(), strict=True))


def flipped(data: bytes, index: int) -> bytes:
    damaged = bytearray(data)
    damaged[index] ^= 1 << index % 8
    return bytes(damaged)


@pytest.mark.slow
@pytest.mark.parametrize("file", MESSAGE_SETS, ids=lambda file: file.stem)
def test_each_flipped_bit_of_a_message_set_is_refused_or_changes_no_key_or_value(file: Path) -> None:
    sound = file.read_bytes()
    rows = keys_and_values(sound)
    for index in range(len(sound)):
        try:
            found = keys_and_values(flipped(sound, index))
        except DecodeError:
            continue
        assert found == rows[: len(found)]  # an offset, or a size that now reaches beyond the bytes


@pytest.mark.slow
@pytest.mark.parametrize("file", RECORDS, ids=lambda file: file.stem)
def test_each_flipped_bit_of_a_batch_is_refused(file: Path) -> None:
    sound = file.read_bytes()
    first = 12 + int.from_bytes(sound[8:12], "big")
    for index in range(17, first):  # before it: base offset, size, leader epoch, magic, which no checksum covers
        with pytest.raises(DecodeError):
            decode(flipped(sound, index), 0, END, DecodeOptions())
