"""Describes the group for the check of a second query on a copy of the checkpoint (R28): see `run/lineage_check.py`."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from streamgroup.errors import ConfigError, StreamGroupError, TransportError
from streamgroup.group import events as ev
from streamgroup.group.identity import Identity, encode_identity
from streamgroup.model import GroupDescription
from streamgroup.run.lineage_check import DuplicateLineageCheck, described

log = logging.getLogger("streamgroup")

DESCRIBE_TIMEOUT_S = 2.0
"""How long the coordinator has to answer; the next assignment asks again. Other callers need the watcher meanwhile."""


class LineageWatch:
    """Describes the group for one run. `state` is the coordinator's lock.

    `describe` requests the group's members, with a timeout in seconds. `identify` is called with the new user data
    while the lock is held.
    """

    def __init__(
        self,
        group: str,
        session_timeout_s: float,
        state: threading.Condition,
        describe: Callable[[float], Future[GroupDescription]],
        *,
        identify: Callable[[bytes], None],
        on_failed: Callable[[StreamGroupError], None],
    ) -> None:
        self._group = group
        self._session_timeout_s = session_timeout_s
        self._state = state
        self._describe = describe
        self._identify = identify
        self._on_failed = on_failed
        self._check: DuplicateLineageCheck | None = None
        self._newest: Future[GroupDescription] | None = None
        self._seen = ""

    def begin(self, lineage: str, run: str) -> bytes:
        """Begin the run's check; return the user data of its first JoinGroup. The lock is held."""
        self._check = DuplicateLineageCheck(self._group, Identity(lineage, run), self._session_timeout_s)
        return encode_identity(self._check.identity)

    def on_action(self, action: object) -> None:
        """Take an action of the member: assignments begin a check, a lost membership ends the admission."""
        if self._check is None:
            return
        match action:
            case ev.Assigned():
                self._check.assigned(action.member_id, time.monotonic())
                self._ask_when_due(self._check)
            case ev.Lost() | ev.Left():
                self._check.lost()

    def clear(self) -> bool:
        """Return whether the run may plan; describe the group again if that is due. The lock is held."""
        if self._check is None:
            return True
        self._ask_when_due(self._check)
        return self._check.clear

    def _ask_when_due(self, check: DuplicateLineageCheck) -> None:
        if not check.due(time.monotonic()):
            return
        answer = self._describe(DESCRIBE_TIMEOUT_S)
        self._newest = answer
        answer.add_done_callback(lambda done: self._answered(check, done))

    def _answered(self, check: DuplicateLineageCheck, answer: Future[GroupDescription]) -> None:
        with self._state:
            if answer is not self._newest:  # a newer assignment has replaced this request
                return
            error = answer.exception()
            try:
                if error is None:
                    self._take(check, answer.result())
                elif isinstance(error, TransportError):
                    log.info("group %s: not looked for another member with this checkpoint yet: %s", self._group, error)
                    check.unanswered(time.monotonic())
                else:
                    self._give_up(check, error)
            except ConfigError as refusal:
                self._on_failed(refusal)
            except Exception as defect:  # a Future would only log it, and the query would wait for ever
                log.exception("looking for another member with this checkpoint has failed")
                self._give_up(check, defect)
            self._state.notify_all()

    def _take(self, check: DuplicateLineageCheck, group: GroupDescription) -> None:
        duplicate = check.described(group, time.monotonic())
        if check.admitted:
            self._identify(encode_identity(check.identity))
        if duplicate is not None and duplicate.member_id != self._seen:
            self._seen = duplicate.member_id
            log.warning(
                "group %s: %s reads with this query's checkpoint, too: a copy of it, or this query's own predecessor "
                "that has died. Waiting until it is gone, %g s (session.timeout.ms) at most",
                self._group,
                described(duplicate),
                self._session_timeout_s,
            )

    def _give_up(self, check: DuplicateLineageCheck, error: BaseException) -> None:
        log.warning(
            "group %s: nobody will notice a second query on a copy of this checkpoint, the group may not be looked "
            "at: %s",
            self._group,
            error,
        )
        check.give_up()
