"""Checks whether another query uses a copy of this query's checkpoint (R28).

The lineage is the id that all copies of one checkpoint share. `LineageWatch` describes the group after each assignment.
`DuplicateLineageCheck` decides from the descriptions whether this query may plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from dataclasses import replace

from streamgroup.coordinator.run import interface
from streamgroup.coordinator.run.steps import NOW, Steps, Until
from streamgroup.errors import ConfigError, TransportError
from streamgroup.group import events as ev
from streamgroup.group.requests import LEAVES_FOR_A_WHILE
from streamgroup.group.user_data import RunIdentity, decode_identity, encode_identity, identity_in
from streamgroup.model import GroupDescription, GroupState, MemberDescription

DESCRIBE_TIMEOUT_S = 2.0
"""Timeout of the request to the group coordinator; the next assignment sends it again. Other requests wait
meanwhile."""


class LineageWatch:
    """Describes the group after each assignment, to find another query that uses a copy of this query's checkpoint.

    `session_timeout_s` is how long a dead member may stay in the group. `identify(user_data, rejoin, now)` sets the
    member's user data, and with `rejoin` makes it join again at once. `note(level, line)` writes a log line.
    `is_static`: the member has a `group.instance.id`. `weight` is its weight.
    """

    def __init__(
        self,
        group: str,
        session_timeout_s: float,
        *,
        identify: Callable[[bytes, bool, float], None],
        note: Callable[[int, str], None],
        is_static: bool = False,
        weight: int = 1,
    ) -> None:
        self._group = group
        self._weight = weight
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
        """Begin the check for this lineage and run id; return the user data for the first JoinGroup."""
        me = RunIdentity(lineage, run, weight=self._weight)
        self._check = DuplicateLineageCheck(self._group, me, self._session_timeout_s, is_static=self._is_static)
        return encode_identity(self._check.identity)

    @property
    def is_clear(self) -> bool:
        """Whether the query may plan."""
        return self._check is None or self._check.clear

    def on_action(self, action: object, now: float) -> bool:
        """Follow an action of the member. Return whether it is an assignment after which `look` must begin."""
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
        """Describe the group until the query may plan, a request gets no response, or the membership ends.

        A newer assignment starts this again: an older description must not admit a member that has joined again. Raises
        ConfigError if a duplicate has been in the group for a session timeout.
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
                    f"group {self._group}: cannot check yet for a second query on a copy of this checkpoint: cannot "
                    f"describe the group: {error}. The query checks again later"
                )
                self._note(ev.INFO, text)
                now = yield NOW
                check.unanswered(now)
                continue
            except Exception as error:  # without the check the query continues
                self._note(
                    ev.WARNING,
                    f"group {self._group}: cannot check for a second query on a copy of this checkpoint: cannot "
                    f"describe the group: {error}. The query continues without the check. Make sure that no other "
                    "query uses a copy of the checkpoint. To enable the check, grant this user the DESCRIBE "
                    "permission for the group, then restart the query",
                )
                check.give_up()
                return
            if not self._is_assigned:
                return
            duplicate = check.described(group, now)
            if check.is_unchecked and self._unchecked != group.state:
                self._unchecked = group.state
                self._note(ev.WARNING, self._without_check(group))
            if check.admitted or check.asking:
                self._identify(encode_identity(check.identity), check.asking, now)
            if duplicate is not None and duplicate.member_id != self._seen:
                self._seen = duplicate.member_id
                self._note(
                    ev.WARNING,
                    f"group {self._group}: {described(duplicate)} uses this query's checkpoint, too. It is a query "
                    f"on a copy of the checkpoint, or an ended process of this query whose session has not expired. "
                    f"Waiting at most {check.patience(duplicate):g} s until it has left or its session has expired",
                )

    def _without_check(self, group: GroupDescription) -> str:
        who, state = f"group {self._group}: cannot check for a second query on a copy of this checkpoint", group.state
        if group.shows_members:
            return (
                f"{who} among the members of the classic protocol: the group has members of the consumer protocol "
                "(KIP-848), too, and the broker does not return the user data of the others. The query continues "
                "without this check. Make sure that no other query uses a copy of the checkpoint"
            )
        if state == GroupState.DEAD:
            return (
                f"{who}: the broker does not describe the group (state Dead). The query continues without the check. "
                "Make sure that no other query uses a copy of the checkpoint"
            )
        return (
            f"{who} yet: the group has not been stable for {self._session_timeout_s:g} s, its "
            f"state is {state}. The query continues, and checks again when the group is stable"
        )


# --- the decision ----------------------------------------------------------------------------------------------------

