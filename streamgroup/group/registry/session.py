"""The session in ZooKeeper, as far as its member goes by it."""

from __future__ import annotations


class Session:
    """Whether the session is connected, how long it lasts, and since when the member has a lease (R9).

    `asked_ms` is the session timeout that the member asks for. Times are monotonic seconds.
    """

    __slots__ = ("_asked_ms", "_renewed_at", "connected", "proven", "timeout_ms")

    def __init__(self, asked_ms: int) -> None:
        self._asked_ms = asked_ms
        self.timeout_ms = asked_ms
        """The timeout that ZooKeeper grants, at most the one asked for."""
        self.connected = False
        self.proven = False
        """Whether the own node was seen since the connection was made, or made again."""
        self._renewed_at: float | None = None

    def began(self, timeout_ms: int) -> None:
        """Note a new session with this timeout."""
        self.connected, self.timeout_ms = True, min(self._asked_ms, timeout_ms)

    def suspended(self) -> None:
        """Note that the connection is lost."""
        self.connected = self.proven = False
        self._renewed_at = None

    def renew(self, sent_at: float) -> None:
        """Renew the lease by a transaction or a commit that was sent at this time and accepted."""
        self._renewed_at = max(sent_at, self._renewed_at or sent_at)

    def end_lease(self) -> None:
        """End the lease: the member leaves, or the query fails."""
        self._renewed_at = None

    def unregistered(self) -> None:
        """Note that the member's own node is gone."""
        self._renewed_at, self.proven = None, False

    @property
    def lease_at(self) -> float | None:
        """When the lease was last renewed; None without a lease.

        Callers count the session timeout that was asked for from this time. ZooKeeper may have granted a shorter one,
        so the difference is subtracted.
        """
        if self._renewed_at is None or not (self.connected and self.proven):
            return None
        return self._renewed_at - (self._asked_ms - self.timeout_ms) / 1000
