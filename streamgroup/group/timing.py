"""The times of membership: what is configured, and when things are due. Seconds, except where a name says ms."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from streamgroup.errors import ConfigError
from streamgroup.group.assignors import ASSIGNORS, COOPERATIVE

JOIN_GRACE_MS = 5_000
"""A JoinGroup waits this much longer than the broker waits for the members (R10, as the Java client does)."""

LEAVE_TIMEOUT_MS = 1_000
"""R29: leaving takes a second at most; unanswered, the session expires."""

DEFAULT_SESSION_TIMEOUT_MS = 45_000
V0_SESSION_TIMEOUT_MS = 30_000
"""R26: brokers of JoinGroup v0 (0.9, 0.10.0) refuse today's default; this is their group.max.session.timeout.ms."""

_JITTER = 0.2
_REJOIN_MARGIN_S = 5.0
_LENGTHS = 10
"""So many batches tell how long the next may take (R22)."""


class Random(Protocol):
    """Where jitter comes from; `random.Random` is one."""

    def random(self) -> float:
        """The next number in [0, 1)."""
        ...


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """How this member takes part. Kafka's names and defaults (`GroupOptions` and `ClientOptions` say the same)."""

    group_id: str
    instance_id: str | None = None
    session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    rebalance_wait_ms: int = 30_000
    strategies: tuple[str, ...] = ("streamgroup-range", "range", "roundrobin")
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000

    def __post_init__(self) -> None:
        unknown = [name for name in self.strategies if name not in ASSIGNORS]
        if unknown or not self.strategies:
            raise ConfigError(
                f"group {self.group_id}: no such assignment strategy: {', '.join(unknown) or '(none given)'}; "
                f"there are {', '.join(ASSIGNORS)}"
            )

    @property
    def cooperative(self) -> bool:
        """R25: batches go on through a rebalance only if every strategy offered is cooperative, as in Java."""
        return COOPERATIVE.issuperset(self.strategies)

    def session_timeout_for(self, join_version: int) -> int:
        """The session timeout (ms) that a JoinGroup of this version asks for (R26)."""
        if join_version == 0 and self.session_timeout_ms == DEFAULT_SESSION_TIMEOUT_MS:
            return V0_SESSION_TIMEOUT_MS
        return self.session_timeout_ms

    @property
    def shortest_session_ms(self) -> int:
        """The shortest session that any broker gives this member: a lease (R9) holds whichever it is."""
        return min(self.session_timeout_ms, self.session_timeout_for(0))

    def rebalance_timeout_for(self, join_version: int) -> int:
        """How long (ms) the broker waits for a member to rejoin: v0 has only the session timeout (R26)."""
        return self.session_timeout_for(0) if join_version == 0 else self.max_poll_interval_ms

    def heartbeat_interval_s(self, session_timeout_ms: int) -> float:
        """Kafka's interval, but at least three heartbeats fit into a session."""
        return min(self.heartbeat_interval_ms, session_timeout_ms / 3) / 1000

    def heartbeat_timeout_ms(self, session_timeout_ms: int) -> int:
        """After this an unanswered heartbeat means that the coordinator's connection is no more."""
        return min(session_timeout_ms, self.request_timeout_ms)

    @property
    def join_timeout_ms(self) -> int:
        """The deadline of JoinGroup and SyncGroup, which wait for the other members (R10)."""
        return max(self.max_poll_interval_ms + JOIN_GRACE_MS, self.request_timeout_ms)

    def backoff_s(self, attempt: int, random: Random) -> float:
        """The wait before attempt `attempt` (1 is the first repetition): exponential, with jitter (KIP-580)."""
        wait = min(self.retry_backoff_ms * 2.0 ** min(attempt - 1, 32), self.retry_backoff_max_ms) / 1000
        return wait * (1 - _JITTER + 2 * _JITTER * random.random())


