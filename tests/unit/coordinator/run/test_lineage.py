"""The questions of a run about a second query on a copy of its checkpoint (R28), and their answers."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamgroup.coordinator.run.interface import DescribeGroup
from streamgroup.coordinator.run.lineage import (
    DEAD_TIMEOUT_S,
    DESCRIBE_TIMEOUT_S,
    LOOK_AGAIN_S,
    DuplicateLineageCheck,
    LineageWatch,
    find_duplicates,
)
from streamgroup.errors import BrokerError, ConfigError, TransportError
from streamgroup.group import events as ev
from streamgroup.group.user_data import (
    MOST_WEIGHT,
    RunIdentity,
    decode_identity,
    encode_identity,
    identity_in,
    member_id_of,
)
from streamgroup.model import GroupDescription, MemberDescription
from tests.unit.coordinator.run.run_shell import Call

ME = RunIdentity("l", "r5")


def member(member_id: str, identity: RunIdentity | None, **others: Any) -> MemberDescription:
    data = None if identity is None else encode_identity(identity)
    given = {"client_id": f"client-{member_id}", "host": "/10.0.0.1", "topics": ("t",), "user_data": data or b""}
    return MemberDescription(member_id, **{**given, **others})


def group(*members: MemberDescription, state: str = "Stable") -> GroupDescription:
    return GroupDescription("g", state, members=members)


MINE = member("me", ME)


@pytest.mark.parametrize(
    ("other", "is_duplicate"),
    [
        (RunIdentity("l", "r9", admitted=True), True),
        (RunIdentity("l", "r1", admitted=True), True),
        (RunIdentity("l", "r1"), True),
        (RunIdentity("l", "r9"), False),
        (RunIdentity("another", "r1", admitted=True), False),
        (RunIdentity("l", "r5", admitted=True), False),
        (None, False),
    ],
)
def test_a_duplicate_has_my_lineage_another_run_and_goes_before_me(
    other: RunIdentity | None, is_duplicate: bool
) -> None:
    assert bool(find_duplicates(group(MINE, member("x", other)), ME, "me")) is is_duplicate


@given(st.lists(st.tuples(st.text("ab", min_size=1, max_size=4), st.booleans()), min_size=2, max_size=5, unique=True))
def test_of_several_that_look_at_the_same_group_at_most_one_stays(runs: list[tuple[str, bool]]) -> None:
    """One admitted before them at most: who is admitted looks no more."""
    first_admitted = next((run for run, admitted in runs if admitted), None)
    distinct = {run: RunIdentity("l", run, run == first_admitted) for run, _ in runs}
    described = group(*(member(run, identity) for run, identity in distinct.items()))
    staying = [
        run for run, identity in distinct.items() if identity.admitted or not find_duplicates(described, identity, run)
    ]
    assert staying == [first_admitted or min(distinct)]


# -- the check --------------------------------------------------------------------------------------------------------


PREDECESSOR = member("old", RunIdentity("l", "r0", admitted=True))


def check(session_s: float = 45.0, *, is_static: bool = False) -> DuplicateLineageCheck:
    return DuplicateLineageCheck("g", ME, session_s, is_static=is_static)


def asks(one: DuplicateLineageCheck, now: float) -> bool:
    """Whether the group is described now."""
    if one.due_in(now) > 0:
        return False
    assert one.asks_again
    one.asked(now)
    return True


def test_without_a_duplicate_one_look_admits_for_good() -> None:
    one = check()
    assert one.clear, "before the first assignment there is nothing to hold up"
    one.assigned("me", 1, 10.0)
    assert not one.clear
    assert asks(one, 10.0)
    assert not asks(one, 10.0), "asked once"
    assert one.described(group(MINE), 10.1) is None
    assert (one.clear, one.admitted, one.identity.admitted, one.asks_again) == (True, True, True, False)
    one.assigned("me", 1, 20.0)
    assert one.clear
    assert not asks(one, 20.0)


def test_a_duplicate_is_waited_for_until_a_session_timeout_has_passed() -> None:
    one = check(6.0)
    one.assigned("me", 1, 0.0)
    now = 0.0
    while now < 5.9:
        assert asks(one, now)
        assert one.described(group(MINE, PREDECESSOR), now) == PREDECESSOR
        assert not one.clear
        assert not asks(one, now + LOOK_AGAIN_S / 2)
        now += LOOK_AGAIN_S
    assert asks(one, 6.0)
    with pytest.raises(ConfigError) as refused:
        one.described(group(MINE, PREDECESSOR), 6.0)
    for told in ("'g'", "'client-old'", "/10.0.0.1", "run r0", "6 s", "its own checkpoint directory"):
        assert told in str(refused.value)
    assert not one.clear


def looks(one: DuplicateLineageCheck, state: str, began: float, seconds: float) -> None:
    """Describe the group again and again, always with this state, as the run does."""
    now = began
    while now <= began + seconds:
        if asks(one, now):
            assert one.described(group(state=state), now) is None
        now += LOOK_AGAIN_S


@pytest.mark.parametrize(
    ("state", "limit"), [("Dead", DEAD_TIMEOUT_S), ("PreparingRebalance", 6.0), ("CompletingRebalance", 6.0)]
)
def test_descriptions_that_tell_nothing_hold_up_a_run_for_a_limited_time(state: str, limit: float) -> None:
    one = check(6.0)
    one.assigned("me", 1, 10.0)
    looks(one, state, 10.0, limit - LOOK_AGAIN_S)
    assert (one.clear, one.is_unchecked) == (False, False)
    looks(one, state, 10.0 + limit, 0.0)
    assert (one.clear, one.is_unchecked, one.admitted) == (True, True, False)
    one.assigned("me", 2, 30.0)
    assert not one.clear, "the group may be stable now"
    looks(one, state, 30.0, 0.0)
    assert one.clear, "it was waited for already"
    one.lost()
    one.assigned("me", 3, 40.0)
    looks(one, state, 40.0, 0.0)
    assert not one.clear
    one.assigned("me", 4, 50.0)
    assert asks(one, 50.0)
    one.described(group(MINE), 50.0)
    assert (one.admitted, one.is_unchecked) == (True, False), "the next assignment describes the group again"


def test_a_duplicate_that_shows_after_a_long_rebalance_holds_up_the_run_again() -> None:
    one = check(6.0)
    one.assigned("me", 1, 0.0)
    looks(one, "PreparingRebalance", 0.0, 6.0)
    assert one.clear
    assert asks(one, 6.0 + LOOK_AGAIN_S)
    assert one.described(group(MINE, PREDECESSOR), 6.5) == PREDECESSOR
    assert not one.clear
    looks(one, "PreparingRebalance", 7.0, 20.0)
    assert not one.clear, "the rebalance ends, and the duplicate may be there still"


def there(one: DuplicateLineageCheck, now: float, *runs: str, admitted: bool = False) -> MemberDescription | None:
    """Describe the group with live or dead members of these runs; return the duplicate."""
    one.asked(now)
    return one.described(group(MINE, *(member(f"m-{run}", RunIdentity("l", run, admitted)) for run in runs)), now)


def test_the_time_of_a_dead_predecessor_does_not_count_for_a_duplicate_that_joins_later() -> None:
    one = check(6.0)
    one.assigned("me", 1, 0.0)
    there(one, 0.0, "r0")
    one.described(group(state="PreparingRebalance"), 3.0)
    for now in (5.5, 6.5, 11.0):
        there(one, now, "r2")
    with pytest.raises(ConfigError, match=r"run r2; it joined after this query, .* were in the group for 6 s"):
        there(one, 11.5, "r2")


def test_the_time_of_a_dead_static_member_does_not_count_for_the_process_that_takes_its_place() -> None:
    one = check(6.0)
    dead, live = (member(f"s-{n}", RunIdentity("l", f"r{n}"), instance_id="s") for n in (1, 2))
    one.assigned("me", 1, 0.0)
    one.described(group(MINE, dead), 0.0)
    one.asked(2.0)
    assert one.described(group(MINE, live), 2.0) == live
    one.asked(7.5)
    assert one.described(group(MINE, live), 7.5) == live


def test_queries_on_a_copy_that_come_and_go_do_not_hold_up_the_run_for_ever() -> None:
    """A query under Once that is started every two seconds: no run of it stays for a session timeout."""
    one = check(6.0)
    one.assigned("me", 1, 0.0)
    for n in range(4):
        there(one, 2.0 * n, f"r{n}")
    with pytest.raises(ConfigError, match="run r4"):
        there(one, 8.0, "r4")


def test_of_two_duplicates_the_one_that_has_been_there_for_longer_is_named() -> None:
    one = check(6.0)
    one.assigned("me", 1, 0.0)
    there(one, 0.0, "r2")
    there(one, 3.0, "r0", "r2")
    with pytest.raises(ConfigError, match="run r2; it was in the group for 6 s"):
        there(one, 6.0, "r0", "r2")


@given(
    st.dictionaries(st.sampled_from(["r0", "r1", "r2"]), st.floats(0.0, 5.9), min_size=1),
    st.floats(0.5, 20.0),
    st.floats(0.0, 5.4),
)
def test_neither_dead_predecessors_nor_a_duplicate_that_soon_leaves_again_refuse_a_run(
    remains_until: dict[str, float], joins_at: float, stays_s: float
) -> None:
    one = check(6.0)
    one.assigned("me", 1, 0.0)
    now = 0.0
    while not one.admitted:
        live = ["r4"] if joins_at <= now <= joins_at + stays_s else []
        there(one, now, *(run for run, until in remains_until.items() if now <= until), *live)
        now += LOOK_AGAIN_S
    assert now < 13.0


@pytest.mark.slow
@example([{"r0", "r1"}, *[{"r0"}, {"r1"}] * 12]).via("two that leave and join in turn")
@given(st.lists(st.sets(st.sampled_from(["r0", "r1", "r2", "r3", "r4"]), min_size=1), min_size=25, max_size=25))
def test_a_run_beside_duplicates_is_refused_after_two_session_timeouts_at_most(present: list[set[str]]) -> None:
    one = check(6.0)
    one.assigned("me", 1, 0.0)

    def look_until_the_end() -> None:
        for n, runs in enumerate(present):
            there(one, n * LOOK_AGAIN_S, *sorted(runs))

    with pytest.raises(ConfigError):
        look_until_the_end()


def test_a_session_timeout_without_an_answer_proves_no_live_duplicate() -> None:
    """While the servers are away sessions stand still, and with another leader they begin anew."""
    one = check(6.0)
    one.assigned("me", 1, 0.0)
    one.described(group(MINE, PREDECESSOR), 0.0)
    one.unanswered(4.0)
    one.unanswered(6.0)
    assert not one.clear
    for now in (7.0, 12.5):
        assert asks(one, now)
        assert one.described(group(MINE, PREDECESSOR), now) == PREDECESSOR
    assert asks(one, 13.0)
    with pytest.raises(ConfigError):
        one.described(group(MINE, PREDECESSOR), 13.0)


def test_an_old_description_does_not_tell_who_is_a_member_now() -> None:
    """The process was stopped between the question and its answer. The predecessor's session has expired meanwhile."""
    one = check(6.0)
    one.assigned("me", 1, 0.0)
    assert asks(one, 0.0)
    one.described(group(MINE, PREDECESSOR), 0.1)
    assert asks(one, 1.0)
    assert one.described(group(MINE, PREDECESSOR), 30.0) == PREDECESSOR
    assert asks(one, 30.5)
    one.described(group(MINE), 30.6)
    assert one.admitted


