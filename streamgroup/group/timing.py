"""The configuration of a member: how it takes part in its group, and its timeouts.

Values are seconds, except where a name says ms.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamgroup.advice import UNKNOWN, Requester
from streamgroup.backoff import Random, backoff_s
from streamgroup.errors import ConfigError
from streamgroup.group.assignors import ASSIGNORS, COOPERATIVE

JOIN_GRACE_MS = 5_000
"""JoinGroup waits this much longer than the broker waits for the members (R10, as in the Java client)."""

LEAVE_TIMEOUT_MS = 1_000
"""LeaveGroup takes a second at most (R29). Without an answer the session expires."""

DEFAULT_SESSION_TIMEOUT_MS = 45_000
V0_SESSION_TIMEOUT_MS = 30_000
"""Brokers of JoinGroup v0 (0.9, 0.10.0) refuse today's default (R26). This is their group.max.session.timeout.ms."""


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """How this member takes part, in Kafka's names and with its defaults, as in `GroupOptions` and `ClientOptions`."""

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
    requester: Requester = UNKNOWN
    """The user whom refusals of the authorizer are about."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.strategies if name not in ASSIGNORS]
        if unknown or not self.strategies:
            raise ConfigError(
                f"group {self.group_id}: no such assignment strategy: {', '.join(unknown) or '(none given)'}; "
                f"there are {', '.join(ASSIGNORS)}"
            )

    @property
    def cooperative(self) -> bool:
        """Whether batches go on through a rebalance: every strategy offered is cooperative, as in Java (R25)."""
        return COOPERATIVE.issuperset(self.strategies)

    def session_timeout_for(self, join_version: int) -> int:
        """Return the session timeout (ms) that a JoinGroup of this version asks for (R26)."""
        if join_version == 0 and self.session_timeout_ms == DEFAULT_SESSION_TIMEOUT_MS:
            return V0_SESSION_TIMEOUT_MS
        return self.session_timeout_ms

    @property
    def shortest_session_ms(self) -> int:
        """The shortest session (ms) that any broker gives this member, so that a lease (R9) holds with every broker."""
        return min(self.session_timeout_ms, self.session_timeout_for(0))

    def rebalance_timeout_for(self, join_version: int) -> int:
        """Return how long (ms) the broker waits for a member to rejoin. v0 has only the session timeout (R26)."""
        return self.session_timeout_for(0) if join_version == 0 else self.max_poll_interval_ms

    def heartbeat_interval_s(self, session_timeout_ms: int) -> float:
        """Return Kafka's interval, or a third of the session where that is shorter."""
        return min(self.heartbeat_interval_ms, session_timeout_ms / 3) / 1000

    def heartbeat_timeout_ms(self, session_timeout_ms: int) -> int:
        """Return after how long (ms) an unanswered heartbeat means that the connection to the coordinator is lost."""
        return min(session_timeout_ms, self.request_timeout_ms)

    @property
    def join_timeout_ms(self) -> int:
        """The timeout (ms) of JoinGroup and SyncGroup, which wait for the other members (R10)."""
        return max(self.max_poll_interval_ms + JOIN_GRACE_MS, self.request_timeout_ms)

    def backoff_s(self, attempt: int, random: Random) -> float:
        """Return the backoff before attempt `attempt`, where 1 is the first repetition (KIP-580)."""
        return backoff_s(attempt, self.retry_backoff_ms, self.retry_backoff_max_ms, random)
