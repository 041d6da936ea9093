"""Stops, drains and pauses of a run, against a member that is a few values."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streamgroup.coordinator.run.lifecycle import (
    COMMIT_SHARE,
    END_GRACE_S,
    LAST_WORD_TIMEOUT_S,
    LEAVE_TIMEOUT_S,
    ONCE_LAST_WORD_TIMEOUT_S,
    STOP_TIMEOUT_S,
    TABLE,
    RunCause,
    RunState,
    Shutdown,
    SilenceWatch,
)
from streamgroup.errors import DrainedError
from streamgroup.group import events as ev
from streamgroup.group.events import WARNING
from streamgroup.group.state_machine import State
from streamgroup.options.types import GroupOptions
from tests.unit.coordinator.run.run_shell import COMMIT, MEMBER, OFF, Call, config


class Member:
    """Idle, stable, nothing to commit; a test changes what it needs."""

    def __init__(self) -> None:
        self.membership = SimpleNamespace(state=State.STABLE, topics=("t",))
        self.stable = True
        self.ledger = SimpleNamespace(
            group="g",
            started=True,
            idle=True,
            commit_pending=False,
            awaits_holding=False,
            settled=True,
            in_flight=None,
            uncommitted=0,
            commits=SimpleNamespace(outstanding=False),
        )

    def farewell(self, now: float) -> list[Any]:
        return ["commit"]

    def step(self, event: object, now: float) -> list[Any]:
        return [event]

    def is_in_flight(self, *, planned_ranges: object = ()) -> None:
        self.ledger.idle = False
        self.ledger.in_flight = SimpleNamespace(planned_ranges=planned_ranges)

    def has_sunk(self) -> None:
        self.ledger.idle, self.ledger.in_flight = True, None

    def leaves(self) -> None:
        self.membership.state = State.LEFT


@pytest.fixture
def member() -> Member:
    return Member()


def shutdown_of(member: Member, *, listened: bool = False, is_once: bool = False) -> tuple[Shutdown, list[Any]]:
    done: list[Any] = []
    shutdown = Shutdown(member, done.extend, has_failed=lambda: False, is_listened=lambda: listened)  # type: ignore[arg-type]
    shutdown.is_once = is_once
    assert shutdown.begin()
    shutdown.join()
    return shutdown, done


@pytest.mark.parametrize("answered", [True, False])
def test_a_stop_commits_before_it_leaves_and_takes_no_longer_than_it_may(member: Member, *, answered: bool) -> None:
    shutdown, done = shutdown_of(member)
    member.ledger.commit_pending = True
    stop = Call(shutdown.stop(0.0))
    assert (done, shutdown.stopped, stop.is_over) == (["commit"], True, False)
    member.ledger.commit_pending = not answered
    stop.at(0.1 if answered else LEAVE_TIMEOUT_S * COMMIT_SHARE)
    assert done == ["commit", ev.Stop()]
    if answered:
        member.leaves()
    assert stop.at(0.2 if answered else LEAVE_TIMEOUT_S).result is True


def test_under_once_a_stop_waits_longer_since_the_report_is_always_behind_it(member: Member) -> None:
    shutdown, done = shutdown_of(member, listened=True, is_once=True)
    member.is_in_flight()
    stop = Call(shutdown.stop(0.0)).at(LAST_WORD_TIMEOUT_S)
    assert done == []
    stop.at(ONCE_LAST_WORD_TIMEOUT_S - 0.1)
    assert done == []
    member.has_sunk()
    stop.at(ONCE_LAST_WORD_TIMEOUT_S - 0.1)
    assert done == ["commit", ev.Stop()]


@pytest.mark.parametrize(("is_once", "waits"), [(True, True), (False, False)])
def test_a_batch_that_was_not_asked_for_is_waited_for_under_once_alone(
    member: Member, *, is_once: bool, waits: bool
) -> None:
    """The sink may have skipped it (R17), and the commit must say so. Elsewhere Spark's next call tells."""
    shutdown, done = shutdown_of(member, listened=True, is_once=is_once)
    member.is_in_flight(planned_ranges=None)
    Call(shutdown.stop(0.0))
    assert (done == []) is waits


