"""A batch counts as held until the last slice of it is gone."""

from __future__ import annotations

from streamgroup.executor.batch_memory import BatchMemory
from streamgroup.executor.record_slices import RecordSlices
from tests.unit.executor.producing import columns


def test_a_batch_counts_until_its_last_slice_is_gone() -> None:
    held, batch = BatchMemory(), columns([b"x" * 1000] * 10)
    held.hold(batch)
    size = held.bytes
    assert 10_000 <= size < 10_200
    slices = [RecordSlices.of(batch, n, n + 1, 1000) for n in range(10)]
    del batch
    del slices[1:]
    assert held.bytes == size
    slices.clear()
    assert held.bytes == 0


def test_copied_records_do_not_hold_their_batch() -> None:
    held, batch = BatchMemory(), columns([b"%d" % n for n in range(10)])
    held.hold(batch)
    copied = batch.copy(3, 2)
    del batch
    assert held.bytes == 0
    assert copied.value is not None
    assert copied.value.to_pylist() == [b"3", b"4"]
