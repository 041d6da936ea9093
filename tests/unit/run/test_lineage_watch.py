"""What a run asks about a second query on a copy of its checkpoint (R28), and what becomes of the answers."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest
from streamgroup.driver.membership.lineage_watch import LineageWatch

from streamgroup.errors import BrokerError, ConfigError, StreamGroupError, TransportError
from streamgroup.group import events as ev
from streamgroup.group.identity import Identity, decode_identity
from streamgroup.model import GroupDescription
from tests.unit.run.test_lineage_check import ME, MINE, group, member


class Asked:
    """A watch whose questions the test answers."""

    def __init__(self, session_s: float = 45.0) -> None:
        self.questions: list[Future[GroupDescription]] = []
        self.told: list[bytes] = []
        self.failed: list[StreamGroupError] = []
        self.watch = LineageWatch(
            "g",
            session_s,
            threading.Condition(threading.RLock()),
            self.describe,
            identify=self.told.append,
            on_failed=self.failed.append,
        )
        self.first = self.watch.begin("l", "r5")

    def describe(self, timeout: float) -> Future[GroupDescription]:
        self.questions.append(Future())
        return self.questions[-1]

    def assigned(self) -> None:
        self.watch.on_action(ev.Assigned(1, "me", (), frozenset(), "range", False, members=1, total=1))


def test_the_first_join_tells_the_lineage_and_the_one_after_admission_that() -> None:
    asked = Asked()
    assert decode_identity(asked.first) == ME
    asked.assigned()
    assert not asked.watch.clear()
    asked.questions[0].set_result(group(MINE))
    assert asked.watch.clear()
    assert [decode_identity(data) for data in asked.told] == [Identity("l", "r5", admitted=True)]


def test_an_answer_from_before_the_last_assignment_counts_for_nothing() -> None:
    asked = Asked()
    asked.assigned()
    asked.assigned()
    asked.questions[0].set_result(group(MINE))
    assert not asked.watch.clear()
    asked.questions[1].set_result(group(MINE))
    assert asked.watch.clear()


def test_a_duplicate_is_told_of_once_and_in_the_end_the_query_fails(caplog: pytest.LogCaptureFixture) -> None:
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
    assert asked.watch.clear()
    asked.assigned()
    assert len(asked.questions) == 1
    assert caplog.text.count("nobody will notice") == 1


def test_a_slow_coordinator_holds_up_nothing() -> None:
    asked = Asked()
    asked.assigned()
    asked.questions[0].set_exception(TransportError("no answer in time"))
    assert asked.watch.clear()
    assert asked.told == []
