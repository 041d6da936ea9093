"""Describes the group for the check of a second query on a copy of the checkpoint (R28): see `lineage_check.py`."""

from __future__ import annotations

from collections.abc import Callable

from streamgroup.errors import TransportError
from streamgroup.group import events as ev
from streamgroup.group.identity import Identity, encode_identity
from streamgroup.model import GroupState
from streamgroup.run import questions as ask
from streamgroup.run.lineage_check import DuplicateLineageCheck, described
from streamgroup.run.steps import NOW, Steps, Until

DESCRIBE_TIMEOUT_S = 2.0
"""How long the coordinator has to answer; the next assignment asks again. Other callers need the watcher meanwhile."""


class LineageWatch:
    """The check of one run.

    `identify` takes the new user data of the member, whether it must join again at once, and the time. `note` takes a
    line for the log with its level. `is_static`: the member has a `group.instance.id`.
    """

    def __init__(
        self,
        group: str,
        session_timeout_s: float,
        *,
        identify: Callable[[bytes, bool, float], None],
        note: Callable[[int, str], None],
        is_static: bool = False,
    ) -> None:
        self._group = group
        self._session_timeout_s = session_timeout_s
        self._identify = identify
        self._note = note
        self._is_static = is_static
        self._check: DuplicateLineageCheck | None = None
        self._is_assigned = False
        self._seen = ""
        self._unchecked = ""
        """The state of the group that the run was last warned about."""

    def begin(self, lineage: str, run: str) -> bytes:
        """Begin the run's check; return the user data of its first JoinGroup."""
        me = Identity(lineage, run)
        self._check = DuplicateLineageCheck(self._group, me, self._session_timeout_s, is_static=self._is_static)
        return encode_identity(self._check.identity)

    @property
    def is_clear(self) -> bool:
        """Whether the run may plan."""
        return self._check is None or self._check.clear

    def on_action(self, action: object, now: float) -> bool:
        """Take an action of the member. Return whether `look` must begin: an assignment asks for it."""
        if self._check is None:
            return False
        match action:
            case ev.Assigned():
                self._is_assigned = True
                self._check.assigned(action.member_id, action.generation, now)
                return not self._check.admitted
            case ev.Lost() | ev.Left():
                self._is_assigned = False
                self._check.lost()
        return False

    def look(self) -> Steps[None]:
        """Describe the group until the run is admitted, no answer comes or the membership ends.

        A newer assignment begins anew: an older description must not admit a member that has joined again.
        Raises ConfigError if a duplicate has been in the group for a session timeout.
        """
        check = self._check
        assert check is not None
        while check.asks_again:
            now = yield NOW
            now = yield Until(lambda _: not self._is_assigned, check.due_in(now))
            if not self._is_assigned:
                return
            check.asked(now)
            try:
                now, group = yield ask.DescribeGroup(DESCRIBE_TIMEOUT_S)
            except TransportError as error:
                text = (
                    f"group {self._group}: cannot check yet for a second query on a copy of this checkpoint: the group "
                    f"could not be described: {error}. The query checks again later"
                )
                self._note(ev.INFO, text)
                now = yield NOW
                check.unanswered(now)
                continue
            except Exception as error:  # without the check the query goes on
                self._note(
                    ev.WARNING,
                    f"group {self._group}: cannot check for a second query on a copy of this checkpoint: the group "
                    f"could not be described: {error}. The query goes on without the check. Make sure that no other "
                    "query uses a copy of the checkpoint. To enable the check, let this user describe the group, then "
                    "restart the query",
                )
                check.give_up()
                return
            if not self._is_assigned:
                return
            duplicate = check.described(group, now)
            if check.is_unchecked and self._unchecked != group.state:
                self._unchecked = group.state
                self._note(ev.WARNING, self._without_check(group.state))
            if check.admitted or check.asking:
                self._identify(encode_identity(check.identity), check.asking, now)
            if duplicate is not None and duplicate.member_id != self._seen:
                self._seen = duplicate.member_id
                self._note(
                    ev.WARNING,
                    f"group {self._group}: {described(duplicate)} reads with this query's checkpoint, too: a copy of "
                    "it, or this query's own predecessor that has died. Waiting until it is gone, "
                    f"{self._session_timeout_s:g} s (session.timeout.ms) at most",
                )

    def _without_check(self, state: str) -> str:
        who = f"group {self._group}: cannot check for a second query on a copy of this checkpoint"
        if state == GroupState.DEAD:
            return (
                f"{who}: other members use the consumer group protocol of KIP-848 (group.protocol=consumer), and the "
                "broker does not return what the members of such a group have sent. The query continues without the "
                "check. Make sure that no other query uses a copy of the checkpoint"
            )
        return (
            f"{who} yet: the group has not been stable for {self._session_timeout_s:g} s (session.timeout.ms), it is "
            f"{state}. The query continues, and checks again when the group is stable"
        )
