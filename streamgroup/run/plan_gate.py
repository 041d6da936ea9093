"""Decides how long `latestOffset` waits until it may plan a batch (R9, R10, R11)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from streamgroup.errors import TransportError
from streamgroup.group.member import Member
from streamgroup.model import TopicPartition, name_some
from streamgroup.planning import suspicions
from streamgroup.run.steps import NOW, Steps, Until

COMMIT_TIMEOUT_S = 0.5
"""R9: a commit is one round trip. `latestOffset` waits this long for its answer, then returns `start`."""
ASSIGNMENT_TIMEOUT_S = 1.0
"""R10: the first call waits this long for the first assignment, so that batch 0 is not empty.
Under AvailableNow every call does."""
LOOK_AGAIN_S = 0.1
"""Under Once and AvailableNow a call checks this often for answers that the brokers still owe."""
REPORT_AFTER_S = 30.0
"""A wait is reported after this time, and again whenever the time has doubled."""
STANDALONE_GRACE_S = 2.0
"""A standalone member finds other members in its group itself, and raises its own error within this time."""


class PlanGate:
    """Opens when the member may plan. Used by one call of Spark at a time.

    `is_clear` returns whether the check for a second query on the same checkpoint lets the run plan. `is_over`
    returns whether the run has failed or leaves, `is_paused` whether it is out of its group until Spark is back (R27).
    `api_timeout_s` is how long brokers have for an answer. `warn` takes a line for the log: no wait is silent for long.
    """

    def __init__(
        self,
        member: Member,
        *,
        group_id: str,
        join_timeout_s: float,
        api_timeout_s: float,
        is_standalone: bool,
        is_clear: Callable[[], bool],
        is_over: Callable[[], bool],
        is_paused: Callable[[], bool],
        warn: Callable[[str], None],
    ) -> None:
        self._member = member
        self._who = f"group {group_id}: " if group_id else ""
        self._join_timeout_s = join_timeout_s + (STANDALONE_GRACE_S if is_standalone else 0.0)
        self._api_timeout_s = api_timeout_s
        self._is_clear = is_clear
        self._is_over = is_over
        self._is_paused = is_paused
        self._warn = warn
        self._waits_since: float | None = None
        self._report_after = REPORT_AFTER_S
        self._has_waited = self._has_planned = False
        self._unanswered_since: dict[TopicPartition, float] = {}
        self.joined_at: float | None = None
        """Monotonic time of the member's start, or of its newest start after a pause."""

    def until_plannable(self, *, once: bool, ends: bool) -> Steps[bool]:
        """Wait until the run may plan, as long as the trigger allows. `ends`: the trigger is AvailableNow.

        Returns False if it may not plan now. Raises TransportError under Once and AvailableNow if no plan was possible
        within `group.joinTimeout`: they would end with nothing read, or never.
        """
        timeout = ASSIGNMENT_TIMEOUT_S if ends or not self._has_waited else COMMIT_TIMEOUT_S
        self._has_waited = True
        began = now = yield NOW
        if not self._is_ready(now, once):
            self._unanswered_since.clear()
        now = yield from self._wait(self._join_timeout_s if once else timeout, once=once)
        if self._is_over():
            return False
        if self._is_ready(now, once):
            self._has_planned = True
            self._waits_since = None
            return True
        if once or (ends and self._is_too_late(now)):
            raise TransportError(self._too_late("Trigger.Once" if once else "Trigger.AvailableNow", now))
        self._report(began, now)
        return False

    def _report(self, began: float, now: float) -> None:
        """Warn of a wait that takes long, with its cause. `began`: when the call began that could not plan."""
        if self._waits_since is None:
            self._waits_since, self._report_after = began, REPORT_AFTER_S
        if (waited := now - self._waits_since) >= self._report_after:
            self._report_after = 2 * waited
            self._warn(f"{self._who}no batch could be planned for {waited:.0f} s: {self._cause(now)}")

    def _cause(self, now: float) -> str:
        """Return what prevents a plan, as a clause."""
        if cause := self._member.waits_for(now):
            return cause
        if not self._is_clear():
            return "it is not known yet whether another query reads with a copy of this checkpoint"
        return "partitions are on their way to this member"

    def _wait(self, timeout: float, *, once: bool) -> Steps[float]:
        """Wait until the run may plan or is over, for `timeout` seconds at most; return the time.

        The timeout begins anew when the member joins again after a pause. Under Once it does not end during the pause.
        """
        while True:
            since = self.joined_at
            now: float = yield Until(partial(self._ends_wait, since, once), timeout)
            is_timeout = self.joined_at == since and not (once and self._is_paused())
            if is_timeout or self._is_ready(now, once) or self._is_over():
                return now

    def _ends_wait(self, since: float | None, once: bool, now: float) -> bool:
        return self._is_ready(now, once) or self._is_over() or self.joined_at != since

    def looks_again(self, began: float, *, once: bool, ends: bool) -> Steps[bool]:
        """Return whether a call that began at `began` and could not plan tries again; wait LOOK_AGAIN_S first.

        Spark calls Once a single time, so it tries until it can plan or raises. AvailableNow tries for a second: Spark
        runs a batch for each answer, so early answers would make thousands of empty batches.
        """
        now = yield NOW
        if not once and not (ends and now - began < ASSIGNMENT_TIMEOUT_S):
            return False
        yield Until(lambda _: self._is_over(), LOOK_AGAIN_S)
        return True

    def answered(self) -> None:
        """Restart the timeout of `check_unanswered`: a batch was planned."""
        self._unanswered_since.clear()

    def check_unanswered(self, partitions: Collection[TopicPartition], trigger: str, now: float) -> None:
        """Raise TransportError if the brokers give no usable answer for one of `partitions` for too long.

        Only `partitions` are left to plan. A trigger that ends would never end, or end without their records. A
        suspected loss takes longer to be believed than a short `default.api.timeout.ms` and raises an error of its own.
        """
        self._unanswered_since = {tp: self._unanswered_since.get(tp, now) for tp in partitions}
        most = max(self._api_timeout_s, suspicions.BELIEVED_AFTER_S + 2 * suspicions.LOOK_EVERY_S)
        if late := sorted(tp for tp, since in self._unanswered_since.items() if now - since >= most):
            raise TransportError(
                f"{self._who}cannot plan {name_some(late)} under {trigger}: for {most:g} s no broker has "
                "returned the ends of these logs. Check the leaders of these partitions and run again, or raise "
                "kafka.default.api.timeout.ms"
            )

    def until_complete(self) -> Steps[bool]:
        """Wait shortly for partitions that are moving to this member; return whether none are left (R11).

        AvailableNow would leave them unread if it ended before.
        """
        yield Until(lambda _: self._member.complete or self._is_over(), ASSIGNMENT_TIMEOUT_S)
        return self._member.complete

    def _is_ready(self, now: float, once: bool) -> bool:
        may_plan = self._member.may_plan(now) and self._is_clear()
        return may_plan and (self._member.complete or not once)

    def _is_too_late(self, now: float) -> bool:
        """Return whether AvailableNow, which goes on with empty documents (R10), has waited too long for its group."""
        return not self._has_planned and self.joined_at is not None and now - self.joined_at >= self._join_timeout_s

    def _too_late(self, trigger: str, now: float) -> str:
        return (
            f"{self._who}no batch could be planned within group.joinTimeout ({self._join_timeout_s:.0f} s) under "
            f"{trigger}: {self._cause(now)}. Run again, or raise group.joinTimeout"
        )
