"""Events that a coordinator process counts, and queries that it refuses (R28): real threads, a group in memory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from streamgroup.coordinator.control import claims
from streamgroup.coordinator.planning.document import to_value
from streamgroup.coordinator.run import lifecycle, spark_calls
from streamgroup.coordinator.threads import assemble
from streamgroup.errors import ConfigError
from streamgroup.group.user_data import RunIdentity, decode_identity, encode_identity
from streamgroup.kafka.wire.consumer import decode_subscription
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest
from streamgroup.model import CommittedOffset, GroupDescription, GroupState, MemberDescription, OffsetRange
from streamgroup.options.types import GroupOptions
from tests.fakes.coordinator import ScriptedCoordinator
from tests.unit.coordinator.runs import INITIAL, P0, P1, Run, Start, document, start
from tests.unit.coordinator.shells import source, until

__all__ = ["start"]


def trouble(run: Run) -> dict[str, dict[str, Any]]:
    """The kinds that have occurred."""
    return {kind: counter for kind, counter in run.coordinator.status()["trouble"].items() if counter["count"]}


def test_a_replay_is_counted(start: Start) -> None:
    group = ScriptedCoordinator(offsets={P0: CommittedOffset(3), P1: CommittedOffset(8)})
    run = start(group=group)
    run.coordinator.partitions(INITIAL, to_value(document("other", "id", OffsetRange(P0, 0, 5))))
    assert trouble(run)["replay"]["count"] == 1


def test_a_skipped_batch_is_counted(start: Start) -> None:
    run = start()
    planned = run.plan()
    with pytest.raises(ConfigError, match="skip"):
        run.latest(planned)
    assert trouble(run)["skip"]["count"] == 1


def test_a_drain_whose_time_is_over_leaves_a_repeat(start: Start) -> None:
    run = start()
    run.batch()
    assert not run.coordinator.drain(0.01)["drained"]
    run.coordinator.stop()
    repeat = trouble(run)["repeat"]
    assert (repeat["count"], repeat["reason"].startswith("the drain's time was over")) == (1, True)


def test_a_drain_in_time_leaves_none(start: Start) -> None:
    run = start()
    first = run.batch()
    run.latest(first)
    assert run.coordinator.drain(5)["drained"]
    run.coordinator.stop()
    assert trouble(run).keys() == {"rebalance"}


@pytest.mark.slow
def test_a_commit_that_is_not_acknowledged_at_the_end_leaves_a_repeat(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(spark_calls, "COMMIT_TIMEOUT_S", 0.05)
    monkeypatch.setattr(lifecycle, "LEAVE_TIMEOUT_S", 0.2)
    run = start()
    first = run.batch()
    run.held.add(OffsetCommitRequest)
    run.latest(first)
    for _ in range(2):
        run.coordinator.stop()
    assert trouble(run)["repeat"]["count"] == 1
    assert "the commit of the last batch was acknowledged: up to 20 offsets may be repeated" in caplog.text


# -- one member per group and application -----------------------------------------------------------------------------


def test_the_claim_is_made_when_the_run_begins_and_given_up_when_it_ends(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "TAKE_TIMEOUT_S", 0.1)
    tmp_path.chmod(0o700)
    home = tmp_path / "1"
    one, two, named = start(home=home), start(home=home), start(source(group=GroupOptions("g", member="x")), home=home)
    one.plan()
    with pytest.raises(ConfigError, match=f"already .run {one.coordinator.run} "):
        two.latest()
    named.plan()
    two.coordinator.stop()
    one.coordinator.stop()
    start(home=home).plan()


# -- one live member per lineage --------------------------------------------------------------------------------------


def test_every_strategy_offered_tells_whose_checkpoint_it_is(start: Start) -> None:
    run = start()
    saved = to_value(document("before", "id", OffsetRange(P0, 0, 5), OffsetRange(P1, 0, 5)))
    run.plan(saved)
    (mine,) = run.group.members.values()
    told = {decode_identity(decode_subscription(p.metadata).user_data) for p in mine.protocols}
    assert told == {RunIdentity("lineage", run.coordinator.run)}


def described(*others: RunIdentity) -> GroupDescription:
    members = tuple(
        MemberDescription(f"other-{n}", "copy", "/h", topics=("t",), user_data=encode_identity(other))
        for n, other in enumerate(others)
    )
    return GroupDescription("g", GroupState.STABLE, members=members)


@pytest.mark.slow
def test_beside_a_live_copy_nothing_is_planned_and_in_the_end_the_query_fails(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(source(group=GroupOptions("g", session_timeout_ms=1_000, heartbeat_interval_ms=100)))
    found = {"g": described(RunIdentity("lineage", "r", admitted=True))}
    monkeypatch.setattr(assemble, "describe_groups", lambda cluster, names, deadline: found)
    saved = to_value(document("before", "id", OffsetRange(P0, 0, 5), OffsetRange(P1, 0, 5)))
    began = time.monotonic()
    with pytest.raises(ConfigError, match=r"'g'.*client id 'copy' at /h"):
        until(lambda: run.latest(saved) != saved, "planned beside a copy")
    assert time.monotonic() - began >= 1.0


@pytest.mark.slow
def test_when_the_own_predecessor_is_gone_the_query_goes_on(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    run = start()
    answers = [described(RunIdentity("lineage", "r", admitted=True)), described()]
    monkeypatch.setattr(
        assemble,
        "describe_groups",
        lambda cluster, names, deadline: {"g": answers.pop(0) if answers else described()},
    )
    saved = to_value(document("before", "id", OffsetRange(P0, 0, 5), OffsetRange(P1, 0, 5)))
    run.plan(saved)
    assert answers == []
