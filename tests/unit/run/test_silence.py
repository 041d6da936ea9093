"""How long Spark says nothing, and what the run tells about that (R22, R27)."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroup.group.events import WARNING
from streamgroup.options.types import GroupMode, GroupOptions
from streamgroup.run.silence import SilenceWatch
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
