"""Decides how long a member that must rejoin waits for its batch to complete (R21, R22).

Times are `time.monotonic()`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from streamgroup.group.events import JoinCause

FOREIGN_TIMEOUT_S = 5.0
"""R33: a consumer of another client tries 4 times in 8 s to claim its partitions, and then owns none."""
_REJOIN_MARGIN_S = 5.0
_LENGTHS = 10
"""The number of recent batches by which the length of the next one is estimated (R22)."""


def rejoin_timeout_s(max_poll_s: float) -> float:
    """Return the longest wait of a member for its batch, a little shorter than the group's rebalance timeout."""
    return max_poll_s - min(_REJOIN_MARGIN_S, max_poll_s / 10)


def rejoin_due(
    rejoin_asked_at: float,
    asked_at: float | None,
    longest_batch_s: float | None,
    rebalance_wait_s: float,
    max_poll_s: float,
    *,
    listened: bool = False,
) -> float:
    """Return when a member that must rejoin since `rejoin_asked_at` stops waiting for its batch (R22).

    With a listener (`listened`) the member waits as long as the group does, `max_poll_s` from `rejoin_asked_at`. The
    listener reports a completed batch immediately, so a batch that it has not reported is still running. The same
    applies to start positions, whose commit the broker acknowledges.

    Without a listener the tasks have presumably ended one longest batch after `asked_at`, when Spark called
    `partitions`. From then, or from `rejoin_asked_at` if that is later, the member waits `rebalance_wait_s` for Spark's
    next call. If `asked_at` or the length of an earlier batch is unknown, it waits as long as the group does.
    """
    latest = rejoin_asked_at + rejoin_timeout_s(max_poll_s)
    if listened or asked_at is None or longest_batch_s is None:
        return latest
    return min(max(asked_at + longest_batch_s, rejoin_asked_at) + rebalance_wait_s, latest)


class BatchTimes:
    """Tracks whether a batch is in flight, when its tasks started, and how long recent batches took (R21, R22).

    Without a listener a batch ends when Spark requests the next one, so each length includes the wait for the next
    trigger. The wait is not subtracted: too short an estimate would repeat batches. Only the last ten lengths count,
    because the first batch of a query may read a large backlog.
    """

    __slots__ = ("_lengths_s", "asked_at", "listened", "planned_at")

    def __init__(self) -> None:
        self.planned_at: float | None = None
        self.asked_at: float | None = None
        self.listened = False
        """Whether a listener will report when the batch in flight is completed, as known when its tasks started."""
        self._lengths_s: deque[float] = deque(maxlen=_LENGTHS)

    @property
    def in_flight(self) -> bool:
        """Whether a document with ranges was passed to Spark that is not yet completed and committed."""
        return self.planned_at is not None

    @property
    def longest_s(self) -> float | None:
        """The longest recent batch, from the start of its tasks to its completion; None before the first."""
        return max(self._lengths_s, default=None)

    def flying_s(self, now: float) -> float:
        """Return how long the batch has been in flight; 0 if there is none."""
        return 0.0 if self.planned_at is None else now - self.planned_at

    def planned(self, now: float) -> None:
        """Record that a document with ranges was passed to Spark."""
        self.planned_at, self.asked_at = now, None

    def asked(self, now: float, *, listened: bool = False) -> None:
        """Record that Spark called `partitions` for the batch.

        Spark may call it again: the first time counts. A replay begins with this call.
        """
        if self.planned_at is None:
            self.planned_at = now
        if self.asked_at is None:
            self.asked_at = now
        self.listened = listened

    def idle(self, now: float) -> None:
        """Record that the batch is completed and committed."""
        if self.asked_at is not None:
            self._lengths_s.append(now - self.asked_at)
        self.planned_at = self.asked_at = None


