"""How long Spark says nothing, and what the run tells about that (R22, R27)."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroup.group.events import WARNING
from streamgroup.options.types import GroupMode, GroupOptions
from streamgroup.run.silence import SilenceVerdict, SilenceWatch, TriggerWatchdog
from tests.unit.run.calls import config


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


# -- long triggers (R22) ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gap", "listened", "warned"), [(11, False, 1), (9, False, 0), (11, True, 0)], ids=["long", "short", "listened to"]
)
def test_with_long_triggers_the_listener_is_asked_for_once(gap: float, listened: bool, warned: int) -> None:
    silence = Silence(GroupOptions("g"), is_listened=listened)
    for _ in range(3):
        silence.call()
        silence.now += gap
    assert "\n".join(silence.notes).count("Call streamgroup.listen(spark)") == warned


# -- a driver that seems hung (R27) -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "who", "keeps"),
    [
        (GroupOptions("g"), "g: Spark", True),
        (GroupOptions("g", mode=GroupMode.COMMIT), "g: Spark", False),
        (GroupOptions(mode=GroupMode.OFF), "no group: Spark", False),
    ],
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
        ({"max_silence_ms": 400_000}, False, "Spark has been silent for 401 s, longer than group.maxSilence"),
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


def test_nothing_is_silent_while_a_call_of_spark_runs() -> None:
    silence = Silence(GroupOptions("g", max_silence_ms=1_000))
    silence.watch.begin_call(silence.now)
    assert silence.look(1_000) is None
    silence.watch.end_call(silence.now)
    assert silence.look(0.5) is None
    assert silence.look(1.0) is not None
    assert silence.notes == []


SESSION_S, POLL_S = 45.0, 300.0


class Time:
    """A clock that only goes on when the test says so, and the watchdog by it."""

    def __init__(self, max_silence_s: float | None = None) -> None:
        self.now = 1000.0
        self.watchdog = TriggerWatchdog(session_s=SESSION_S, poll_s=POLL_S, max_silence_s=max_silence_s)

    def call(self) -> float:
        gap = self.watchdog.begin_call(self.now)
        self.watchdog.end_call(self.now)
        return gap

    def reason(self) -> str:
        return self.watchdog.look(self.now, jvm_is_stopped=False).reason

    def after(self, seconds: float, *, stopped: bool = False) -> SilenceVerdict:
        self.now += seconds
        return self.watchdog.look(self.now, jvm_is_stopped=stopped).verdict


# -- long silence -----------------------------------------------------------------------------------------------------


def test_a_silence_that_a_java_consumer_would_not_survive_is_said_once() -> None:
    time = Time()
    time.call()
    assert time.after(POLL_S) is SilenceVerdict.GO_ON
    time.now += 1
    look = time.watchdog.look(time.now, jvm_is_stopped=False)
    assert (look.verdict, look.reason) == (SilenceVerdict.WARN, "Spark has asked for nothing for 301 s")
    assert time.after(3600) is SilenceVerdict.GO_ON, "once"
    time.call()
    time.call()
    assert time.after(20_000) is SilenceVerdict.WARN, "the next silence is another one"


def test_batches_that_take_long_are_no_silence() -> None:
    time = Time()
    time.call()
    time.now += 250
    assert time.call() == 250
    assert time.after(600) is SilenceVerdict.GO_ON, "less than three times what was normal before"
    time.now += 151
    assert time.reason().endswith("its longest silence before was 250 s")


def test_while_spark_waits_for_an_answer_it_is_not_silent() -> None:
    time = Time(max_silence_s=10)
    time.watchdog.begin_call(time.now)
    assert time.after(10_000) is SilenceVerdict.GO_ON
    time.watchdog.end_call(time.now)
    assert time.after(9) is SilenceVerdict.GO_ON
    assert time.after(2) is SilenceVerdict.LEAVE


def test_before_its_first_call_there_is_nothing_to_compare_with() -> None:
    time = Time(max_silence_s=10)
    assert time.after(10_000) is SilenceVerdict.GO_ON
    assert time.call() == 0


# -- a hung driver ----------------------------------------------------------------------------------------------------


def test_after_max_silence_the_member_leaves_once() -> None:
    time = Time(max_silence_s=60)
    time.call()
    assert time.after(60) is SilenceVerdict.GO_ON
    assert time.after(1) is SilenceVerdict.LEAVE
    assert time.after(1000) is SilenceVerdict.GO_ON
    time.call()
    assert time.after(61) is SilenceVerdict.LEAVE


def test_a_jvm_stopped_for_longer_than_a_session_is_left_for() -> None:
    time = Time()
    time.call()
    assert time.after(5, stopped=True) is SilenceVerdict.GO_ON
    assert time.after(SESSION_S, stopped=True) is SilenceVerdict.GO_ON
    assert time.after(1, stopped=True) is SilenceVerdict.LEAVE


def test_a_jvm_that_went_on_in_between_was_not_stopped_for_that_long() -> None:
    time = Time()
    time.call()
    time.after(5, stopped=True)
    time.after(SESSION_S - 1, stopped=True)
    time.after(1)
    assert time.after(1, stopped=True) is SilenceVerdict.GO_ON
    assert time.after(SESSION_S, stopped=True) is SilenceVerdict.GO_ON
    assert time.after(1, stopped=True) is SilenceVerdict.LEAVE


def test_a_call_that_waits_is_left_for_each_time_the_jvm_is_stopped_for_so_long() -> None:
    time = Time()
    time.watchdog.begin_call(time.now)
    for _ in range(2):
        time.after(1, stopped=True)
        assert time.after(SESSION_S + 1, stopped=True) is SilenceVerdict.LEAVE
        assert time.after(SESSION_S + 1, stopped=True) is SilenceVerdict.GO_ON
        assert time.after(1) is SilenceVerdict.GO_ON


def test_a_stopped_jvm_is_no_long_trigger() -> None:
    time = Time()
    time.call()
    time.after(20, stopped=True)
    assert time.call() == 0
