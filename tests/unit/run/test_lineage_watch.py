"""The questions of a run about a second query on a copy of its checkpoint (R28), and their answers."""

from __future__ import annotations

import pytest

from streamgroup.errors import BrokerError, ConfigError, TransportError
from streamgroup.group import events as ev
from streamgroup.group.identity import Identity, decode_identity
from streamgroup.model import GroupDescription
from streamgroup.run.lineage_check import DEAD_TIMEOUT_S, LOOK_AGAIN_S
from streamgroup.run.lineage_watch import DESCRIBE_TIMEOUT_S, LineageWatch
from streamgroup.run.questions import DescribeGroup
from tests.unit.run.calls import Call
from tests.unit.run.test_lineage_check import ME, MINE, group, member

OLD = member("old", Identity("l", "r0"))
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
    assert [decode_identity(data) for data in asked.told] == [Identity("l", "r5", admitted=True)]
    assert asked.looks[-1].is_over
    asked.assigned()
    assert len(asked.looks) == 1, "who is admitted looks no more"


def test_an_answer_from_before_the_last_assignment_counts_for_nothing() -> None:
    asked = Asked()
    asked.assigned()
    asked.assigned()
    asked.looks[0].answered(group(MINE))
    assert not asked.watch.is_clear
    asked.answered(group(MINE))
    assert asked.watch.is_clear


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
    assert waiting.warnings("reads with this query's checkpoint, too") == 1


def test_a_duplicate_is_looked_for_again_and_again_until_a_session_timeout_has_passed() -> None:
    asked = Asked(session_s=6.0)
    asked.assigned()
    for _ in range(int(6.0 / LOOK_AGAIN_S)):
        asked.answered(group(MINE, OLD))
        assert asked.looks[-1].question is None
        assert asked.looks[-1].wake_at == asked.now + LOOK_AGAIN_S
        asked.later(LOOK_AGAIN_S)
    with pytest.raises(ConfigError, match="another live member reads with a copy of this query's checkpoint"):
        asked.answered(group(MINE, OLD))
    assert asked.warnings("reads with this query's checkpoint, too") == 1


@pytest.mark.parametrize("between", [group(MINE, OLD), group(state="PreparingRebalance")], ids=["there", "rebalancing"])
def test_a_predecessor_that_has_gone_meanwhile_is_forgotten(between: GroupDescription) -> None:
    asked = Asked()
    asked.assigned()
    asked.answered(between)
    asked.later(LOOK_AGAIN_S)
    asked.answered(group(MINE))
    assert asked.watch.is_clear
    assert [decode_identity(data) for data in asked.told] == [Identity("l", "r5", admitted=True)]


@pytest.mark.parametrize(
    ("state", "text"),
    [("Dead", "other members use the consumer group protocol of KIP-848"), ("Preparing", "not been stable")],
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


@pytest.mark.parametrize("error", [BrokerError(30, "g"), ZeroDivisionError("a defect")])
def test_a_group_that_may_not_be_looked_at_is_warned_of_once(error: Exception) -> None:
    asked = Asked()
    asked.assigned()
    asked.looks[-1].failed(error)
    assert asked.watch.is_clear
    asked.assigned()
    assert len(asked.looks) == 1
    assert asked.warnings("group g: cannot check for a second query on a copy of this checkpoint") == 1


def test_a_slow_coordinator_holds_up_nothing() -> None:
    asked = Asked()
    asked.assigned()
    asked.looks[-1].failed(TransportError("no answer in time"))
    assert asked.watch.is_clear
    assert asked.told == []
    assert asked.looks[-1].is_over, "the next assignment asks again"
    assert [level for level, _ in asked.notes] == [ev.INFO]


def test_a_slow_coordinator_is_asked_again_where_a_duplicate_was_seen() -> None:
    asked = Asked()
    asked.assigned()
    asked.answered(group(MINE, OLD))
    asked.later(LOOK_AGAIN_S)
    asked.looks[-1].failed(TransportError("no answer in time"))
    assert not asked.watch.is_clear
    asked.later(LOOK_AGAIN_S)
    asked.answered(group(MINE))
    assert asked.watch.is_clear


ENDS = pytest.mark.parametrize("end", [ev.Lost("expelled"), ev.Left()], ids=["lost", "left"])


@ENDS
def test_a_description_that_comes_after_the_membership_has_ended_admits_nobody(end: object) -> None:
    """A member that joins again is a later joiner: it looks again."""
    asked = Asked()
    asked.assigned()
    asked.watch.on_action(end, asked.now)
    asked.answered(group(member("another", Identity("l", "r9"))))
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
