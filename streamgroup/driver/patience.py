"""How long `latestOffset` waits until a plan may be made: R9, R10 and R11."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection

from streamgroup.driver.beginning import Beginning
from streamgroup.errors import TransportError
from streamgroup.group.member import Member
from streamgroup.model import TopicPartition
from streamgroup.options.types import GroupOptions
from streamgroup.planning import suspicions

PATIENCE_S = 0.5
"""R9: a commit is one round trip; `latest_offset` waits for it this long, then returns `start`."""
FIRST_PATIENCE_S = 1.0
"""R10: the first call waits this long for the first assignment, so that batch 0 is not empty; AvailableNow each."""
AGAIN_S = 0.1
"""Seconds between two looks, within one call of Once or AvailableNow, at what the brokers have not answered yet."""
SOLO_GRACE_S = 2.0
"""Who is alone waits this much longer than it has patience with members in its group: it then says so itself."""


class Patience:
    """See the module. Used by Spark's thread, with the lock `state` held.

    `is_clear` tells whether anything but the member speaks against planning, `is_over` whether there is nothing left to
    wait for: the run has failed or is leaving; `patience_s` how long brokers have to tell what they are asked.
    """

    def __init__(
        self,
        group: GroupOptions,
        state: threading.Condition,
        member: Member,
        beginning: Beginning,
        *,
        is_clear: Callable[[], bool],
        is_over: Callable[[], bool],
        patience_s: float,
    ) -> None:
        self._group = group
        self._state = state
        self._member = member
        self._beginning = beginning
        self._is_clear = is_clear
        self._is_over = is_over
        self._patience_s = patience_s
        self._has_waited = self._has_planned = False
        self._unanswered_since: dict[TopicPartition, float] = {}
        self._longest_s = group.join_timeout_ms / 1000 + (0.0 if group.is_member else SOLO_GRACE_S)

    def until_plannable(self, *, once: bool, ends: bool) -> bool:
        """Wait until a plan may be made, as long as the trigger lets: `ends` under AvailableNow.

        False where none may be made now. Raises TransportError under the triggers that end, where none could be made
        within `group.joinTimeout`: they would end with nothing read, or never.
        """
        patience = FIRST_PATIENCE_S if ends or not self._has_waited else PATIENCE_S
        self._has_waited = True
        if not self._is_ready(once):
            self._unanswered_since.clear()
        self._state.wait_for(lambda: self._is_ready(once) or self._is_over(), self._longest_s if once else patience)
        if self._is_over():
            return False
        if self._is_ready(once):
            self._has_planned = True
            return True
        if once or (ends and self._is_too_late()):
            raise TransportError(self._too_late("Trigger.Once" if once else "Trigger.AvailableNow"))
        return False

    def looks_again(self, began: float, *, once: bool, ends: bool) -> bool:
        """Return whether a call that `began` then and could not plan looks again; wait a little before it does.

        Once is called once, so it looks until it can plan or raises. AvailableNow (`ends`) looks for a second: with
        each answer Spark runs a batch, so an early one would make thousands of empty batches.
        """
        if not once and not (ends and time.monotonic() - began < FIRST_PATIENCE_S):
            return False
        self._state.wait(AGAIN_S)
        return True

    def answered(self) -> None:
        """A batch was planned: the time that `check_unanswered` allows begins anew."""
        self._unanswered_since.clear()

    def check_unanswered(self, partitions: Collection[TopicPartition], trigger: str) -> None:
        """Nothing is left to plan but `partitions`, of which the brokers have not answered enough.

        Raises TransportError where that has lasted for `patience_s` of one of them: a trigger that ends would else
        never end, or end without its records. A suspected loss takes longer to be believed than a short `patience_s`,
        and has an error of its own, so it is waited for.
        """
        now = time.monotonic()
        self._unanswered_since = {tp: self._unanswered_since.get(tp, now) for tp in partitions}
        most = max(self._patience_s, suspicions.BELIEVED_AFTER_S + 2 * suspicions.LOOK_EVERY_S)
        if late := sorted(tp for tp, since in self._unanswered_since.items() if now - since >= most):
            names = ", ".join(map(str, late))
            raise TransportError(
                f"{self._who}cannot plan {names} under {trigger}: for {most:g} s the brokers have not told what is in "
                "these logs. Check the leaders of these partitions and run again, or raise kafka.default.api.timeout.ms"
            )

    def until_complete(self) -> bool:
        """R11: who ends while partitions are on their way to it would leave them to nobody; it waits a little."""
        self._state.wait_for(lambda: self._member.complete or self._is_over(), FIRST_PATIENCE_S)
        return self._member.complete

    def _is_ready(self, once: bool) -> bool:
        may_plan = self._member.may_plan(time.monotonic()) and self._is_clear()
        return may_plan and (self._member.complete or not once)

    def _is_too_late(self) -> bool:
        """AvailableNow goes on with empty documents (R10), but not for ever where its group has never formed."""
        joined_at = self._beginning.joined_at
        return not self._has_planned and joined_at is not None and time.monotonic() - joined_at >= self._longest_s

    def _too_late(self, trigger: str) -> str:
        state = self._member.membership.state.name.lower()
        return (
            f"{self._who}no assignment within group.joinTimeout ({self._longest_s:.0f} s) under {trigger} (the member "
            f"is {state}); is another member slow to rejoin? Run again, or raise group.joinTimeout"
        )

    @property
    def _who(self) -> str:
        return f"group {self._group.group_id}: " if self._group.group_id else ""