# -- static members ---------------------------------------------------------------------------------------------------


def test_a_static_member_that_may_have_taken_a_place_asks_who_is_admitted_first() -> None:
    """The other was admitted after it had joined, and nobody has joined since: its JoinGroup could not tell."""
    one = check(is_static=True)
    one.assigned("me", 7, 0.0)
    assert there(one, 0.0, "r9") is None
    assert (one.clear, one.admitted, one.identity.asking) == (False, False, True)
    assert not one.asks_again, "the next assignment asks"
    one.assigned("me", 8, 1.0)
    assert not one.identity.asking
    assert there(one, 1.0, "r9", admitted=True) is not None
    assert not one.admitted


def test_of_two_static_members_that_join_at_once_one_is_admitted() -> None:
    one = check(is_static=True)
    for generation in (7, 8):
        one.assigned("me", generation, 0.0)
        there(one, 0.0, "r9")
    assert one.admitted


@pytest.mark.parametrize("others", [(), (member("x", RunIdentity("another", "r9")),)])
def test_a_static_member_beside_no_other_of_its_lineage_is_admitted_at_once(
    others: tuple[MemberDescription, ...],
) -> None:
    one = check(is_static=True)
    one.assigned("me", 7, 0.0)
    one.asked(0.0)
    one.described(group(MINE, *others), 0.1)
    assert (one.admitted, one.identity.asking) == (True, False)


