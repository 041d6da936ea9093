from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from streamgroup.kafka.wire import fields
from streamgroup.kafka.wire.fields import Struct, Versions, specs_of
from streamgroup.kafka.wire.messages.group import JoinGroupRequest, SyncGroupRequest
from streamgroup.kafka.wire.messages.log import FetchPartition


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("0+", [0, 32767], [-1]), ("3-5", [3, 4, 5], [2, 6]), ("7", [7], [6, 8]), ("none", [], [-1, 0, 1])],
)
def test_versions_as_kafka_writes_them(text: str, inside: list[int], outside: list[int]) -> None:
    versions = Versions.parse(text)
    assert all(v in versions for v in inside)
    assert not any(v in versions for v in outside)


def test_a_declaration_is_kept_field_by_field_in_order() -> None:
    specs = specs_of(FetchPartition)
    assert [s.name for s in specs[:3]] == ["partition", "current_leader_epoch", "fetch_offset"]
    epoch = specs[1]
    assert (epoch.type, epoch.versions.first, epoch.default, epoch.ignorable) == ("int32", 9, -1, True)
    assert (specs[-1].tag, specs[-1].tagged.first) == (1, 18)


def test_messages_are_frozen_slotted_and_given_by_keyword() -> None:
    request = JoinGroupRequest(group_id="g")
    assert not hasattr(request, "__dict__")
    with pytest.raises(dataclasses.FrozenInstanceError):
        request.group_id = "h"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del request.group_id
    with pytest.raises(TypeError):
        JoinGroupRequest("g")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        JoinGroupRequest(group="g")  # type: ignore[call-arg]


def test_messages_are_compared_shown_and_copied_by_value() -> None:
    request = JoinGroupRequest(group_id="g", session_timeout_ms=5)
    same = JoinGroupRequest(session_timeout_ms=5, group_id="g")
    other = dataclasses.replace(request, group_id="h")
    assert request == same
    assert len({request, same, other}) == 2
    assert request != other
    assert request.group_id == "g"
    assert repr(FetchPartition(partition=3)).startswith("FetchPartition(partition=3, current_leader_epoch=-1, ")
    assert pickle.loads(pickle.dumps(request)) == copy.deepcopy(request) == request
    assert request != SyncGroupRequest(group_id="g")


def test_a_tag_needs_its_versions() -> None:
    with pytest.raises(ValueError, match="tag"):
        fields.int16("0+", tag=0)
    with pytest.raises(ValueError, match="tag"):
        fields.array(Struct, "0+", tagged="0+")
