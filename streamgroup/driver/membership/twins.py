"""R28: of two live members with one lineage, as a copied checkpoint makes them, the later one is refused.

Members tell lineage and run in their subscriptions (`group/identity.py`). After its first assignment a run looks at the
others, once: where none is its twin it is *admitted*, and says so from its next JoinGroup on. A twin may be its own
predecessor that has died and still looks alive: it is looked for again until a session timeout has passed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from streamgroup.errors import ConfigError, DecodeError, StreamGroupError, TransportError
from streamgroup.group import events as ev
from streamgroup.group.identity import Identity, decode_identity, encode_identity
from streamgroup.wire.consumer import decode_subscription
from streamgroup.wire.messages.admin import DescribedGroup, DescribedGroupMember

log = logging.getLogger("streamgroup")

AGAIN_S = 0.5
"""How soon a group is looked at again that rebalances, or in which there is a twin."""
QUESTION_S = 2.0
"""A coordinator that has not answered by then is asked again with the next assignment: others wait for the watcher."""
_STABLE = "Stable"
"""Only then does a broker tell what the members have said."""


def identity_of(member: DescribedGroupMember) -> Identity | None:
    """Who a member says it is; None for one of another make, or while the group rebalances."""
    try:
        return decode_identity(decode_subscription(member.member_metadata).user_data)
    except DecodeError:
        return None


def find_twin(group: DescribedGroup, me: Identity, member_id: str) -> DescribedGroupMember | None:
    """Another member of my lineage that goes before me: one that is admitted, else the one whose run sorts first.

    Both sides decide by the same description, so that of two that come at once exactly one is refused.
    """
    for member in group.members:
        other = identity_of(member)
        if other is None or member.member_id == member_id or other.lineage != me.lineage or other.run == me.run:
            continue
        if other.admitted or other.run < me.run:
            return member
    return None


class Admission:
    """What a run knows of its twins. Pure: `now` is monotonic seconds."""

    def __init__(self, group: str, me: Identity, session_timeout_s: float) -> None:
        self._group = group
        self._me = me
        self._session_timeout_s = session_timeout_s
        self._member_id = ""
        self._twin_since: float | None = None
        self._ask_at: float | None = None
        self._clear = True
        """Before the first assignment nothing is planned anyway."""
        self.admitted = False

    @property
    def clear(self) -> bool:
        """Whether nothing that is known or being asked speaks against planning."""
        return self.admitted or self._clear

    @property
    def identity(self) -> Identity:
        """What to tell the others."""
        return Identity(self._me.lineage, self._me.run, self.admitted)

    def assigned(self, member_id: str, now: float) -> None:
        """An assignment has come: unless admitted before, the group has to be looked at now."""
        self._member_id = member_id
        if not self.admitted:
            self._ask_at, self._clear = now, False

    def lost(self) -> None:
        """The membership is gone: who comes back is a later joiner."""
        self.admitted = False

    def due(self, now: float) -> bool:
        """Whether to ask now; the question counts as asked."""
        if self.admitted or self._ask_at is None or now < self._ask_at:
            return False
        self._ask_at = None
        return True

    def described(self, group: DescribedGroup, now: float) -> DescribedGroupMember | None:
        """The answer: the twin, if there is one. Raises ConfigError where it has been there for a session timeout."""
        if group.group_state != _STABLE:
            self._ask_at = now + AGAIN_S
            return None
        twin = find_twin(group, self._me, self._member_id)
        if twin is None:
            self.admitted, self._twin_since = True, None
            return None
        if self._twin_since is None:
            self._twin_since = now
        if now - self._twin_since >= self._session_timeout_s:
            raise ConfigError(self._refusal(twin))
        self._ask_at = now + AGAIN_S
        return twin

    def unanswered(self, now: float) -> None:
        """No answer: that is no sign of a twin, but a twin that was seen before is not gone either."""
        if self._twin_since is None:
            self._clear = True
        else:
            self._ask_at = now + AGAIN_S

    def give_up(self) -> None:
        """Nobody may tell who is in the group."""
        self.admitted = True

    def _refusal(self, twin: DescribedGroupMember) -> str:
        other = identity_of(twin)
        run = "" if other is None else f", run {other.run}"
        return (
            f"group {self._group!r}: another live member reads with a copy of this query's checkpoint: "
            f"{described(twin)}{run}; it was there for {self._session_timeout_s:g} s (session.timeout.ms). Each of the "
            "two would replay batches of the other. Give this query a checkpoint directory of its own: a new, empty "
            "one goes on from the group's committed offsets (a file sink needs a new output directory with it). If the "
            "other query is the one too many, stop it and start this one again"
        )


def described(member: DescribedGroupMember) -> str:
    """A member as errors name it."""
    return f"client id {member.client_id!r} at {member.client_host} (member id {member.member_id})"


class Twins:
    """Asks for one run. `state` is the coordinator's lock; `identify` is called under it with the new user data.

    `describe` asks who is in the group, for so many seconds.
    """

    def __init__(
        self,
        group: str,
        session_timeout_s: float,
        state: threading.Condition,
        describe: Callable[[float], Future[DescribedGroup]],
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
        self._admission: Admission | None = None
        self._newest: Future[DescribedGroup] | None = None
        self._seen = ""

    def begin(self, lineage: str, run: str) -> bytes:
        """The run begins; what its first JoinGroup tells. The lock is held."""
        self._admission = Admission(self._group, Identity(lineage, run), self._session_timeout_s)
        return encode_identity(self._admission.identity)

    def hear(self, action: object) -> None:
        """What the member wants done, as far as it matters here. The lock is held."""
        if self._admission is None:
            return
        match action:
            case ev.Assigned():
                self._admission.assigned(action.member_id, time.monotonic())
                self._ask_when_due(self._admission)
            case ev.Lost() | ev.Left():
                self._admission.lost()

    def clear(self) -> bool:
        """Whether nothing speaks against planning; asks again where that is due. The lock is held."""
        if self._admission is None:
            return True
        self._ask_when_due(self._admission)
        return self._admission.clear

    def _ask_when_due(self, admission: Admission) -> None:
        if not admission.due(time.monotonic()):
            return
        answer = self._describe(QUESTION_S)
        self._newest = answer
        answer.add_done_callback(lambda done: self._answered(admission, done))

    def _answered(self, admission: Admission, answer: Future[DescribedGroup]) -> None:
        with self._state:
            if answer is not self._newest:  # another assignment has come since
                return
            error = answer.exception()
            try:
                if error is None:
                    self._take(admission, answer.result())
                elif isinstance(error, TransportError):
                    log.info("group %s: not looked for another member with this checkpoint yet: %s", self._group, error)
                    admission.unanswered(time.monotonic())
                else:
                    self._give_up(admission, error)
            except ConfigError as refusal:
                self._on_failed(refusal)
            except Exception as defect:  # a Future would log it only, and the query wait for ever
                log.exception("looking for another member with this checkpoint has failed")
                self._give_up(admission, defect)
            self._state.notify_all()

    def _take(self, admission: Admission, group: DescribedGroup) -> None:
        twin = admission.described(group, time.monotonic())
        if admission.admitted:
            self._identify(encode_identity(admission.identity))
        if twin is not None and twin.member_id != self._seen:
            self._seen = twin.member_id
            log.warning(
                "group %s: %s reads with this query's checkpoint, too: a copy of it, or this query's own predecessor "
                "that has died. Waiting until it is gone, %g s (session.timeout.ms) at most",
                self._group,
                described(twin),
                self._session_timeout_s,
            )

    def _give_up(self, admission: Admission, error: BaseException) -> None:
        log.warning(
            "group %s: nobody will notice a second query on a copy of this checkpoint, the group may not be looked "
            "at: %s",
            self._group,
            error,
        )
        admission.give_up()