def test_a_static_member_that_lost_its_place_asks_again() -> None:
    one = check(is_static=True)
    for generation in (7, 8):
        one.assigned("me", generation, 0.0)
    one.lost()
    one.assigned("me", 8, 1.0)
    there(one, 1.0, "r9")
    assert one.asking


OLD = member("old", RunIdentity("l", "r0"))
GIVEN = ev.Assigned(1, "me", (), frozenset(), "range", False, members=1, total=1)


class Asked:
    """A watch whose questions the test answers. As in the run, an assignment that asks for it ends the last look."""

    def __init__(self, session_s: float = 45.0) -> None:
        self.now = 100.0
        self.told: list[bytes] = []
        self.notes: list[tuple[int, str]] = []
        self.looks: list[Call] = []
        self.watch = LineageWatch(
            "g",
            session_s,
            identify=lambda data, rejoins, now: self.told.append(data),
            note=lambda level, text: self.notes.append((level, text)),
        )
        self.first = self.watch.begin("l", "r5")

    def assigned(self) -> None:
        if self.watch.on_action(GIVEN, self.now):
            if self.looks:
                self.looks[-1].abandoned()
            self.looks.append(Call(self.watch.look(), self.now))

    def answered(self, description: GroupDescription) -> None:
        assert self.looks[-1].question == DescribeGroup(DESCRIBE_TIMEOUT_S)
        self.looks[-1].answered(description)

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.looks[-1].at(self.now)

    def warnings(self, text: str) -> int:
        return sum(level == ev.WARNING and text in said for level, said in self.notes)


