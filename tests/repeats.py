"""Repeats in the sinks of a group (C1): at most the batch in flight per crash, lost session, undrained stop.

Every fault that a test brings about gives one query a licence: one batch of those that it may have had in flight then.
A record that two batches delivered is judged by the earlier of the two, since whoever reads it again plans it later:
that batch was *given up*, and needs a licence of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Delivered:
    """The records of one batch in a sink. `query` names the checkpoint; `planned` orders the batches of all queries."""

    query: str
    number: int
    planned: float
    values: tuple[str, ...]


@dataclass
class Licence:
    """One batch of `query`, numbered from `first` to `last`, may be delivered again by others."""

    query: str
    first: int
    last: int
    fault: str


class Planning(Protocol):
    """A query, as far as faults are concerned."""

    @property
    def planned(self) -> int:
        """How many batches it has planned, in all its runs."""
        ...


@dataclass
class Faults:
    """The acts of a test on its queries."""

    licences: list[Licence] = field(default_factory=list)

    @contextmanager
    def fault(self, what: str, **queries: Planning) -> Iterator[None]:
        """The block brings `what` over these queries, and ends when they are over it, or have ended.

        The batch in flight is the last one planned before, or, where that is committed yet, the next one: a member may
        plan it before it hears of the fault.
        """
        before = {name: query.planned for name, query in queries.items()}
        yield
        for name, query in queries.items():
            self.licences.append(Licence(name, max(0, before[name] - 1), max(0, query.planned - 1), what))

    def check(self, delivered: Iterable[Delivered]) -> int:
        """Fails for a record that is there twice without a licence; how many are there twice with one."""
        batches = list(delivered)
        for batch in batches:
            double = [value for value, count in Counter(batch.values).items() if count > 1]
            assert not double, f"batch {batch.number} of {batch.query} has {double[:3]} twice in itself"
        given_up = list(_given_up(batches))
        left = sorted(self.licences, key=lambda licence: licence.last)
        for batch, values in sorted(given_up, key=lambda found: (found[0].query, found[0].number)):
            licence = next((each for each in left if each.query == batch.query and _covers(each, batch.number)), None)
            assert licence is not None, (
                f"{len(values)} records of batch {batch.number} of {batch.query}, {values[:3]}, were delivered again "
                f"and nothing had happened to it: {self.licences}"
            )
            left.remove(licence)
        return sum(len(values) for _, values in given_up)


def _covers(licence: Licence, number: int) -> bool:
    return licence.first <= number <= licence.last


def _given_up(batches: Iterable[Delivered]) -> Iterator[tuple[Delivered, list[str]]]:
    """Batches with the records that a later one has delivered again."""
    last: dict[str, Delivered] = {}
    ordered = sorted(batches, key=lambda batch: batch.planned)
    for batch in ordered:
        last.update(dict.fromkeys(batch.values, batch))
    for batch in ordered:
        again = [value for value in batch.values if last[value] is not batch]
        if again:
            yield batch, again
