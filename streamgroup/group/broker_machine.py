"""The part that `Membership` and `StandaloneMember` share: requests to brokers, and how to find the coordinator."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from streamgroup.errors import ErrorCode
from streamgroup.group import events as ev
from streamgroup.group.pending import PendingRequest
from streamgroup.group.requests import Purpose, Timer
from streamgroup.group.state_machine import StateMachine
from streamgroup.model import Broker
from streamgroup.wire.messages.coordinator import coordinator_request, read_coordinator

GRACE_S = 1.0
"""The driver reports an overdue request. Where it does not, the machine gives the request up this much later."""


class BrokerMachine(StateMachine[ev.Action, Purpose, Timer]):
    """A state machine that sends requests to brokers, at most one for each purpose at a time."""

    def _send(self, purpose: Purpose, build: Callable[[int], Any], timeout_ms: int, *, optional: bool = False) -> None:
        """Send a request, in place of a pending one for this purpose."""
        self._requests.forget(purpose)
        token = self._requests.add(purpose, self._now, self._now + timeout_ms / 1000 + GRACE_S)
        self._out.append(ev.Send(token, purpose.lane, purpose.api, build, timeout_ms, optional))

    def _give_up(self, pending: PendingRequest[Purpose]) -> None:
        self._out.append(ev.Reset(pending.purpose.lane))
        self._answer(ev.RequestFailed(pending.token, f"no answer to {pending.purpose} in time"))

    def _find(self, *, optional: bool = False) -> None:
        build = partial(coordinator_request, group=self._config.group_id)
        self._send(Purpose.FIND, build, self._config.request_timeout_ms, optional=optional)

    def _coordinator_in(self, event: ev.RequestAnswered) -> Broker | int:
        """Return the coordinator that an answer to FindCoordinator names, or the error code."""
        answer = read_coordinator(event.response, event.version, self._config.group_id)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if answer is None else answer
