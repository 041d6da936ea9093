"""The producer id and its epochs: asked for, raised, given up."""

from __future__ import annotations

from streamgroup.producer.batch import NO_IDENTITY, ProducerIdentity

_LAST_EPOCH = 2**15 - 1


class IdentitySource:
    """The newest identity of a producer, and the request for one. Times are seconds on the caller's clock."""

    def __init__(self) -> None:
        self.current = NO_IDENTITY
        """The newest identity, NO_IDENTITY without one. A partition may still use an earlier one."""
        self.reason = ""
        """Why the last request failed."""
        self.attempts = 0
        """Failed requests since the last success."""
        self.pending = False
        self.retry_at = float("-inf")
        self._fenced = False

    def take_due(self, now: float) -> bool:
        """Return whether to ask for an id now. The request is then pending."""
        due = not self.pending and now >= self.retry_at
        self.pending |= due
        return due

    def given(self, identity: ProducerIdentity) -> None:
        """Take the identity of the answer."""
        self.current, self.pending, self._fenced = identity, False, False
        self.attempts, self.reason = 0, ""

    def refused(self, reason: str) -> None:
        """Note a request without an id."""
        self.pending, self.reason = False, f"no producer id: {reason}"
        self.attempts += 1

    def fenced(self, identity: ProducerIdentity) -> None:
        """Note that another producer uses this id."""
        self._fenced |= identity.producer_id == self.current.producer_id

    def retire(self, used: ProducerIdentity) -> bool:
        """Make sure that no partition gets the identity `used` from now on. Return False if that needs a new id.

        A producer without transactional id raises its epoch by itself, as in Java: brokers accept a higher epoch at
        sequence 0, and refuse late requests of lower ones. InitProducerId would give it a new id (KIP-360).
        """
        if self.current != used:
            return True
        if used.epoch == _LAST_EPOCH:
            return False
        self.current = used._replace(epoch=used.epoch + 1)
        return True

    def renew(self, used: ProducerIdentity) -> bool:
        """Make the current identity another than `used`. Return False if a new id has to be asked for."""
        if self._fenced or not self.retire(used):
            self.current, self.retry_at = NO_IDENTITY, float("-inf")
            return False
        return True
