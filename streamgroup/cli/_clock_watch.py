"""Compare the brokers' clocks with this machine's, from the timestamps in `__consumer_offsets`. Pure.

No request asks a broker for its time. The leader of a partition of `__consumer_offsets` stamps each record with its own
clock, and ListOffsets returns the newest timestamp (KIP-734). Two facts follow for skew, the broker's clock minus this
machine's:

- A record was stamped before the response that shows it arrived: skew >= timestamp - received.
- A record that appears between two requests was stamped after the first one was sent, or while it was being appended:
  skew <= timestamp - sent + APPEND_MS.

The first fact detects a clock that is ahead, also from old records. Only both together measure a clock, and detect one
that is behind, and for that a group must commit during the watch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamgroup.cli._findings import CheckVerdict, Finding
from streamgroup.model import TopicPartition

APPEND_MS = 1_000
"""The time allowed from a record's timestamp until ListOffsets shows it: it is written, and replicated, in between."""
TOLERANCE_MS = 1_000
"""Clocks that NTP synchronizes differ by less."""
_SYNCHRONIZE = "Synchronize the clocks of both machines (NTP)"


@dataclass(frozen=True, slots=True)
class Skew:
    """The bounds of a broker's clock minus this machine's, in milliseconds. `at_most` is None for old records."""

    at_least: int
    at_most: int | None = None

    def intersect(self, other: Skew) -> Skew:
        """Return the bounds that hold where those of both do."""
        uppers = [upper for upper in (self.at_most, other.at_most) if upper is not None]
        return Skew(max(self.at_least, other.at_least), min(uppers, default=None))


class ClockWatch:
    """The clocks of the leaders of `__consumer_offsets`, as successive looks at the newest timestamps show them."""

    def __init__(self) -> None:
        self._seen: dict[TopicPartition, tuple[int, int]] = {}
        """The newest timestamp of each partition, and when the last request was sent whose response showed it."""
        self._old: dict[int, Skew] = {}
        self._new: dict[int, Skew] = {}

    def see(
        self, newest: Mapping[TopicPartition, int], leaders: Mapping[TopicPartition, int], *, sent: int, received: int
    ) -> None:
        """Take one look: the newest timestamp of each partition, -1 for none, and the broker that leads it.

        `sent` and `received` are this machine's milliseconds since 1970. The first record that a partition shows may be
        old: the earlier looks may have come before its replication. So it is not a record of the watch.
        """
        for tp, timestamp in newest.items():
            node = leaders.get(tp)
            if timestamp < 0 or node is None:
                continue
            before = self._seen.get(tp)
            if before is not None and timestamp < before[0]:
                continue  # the newest record is gone or not replicated: the next looks show more
            self._seen[tp] = timestamp, sent
            lower = timestamp - received
            if before is None:
                _narrow(self._old, node, Skew(lower))
            elif timestamp > before[0]:
                _narrow(self._new, node, Skew(lower, timestamp - before[1] + APPEND_MS))

    def has_measured(self, nodes: Iterable[int]) -> bool:
        """Return whether each of `nodes` has stamped a record during the watch."""
        return all(node in self._new for node in nodes)

    def finding(self, node: int, watched_s: float) -> Finding:
        """Return the finding about the clock of one broker after a watch of `watched_s` seconds."""
        subject = f"clock of broker {node}"
        new = self._new.get(node)
        if new is not None and new.at_most is not None:
            return Finding(subject, *_measured(new.at_least, new.at_most))
        old = self._old.get(node)
        if old is not None and old.at_least > TOLERANCE_MS:
            text = (
                f"ahead now or earlier: a record of __consumer_offsets that this broker or an earlier leader has "
                f"stamped is {_seconds(old.at_least)} s from this machine's time. {_SYNCHRONIZE}"
            )
            return Finding(subject, CheckVerdict.WARN, text)
        text = f"not measured: no group has committed at this broker within {watched_s:.0f} s. Check while one commits"
        return Finding(subject, CheckVerdict.OK, text)


def _narrow(bounds: dict[int, Skew], node: int, more: Skew) -> None:
    bounds[node] = bounds[node].intersect(more) if node in bounds else more


def _measured(at_least: int, at_most: int) -> tuple[CheckVerdict, str]:
    between = f"{_seconds(at_least)} to {_seconds(at_most)} s from this machine's, by commits during the check"
    if at_least > TOLERANCE_MS:
        return CheckVerdict.WARN, f"ahead: {between}. {_SYNCHRONIZE}"
    if at_most < -TOLERANCE_MS:
        return CheckVerdict.WARN, f"behind: {between}. {_SYNCHRONIZE}"
    return CheckVerdict.OK, between


def _seconds(ms: int) -> str:
    return f"{ms / 1000:+.1f}"