def test_the_weight_of_the_member_stays_in_its_user_data() -> None:
    told: list[bytes] = []
    watch = LineageWatch(
        "g", 45.0, identify=lambda data, rejoins, now: told.append(data), note=lambda level, text: None, weight=3
    )
    first = watch.begin("l", "r5")
    watch.on_action(GIVEN, 0.0)
    Call(watch.look(), 0.0).answered(group(MINE))
    assert [decode_identity(data) for data in (first, *told)] == [
        RunIdentity("l", "r5", weight=3),
        RunIdentity("l", "r5", admitted=True, weight=3),
    ]


def test_nothing_is_held_up_before_the_check_begins() -> None:
    watch = LineageWatch("", 45.0, identify=lambda data, rejoins, now: None, note=lambda level, text: None)
    assert not watch.on_action(GIVEN, 0.0)
    assert watch.is_clear


def test_the_first_join_tells_the_lineage_and_the_one_after_admission_that() -> None:
    asked = Asked()
    assert decode_identity(asked.first) == ME
    asked.assigned()
    assert not asked.watch.is_clear
    asked.answered(group(MINE))
    assert asked.watch.is_clear
    assert [decode_identity(data) for data in asked.told] == [RunIdentity("l", "r5", admitted=True)]
    assert asked.looks[-1].is_over
    asked.assigned()
    assert len(asked.looks) == 1, "who is admitted looks no more"