LOOK_AGAIN_S = 0.5
"""Seconds until the group is described again if it rebalances or has a duplicate."""
DEAD_TIMEOUT_S = 2.0
"""How long the group's state must be Dead before the query continues without the check."""


def identity_of(member: MemberDescription) -> RunIdentity | None:
    """Return lineage and run id of a member; None for other clients, or while a classic group rebalances."""
    return decode_identity(member.user_data) or identity_in(member.member_id)


def find_duplicates(group: GroupDescription, me: RunIdentity, member_id: str) -> dict[str, MemberDescription]:
    """Return by run id the other members with the lineage of `me` that have precedence over `me`.

    A member has precedence if it is admitted, or if its run id sorts before the run id of `me`. All members decide from
    the same description, so exactly one of several that join at once is not refused. Under the consumer protocol no
    member shows whether it is admitted, so each member counts. The time that `me` waits for it decides (`patience`).
    There a static member that has stopped is still described, for a process that may take its place.

    In ZooKeeper the member that registered first has precedence. There a member writes that it is admitted some time
    after it was: one that registers in between would not see it.
    """
    registered_at = {member.member_id: member.registered_at for member in group.members}.get(member_id)
    duplicates = {}
    for member in group.members:
        other = identity_of(member) if member.epoch != LEAVES_FOR_A_WHILE else None
        if other is None or member.member_id == member_id or other.lineage != me.lineage or other.run == me.run:
            continue
        if member.registered_at is not None:
            is_first = registered_at is None or member.registered_at < registered_at
        else:
            is_first = other.admitted is not False or other.run < me.run
        if is_first:
            duplicates[other.run] = member
    return duplicates


def _may_be_admitted(group: GroupDescription, me: RunIdentity) -> bool:
    """Return whether another member has the lineage of `me` and can show that it is admitted."""
    others = filter(None, map(identity_of, group.members))
    return any(o.lineage == me.lineage and o.run != me.run and o.admitted is not None for o in others)


