"""The purposes of a member's requests to ZooKeeper, and its timers."""

from __future__ import annotations

from enum import Enum


class Purpose(Enum):
    """The purpose of a look or a transaction, in words for the log."""

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


class Timer(Enum):
    """A timer of a member, in the order in which due ones are handled."""

    LEAVE = "leaving overdue"
    REJOIN = "release due"
    RETRY = "retry due"
    PARTIAL = "waited for owners"
    POKE = "poke due"
    HEARTBEAT = "heartbeat due"