def test_a_duplicate_is_reported_once_and_in_the_end_the_query_fails() -> None:
    asked = Asked(session_s=0.0)
    asked.assigned()
    with pytest.raises(ConfigError):
        asked.answered(group(MINE, OLD))
    waiting = Asked()
    for _ in range(2):
        waiting.assigned()
        waiting.answered(group(MINE, OLD))
    assert not waiting.watch.is_clear
    assert waiting.warnings("uses this query's checkpoint, too") == 1


@pytest.mark.parametrize("between", [group(MINE, OLD), group(state="PreparingRebalance")], ids=["there", "rebalancing"])
def test_a_predecessor_that_has_gone_meanwhile_is_forgotten(between: GroupDescription) -> None:
    asked = Asked()
    asked.assigned()
    asked.answered(between)
    asked.later(LOOK_AGAIN_S)
    asked.answered(group(MINE))
    assert asked.watch.is_clear
    assert [decode_identity(data) for data in asked.told] == [RunIdentity("l", "r5", admitted=True)]


@pytest.mark.parametrize(
    ("state", "text"),
    [("Dead", "does not describe the group (state Dead)"), ("Preparing", "not been stable")],
)
def test_a_run_that_goes_on_without_the_check_warns_once(state: str, text: str) -> None:
    asked = Asked(session_s=DEAD_TIMEOUT_S)
    for _ in range(2):
        asked.assigned()
        while not asked.watch.is_clear:
            asked.answered(group(state=state))
            asked.later(LOOK_AGAIN_S)
        assert asked.now <= 100.0 + DEAD_TIMEOUT_S + 2 * LOOK_AGAIN_S
    assert asked.warnings(text) == 1
    assert asked.told == []


# -- the consumer protocol: member ids show lineage and run, and nobody shows whether it is admitted ------------------


def consumer(run: str, lineage: str = "l") -> MemberDescription:
    return MemberDescription(member_id_of(RunIdentity(lineage, run), random.Random()), epoch=1)


def fates(runs: list[str], joined: dict[str, float], seconds: float) -> dict[str, str]:
    """What becomes of members of one lineage that join at these times: `admitted`, or `refused` by then."""
    checks = {run: DuplicateLineageCheck("g", RunIdentity("l", run), 45.0) for run in runs}
    fate: dict[str, str] = {}
    now = 0.0
    while now < seconds:
        there = [run for run in runs if joined[run] <= now and fate.get(run) != "refused"]
        described = group(*map(consumer, there), state="Reconciling")
        for run in there:
            one = checks[run]
            if joined[run] == now:
                one.assigned(consumer(run).member_id, 1, now)
            if run not in fate and asks(one, now):
                try:
                    one.described(described, now)
                except ConfigError:
                    fate[run] = "refused"
                else:
                    fate |= {run: "admitted"} if one.admitted else {}
        now += LOOK_AGAIN_S
    return fate


@given(
    st.permutations(["a", "b", "c"]),
    st.lists(st.sampled_from([0.0, 0.5, 10.0, 60.0, 120.0]), min_size=3, max_size=3),
)
def test_of_copies_that_join_under_the_consumer_protocol_one_stays_and_all_others_are_refused(
    runs: list[str], times: list[float]
) -> None:
    fate = fates(runs, dict(zip(runs, times, strict=True)), 300.0)
    assert sorted(fate.values()) == ["admitted", "refused", "refused"]


def test_under_the_consumer_protocol_the_member_that_was_there_stays() -> None:
    assert fates(["a", "b"], {"a": 60.0, "b": 0.0}, 200.0) == {"b": "admitted", "a": "refused"}