@pytest.mark.parametrize(
    ("is_once", "waits_s"),
    [(False, LAST_WORD_TIMEOUT_S), (True, ONCE_LAST_WORD_TIMEOUT_S)],
    ids=["by default", "under Once"],
)
def test_a_report_that_never_comes_leaves_time_for_the_commit(member: Member, *, is_once: bool, waits_s: float) -> None:
    shutdown, done = shutdown_of(member, listened=True, is_once=is_once)
    member.is_in_flight()
    member.ledger.commit_pending = True
    stop = Call(shutdown.stop(0.0)).at(waits_s)
    assert done == ["commit"]
    latest = waits_s + STOP_TIMEOUT_S - LAST_WORD_TIMEOUT_S
    assert stop.at(latest).at(latest).is_over


def test_the_end_of_the_jvm_ends_the_wait_for_a_report(member: Member) -> None:
    shutdown, done = shutdown_of(member, listened=True, is_once=True)
    member.is_in_flight()
    first = Call(shutdown.stop(0.0))
    assert done == []
    second = Call(shutdown.stop(0.1, last_word=False))
    first.at(0.1)
    assert done == ["commit", ev.Stop()]
    member.leaves()
    assert first.at(0.2).result is True
    assert second.at(0.2).result is False


@pytest.mark.parametrize(
    ("ranges", "listened", "last_word"),
    [(None, True, True), ((), True, False), ((), False, True)],
    ids=["not begun", "no report is wanted", "no listener"],
)
def test_a_stop_waits_only_for_a_report_that_may_come(
    member: Member, ranges: object, listened: bool, last_word: bool
) -> None:
    shutdown, done = shutdown_of(member, listened=listened)
    member.is_in_flight(planned_ranges=ranges)
    Call(shutdown.stop(0.0, last_word=last_word))
    assert done == ["commit", ev.Stop()]


def test_a_second_stop_waits_for_the_first(member: Member) -> None:
    shutdown, _ = shutdown_of(member)
    first, second = Call(shutdown.stop(0.0)), Call(shutdown.stop(0.0))
    assert not second.is_over
    member.leaves()
    first.at(0.1)
    assert second.at(0.1).result is False


def test_a_drain_waits_for_the_batch_in_flight_then_for_its_commit(member: Member) -> None:
    shutdown, done = shutdown_of(member)
    member.is_in_flight()
    drain = Call(shutdown.drain(0.0, 10.0))
    assert (shutdown.wanted, shutdown.stopped, done) == (True, False, [])
    member.has_sunk()
    member.ledger.commit_pending = True
    assert drain.at(1.0)
    assert done == []
    member.ledger.commit_pending = False
    drain.at(2.0)
    member.leaves()
    assert drain.at(2.1).result is True


def test_a_drain_whose_last_commit_was_not_answered_says_that_a_batch_may_be_repeated(member: Member) -> None:
    shutdown, done = shutdown_of(member)
    member.ledger.commits.outstanding = True
    drain = Call(shutdown.drain(0.0, 10.0))
    member.leaves()
    assert (done, drain.at(0.1).result) == (["commit", ev.Stop()], False)


def test_a_drain_waits_for_the_member_that_commits_what_a_lost_generation_could_not(member: Member) -> None:
    shutdown, _ = shutdown_of(member)
    member.ledger.awaits_holding, member.stable = True, False
    drain = Call(shutdown.drain(0.0, 10.0)).at(5.0)
    assert not shutdown.stopped
    member.stable = True
    drain.at(6.0)
    assert shutdown.stopped


