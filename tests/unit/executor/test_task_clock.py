from __future__ import annotations

from streamgroup.executor.task_clock import TaskClock


def test_a_pause_is_left_out() -> None:
    now = 100.0
    clock = TaskClock(lambda: now)
    assert clock() == 100
    now = 101
    assert clock() == 101
    clock.pause()
    now = 150
    clock.pause()
    assert clock() == 101
    clock.resume()
    assert clock() == 101
    now = 152
    clock.resume()
    assert clock() == 103
