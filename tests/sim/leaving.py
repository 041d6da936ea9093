"""How a run ends: mirrors `driver/leaving.py` (R29, R30). Where that changes, this file changes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgroup.driver.leaving import FAREWELL_S
from streamgroup.group import events as ev
from streamgroup.group.membership import State
from tests.sim.kernel import Steps, Until

if TYPE_CHECKING:
    from tests.sim.process import Process


def stop(process: Process) -> Steps:
    """`Leaving.stop`: commit every held position, leave the group, within a second."""
    if not process.stopped:
        process.stopped = True
        if process.started:
            yield from _leave(process)


def drain(process: Process, seconds: float) -> Steps:
    """`Leaving.drain`: whether nothing will be repeated."""
    process.draining = True
    yield Until(lambda: process.stopped or process.failure is not None or _is_settled(process), seconds)
    if process.stopped:
        return False
    process.stopped = True
    clean = True
    if process.started:
        clean = yield from _leave(process)
    return clean and process.failure is None


def _leave(process: Process) -> Steps:
    settled, ledger, membership = _is_settled(process), process.ledger, process.membership
    process.carry_out(process.member.farewell(process.kernel.now))
    yield Until(lambda: not ledger.commit_pending, FAREWELL_S * 0.6)
    clean = (settled or _is_settled(process)) and not ledger.commits.outstanding
    process.carry_out(process.member.step(ev.Stop(), process.kernel.now))
    yield Until(lambda: membership.state is State.LEFT, FAREWELL_S * 0.4)
    return clean


def _is_settled(process: Process) -> bool:
    ledger = process.ledger
    if not process.started:
        return True
    if not ledger.started or not ledger.idle or ledger.commit_pending:
        return False
    return not ledger.awaits_holding or (process.member.stable and ledger.settled)
