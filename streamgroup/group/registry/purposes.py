"""The purposes of a member's requests to ZooKeeper, its timers, and the backoff of the rebalances that it forces."""

from __future__ import annotations

from enum import Enum


class RegistryPurpose(Enum):
    """The purpose of a `ReadSubtrees` or a `Transact`, in words for the log."""

    REGISTER = "register"
    RENEW = "register anew"
    """The same id with another subscription, or to make all others look again (R33)."""
    IDENTIFY = "tell who it is"
    SWEEP = "delete what it was registered as before"
    LOOK = "look at the group"
    RELEASE = "give partitions up"
    CLAIM = "claim partitions"
    CONFIRM = "look at the owners"
    HEARTBEAT = "prove that it is registered"
    NEIGHBOURS = "look at what others own"
    LEAVE = "leave"

    def __str__(self) -> str:
        return self.value


class RegistryTimer(Enum):
    """A timer of a member, in the order in which due ones are handled."""

    LEAVE = "leaving overdue"
    REJOIN = "release due"
    RETRY = "retry due"
    PARTIAL = "waited for owners"
    FORCE_REBALANCE = "rebalance to force"
    HEARTBEAT = "heartbeat due"


FORCED_REBALANCE_AFTER_S = 10.0
"""A consumer of another make that has not claimed its partitions by then has given up."""
FORCED_REBALANCE_MAX_S = 160.0
"""A rebalance stops all consumers for a moment. So where forcing one does not help, the member forces them ever more
rarely."""


class ForcedRebalanceBackoff:
    """The waits between forced rebalances: they double with each one, until the group's consumers change (R33).

    To force a rebalance the member deletes and creates its own id node in one transaction. All consumers of the group
    watch the id nodes, so they claim their partitions again.
    """

    __slots__ = ("wait_s",)

    def __init__(self) -> None:
        self.wait_s = FORCED_REBALANCE_AFTER_S
        """The seconds until the next forced rebalance."""

    def add(self) -> None:
        """Count a forced rebalance: the next one waits twice as long, FORCED_REBALANCE_MAX_S at most."""
        self.wait_s = min(2 * self.wait_s, FORCED_REBALANCE_MAX_S)

    def reset(self) -> None:
        """Begin anew: the group has other consumers."""
        self.wait_s = FORCED_REBALANCE_AFTER_S