class DuplicateLineageCheck:
    """Decides whether another query runs on a copy of this query's checkpoint, from descriptions of the group.

    All times (`now`) are from `time.monotonic()`.
    """

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
        """Run ids of the duplicates that every description has had since the first one with a duplicate."""
        self._waiting_since: dict[str | None, float] = {}
        """Since when every description has had each of `_first_duplicates`, and (key None) any later duplicate.

        A missing response resets all these times.
        """
        self._there_before: frozenset[str] | None = None
        """Run ids of the duplicates that every description of this membership has had; None before the first one."""
        self._ask_at: float | None = None
        self._asked_at = -math.inf
        self._clear = True
        """True before the first assignment, because then nothing can be planned anyway."""
        self._undescribed: tuple[bool, float] | None = None
        """If the newest descriptions lack the members' user data: whether the group's state is Dead, and since when."""
        self.is_unchecked = False
        """Whether the query continues although the newest description lacks the members' user data."""
        self.admitted = False
        self.asking = False
        """Whether all members must join again, so that each publishes whether it is admitted."""

    @property
    def clear(self) -> bool:
        """Whether the query may plan: no duplicate is known, and no response is pending."""
        return self.admitted or self._clear

    @property
    def identity(self) -> RunIdentity:
        """The identity that the subscription in JoinGroup shows to the other members."""
        return replace(self._me, admitted=self.admitted, asking=self.asking)

    @property
    def asks_again(self) -> bool:
        """Whether the group must be described, now or later."""
        return not self.admitted and self._ask_at is not None

    def assigned(self, member_id: str, generation: int, now: float) -> None:
        """Record an assignment. The group must be described now, unless this query is already admitted."""
        self._member_id, self._generation, self.asking = member_id, generation, False
        if self._first_generation is None:
            self._first_generation = generation
        if not self.admitted:
            self._ask_at, self._clear = now, False

    def lost(self) -> None:
        """Withdraw the admission: a member that joins again counts as one that joined later."""
        self.admitted = self.asking = self.is_unchecked = False
        self._undescribed = self._there_before = None
        self._first_generation = None

    def due_in(self, now: float) -> float:
        """Return the seconds until the group must be described: 0 for now, infinity for never."""
        return math.inf if self._ask_at is None else max(0.0, self._ask_at - now)

    def asked(self, now: float) -> None:
        """Record that DescribeGroups was sent."""
        self._ask_at, self._asked_at = None, now

    def described(self, group: GroupDescription, now: float) -> MemberDescription | None:
        """Evaluate a description of the group; return the duplicate if there is one, otherwise None.

        Of several duplicates, it returns the one that this query has waited for longest. Raises ConfigError if a
        duplicate of the first description, or any duplicate that joined later, has been in the group for a session
        timeout.
        """
        if not group.shows_members:
            self._take_undescribed(now, is_dead=group.state == GroupState.DEAD)
            return None
        self._undescribed = None
        self.is_unchecked = any(member.hides_user_data for member in group.members if not self._is_me(member))
        duplicates = self._without_later_joiners(find_duplicates(group, self._me, self._member_id))
        self._has_duplicate = bool(duplicates)
        self._clear &= not duplicates
        self._update_waits(duplicates.keys(), now)
        if not duplicates:
            # A member that was admitted in this generation has not published it yet.
            is_published = not self._is_static or self._generation != self._first_generation
            self.admitted = is_published or not _may_be_admitted(group, self._me)
            self.asking = not self.admitted
            return None
        run = min(duplicates, key=lambda run: self._waiting_since[self._wait_of(run)])
        # The answer may be read long after it was sent, by a process that was stopped meanwhile.
        if self._asked_at - self._waiting_since[self._wait_of(run)] >= self.patience(duplicates[run]):
            raise ConfigError(self._refusal(run, duplicates[run]))
        self._ask_at = now + LOOK_AGAIN_S
        return duplicates[run]

    def _without_later_joiners(self, duplicates: dict[str, MemberDescription]) -> dict[str, MemberDescription]:
        """Leave out each member of the consumer protocol that has joined after this one.

        All of its descriptions have this member, so it waits and is refused. If this member waited for it, too, both
        could be refused. Only of two that find each other in their first description the times decide (`patience`).
        """
        before = frozenset(duplicates) if self._there_before is None else self._there_before
        self._there_before = before & duplicates.keys()  # one that was gone and is back has joined
        is_earlier = self._there_before.__contains__
        return {run: member for run, member in duplicates.items() if member.epoch is None or is_earlier(run)}

    def _is_me(self, member: MemberDescription) -> bool:
        return member.member_id == self._member_id

    def _take_undescribed(self, now: float, *, is_dead: bool) -> None:
        """Evaluate a description without the members' user data. It delays the query for a limited time."""
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
        """Continue the waits for the duplicates `runs`, begin waits for new ones, and end all other waits."""
        if not self._waiting_since:
            self._first_duplicates = frozenset(runs)
        self._first_duplicates &= runs  # one that was gone and is back has joined: it is not a dead predecessor
        self._waiting_since = {wait: self._waiting_since.get(wait, now) for wait in map(self._wait_of, runs)}

    def patience(self, duplicate: MemberDescription) -> float:
        """Return how long this query waits for a duplicate to leave: one session timeout, as a dead member takes.

        Under the consumer protocol of two that join at once the one with the larger run id is refused first, and the
        other one, which waits twice as long, sees it leave. A member that was admitted looks no more, and stays.
        """
        other = identity_of(duplicate)
        is_first = other is not None and other.admitted is None and other.run > self._me.run
        return (2 if is_first else 1) * self._session_timeout_s

    def _wait_of(self, run: str) -> str | None:
        """Return the key of `_waiting_since` for the duplicate with this run id."""
        return run if run in self._first_duplicates else None

    def unanswered(self, now: float) -> None:
        """Record a missing response: the query may plan, unless a duplicate was seen before.

        In that case the wait for the duplicate begins again. While the servers cannot be reached, the session of an
        ended process does not expire, and with another group coordinator or leader the session begins again.
        """
        if self._has_duplicate:
            self._waiting_since, self._ask_at = {}, now + LOOK_AGAIN_S
        else:
            self._clear = True

    def give_up(self) -> None:
        """Admit the query without a check, because it is not authorized to describe the group."""
        self.admitted = True

    def _refusal(self, run: str, duplicate: MemberDescription) -> str:
        waited = self.patience(duplicate)
        is_first = run in self._first_duplicates
        waited_for = "it was" if is_first else "it joined after this query, and such members were"
        return (
            f"group {self._group!r}: cannot run this query: another live member uses a copy of this query's "
            f"checkpoint: {described(duplicate)}, run {run}; {waited_for} in the group for "
            f"{waited:g} s, longer than the session of an ended process. Each of the two would replay batches of the "
            "other. Give this query its own checkpoint directory: a new, empty one continues from the group's "
            "committed offsets (a file sink needs a new output directory with it). If the other query is not needed, "
            "stop it and start this one again"
        )


def described(member: MemberDescription) -> str:
    """Return a member's client id, host and member id as text for messages."""
    return f"client id {member.client_id!r} at {member.host} (member id {member.member_id})"
