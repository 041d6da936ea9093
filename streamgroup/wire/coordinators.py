"""FindCoordinator in one shape: up to v3 it asks about one group, from v4 about a list of groups (KIP-699)."""

from __future__ import annotations

from streamgroup.model import Broker
from streamgroup.wire.messages.coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

FIRST_WITH_KEYS = 4


def coordinator_request(version: int, group: str) -> FindCoordinatorRequest:
    """Return the request that asks for the coordinator of `group`."""
    if version < FIRST_WITH_KEYS:
        return FindCoordinatorRequest(key=group)
    return FindCoordinatorRequest(coordinator_keys=(group,))


def read_coordinator(response: FindCoordinatorResponse, version: int, group: str) -> Broker | int | None:
    """Return the coordinator of `group`, or the broker's error code.

    None: the answer to a list of groups does not contain `group`.
    """
    answer: FindCoordinatorResponse | Coordinator | None = response
    if version >= FIRST_WITH_KEYS:
        answer = next((one for one in response.coordinators if one.key == group), None)
    if answer is None:
        return None
    return answer.error_code or Broker(answer.node_id, answer.host, answer.port)