class RejoinWait:
    """Records why and since when the member must rejoin, and what the rejoin waits for."""

    __slots__ = ("_cooperative", "_rebalance_wait_ms", "batch", "cause", "reason", "settles", "settling", "since")

    def __init__(self, rebalance_wait_ms: int, *, cooperative: bool) -> None:
        self._rebalance_wait_ms = rebalance_wait_ms
        self._cooperative = cooperative
        self.batch = BatchTimes()
        self.reason: str | None = None
        """Why the member has to rejoin at the next boundary of a batch; None if it does not."""
        self.cause = JoinCause.GROUP
        """The kind of that reason."""
        self.since = 0.0
        self.settles = False
        """Whether `Settled` follows each assignment that brings new partitions."""
        self.settling = False
        """Whether the starting positions of the last assignment are not yet found and committed."""

    @property
    def awaited(self) -> str | None:
        """What a rejoin waits for, in words; None if the member can rejoin now.

        If a member rejoined before its starting positions are committed, the next owner of the partitions would have to
        determine them. It did not found the group, so it would start at the earliest offset (R7), not at
        startingOffsets. A cooperative member continues its batch during the rebalance, so it need not wait (R25).
        """
        if self.batch.in_flight and not self._cooperative:
            return "the batch in flight is completed"
        return "the positions of the partitions gained are committed" if self.settling else None

    def begin(self, reason: str, cause: JoinCause, now: float) -> None:
        self.reason, self.cause, self.since = reason, cause, now

    def end(self) -> None:
        """End the wait: the member rejoins, or has lost its membership."""
        self.reason, self.cause, self.settling = None, JoinCause.GROUP, False

    @property
    def why(self) -> tuple[str, JoinCause]:
        """The reason for a rejoin and its kind, from `begin`; the default is that the group rebalances."""
        return self.reason or "the group rebalances", self.cause

    def due(self, max_poll_ms: int, *, foreign: bool = False) -> float:
        """Return when the wait ends. `foreign`: a consumer of another client waits for partitions (R33)."""
        batch, wait_s = self.batch, self._rebalance_wait_ms / 1000
        is_reported = batch.listened or self.settling
        due = rejoin_due(self.since, batch.asked_at, batch.longest_s, wait_s, max_poll_ms / 1000, listened=is_reported)
        return min(due, self.since + FOREIGN_TIMEOUT_S) if foreign else due

    def waited_s(self, now: float) -> float:
        return now - self.since

    def has_outlasted_the_group(self, now: float, max_poll_ms: int) -> bool:
        return self.waited_s(now) >= rejoin_timeout_s(max_poll_ms / 1000)

    def gave_up(self, now: float, max_poll_ms: int, foreign: Sequence[str] = ()) -> str:
        """Return the message that the member stops waiting for its batch.

        `foreign` are the consumers of another client in the group (R33).
        """
        flying_s, waited_s = self.batch.flying_s(now), self.waited_s(now)
        if foreign and not self.has_outlasted_the_group(now, max_poll_ms):
            return _FOREIGN.format(flying=flying_s, waited=waited_s, who=foreign[0])
        return gave_up_waiting(flying_s, waited_s, max_poll_ms, self._rebalance_wait_ms)

    def left_unsettled(self, generation: int, now: float) -> str:
        """Return the message that the member rejoins before its starting positions are committed."""
        return (
            f"cannot commit the start offsets of the partitions assigned in generation {generation} before the group "
            f"rebalances: they were not found or not committed within {self.waited_s(now):.0f} s, and the group does "
            f"not wait longer. The next owner may start at the earliest offset. Check for partitions without a "
            f"leader, and for a group coordinator that does not respond"
        )


def gave_up_waiting(flying_s: float, waited_s: float, rebalance_ms: int, rebalance_wait_ms: int) -> str:
    """Return why the member stops waiting for its batch, the consequence, and the next step."""
    batch = f"the batch in flight, planned {flying_s:.0f} s ago, is not confirmed"
    follows = "other members may get its partitions and read it again: up to one batch may be repeated"
    if waited_s >= rejoin_timeout_s(rebalance_ms / 1000):
        return (
            f"{batch}, and the group waits no longer than max.poll.interval.ms={rebalance_ms} for it: {follows}. "
            "Raise kafka.max.poll.interval.ms above what the longest batch takes, or lower maxOffsetsPerTrigger"
        )
    return (
        f"{batch}, and its tasks are presumably done. A rejoin was requested {waited_s:.0f} s ago, and this "
        f"member waits no longer: {follows}. Shorten the trigger's interval, or raise group.rebalanceWait, now "
        f"{rebalance_wait_ms} ms"
    )


_FOREIGN = (
    "the batch in flight, planned {flying:.0f} s ago, is not confirmed, and {who}, a consumer of another client, "
    "waits for its partitions. That consumer would give up after 8 s and own none, so this member releases them "
    "after {waited:.0f} s. Other members may read that batch again: up to one batch may be repeated. Lower "
    "maxOffsetsPerTrigger to make batches shorter than 5 s, for as long as such consumers are in the group"
)
