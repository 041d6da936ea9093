"""Requests of the offset store that brokers answer, in a thread of its own, as no member."""

from __future__ import annotations

from contextlib import closing
from typing import Any, cast

import pytest

from streamgroup.driver.membership.offsets_thread import OffsetsThread
from streamgroup.errors import ErrorCode, StreamGroupError
from streamgroup.group.offsets.store import CommitOffsets, Verdict
from streamgroup.model import CommittedOffset, TopicPartition
from tests.offset_store import OFFSETS_VERSION, commit_answer
from tests.unit.driver.shells import client

P0 = TopicPartition("t", 0)
COMMIT = CommitOffsets(6, "g", "g_host-1-aa", 1 << 40, {P0: CommittedOffset(9, "m")}, 1000)


class _Cluster:
    """Answers every commit with one code."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.requests: list[Any] = []

    def coordinator(self, group: str, deadline: float) -> int:
        return 1

    def call_versioned(self, kind: Any, make: Any, *_: Any, **__: Any) -> tuple[int, Any]:
        self.requests.append(make(OFFSETS_VERSION))
        return OFFSETS_VERSION, commit_answer(self.requests[-1], lambda _: self.code)


def commit(offsets: OffsetsThread, code: int) -> Any:
    return offsets._commit(cast("Any", _Cluster(code)), COMMIT, 0.0)


def test_a_commit_is_of_no_member_and_keeps_its_offsets() -> None:
    cluster = _Cluster(0)
    with closing(OffsetsThread(client(), "g", print, print)) as offsets:
        answer = offsets._commit(cast("Any", cluster), COMMIT, 0.0)
    assert (answer.token, answer.verdicts[P0].verdict) == (6, Verdict.COMMITTED)
    (request,) = cluster.requests
    assert (request.member_id, request.generation_id_or_member_epoch, request.group_instance_id) == ("", -1, None)
    ((row,),) = (topic.partitions for topic in request.topics)
    assert (row.committed_offset, row.committed_metadata) == (9, "m")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, "the group has members there"),
        (ErrorCode.GROUP_ID_NOT_FOUND, "the broker has a group of another kind"),
    ],
)
def test_a_group_in_kafka_that_takes_no_commits_ends_the_query(code: int, told: str) -> None:
    with closing(OffsetsThread(client(), "g", print, print)) as offsets:
        verdicts = commit(offsets, ErrorCode.INVALID_COMMIT_OFFSET_SIZE).verdicts
        assert verdicts[P0].verdict is Verdict.TOO_LARGE
        with pytest.raises(StreamGroupError, match=told):
            commit(offsets, code)
