"""FindCoordinator up to v3 and from v4 on."""

from __future__ import annotations

import pytest

from streamgroup.errors import ErrorCode
from streamgroup.kafka.wire.messages.coordinator import (
    FindCoordinatorResponse,
    FoundCoordinator,
    coordinator_request,
    read_coordinator,
)
from streamgroup.model import Broker

ROWS = (FoundCoordinator(key="other", node_id=1), FoundCoordinator(key="g", node_id=3, host="h", port=9092))


def test_the_group_is_the_key_up_to_v3_and_one_of_several_keys_from_v4() -> None:
    assert (coordinator_request(3, "g").key, coordinator_request(3, "g").coordinator_keys) == ("g", ())
    assert (coordinator_request(4, "g").key, coordinator_request(4, "g").coordinator_keys) == ("", ("g",))


@pytest.mark.parametrize(
    ("version", "response"),
    [(3, FindCoordinatorResponse(node_id=3, host="h", port=9092)), (4, FindCoordinatorResponse(coordinators=ROWS))],
)
def test_the_answer_names_the_coordinator(version: int, response: FindCoordinatorResponse) -> None:
    assert read_coordinator(response, version, "g") == Broker(3, "h", 9092)


def test_an_error_code_is_returned_as_it_is() -> None:
    refused = FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, node_id=-1)
    assert read_coordinator(refused, 0, "g") == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_an_answer_about_other_groups_names_no_coordinator() -> None:
    assert read_coordinator(FindCoordinatorResponse(coordinators=ROWS[:1]), 4, "g") is None