def test_a_drain_from_outside_ends_the_query_once_all_coordinators_are_done_or_a_while_after_its_time(
    member: Member,
) -> None:
    shutdown, _ = shutdown_of(member)
    member.leaves()
    Call(shutdown.drain(0.0, 1.0, ends=True))
    assert Call(shutdown.wait_for_end(0.0), 0.5).is_over
    with pytest.raises(DrainedError, match="no batch will be repeated"):
        Call(shutdown.wait_for_end(0.0), 1.0 + END_GRACE_S)
    shutdown.end()
    with pytest.raises(DrainedError):
        Call(shutdown.wait_for_end(0.0), 0.5)


def test_a_pause_leaves_and_the_next_call_joins_again(member: Member) -> None:
    shutdown, done = shutdown_of(member)
    pause = Call(shutdown.pause(0.0))
    member.leaves()
    assert pause.at(0.1).result is True
    assert Call(shutdown.resume(), 5.0).result is True
    assert done == ["commit", ev.Stop(), ev.Start(("t",))]
    assert not shutdown.stopped


@pytest.mark.parametrize("state", [State.UNJOINED, State.LEFT])
def test_a_run_without_a_member_in_the_group_has_nothing_to_pause(member: Member, state: State) -> None:
    shutdown, done = shutdown_of(member)
    member.membership.state = state
    assert Call(shutdown.pause(0.0)).result is False
    assert done == []


def test_a_call_after_a_pause_waits_until_the_member_has_left(member: Member) -> None:
    shutdown, _ = shutdown_of(member)
    Call(shutdown.pause(0.0))
    member.membership.state = State.LEAVING
    resume = Call(shutdown.resume())
    assert not resume.is_over
    member.leaves()
    assert resume.at(0.1).result is True


def test_a_call_after_a_pause_does_not_join_where_a_stop_has_begun_meanwhile(member: Member) -> None:
    shutdown, done = shutdown_of(member)
    Call(shutdown.pause(0.0))
    member.membership.state = State.LEAVING
    resume, stop = Call(shutdown.resume()), Call(shutdown.stop(0.1))
    done.clear()
    member.leaves()
    assert resume.at(0.2).result is False
    assert not any(isinstance(action, ev.Start) for action in done)
    stop.at(0.2)
    assert shutdown.stopped


@pytest.mark.parametrize("state", RunState)
def test_a_run_that_is_stopped_or_drained_in_any_state_comes_to_its_end(state: RunState) -> None:
    for way in (RunCause.STOP, RunCause.DRAIN):
        now = state
        for cause in (way, RunCause.STOP, RunCause.LEFT):
            if now in {RunState.LEAVING, RunState.STOPPED} and cause is RunCause.STOP:
                continue  # `Shutdown.stop` waits for the one that leaves
            now = now if now is RunState.STOPPED else TABLE.next_state(now, cause)
        assert now is RunState.STOPPED


SESSION_S, POLL_S = 45.0, 300.0
"""The defaults of session.timeout.ms and max.poll.interval.ms."""


class Silence:
    """A watch, its time, and what it noted."""

    def __init__(self, group: GroupOptions, *, is_listened: bool = False) -> None:
        self.now = 1000.0
        self.notes: list[str] = []
        self.watch = SilenceWatch(config(group), is_listened=lambda: is_listened, note=self._note)

    def _note(self, level: int, text: str) -> None:
        assert level == WARNING
        self.notes.append(text)

    def call(self) -> None:
        self.watch.begin_call(self.now)
        self.watch.end_call(self.now)

    def look(self, after: float, *, jvm_is_stopped: bool = False) -> str | None:
        self.now += after
        return self.watch.look(self.now, jvm_is_stopped=jvm_is_stopped)


@pytest.mark.parametrize(
    ("gap", "listened", "warned"), [(11, False, 1), (9, False, 0), (11, True, 0)], ids=["long", "short", "listened to"]
)
def test_with_long_triggers_the_listener_is_asked_for_once(gap: float, listened: bool, warned: int) -> None:
    silence = Silence(MEMBER, is_listened=listened)
    for _ in range(3):
        silence.call()
        silence.now += gap
    assert "\n".join(silence.notes).count("call streamgroup.listen(spark)") == warned


