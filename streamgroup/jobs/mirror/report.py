"""The result of a verification: counts and checksums of both sides as a table, and differences in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streamgroup.text import counted

_MODULUS = 1 << 64


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a record, with its partition as its cluster names it."""

    partition: str
    offset: int

    def __str__(self) -> str:
        return f"partition {self.partition}, offset {self.offset}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One partition, or a whole topic where records are placed by their keys."""

    source: str
    destination: str
    """The names of both sides, such as `orders-0`."""
    source_records: int = 0
    destination_records: int = 0
    source_offsets: tuple[int, int] | None = None
    destination_offsets: tuple[int, int] | None = None
    """The first and the last offset that were read, of one partition only."""
    lost: int = 0
    """Records that the destination lacks although it has later ones of the same source partition."""
    behind: int = 0
    """Records that the destination lacks at the end of a source partition: the mirror may still write them."""
    repeated: int = 0
    """Copies of records in addition to the first. At-least-once delivery allows them."""
    extra: int = 0
    """Records of the destination that the source does not have."""
    disordered: int = 0
    """Records that come before an earlier record of their source partition and destination partition."""
    retimed: int = 0
    """Records with another timestamp, although the destination keeps those of producers."""
    source_sum: int = 0
    destination_sum: int = 0
    """The sums of the records' hashes. The destination's leaves out repeated records."""
    first_lost: Place | None = None
    first_behind: Place | None = None
    first_extra: Place | None = None
    first_disordered: Place | None = None
    first_retimed: Place | None = None

    @property
    def is_equal(self) -> bool:
        """Return whether the copy is complete and in order. Repeated records are allowed."""
        differing = self.lost or self.behind or self.extra or self.disordered or self.retimed
        return not differing and self.checksums[0] == self.checksums[1]

    @property
    def checksums(self) -> tuple[str, str]:
        """Return the checksums of both sides as 16 hexadecimal digits."""
        return f"{self.source_sum % _MODULUS:016x}", f"{self.destination_sum % _MODULUS:016x}"


_HEADINGS = (
    *("source", "destination", "offsets", "offsets there", "records", "records there"),
    *("lost", "behind", "repeated", "extra", "out of order", "other time", "checksum", "checksum there"),
)


def table(rows: Iterable[Comparison]) -> list[str]:
    cells = [_HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def _cells(row: Comparison) -> tuple[str, ...]:
    counts = (row.source_records, row.destination_records)
    findings = (row.lost, row.behind, row.repeated, row.extra, row.disordered, row.retimed)
    offsets = (_offsets(row.source_offsets), _offsets(row.destination_offsets))
    return (row.source, row.destination, *offsets, *map(str, counts), *map(str, findings), *row.checksums)


def _offsets(offsets: tuple[int, int] | None) -> str:
    return "-" if offsets is None else f"{offsets[0]}..{offsets[1]}"


def differences(rows: Sequence[Comparison]) -> list[str]:
    """Return a sentence for each kind of difference of each row, with the first record that it concerns."""
    return [sentence for row in rows for sentence in _sentences(row)]


def _sentences(row: Comparison) -> list[str]:
    found = [
        (
            row.lost,
            row.first_lost,
            "{destination} lacks {n} of {source}, the first at {at} of the source",
        ),
        (
            row.behind,
            row.first_behind,
            "{destination} does not have {n} at the end of {source} yet, the first at {at} of the source. If the "
            "mirror has stopped, they are lost",
        ),
        (
            row.extra,
            row.first_extra,
            "{destination} has {n} that {source} lacks, the first at {at} of the destination. Another producer has "
            "written them, or the source has deleted its own",
        ),
        (
            row.disordered,
            row.first_disordered,
            "{destination} has {n} of {source} too early, the first is at {at} of the source",
        ),
        (
            row.retimed,
            row.first_retimed,
            "{destination} has {n} of {source} with another timestamp, the first is at {at} of the source",
        ),
    ]
    sentences = [
        text.format(n=counted(count, "record"), source=row.source, destination=row.destination, at=first)
        for count, first, text in found
        if count
    ]
    if not sentences and not row.is_equal:
        sentences = [f"the checksums of {row.source} and {row.destination} differ: {' and '.join(row.checksums)}"]
    return sentences
