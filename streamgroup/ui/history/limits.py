"""The bounds of the history, so that the memory of a page that runs for weeks stays flat (docs/ui.md)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that is kept: samples of a series, offsets of all series, and of each group marks and the like."""

    samples: int = 720
    """Samples of a series: an hour, at one every 5 s."""
    offsets: int = 4_000_000
    """Offsets of all groups together: groups x partitions x samples x 2, of 8 bytes each."""
    assignments: int = 100
    """Assignments that the timeline of a group goes back."""
    owners: int = 4_000_000
    """Entries of all these assignments together: groups x partitions x assignments."""
    marks: int = 200
    batches: int = 200
    """Batches of one run of a query."""
    runs: int = 32
    """Runs of a group, on this machine, whose batches are kept."""
    errors: int = 50

    def samples_for(self, partitions: int) -> int:
        """Return how many samples each series keeps where all groups together have `partitions`.

        It is halved until all series fit, so that it seldom changes: each change copies the series.
        """
        return _halved(self.samples, 2 * partitions, self.offsets)

    def assignments_for(self, partitions: int) -> int:
        """Return how many assignments the timeline of each group keeps."""
        return _halved(self.assignments, partitions, self.owners)


def _halved(wanted: int, each: int, most: int) -> int:
    while wanted > 2 and wanted * each > most:
        wanted //= 2
    return wanted