# -- a driver that seems hung (R27) -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "who", "keeps"),
    [(MEMBER, "g: Spark", True), (COMMIT, "g: Spark", False), (OFF, "no group: Spark", False)],
    ids=["member", "commit", "off"],
)
def test_only_a_member_warns_that_it_keeps_partitions_from_others(options: GroupOptions, who: str, keeps: bool) -> None:
    silence = Silence(options)
    silence.call()
    assert silence.look(1_000) is None
    (said,) = silence.notes
    assert said.startswith(who)
    assert ("group.maxSilence" in said) is keeps


@pytest.mark.parametrize(
    ("options", "stopped", "reason"),
    [
        ({"max_silence_ms": 400_000}, False, "Spark has made no call for 401 s, longer than group.maxSilence"),
        ({"session_timeout_ms": 400_000}, True, "the driver's JVM has been stopped (state T) for 401 s"),
    ],
)
def test_the_reason_to_leave_comes_once_for_each_silence(options: dict[str, Any], stopped: bool, reason: str) -> None:
    silence = Silence(GroupOptions("g", max_poll_interval_ms=500_000, **options))
    for _ in range(2):
        silence.call()
        assert silence.look(0.0, jvm_is_stopped=stopped) is None
        assert silence.look(401.0, jvm_is_stopped=stopped) == reason
        assert silence.look(401.0, jvm_is_stopped=stopped) is None


def test_a_silence_that_a_java_consumer_would_not_survive_is_said_once() -> None:
    silence = Silence(MEMBER, is_listened=True)
    silence.call()
    silence.look(POLL_S)
    assert silence.notes == []
    silence.look(1)
    silence.look(3600)
    (said,) = silence.notes
    assert said.startswith("g: Spark has made no call for 301 s. The driver may be hung")
    silence.call()
    silence.call()
    silence.look(20_000)
    assert len(silence.notes) == 2, "the next silence is another one"


def test_batches_that_take_long_are_no_silence() -> None:
    silence = Silence(MEMBER, is_listened=True)
    silence.call()
    silence.now += 250
    silence.call()
    silence.look(600)
    assert silence.notes == [], "less than three times what was normal before"
    silence.look(151)
    assert "; the longest time between two calls was 250 s" in silence.notes[0]


def test_while_spark_waits_for_an_answer_and_before_its_first_call_it_is_not_silent() -> None:
    silence = Silence(GroupOptions("g", max_silence_ms=10_000))
    assert silence.look(10_000) is None
    silence.watch.begin_call(silence.now)
    assert silence.look(10_000) is None
    silence.watch.end_call(silence.now)
    assert silence.look(9) is None
    assert silence.look(2)
    assert silence.notes == [], "there is nothing to compare with"


def test_a_jvm_that_went_on_in_between_was_not_stopped_for_that_long() -> None:
    silence = Silence(MEMBER)
    silence.call()
    silence.look(5, jvm_is_stopped=True)
    silence.look(SESSION_S - 1, jvm_is_stopped=True)
    silence.look(1)
    assert silence.look(1, jvm_is_stopped=True) is None
    assert silence.look(SESSION_S, jvm_is_stopped=True) is None
    assert silence.look(1, jvm_is_stopped=True)


def test_a_call_that_waits_is_left_for_each_time_the_jvm_is_stopped_for_so_long() -> None:
    silence = Silence(MEMBER)
    silence.watch.begin_call(silence.now)
    for _ in range(2):
        silence.look(1, jvm_is_stopped=True)
        assert silence.look(SESSION_S + 1, jvm_is_stopped=True)
        assert silence.look(SESSION_S + 1, jvm_is_stopped=True) is None
        assert silence.look(1) is None


def test_a_stopped_jvm_is_no_long_trigger() -> None:
    silence = Silence(MEMBER)
    silence.call()
    silence.look(20, jvm_is_stopped=True)
    silence.call()
    assert silence.notes == []
