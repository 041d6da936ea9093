"""The control channel of a coordinator process: a listener reports sunk batches, a sink asks for ranges."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroup.coordinator.planning.document import to_value
from streamgroup.errors import ConfigError
from streamgroup.group.commits import CommitMetadata
from streamgroup.kafka.wire.messages.group import JoinGroupRequest
from streamgroup.model import OffsetRange
from streamgroup.options.types import GroupOptions
from tests.unit.coordinator.runs import INITIAL, P0, P1, Run, Start, document, start
from tests.unit.coordinator.shells import source, until

__all__ = ["start"]

QUERY = {"id": "q-1", "name": "orders"}
ALL = {0: 10, 1: 10}


def sunk(run: Run, value: dict[str, Any], batch: int | None = 0) -> dict[str, Any]:
    return run.coordinator.sunk(value, batch, QUERY)


# -- sunk -------------------------------------------------------------------------------------------------------------


def test_a_batch_reported_as_sunk_is_committed_without_another_call_of_spark(start: Start) -> None:
    run = start()
    first = run.batch()
    assert run.committed == {0: 0, 1: 0}
    assert sunk(run, first, 7) == {"proven": True, "why": ""}
    until(lambda: run.committed == ALL, "committed in the background")
    metadata = CommitMetadata.parse(run.group.offsets[P0].metadata)
    assert metadata is not None
    assert (metadata.sequence, metadata.batch) == (first["sequence"], 7)
    status = run.coordinator.status()
    assert (status["idle"], status["query"]) == (True, QUERY)


def test_a_skipped_batch_found_out_by_the_listener_fails_the_query_at_its_next_call(start: Start) -> None:
    run = start()
    planned = run.plan()  # its partitions are never asked
    answer = sunk(run, planned)
    assert not answer["proven"]
    assert "the sink skipped a batch" in answer["why"]
    with pytest.raises(ConfigError, match="the sink skipped a batch"):
        run.latest(planned)
    assert run.committed == {0: 0, 1: 0}
    run.coordinator.stop()
    counts = {kind: counter["count"] for kind, counter in run.coordinator.status()["trouble"].items()}
    assert (counts["skip"], counts["repeat"]) == (1, 0), "it was never read: there is nothing to repeat"


def test_a_replay_reported_as_sunk_is_committed(start: Start) -> None:
    run = start()
    logged = to_value(document("other", "id", OffsetRange(P0, 0, 4), OffsetRange(P1, 0, 5)))
    run.coordinator.partitions(INITIAL, logged)
    assert sunk(run, logged)["proven"]
    until(lambda: run.committed == {0: 4, 1: 5}, "committed once its partitions are held")


def test_a_rebalance_that_waits_for_the_batch_goes_on_when_it_is_reported_as_sunk(start: Start) -> None:
    """R21, R22: with a trigger of minutes nobody else would tell."""
    run = start(source(group=GroupOptions("g", heartbeat_interval_ms=20)))
    first = run.batch()
    before = run.poller.asked(JoinGroupRequest)
    with run.poller.changed:
        run.group.gather()  # as if another member had come
    until(lambda: run.coordinator._backend.member.membership.rebalance_wanted, "told by a heartbeat")
    assert run.poller.asked(JoinGroupRequest) == before
    sunk(run, first)
    until(lambda: run.poller.asked(JoinGroupRequest) > before, "rejoined at the boundary")
    assert run.committed == ALL, "and committed first, under the old generation"


@pytest.mark.slow
@pytest.mark.parametrize("announced", [True, False])
def test_the_member_learns_with_each_batch_whether_a_listener_tells_of_it(start: Start, *, announced: bool) -> None:
    run = start()
    run.coordinator.listen(lambda: announced)
    first = run.batch()
    batch = run.coordinator._backend.member.membership._wait.batch  # type: ignore[attr-defined]
    assert batch.listened is announced
    sunk(run, first)
    run.logs.ends[P0] = 12
    run.coordinator.partitions(first, run.plan(first))
    assert batch.listened, "it has told of one"
