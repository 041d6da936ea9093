"""The notifier reports each sunk batch to the coordinator that has planned it, so that its offsets are committed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from streamgroup.driver.application import control
from streamgroup.spark.sunk_notifier import SunkNotifier
from tests.unit.driver.channels import JVM, FakeCoordinator, document, home, serve

__all__ = ["home", "serve"]

pytestmark = pytest.mark.usefixtures("home")
Serve = Callable[..., FakeCoordinator]
QUERY = {"id": "q-1", "name": "orders"}


@pytest.fixture
def notifier() -> SunkNotifier:
    return SunkNotifier(JVM)


def end(run: str) -> None:
    """End the run: its channel is gone."""
    (control.directory(JVM) / f"{run}.sock").unlink()


def test_each_document_of_a_batch_goes_to_the_coordinator_of_its_run(serve: Serve, notifier: SunkNotifier) -> None:
    one, two, other = serve("r1", "l1"), serve("r2", "l2"), serve("r3", "l3")
    notifier.notify([document("r1", "l1"), document("r2", "l2")], 7, QUERY)
    assert one.told == [(document("r1", "l1"), 7)]
    assert two.told == [(document("r2", "l2"), 7)]
    assert (one.query, other.told) == (QUERY, [])


def test_a_batch_without_a_document_of_streamgroup_is_reported_to_nobody(serve: Serve, notifier: SunkNotifier) -> None:
    coordinator = serve("r1", "l1")
    notifier.notify([], 7, QUERY)
    assert coordinator.told == []


def test_a_replayed_batch_is_reported_to_the_run_that_has_its_lineage_now(serve: Serve, notifier: SunkNotifier) -> None:
    before = document("r1", "l1")
    second = serve("r2", "l1")
    notifier.notify([before], 7, QUERY)
    assert second.told == [(before, 7)]
    end("r2")
    third = serve("r3", "l1")
    notifier.notify([before], 8, QUERY)
    assert (len(second.told), third.told) == (1, [(before, 8)])


def test_two_copies_of_a_checkpoint_get_no_report_until_one_of_them_has_ended(
    serve: Serve, notifier: SunkNotifier
) -> None:
    copies = serve("r2", "l1"), serve("r3", "l1")
    notifier.notify([document("r1", "l1")], 7, QUERY)
    assert [copy.told for copy in copies] == [[], []], "the batch may be of either"
    end("r3")
    notifier.notify([document("r1", "l1")], 8, QUERY)
    assert [len(copy.told) for copy in copies] == [1, 0]


def test_the_ends_of_logs_come_from_the_coordinator_of_the_document(serve: Serve, notifier: SunkNotifier) -> None:
    serve("r1", "l1")
    assert notifier.log_ends(document("r1", "l1")) == {"t": {"0": 20}}
    assert notifier.log_ends(document("r2", "l2")) == {}, "its query has ended"


def test_a_query_that_has_ended_is_passed_over_and_the_others_are_told(
    serve: Serve, notifier: SunkNotifier, caplog: pytest.LogCaptureFixture
) -> None:
    alive = serve("r2", "l2")
    notifier.notify([document("r1", "l1"), document("r2", "l2")], 7, QUERY)
    assert alive.told == [(document("r2", "l2"), 7)]
    assert caplog.text == ""


def cut_off(run: str) -> None:
    """Take the token of the run's channel away, so that its coordinator lives and cannot be reached."""
    (control.directory(JVM) / f"{run}.token").unlink()


def test_a_coordinator_that_cannot_be_reached_is_named_once_and_the_next_is_told(
    serve: Serve, notifier: SunkNotifier, caplog: pytest.LogCaptureFixture
) -> None:
    serve("r1", "l1")
    well = serve("r2", "l2")
    cut_off("r1")
    for batch in (7, 8):
        notifier.notify([document("r1", "l1"), document("r2", "l2", batch)], batch, QUERY)
    assert [batch for _, batch in well.told] == [7, 8]
    (warning,) = (record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    assert "cannot report a sunk batch to the coordinator process of run r1" in warning
    assert "commits it with the next trigger instead" in warning
    assert "cannot be reached" in warning


def test_a_run_that_ends_while_it_is_told_is_not_a_failure(
    serve: Serve, notifier: SunkNotifier, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve("r1", "l1")
    cut_off("r1")
    ask = control.ask

    def end_and_ask(*given: Any, **named: Any) -> dict[str, Any]:
        end("r1")
        return ask(*given, **named)

    monkeypatch.setattr(control, "ask", end_and_ask)
    notifier.notify([document("r1", "l1")], 7, QUERY)
    assert caplog.text == ""


def test_the_groups_whose_partitions_may_move_are_those_of_members(serve: Serve, notifier: SunkNotifier) -> None:
    for number in (3, 1, 2, 4):
        serve(f"r{number}", f"l{number}").mode = "commit" if number == 2 else "member"
    documents = [document(f"r{number}", f"l{number}") for number in (3, 2, 1, 9)]
    assert notifier.groups_joined(documents) == ["group of r1", "group of r3"]
    assert notifier.groups_joined([document("before", "l1"), document("r1", "l1")]) == ["group of r1"]
    assert notifier.groups_joined([]) == []
