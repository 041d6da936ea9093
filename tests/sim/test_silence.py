"""How long the checker lets a member stay whose JVM is stopped (R27)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.sim.runs import plan_of, run
from tests.sim.settings import Kind
from tests.sim.silence import GRACE_S, SparkSilence

STOPPED_AT_S = 10.0
SESSION_S = 6.0
GONE_BY_S = STOPPED_AT_S + SESSION_S + GRACE_S


@pytest.fixture
def silence() -> SparkSilence:
    query = SimpleNamespace(driver=SimpleNamespace(stopped_since=STOPPED_AT_S), resumed_at=0.0)
    process = SimpleNamespace(
        query=query,
        settings=SimpleNamespace(session_s=SESSION_S, max_silence_s=None),
        run=SimpleNamespace(shutdown=SimpleNamespace(wanted=False)),
        failure=None,
        later=lambda seconds, act: None,
    )
    return SparkSilence(cast("Any", process))


def test_a_member_whose_jvm_is_stopped_leaves_in_time(silence: SparkSilence) -> None:
    assert not silence.is_overdue(GONE_BY_S, leaving=False)
    assert silence.is_overdue(GONE_BY_S + 0.01, leaving=False)


def test_a_leave_may_wait_for_the_request_before_it(silence: SparkSilence) -> None:
    assert not silence.is_overdue(GONE_BY_S + 0.01, leaving=True)
    assert silence.is_overdue(GONE_BY_S + SESSION_S + 0.01, leaving=True)


def test_a_leave_that_is_overdue_in_zookeeper_is_no_request_of_a_silent_member() -> None:
    """The thread sends the leave after two slow reads here, later than LEAVE_TIMEOUT_S (0.8 s)."""
    assert run(plan_of(34247, Kind.ZOOKEEPER)).violation is None
