"""A metric with its samples, in the data model of Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Labels = Mapping[str, str]


class MetricKind(StrEnum):
    """The types of metrics, by the names that Prometheus has for them."""

    GAUGE = "gauge"
    COUNTER = "counter"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Sample:
    """One time series of a family. `count` is that of a summary, whose `value` is the sum.

    `labels` are the values of the family's labels, in their order.
    """

    labels: tuple[str, ...]
    value: float
    count: int = 0


@dataclass(slots=True)
class Family:
    """All samples of one metric. Each has all of the labels `labels`, where it is not given one an empty one.

    The name of a counter ends in `_total`. No two samples have the same labels: Prometheus would refuse them.
    """

    name: str
    kind: MetricKind
    doc: str
    labels: tuple[str, ...]
    _samples: dict[tuple[str, ...], Sample] = field(default_factory=dict)

    def add(self, labels: Labels, value: float, count: int = 0) -> None:
        """Add a sample, or replace the one with the same labels."""
        values = tuple(labels.get(name, "") for name in self.labels)
        self._samples[values] = Sample(values, value, count)

    @property
    def samples(self) -> list[Sample]:
        """Return the samples in the order in which they came."""
        return list(self._samples.values())