def rejoin_due(
    told_at: float,
    asked_at: float | None,
    longest_batch_s: float | None,
    rebalance_wait_s: float,
    max_poll_s: float,
    *,
    listened: bool = False,
) -> float:
    """Return when a member that was told to rejoin at `told_at` stops waiting for its batch (R22).

    With a listener (`listened`) the member waits as long as the group does, `max_poll_s` from `told_at`: the listener
    tells at once that the batch has sunk, so a batch that it has not told of still runs. The same goes for starting
    positions, whose commit the broker answers.

    Without one the tasks are presumably done one longest batch after `asked_at`, and the member waits for Spark's next
    call `rebalance_wait_s` from then, or from `told_at` where the tasks should have been done before. That needs a
    batch in flight whose tasks were asked for, and the length of an earlier one.
    """
    latest = told_at + rejoin_timeout_s(max_poll_s)
    if listened or asked_at is None or longest_batch_s is None:
        return latest
    return min(max(asked_at + longest_batch_s, told_at) + rebalance_wait_s, latest)


def rejoin_timeout_s(max_poll_s: float) -> float:
    """How long a member that was told to rejoin waits for its batch at most: a little less than the group waits."""
    return max_poll_s - min(_REJOIN_MARGIN_S, max_poll_s / 10)


def gave_up_waiting(flying_s: float, waited_s: float, rebalance_ms: int, rebalance_wait_ms: int) -> str:
    """What a user is told when a batch is waited for no longer: why, what follows, and what to do about it."""
    batch = f"the batch in flight, planned {flying_s:.0f} s ago, is not proven sunk"
    follows = "other members may get its partitions and read it again: up to one batch may be repeated (R22)"
    if waited_s >= rejoin_timeout_s(rebalance_ms / 1000):
        return (
            f"{batch}, and the group waits no longer than max.poll.interval.ms={rebalance_ms} for it: {follows}. "
            "Raise kafka.max.poll.interval.ms above what the longest batch takes, or lower maxOffsetsPerTrigger"
        )
    return (
        f"{batch}, and its tasks are presumably done: this member was told to rejoin {waited_s:.0f} s ago and waits no "
        f"longer: {follows}. Shorten the trigger's interval, or raise group.rebalanceWait, now {rebalance_wait_ms} ms"
    )


def left_unsettled(generation: int, waited_s: float) -> str:
    """What a user is told when a member rejoins before its starting positions are committed."""
    return (
        f"cannot commit where the partitions gained in generation {generation} start before the group rebalances: "
        f"their offsets are not found or not committed after {waited_s:.0f} s, and the group waits no longer. Their "
        "next owner may start at their earliest offset (R7). Look for partitions without a leader, and for a "
        "coordinator that does not answer"
    )


class BatchClock:
    """Whether a batch is in flight, since when its tasks run, and how long the longest took of late (R21, R22).

    Without a listener the end of a batch is its proof, so each length has the wait for the next trigger in it: nothing
    here tells the two apart, and too short an estimate would repeat batches. Only the last ten count: else the first
    batch of a query, which reads a backlog, would stand for all later ones.
    """

    __slots__ = ("_lengths_s", "asked_at", "listened", "planned_at")

    def __init__(self) -> None:
        self.planned_at: float | None = None
        self.asked_at: float | None = None
        self.listened = False
        """Whether a listener tells when the batch in flight has sunk, as far as was known when its tasks began."""
        self._lengths_s: deque[float] = deque(maxlen=_LENGTHS)

    @property
    def in_flight(self) -> bool:
        """Whether a document with ranges was emitted, or met, that is not proven sunk and committed."""
        return self.planned_at is not None

    @property
    def longest_s(self) -> float | None:
        """The longest of late, from asked to proven; None before the first."""
        return max(self._lengths_s, default=None)

    def flying_s(self, now: float) -> float:
        """For how long the batch has been in flight; 0 where there is none."""
        return 0.0 if self.planned_at is None else now - self.planned_at

    def planned(self, now: float) -> None:
        """A document with ranges was emitted."""
        self.planned_at, self.asked_at = now, None

    def asked(self, now: float, *, listened: bool = False) -> None:
        """Its partitions were asked; Spark may ask again, the first time counts. A replay begins here."""
        if self.planned_at is None:
            self.planned_at = now
        if self.asked_at is None:
            self.asked_at = now
        self.listened = listened

    def idle(self, now: float) -> None:
        """It is proven sunk and committed."""
        if self.asked_at is not None:
            self._lengths_s.append(now - self.asked_at)
        self.planned_at = self.asked_at = None
