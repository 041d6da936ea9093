"""The offsets of a query that no group knows of: committed, fetched, gone with the process."""

from __future__ import annotations

import pytest

from streamgroup.driver.membership.private import PrivateOffsets
from streamgroup.group.events import Lane, Send
from streamgroup.model import CommittedOffset, TopicPartition
from streamgroup.wire.messages.group import HeartbeatRequest
from streamgroup.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
)
from streamgroup.wire.offsets import fetched_offsets, offset_fetch_request
from streamgroup.wire.schema import decode, encode

A, B = TopicPartition("t", 0), TopicPartition("u", 3)
FETCH = Send(2, Lane.COORDINATOR, OffsetFetchRequest, lambda v: offset_fetch_request(v, "", None), 1_000)


def commit(offsets: PrivateOffsets, **at: CommittedOffset) -> None:
    named = {{"a": A, "b": B}[name]: offset for name, offset in at.items()}
    request = OffsetCommitRequest(
        topics=tuple(
            OffsetCommitRequestTopic(
                name=tp.topic,
                partitions=(
                    OffsetCommitRequestPartition(
                        partition_index=tp.partition,
                        committed_offset=offset.offset,
                        committed_leader_epoch=offset.leader_epoch,
                        committed_metadata=offset.metadata,
                    ),
                ),
            )
            for tp, offset in named.items()
        )
    )
    answered = offsets.answer(Send(1, Lane.COORDINATOR, OffsetCommitRequest, lambda version: request, 1_000))
    assert answered.token == 1
    codes = {(t.name, p.partition_index): p.error_code for t in answered.response.topics for p in t.partitions}
    assert codes == {(tp.topic, tp.partition): 0 for tp in named}


def fetch(offsets: PrivateOffsets) -> dict[TopicPartition, CommittedOffset | None]:
    answered = offsets.answer(FETCH)
    again = decode(type(answered.response), encode(answered.response, answered.version), answered.version)
    found = fetched_offsets(again, answered.version, "")
    assert found.error_code == 0
    return {tp: row.committed for tp, row in found.partitions.items()}


def test_what_is_committed_is_found_with_its_epoch_and_metadata() -> None:
    offsets = PrivateOffsets()
    assert fetch(offsets) == {}
    commit(offsets, a=CommittedOffset(5, "told", 3), b=CommittedOffset(7))
    commit(offsets, a=CommittedOffset(6, "later", 4))
    assert fetch(offsets) == {A: CommittedOffset(6, "later", 4), B: CommittedOffset(7, "", -1)}
    assert fetch(PrivateOffsets()) == {}, "another process knows nothing of it"


def test_what_only_a_broker_can_answer_is_a_defect() -> None:
    send = Send(1, Lane.COORDINATOR, HeartbeatRequest, lambda version: HeartbeatRequest(), 1_000)
    with pytest.raises(ValueError, match="Heartbeat"):
        PrivateOffsets().answer(send)
