"""Checks for a second query on a copy of the checkpoint (R28): `LineageWatch` describes the group at each assignment,
`DuplicateLineageCheck` decides by the descriptions whether the run may plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Set

from streamgroup.coordinator.run import interface
from streamgroup.coordinator.run.steps import NOW, Steps, Until
from streamgroup.errors import ConfigError, TransportError
from streamgroup.group import events as ev
from streamgroup.group.user_data import RunIdentity, decode_identity, encode_identity
from streamgroup.model import GroupDescription, GroupState, MemberDescription

DESCRIBE_TIMEOUT_S = 2.0
"""How long the group coordinator has to answer; the next assignment sends the request again. Other callers need the
watcher meanwhile."""


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
        me = RunIdentity(lineage, run)
        self._check = DuplicateLineageCheck(self._group, me, self._session_timeout_s, is_static=self._is_static)
        return encode_identity(self._check.identity)

    @property
    def is_clear(self) -> bool:
        """Whether the run may plan."""
        return self._check is None or self._check.clear

    def on_action(self, action: object, now: float) -> bool:
        """Take an action of the member. Return whether `look` must begin: an assignment requires it."""
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

        A newer assignment starts this again: an older description must not admit a member that has joined again.
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
                now, group = yield interface.DescribeGroup(DESCRIBE_TIMEOUT_S)
            except TransportError as error:
                text = (
                    f"group {self._group}: cannot check yet for a second query on a copy of this checkpoint: the group "
                    f"could not be described: {error}. The query checks again later"
                )
                self._note(ev.INFO, text)
                now = yield NOW
                check.unanswered(now)
                continue
            except Exception as error:  # without the check the query continues
                self._note(
                    ev.WARNING,
                    f"group {self._group}: cannot check for a second query on a copy of this checkpoint: the group "
                    f"could not be described: {error}. The query continues without the check. Make sure that no other "
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


# --- the decision ----------------------------------------------------------------------------------------------------

LOOK_AGAIN_S = 0.5
"""Seconds until a run describes again a group that rebalances or has a duplicate."""
DEAD_TIMEOUT_S = 2.0
"""How long descriptions must call the group Dead before the run continues without them."""


def identity_of(member: MemberDescription) -> RunIdentity | None:
    """Return lineage and run from a member's user data; None for other clients, or while the group rebalances."""
    return decode_identity(member.user_data)


def find_duplicates(group: GroupDescription, me: RunIdentity, member_id: str) -> dict[str, MemberDescription]:
    """Return by run the other members of my lineage that have precedence: admitted, or their run sorts before mine.

    All members decide by the same description, so exactly one of several that join at once is not refused.
    """
    duplicates = {}
    for member in group.members:
        other = identity_of(member)
        if other is None or member.member_id == member_id or other.lineage != me.lineage or other.run == me.run:
            continue
        if other.admitted or other.run < me.run:
            duplicates[other.run] = member
    return duplicates


def _has_lineage(group: GroupDescription, me: RunIdentity) -> bool:
    """Return whether another run of my lineage is a member."""
    others = filter(None, map(identity_of, group.members))
    return any(other.lineage == me.lineage and other.run != me.run for other in others)


