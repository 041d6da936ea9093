"""Every error code that the protocol guide of 0.8 and 0.9 has for the group APIs, and what the member does about it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamgroup.errors import error_of
from streamgroup.group import events as ev
from streamgroup.group.state_machine import State
from streamgroup.kafka.wire.messages.coordinator import FindCoordinatorResponse
from streamgroup.kafka.wire.messages.group import JoinGroupResponse, LeaveGroupResponse, SyncGroupResponse
from tests.unit.group.drivers import Driver, tps

FIND, JOIN, SYNC, BEAT = "FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat"
ENDS = "the query ends"


def finding(code: int) -> Driver:
    d = Driver()
    d.step(ev.Start(("t",)))
    d.answer(FindCoordinatorResponse(error_code=code, node_id=-1, host="", port=-1), version=0)
    return d


def joining(code: int) -> Driver:
    d = Driver().found()
    d.answer(JoinGroupResponse(error_code=code, protocol_name=""), version=0)
    return d


def syncing(code: int) -> Driver:
    d = Driver().found().joined()
    d.answer(SyncGroupResponse(error_code=code), version=0)
    return d


def beating(code: int) -> Driver:
    d = Driver().stable(tps("t", 0))
    d.beat(code)
    return d


CODES: dict[str, tuple[Callable[[int], Driver], dict[int, str]]] = {
    "GroupCoordinator": (finding, {15: FIND, 16: FIND, 30: ENDS}),
    JOIN: (joining, {14: JOIN, 15: FIND, 16: FIND, 23: ENDS, 25: JOIN, 26: ENDS, 30: ENDS}),
    SYNC: (syncing, {15: FIND, 16: FIND, 22: JOIN, 25: JOIN, 27: JOIN, 30: ENDS}),
    BEAT: (beating, {15: FIND, 16: FIND, 22: JOIN, 25: JOIN, 27: JOIN, 30: ENDS}),
}


@pytest.mark.parametrize(
    ("api", "code", "then"), [(api, code, then) for api, (_, codes) in CODES.items() for code, then in codes.items()]
)
def test_what_follows_an_error_code(api: str, code: int, then: str) -> None:
    """The next request, after the backoff; or the query's end."""
    d = CODES[api][0](code)
    if then == ENDS:
        assert error_of(code).name in str(d.only(ev.Fail).error)
        assert d.machine.state is State.FATAL
        return
    assert not d.has(ev.Fail)
    sent = d.actions if d.has(ev.Send) else d.tick(0.15)
    assert [action.api.NAME for action in sent if isinstance(action, ev.Send)] == [then]
    assert not any(isinstance(action, ev.Fail) for action in sent)


@pytest.mark.parametrize(("code", "member"), [(22, "me"), (25, ""), (27, "me")])
def test_who_joins_again_is_the_same_member_unless_it_is_unknown(code: int, member: str) -> None:
    d = beating(code)
    if "JoinGroup" not in d.out:
        d.tick(0.15)
    assert d.request("JoinGroup", 0).member_id == member


@pytest.mark.parametrize("code", [14, 15, 16, 25, 30])
def test_whatever_the_answer_who_leaves_has_left(code: int) -> None:
    d = Driver().stable(tps("t", 0))
    d.step(ev.Stop())
    d.answer(LeaveGroupResponse(error_code=code), version=0)
    assert d.has(ev.Left)
    assert d.machine.state is State.LEFT