@given(st.lists(st.sets(st.sampled_from(["r1", "r9"])), max_size=60))
def test_a_member_that_waits_for_a_dead_one_does_not_wait_for_those_that_join_after_it(
    joined: list[set[str]],
) -> None:
    """Each of them sees this member, so each is refused. Once it saw the dead one leave, it is admitted."""
    one = check(30.0)
    one.assigned("me", 1, 0.0)
    asks(one, 0.0)
    one.described(group(MINE, consumer("r0")), 0.0)
    for n, runs in enumerate(joined):
        now = LOOK_AGAIN_S * n
        one.asked(now)
        dead = one.described(group(MINE, consumer("r0"), *map(consumer, sorted(runs))), now)
        assert dead == consumer("r0")
    one.described(group(MINE, consumer("r1"), consumer("r9")), 31.0)
    assert one.admitted


def test_a_member_that_comes_back_waits_for_those_that_have_joined_meanwhile() -> None:
    one = check(30.0)
    one.assigned("me", 1, 0.0)
    one.described(group(MINE, consumer("r0")), 0.0)
    one.lost()
    one.assigned("me", 2, 5.0)
    assert one.described(group(MINE, consumer("r9")), 5.0) == consumer("r9")
    assert not one.admitted


@pytest.mark.parametrize("is_static", [False, True])
def test_a_member_that_was_gone_and_is_back_has_joined_later(is_static: bool) -> None:
    one = check(30.0, is_static=is_static)
    one.assigned("me", 1, 0.0)
    one.described(group(MINE, consumer("r0"), consumer("r9")), 0.0)
    one.described(group(MINE, consumer("r0")), 1.0)
    one.described(group(MINE, consumer("r9")), 2.0)
    assert (one.admitted, one.asking) == (True, False)


@pytest.mark.parametrize("is_static", [False, True])
def test_a_static_member_that_has_stopped_is_no_duplicate_for_as_long_as_its_place_is_kept(is_static: bool) -> None:
    """The group keeps its place for its next process, in epoch -2."""
    one = check(is_static=is_static)
    one.assigned("me", 1, 0.0)
    assert one.described(group(MINE, replace(consumer("r0"), instance_id="s", epoch=-2)), 0.0) is None
    assert (one.admitted, one.asking) == (True, False)


def test_a_dead_predecessor_delays_its_successor_for_one_session_at_most() -> None:
    one = check(45.0)
    one.assigned("me", 1, 0.0)
    assert asks(one, 0.0)
    assert one.described(group(MINE, consumer("r0")), 0.0) is not None
    assert asks(one, 44.0)
    assert one.described(group(MINE), 44.0) is None
    assert one.admitted


def test_classic_members_of_such_a_group_are_not_checked_and_that_is_said_once() -> None:
    asked = Asked()
    asked.assigned()
    asked.answered(group(MINE, MemberDescription("java", hides_user_data=True)))
    assert asked.watch.is_clear
    assert asked.warnings("among the members of the classic protocol") == 1


def test_a_member_id_of_another_client_shows_nothing() -> None:
    for member_id in ("rdkafka-1", "streamgroup:a", "streamgroup::r", "other:l:r", "streamgroup:l:r:x"):
        assert identity_in(member_id) is None


@pytest.mark.parametrize("error", [BrokerError(30, "g"), ZeroDivisionError("a defect")])
def test_a_group_that_may_not_be_looked_at_is_warned_of_once(error: Exception) -> None:
    asked = Asked()
    asked.assigned()
    asked.looks[-1].failed(error)
    assert asked.watch.is_clear
    asked.assigned()
    assert len(asked.looks) == 1
    assert asked.warnings("group g: cannot check for a second query on a copy of this checkpoint") == 1


def test_a_slow_coordinator_holds_up_nothing_and_is_asked_again_if_a_duplicate_was_seen() -> None:
    asked, waiting = Asked(), Asked()
    asked.assigned()
    asked.looks[-1].failed(TransportError("no answer in time"))
    assert asked.watch.is_clear
    assert asked.told == []
    assert asked.looks[-1].is_over, "the next assignment asks again"
    assert [level for level, _ in asked.notes] == [ev.INFO]
    waiting.assigned()
    waiting.answered(group(MINE, OLD))
    waiting.later(LOOK_AGAIN_S)
    waiting.looks[-1].failed(TransportError("no answer in time"))
    assert not waiting.watch.is_clear
    waiting.later(LOOK_AGAIN_S)
    waiting.answered(group(MINE))
    assert waiting.watch.is_clear


