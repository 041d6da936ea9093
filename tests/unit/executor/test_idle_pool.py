"""A worker process keeps connections and producers between tasks: a few, for some minutes, and each for one task."""

from __future__ import annotations

import math
import os
import threading

import pytest

from streamgroup.executor import idle_pool
from streamgroup.executor.idle_pool import IdlePool
from tests.clock import Clock

MAX_IDLE_S = 180.0


class Kept:
    """Counts how often it was closed."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pool(clock: Clock) -> IdlePool[str, Kept]:
    return IdlePool(2, clock)


def test_an_empty_pool_has_nothing_to_take(pool: IdlePool[str, Kept]) -> None:
    assert pool.take("a") is None


def test_an_object_is_taken_by_its_key_and_by_one_task_only(pool: IdlePool[str, Kept]) -> None:
    kept = Kept()
    pool.keep("a", kept, MAX_IDLE_S)
    assert pool.take("b") is None
    assert pool.take("a") is kept
    assert pool.take("a") is None
    assert kept.closed == 0


def test_of_several_with_one_key_the_one_used_last_is_taken_first(pool: IdlePool[str, Kept]) -> None:
    first, last = Kept(), Kept()
    pool.keep("a", first, MAX_IDLE_S)
    pool.keep("a", last, MAX_IDLE_S)
    assert [pool.take("a"), pool.take("a")] == [last, first]


def test_the_oldest_above_the_limit_is_closed_whatever_its_key(pool: IdlePool[str, Kept]) -> None:
    kept = {key: Kept() for key in "abc"}
    for key, each in kept.items():
        pool.keep(key, each, MAX_IDLE_S)
    assert [each.closed for each in kept.values()] == [1, 0, 0]
    assert [pool.take(key) for key in "abc"] == [None, kept["b"], kept["c"]]


@pytest.mark.parametrize(("idle", "is_kept"), [(MAX_IDLE_S, True), (MAX_IDLE_S + 0.5, False)])
def test_an_object_that_was_idle_for_too_long_is_closed_by_the_next_take(
    idle: float, is_kept: bool, pool: IdlePool[str, Kept], clock: Clock
) -> None:
    """Any key's take looks for them."""
    old, asked, patient = Kept(), Kept(), Kept()
    pool.keep("old", old, MAX_IDLE_S)
    clock.now += idle
    pool.keep("a", asked, 1.0)
    assert pool.take("a") is asked
    assert old.closed == (0 if is_kept else 1)
    assert pool.take("old") is (old if is_kept else None)
    pool.keep("b", patient, math.inf)
    clock.now += 1e9
    assert pool.take("b") is patient


def test_use_starts_the_idle_time_anew(pool: IdlePool[str, Kept], clock: Clock) -> None:
    kept = Kept()
    for _ in range(3):
        pool.keep("a", kept, MAX_IDLE_S)
        clock.now += MAX_IDLE_S - 1
        assert pool.take("a") is kept


def test_a_cleared_pool_has_closed_everything_once(pool: IdlePool[str, Kept]) -> None:
    kept = [Kept(), Kept()]
    for each in kept:
        pool.keep("a", each, MAX_IDLE_S)
    pool.clear()
    pool.clear()
    assert [each.closed for each in kept] == [1, 1]
    assert pool.take("a") is None


def test_a_forked_process_leaves_its_parents_objects_open_and_keeps_its_own(
    pool: IdlePool[str, Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    parents, own = Kept(), Kept()
    pool.keep("a", parents, MAX_IDLE_S)
    child = os.getpid() + 1
    monkeypatch.setattr(idle_pool.os, "getpid", lambda: child)
    assert pool.take("a") is None
    pool.keep("a", own, MAX_IDLE_S)
    assert pool.take("a") is own
    pool.clear()
    assert parents.closed == 0


def test_an_object_may_use_the_pool_while_it_is_closed(pool: IdlePool[str, Kept]) -> None:
    """It is closed outside of the lock: a producer's close may take seconds, and other threads go on."""

    class Returning(Kept):
        def close(self) -> None:
            other = threading.Thread(target=pool.take, args=("b",), daemon=True)
            other.start()
            other.join(5)
            assert not other.is_alive()
            super().close()

    kept = Returning()
    pool.keep("a", kept, MAX_IDLE_S)
    pool.clear()
    assert kept.closed == 1
