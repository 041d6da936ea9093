"""Requests of the offset store that brokers answer, in a thread of its own, as no member."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, cast

import pytest

from streamgroup.driver.membership import offsets_thread
from streamgroup.driver.membership.offsets_thread import OffsetsThread
from streamgroup.errors import ErrorCode, StreamGroupError, TransportError
from streamgroup.group.offsets.store import (
    COMMITTED,
    Answer,
    CommitOffsets,
    FetchOffsets,
    NoAnswer,
    OffsetsCommitted,
    OffsetsFetched,
    Verdict,
)
from streamgroup.model import CommittedOffset, TopicPartition
from tests.fakes.offsets import OFFSETS_VERSION, commit_answer
from tests.unit.driver.shells import SOON, client
from tests.waiting import wait_until

P0 = TopicPartition("t", 0)
COMMIT = CommitOffsets(6, "g", "g_host-1-aa", 1 << 40, {P0: CommittedOffset(9, "m")}, 1000)


class _Cluster:
    """Answers every commit with one code: which one a group gives to whom is not this thread's concern."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.requests: list[Any] = []

    def deadline(self, timeout_ms: int) -> float:
        return time.monotonic() + timeout_ms / 1000

    def coordinator(self, group: str, deadline: float) -> int:
        return 1

    def call_versioned(self, kind: Any, make: Any, *_: Any, **__: Any) -> tuple[int, Any]:
        self.requests.append(make(OFFSETS_VERSION))
        return OFFSETS_VERSION, commit_answer(self.requests[-1], lambda _: self.code)


def commit(offsets: OffsetsThread, code: int) -> Any:
    return offsets._commit(cast("Any", _Cluster(code)), COMMIT, 0.0, 0)


def test_a_commit_is_of_no_member_and_keeps_its_offsets() -> None:
    cluster = _Cluster(0)
    with closing(OffsetsThread(client(), "g", print, print)) as offsets:
        answer = offsets._commit(cast("Any", cluster), COMMIT, 0.0, 0)
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


# -- the thread --------------------------------------------------------------------------------------------------------


class _Brokers(_Cluster):
    """A cluster that the thread opens; `gate` holds its answers up."""

    def __init__(self) -> None:
        super().__init__(0)
        self.gate = threading.Event()
        self.gate.set()
        self.closed = threading.Event()

    def call_versioned(self, kind: Any, make: Any, *_: Any, **__: Any) -> tuple[int, Any]:
        assert self.gate.wait(SOON)
        if self.code < 0:
            raise TransportError("the broker is away")
        return super().call_versioned(kind, make)

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> _Brokers:
    made = _Brokers()
    monkeypatch.setattr(offsets_thread, "open_cluster", lambda options: made)
    monkeypatch.setattr(offsets_thread, "kafka_of", lambda cluster, deadline: cluster)
    return made


def test_requests_are_answered_in_order_and_a_broker_that_is_away_gives_no_answer(
    brokers: _Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {P0: CommittedOffset(3)}
    monkeypatch.setattr(offsets_thread, "committed", lambda *_, in_zookeeper: found)
    answers: SimpleQueue[Answer] = SimpleQueue()
    with closing(OffsetsThread(client(), "g", answers.put, print)) as offsets:
        offsets.start()
        offsets.take(FetchOffsets(5, "g", frozenset(), 1000))
        offsets.take(COMMIT)
        assert answers.get(timeout=SOON) == OffsetsFetched(5, found)
        assert answers.get(timeout=SOON) == OffsetsCommitted(6, {P0: COMMITTED})
        brokers.code = -1
        offsets.take(COMMIT)
        assert answers.get(timeout=SOON) == NoAnswer(6, "the broker is away")
    assert brokers.closed.wait(SOON)


def test_what_was_withdrawn_is_never_asked(brokers: _Brokers) -> None:
    answers: SimpleQueue[Answer] = SimpleQueue()
    brokers.gate.clear()
    with closing(OffsetsThread(client(), "g", answers.put, print)) as offsets:
        offsets.start()
        offsets.take(COMMIT)
        offsets.take(replace(COMMIT, token=7))
        wait_until(lambda: offsets._queue.qsize() <= 1, "the first request is not taken")
        offsets.withdraw()
        offsets.take(replace(COMMIT, token=8))
        brokers.gate.set()
        tokens = [answers.get(timeout=SOON).token]
        while tokens[-1] != 8:
            tokens.append(answers.get(timeout=SOON).token)
    assert 7 not in tokens


def test_a_commit_that_is_withdrawn_while_its_coordinator_is_looked_for_is_not_sent(brokers: _Brokers) -> None:
    looks, found = threading.Event(), threading.Event()

    def coordinator(group: str, deadline: float) -> int:
        looks.set()
        assert found.wait(SOON)
        return 1

    brokers.coordinator = coordinator  # type: ignore[method-assign]
    answers: SimpleQueue[Answer] = SimpleQueue()
    with closing(OffsetsThread(client(), "g", answers.put, print)) as offsets:
        offsets.start()
        offsets.take(COMMIT)
        assert looks.wait(SOON)
        offsets.withdraw()
        offsets.take(replace(COMMIT, token=7))
        found.set()
        assert answers.get(timeout=SOON).token == 7
    assert len(brokers.requests) == 1


def test_an_error_that_no_attempt_mends_ends_the_query(brokers: _Brokers) -> None:
    failures: SimpleQueue[StreamGroupError] = SimpleQueue()
    brokers.code = int(ErrorCode.UNKNOWN_MEMBER_ID)
    with closing(OffsetsThread(client(), "g", print, failures.put)) as offsets:
        offsets.start()
        offsets.take(COMMIT)
        assert "has members there" in str(failures.get(timeout=SOON))