ENDS = pytest.mark.parametrize("end", [ev.Lost("expelled"), ev.Left()], ids=["lost", "left"])


@ENDS
def test_a_description_that_comes_after_the_membership_has_ended_admits_nobody(end: object) -> None:
    """A member that joins again is a later joiner: it looks again."""
    asked = Asked()
    asked.assigned()
    asked.watch.on_action(end, asked.now)
    asked.answered(group(member("another", RunIdentity("l", "r9"))))
    assert asked.told == []
    asked.assigned()
    assert not asked.watch.is_clear


@ENDS
def test_the_wait_for_a_duplicate_ends_with_the_membership(end: object) -> None:
    asked = Asked()
    asked.assigned()
    asked.answered(group(MINE, OLD))
    asked.watch.on_action(end, asked.now)
    asked.later(LOOK_AGAIN_S)
    assert asked.looks[-1].is_over


@ENDS
def test_who_loses_its_membership_looks_again_when_it_is_back(end: object) -> None:
    asked = Asked()
    asked.assigned()
    asked.answered(group(MINE))
    assert not asked.watch.on_action(end, asked.now)
    asked.assigned()
    assert not asked.watch.is_clear
    asked.answered(group(MINE))
    assert len(asked.told) == 2


# -- the user data of subscriptions ------------------------------------------------------------------------------------


@given(st.binary(max_size=200))
def test_user_data_of_another_client_is_no_identity(data: bytes) -> None:
    assert decode_identity(data) is None


IDENTITIES = st.builds(
    RunIdentity, st.text(max_size=40), st.text(max_size=40), st.booleans(), weight=st.integers(1, MOST_WEIGHT)
)


@given(IDENTITIES, st.integers(0, 2**30))
def test_what_is_reported_is_understood_also_behind_javas_generation(identity: RunIdentity, generation: int) -> None:
    data = encode_identity(identity)
    assert decode_identity(data) == identity
    assert decode_identity(memoryview(data)) == identity
    assert decode_identity(generation.to_bytes(4, "big") + data) == identity


def test_the_bytes_are_compact_json_with_the_format_first() -> None:
    data = encode_identity(RunIdentity("l", "r", admitted=True))
    assert data == b'{"streamgroup":1,"lineage":"l","run":"r","admitted":true}'


OURS: dict[str, Any] = {"streamgroup": 1, "lineage": "l", "run": "r", "admitted": False}


@pytest.mark.parametrize(
    "document",
    [
        OURS | {"streamgroup": 2},
        OURS | {"streamgroup": True},
        OURS | {"lineage": 1},
        OURS | {"run": None},
        OURS | {"admitted": 1},
        {key: value for key, value in OURS.items() if key != "run"},
        [OURS],
        "streamgroup",
    ],
)
def test_another_format_or_shape_is_nobody(document: Any) -> None:
    assert decode_identity(json.dumps(document).encode()) is None


def test_more_than_ours_can_be_is_not_parsed() -> None:
    assert decode_identity(json.dumps(OURS | {"run": "r" * 5000}).encode()) is None
    assert decode_identity(b"[" * 4000) is None
    assert decode_identity(None) is None
    assert decode_identity(b"") is None


@pytest.mark.parametrize("weight", [0, -1, MOST_WEIGHT + 1, True, "3", 2.0, None])
def test_a_weight_that_cannot_be_is_1(weight: Any) -> None:
    assert decode_identity(json.dumps(OURS | {"weight": weight}).encode()) == RunIdentity("l", "r")


def test_what_a_later_release_adds_is_left_alone() -> None:
    assert decode_identity(json.dumps(OURS | {"since": 5}).encode()) == RunIdentity("l", "r")
