"""Two live members with one lineage (R28): who is the later one, how long it waits, what it is told."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.driver.membership.twins import AGAIN_S, Admission, Twins, find_twin
from streamgroup.errors import BrokerError, ConfigError, StreamGroupError, TransportError
from streamgroup.group import events as ev
from streamgroup.group.identity import Identity, decode_identity, encode_identity
from streamgroup.wire.consumer import ConsumerSubscription, encode_subscription
from streamgroup.wire.messages.admin import DescribedGroup, DescribedGroupMember

ME = Identity("l", "r5")


def member(member_id: str, identity: Identity | None, **others: Any) -> DescribedGroupMember:
    data = None if identity is None else encode_identity(identity)
    metadata = encode_subscription(ConsumerSubscription(topics=("t",), user_data=data))
    given = {"client_id": f"client-{member_id}", "client_host": "/10.0.0.1", "member_metadata": metadata}
    return DescribedGroupMember(member_id=member_id, **{**given, **others})


def group(*members: DescribedGroupMember, state: str = "Stable") -> DescribedGroup:
    return DescribedGroup(error_code=0, group_id="g", group_state=state, members=members)


MINE = member("me", ME)


# -- who goes before whom ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "is_twin"),
    [
        (Identity("l", "r9", admitted=True), True),
        (Identity("l", "r1", admitted=True), True),
        (Identity("l", "r1"), True),
        (Identity("l", "r9"), False),
        (Identity("another", "r1", admitted=True), False),
        (Identity("l", "r5", admitted=True), False),
        (None, False),
    ],
)
def test_a_twin_has_my_lineage_another_run_and_goes_before_me(other: Identity | None, is_twin: bool) -> None:
    assert (find_twin(group(MINE, member("x", other)), ME, "me") is not None) is is_twin


def test_members_that_cannot_be_read_are_nobodys_twins() -> None:
    strange = (member("x", None, member_metadata=b"\x00"), member("y", None, member_metadata=b""))
    assert find_twin(group(*strange, MINE), ME, "me") is None


@given(st.lists(st.tuples(st.text("ab", min_size=1, max_size=4), st.booleans()), min_size=2, max_size=5, unique=True))
def test_of_several_that_look_at_the_same_group_at_most_one_stays(runs: list[tuple[str, bool]]) -> None:
    """One admitted before them at most: who is admitted looks no more."""
    first_admitted = next((run for run, admitted in runs if admitted), None)
    distinct = {run: Identity("l", run, run == first_admitted) for run, _ in runs}
    described = group(*(member(run, identity) for run, identity in distinct.items()))
    staying = [
        run for run, identity in distinct.items() if identity.admitted or find_twin(described, identity, run) is None
    ]
    assert staying == [first_admitted or min(distinct)]


# -- admission --------------------------------------------------------------------------------------------------------


def admission(session_s: float = 45.0) -> Admission:
    return Admission("g", ME, session_s)


def test_without_a_twin_one_look_admits_for_good() -> None:
    one = admission()
    assert one.clear, "before the first assignment there is nothing to hold up"
    one.assigned("me", 10.0)
    assert not one.clear
    assert one.due(10.0)
    assert not one.due(10.0), "asked once"
    assert one.described(group(MINE), 10.1) is None
    assert (one.clear, one.admitted, one.identity.admitted) == (True, True, True)
    one.assigned("me", 20.0)
    assert one.clear
    assert not one.due(20.0)


def test_a_twin_is_waited_for_until_a_session_timeout_has_passed() -> None:
    one = admission(6.0)
    twin = member("old", Identity("l", "r0", admitted=True))
    one.assigned("me", 0.0)
    now = 0.0
    while now < 5.9:
        assert one.due(now)
        assert one.described(group(MINE, twin), now) == twin
        assert not one.clear
        assert not one.due(now + AGAIN_S / 2)
        now += AGAIN_S
    assert one.due(6.0)
    with pytest.raises(ConfigError) as refused:
        one.described(group(MINE, twin), 6.0)
    for told in ("'g'", "'client-old'", "/10.0.0.1", "run r0", "6 s", "checkpoint directory of its own"):
        assert told in str(refused.value)
    assert not one.clear


def test_a_predecessor_whose_session_ends_meanwhile_is_forgotten() -> None:
    one = admission(6.0)
    one.assigned("me", 0.0)
    one.described(group(MINE, member("old", Identity("l", "r0"))), 0.0)
    assert one.described(group(state="PreparingRebalance"), 3.0) is None
    assert not one.clear, "its end rebalances the group: nobody tells anything then"
    assert one.due(3.0 + AGAIN_S)
    assert one.described(group(MINE), 7.0) is None
    assert one.clear


def test_no_answer_holds_up_nothing_unless_a_twin_was_seen() -> None:
    one = admission()
    one.assigned("me", 0.0)
    assert one.due(0.0)
    one.unanswered(1.0)
    assert one.clear
    assert not one.due(9.0), "asked again with the next assignment"
    one.assigned("me", 10.0)
    assert not one.clear
    assert one.due(10.0)
    one.described(group(member("old", Identity("l", "r0"))), 10.0)
    one.unanswered(11.0)
    assert not one.clear
    assert one.due(11.0 + AGAIN_S)


def test_who_comes_back_after_losing_its_membership_looks_again() -> None:
    one = admission()
    one.assigned("me", 0.0)
    one.described(group(MINE), 0.0)
    one.lost()
    one.assigned("me-2", 5.0)
    assert not one.clear
    assert one.due(5.0)


# -- asking -----------------------------------------------------------------------------------------------------------


class Asked:
    """Twins whose questions the test answers."""

    def __init__(self, session_s: float = 45.0) -> None:
        self.questions: list[Future[DescribedGroup]] = []
        self.told: list[bytes] = []
        self.failed: list[StreamGroupError] = []
        self.twins = Twins(
            "g",
            session_s,
            threading.Condition(threading.RLock()),
            self.describe,
            identify=self.told.append,
            on_failed=self.failed.append,
        )
        self.first = self.twins.begin("l", "r5")

    def describe(self, timeout: float) -> Future[DescribedGroup]:
        self.questions.append(Future())
        return self.questions[-1]

    def assigned(self) -> None:
        self.twins.hear(ev.Assigned(1, "me", (), frozenset(), "range", False, members=1, total=1))


def test_the_first_join_tells_the_lineage_and_the_one_after_admission_that() -> None:
    asked = Asked()
    assert decode_identity(asked.first) == ME
    asked.assigned()
    assert not asked.twins.clear()
    asked.questions[0].set_result(group(MINE))
    assert asked.twins.clear()
    assert [decode_identity(data) for data in asked.told] == [Identity("l", "r5", admitted=True)]


def test_an_answer_from_before_the_last_assignment_counts_for_nothing() -> None:
    asked = Asked()
    asked.assigned()
    asked.assigned()
    asked.questions[0].set_result(group(MINE))
    assert not asked.twins.clear()
    asked.questions[1].set_result(group(MINE))
    assert asked.twins.clear()


def test_a_twin_is_told_of_once_and_in_the_end_the_query_fails(caplog: pytest.LogCaptureFixture) -> None:
    asked = Asked(session_s=0.0)
    asked.assigned()
    asked.questions[0].set_result(group(MINE, member("old", Identity("l", "r0"))))
    assert [type(error) for error in asked.failed] == [ConfigError]
    waiting = Asked()
    for _ in range(2):
        waiting.assigned()
        waiting.questions[-1].set_result(group(MINE, member("old", Identity("l", "r0"))))
    assert waiting.failed == []
    assert caplog.text.count("reads with this query's checkpoint, too") == 1


@pytest.mark.parametrize("error", [BrokerError(30, "g"), ZeroDivisionError("a defect")])
def test_a_group_that_may_not_be_looked_at_is_warned_of_once(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Asked()
    asked.assigned()
    asked.questions[0].set_exception(error)
    assert asked.twins.clear()
    asked.assigned()
    assert len(asked.questions) == 1
    assert caplog.text.count("nobody will notice") == 1


def test_a_slow_coordinator_holds_up_nothing() -> None:
    asked = Asked()
    asked.assigned()
    asked.questions[0].set_exception(TransportError("no answer in time"))
    assert asked.twins.clear()
    assert asked.told == []
