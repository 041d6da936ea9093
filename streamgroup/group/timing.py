"""The configuration of a group member: group, strategies and timeouts.

Values are seconds, except where a name ends with `_ms`.
"""

from __future__ import annotations

from streamgroup.advice import UNKNOWN, Requester
from streamgroup.backoff import Random, backoff_s
from streamgroup.errors import ConfigError
from streamgroup.frozen import frozen
from streamgroup.group.assignors import ASSIGNORS, COOPERATIVE

JOIN_GRACE_MS = 5_000
"""The client waits this much longer for JoinGroup than the broker waits for the members (R10, as in Java's client)."""

LEAVE_TIMEOUT_MS = 1_000
"""LeaveGroup may take one second (R29). Without an answer the session expires."""

DEFAULT_SESSION_TIMEOUT_MS = 45_000
V0_SESSION_TIMEOUT_MS = 30_000
"""Brokers with JoinGroup v0 (0.9, 0.10.0) refuse today's default (R26). Their group.max.session.timeout.ms is this."""


@frozen
class MemberConfig:
    """The options of a member, with Kafka's names and defaults, as in `GroupOptions` and `ClientOptions`."""

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
    weight: int = 1
    """`group.member.weight`, for the log. The leader reads it from the user data."""
    remote_assignor: str | None = None
    """`group.remote.assignor`: the group coordinator's assignor under the consumer protocol. None: its default."""
    dead_member_s: float = 60.0
    """How long a dead member may stay in the group. Under the consumer protocol the broker sets the session timeout."""
    requester: Requester = UNKNOWN
    """The user to name in authorization errors."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.strategies if name not in ASSIGNORS]
        if unknown or not self.strategies:
            raise ConfigError(
                f"group {self.group_id}: unknown assignment strategy {', '.join(unknown) or '(none given)'}: "
                f"expected {', '.join(ASSIGNORS)}"
            )

    @property
    def cooperative(self) -> bool:
        """Whether batches continue during a rebalance: every strategy offered is cooperative, as in Java (R25)."""
        return COOPERATIVE.issuperset(self.strategies)

    def session_timeout_for(self, join_version: int) -> int:
        """Return the session timeout (ms) that a JoinGroup of this version requests (R26)."""
        if join_version == 0 and self.session_timeout_ms == DEFAULT_SESSION_TIMEOUT_MS:
            return V0_SESSION_TIMEOUT_MS
        return self.session_timeout_ms

    @property
    def shortest_session_ms(self) -> int:
        """The shortest session (ms) that any broker grants, so that a lease (R9) is valid with every broker."""
        return min(self.session_timeout_ms, self.session_timeout_for(0))

    def rebalance_timeout_for(self, join_version: int) -> int:
        """Return how long (ms) the broker waits for a member to rejoin. v0 has only the session timeout (R26)."""
        return self.session_timeout_for(0) if join_version == 0 else self.max_poll_interval_ms

    def heartbeat_interval_s(self, session_timeout_ms: int) -> float:
        """Return the configured interval in seconds, at most a third of the session timeout."""
        return min(self.heartbeat_interval_ms, session_timeout_ms / 3) / 1000

    def heartbeat_timeout_ms(self, session_timeout_ms: int) -> int:
        """Return the timeout (ms) of a heartbeat; later the connection to the group coordinator counts as lost."""
        return min(session_timeout_ms, self.request_timeout_ms)

    @property
    def join_timeout_ms(self) -> int:
        """The timeout (ms) of JoinGroup and SyncGroup, which wait for the other members (R10)."""
        return max(self.max_poll_interval_ms + JOIN_GRACE_MS, self.request_timeout_ms)

    def backoff_s(self, attempt: int, random: Random) -> float:
        """Return the backoff before attempt `attempt`, where 1 is the first retry (KIP-580)."""
        return backoff_s(attempt, self.retry_backoff_ms, self.retry_backoff_max_ms, random)
