"""FindCoordinator, which returns the group coordinator of a group."""

from __future__ import annotations

from streamgroup.kafka.wire.fields import Struct, array, int8, int16, int32, message, string
from streamgroup.kafka.wire.schema import Message, Request
from streamgroup.model import Broker

GROUP_KEY = 0
"""The key type of a group id; a transactional id has 1."""


@message
class FoundCoordinator(Struct):
    """The group coordinator of one group id in a FindCoordinator response (v4)."""

    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+", ignorable=True)


@message
class FindCoordinatorResponse(Message, versions="0-6", flexible=3):
    """The response to FindCoordinator: one group coordinator up to v3, one per key from v4 (KIP-699)."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: tuple[FoundCoordinator, ...] = array(FoundCoordinator, "4+")


@message
class FindCoordinatorRequest(Request[FindCoordinatorResponse], api_key=10, versions="0-6", flexible=3):
    """Requests the group coordinator of one key (a group id) up to v3, of several from v4."""

    key: str = string("0-3")
    key_type: int = int8("1+", default=GROUP_KEY)
    coordinator_keys: tuple[str, ...] = array("string", "4+")


# -- in one shape: up to v3 FindCoordinator names one group, from v4 a list of groups (KIP-699) -------------

FIRST_WITH_KEYS = 4


def coordinator_request(version: int, group: str) -> FindCoordinatorRequest:
    """Return the request for the group coordinator of `group`."""
    if version < FIRST_WITH_KEYS:
        return FindCoordinatorRequest(key=group)
    return FindCoordinatorRequest(coordinator_keys=(group,))


def read_coordinator(response: FindCoordinatorResponse, version: int, group: str) -> Broker | int | None:
    """Return the group coordinator of `group`, or the error code in the response.

    Return None if a v4 response does not contain `group`.
    """
    answer: FindCoordinatorResponse | FoundCoordinator | None = response
    if version >= FIRST_WITH_KEYS:
        answer = next((one for one in response.coordinators if one.key == group), None)
    if answer is None:
        return None
    return answer.error_code or Broker(answer.node_id, answer.host, answer.port)