class DuplicateLineageCheck:
    """The check of one run. `now` is monotonic seconds."""

    def __init__(self, group: str, me: RunIdentity, session_timeout_s: float, *, is_static: bool = False) -> None:
        self._group = group
        self._is_static = is_static
        self._first_generation: int | None = None
        """The generation of the first assignment of this membership."""
        self._generation = -1
        self._me = me
        self._session_timeout_s = session_timeout_s
        self._member_id = ""
        self._has_duplicate = False
        self._first_duplicates: frozenset[str] = frozenset()
        """Runs of the duplicates in the first description that had any, as far as all later ones have had them, too."""
        self._waiting_since: dict[str | None, float] = {}
        """Since when every description has had each of `_first_duplicates`, and under None any later duplicate.

        A missing answer ends all these times.
        """
        self._ask_at: float | None = None
        self._asked_at = -math.inf
        self._clear = True
        """True before the first assignment, when nothing can be planned."""
        self._undescribed: tuple[bool, float] | None = None
        """If the newest descriptions lack the members' user data: whether they call the group Dead, and since when."""
        self.is_unchecked = False
        """Whether the run continues although the newest description lacks the members' user data."""
        self.admitted = False
        self.asking = False
        """Whether all members must join again, to publish whether they are admitted."""

    @property
    def clear(self) -> bool:
        """Whether the run may plan: no duplicate is known, and no answer is awaited."""
        return self.admitted or self._clear

    @property
    def identity(self) -> RunIdentity:
        """The identity that the subscription sends to the other members."""
        return RunIdentity(self._me.lineage, self._me.run, self.admitted, self.asking)

    @property
    def asks_again(self) -> bool:
        """Whether the group is to be described, now or later."""
        return not self.admitted and self._ask_at is not None

    def assigned(self, member_id: str, generation: int, now: float) -> None:
        """Take an assignment: the group must be described now, unless the run is admitted."""
        self._member_id, self._generation, self.asking = member_id, generation, False
        if self._first_generation is None:
            self._first_generation = generation
        if not self.admitted:
            self._ask_at, self._clear = now, False

    def lost(self) -> None:
        """Take back the admission: a member that joins again is a later joiner."""
        self.admitted = self.asking = self.is_unchecked = False
        self._undescribed = None
        self._first_generation = None

    def due_in(self, now: float) -> float:
        """Return the seconds until the group is to be described, 0 for now; infinity if it is not."""
        return math.inf if self._ask_at is None else max(0.0, self._ask_at - now)

    def asked(self, now: float) -> None:
        """Take note that the group is being described."""
        self._ask_at, self._asked_at = None, now

    def described(self, group: GroupDescription, now: float) -> MemberDescription | None:
        """Take the description of the group; return the duplicate, if there is one.

        If there are several, it is the one that the run has waited for longest. Raises ConfigError if a duplicate of
        the first description, or any that joined later, has been in the group for a session timeout.
        """
        if group.state != GroupState.STABLE:
            self._take_undescribed(now, is_dead=group.state == GroupState.DEAD)
            return None
        self._undescribed, self.is_unchecked = None, False
        duplicates = find_duplicates(group, self._me, self._member_id)
        self._has_duplicate = bool(duplicates)
        self._clear &= not duplicates
        self._update_waits(duplicates.keys(), now)
        if not duplicates:
            # A member that was admitted in this generation has not published it yet.
            is_published = not self._is_static or self._generation != self._first_generation
            self.admitted = is_published or not _has_lineage(group, self._me)
            self.asking = not self.admitted
            return None
        run = min(duplicates, key=lambda run: self._waiting_since[self._wait_of(run)])
        # The answer may be read long after it was sent, by a process that was stopped meanwhile.
        if self._asked_at - self._waiting_since[self._wait_of(run)] >= self._session_timeout_s:
            raise ConfigError(self._refusal(run, duplicates[run]))
        self._ask_at = now + LOOK_AGAIN_S
        return duplicates[run]

    def _take_undescribed(self, now: float, *, is_dead: bool) -> None:
        """Take a description without the members' user data. It holds up the run for a limited time."""
        if self._undescribed is None or self._undescribed[0] != is_dead:
            self._undescribed = is_dead, now
        waited = self._asked_at - self._undescribed[1]
        self._ask_at = now + LOOK_AGAIN_S
        if is_dead and waited >= DEAD_TIMEOUT_S:
            self._clear = self.is_unchecked = True
            self._ask_at = None
        elif not is_dead and waited >= self._session_timeout_s and not self._has_duplicate:
            self._clear = self.is_unchecked = True

    def _update_waits(self, runs: Set[str], now: float) -> None:
        """Continue the waits for these duplicates, begin the waits for new ones, and end all other waits."""
        if not self._waiting_since:
            self._first_duplicates = frozenset(runs)
        self._first_duplicates &= runs  # one that was gone and is back has joined: it is not a dead predecessor
        self._waiting_since = {wait: self._waiting_since.get(wait, now) for wait in map(self._wait_of, runs)}

    def _wait_of(self, run: str) -> str | None:
        """Return the key of `_waiting_since` for a duplicate."""
        return run if run in self._first_duplicates else None

    def unanswered(self, now: float) -> None:
        """Take a missing answer: the run may plan, unless a duplicate was seen before.

        The wait for that one begins again. While the servers are away, the session of a dead predecessor does not
        expire, and with another group coordinator or leader it begins again.
        """
        if self._has_duplicate:
            self._waiting_since, self._ask_at = {}, now + LOOK_AGAIN_S
        else:
            self._clear = True

    def give_up(self) -> None:
        """Admit the run without a check: it is not authorized to describe the group."""
        self.admitted = True

    def _refusal(self, run: str, duplicate: MemberDescription) -> str:
        is_first = run in self._first_duplicates
        waited_for = "it was" if is_first else "it joined after this query, and such members were"
        return (
            f"group {self._group!r}: another live member reads with a copy of this query's checkpoint: "
            f"{described(duplicate)}, run {run}; {waited_for} in the group for {self._session_timeout_s:g} s "
            "(session.timeout.ms). Each of the two would replay batches of the other. Give this query its own "
            "checkpoint directory: a new, empty one continues from the group's committed offsets (a file sink needs a "
            "new output directory with it). If the other query is the superfluous one, stop it and start this one again"
        )


def described(member: MemberDescription) -> str:
    """Return a member's client id, host and member id as text for messages."""
    return f"client id {member.client_id!r} at {member.host} (member id {member.member_id})"
