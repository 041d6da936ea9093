"""What `streamgroup.transaction` refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from streamgroup.errors import ConfigError
from streamgroup.spark import channel
from streamgroup.spark.channel import ThreadBatch, batch_of_thread, transaction

PLANNED = {"lineage": "l", "sequence": 1}
OTHER = {"lineage": "m", "sequence": 5}
INITIAL = {"lineage": "", "sequence": 0}
PART = {"group": "g", "run": "r", "lineage": "l", "sequence": 1, "ranges": []}
IDLE_PART = {"group": "h", "run": "s", "lineage": "", "sequence": 0, "ranges": None}


@pytest.mark.parametrize(
    ("documents", "earlier", "parts", "complete"),
    [
        ([PLANNED], [], [PART], True),
        ([PLANNED], [], [], False),
        ([PLANNED], [], [IDLE_PART], False),
        ([PLANNED, OTHER], [], [PART], False),
        ([PLANNED, OTHER], [OTHER], [PART], True),
        ([PLANNED, OTHER], [OTHER], [IDLE_PART], False),
        ([PLANNED], [PLANNED], [], True),  # a batch that another source has planned, and that Spark repeats
        ([PLANNED, INITIAL], [], [PART], True),
        ([INITIAL], [], [], True),
        ([], [], [], False),  # a batch that another source has planned
        (None, [], [PART], True),
        (None, [], [], False),
    ],
)
def test_a_batch_is_complete_if_all_coordinators_of_its_sources_have_answered(
    monkeypatch: pytest.MonkeyPatch,
    documents: list[dict[str, object]] | None,
    earlier: list[dict[str, object]],
    parts: list[object],
    complete: bool,
) -> None:
    monkeypatch.setattr(channel, "driver_context", lambda what: None)
    monkeypatch.setattr(channel, "query_id_of_thread", lambda context: "q")
    monkeypatch.setattr(channel, "documents_in_flight", lambda context, query_id: documents)
    monkeypatch.setattr(channel, "documents_of_earlier_batches", lambda context, query_id: earlier)
    monkeypatch.setattr(channel, "jvm_pid", lambda context: 1)
    monkeypatch.setattr(channel, "_batches", lambda pid, query_id, found: parts)
    assert batch_of_thread("transaction").is_complete is complete


def test_a_batch_without_its_offsets_is_not_stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(channel, "batch_of_thread", lambda what: ThreadBatch("q", [], True, False))
    engine = sa.create_engine(f"sqlite:///{tmp_path}/rows.db")
    with pytest.raises(ConfigError, match="or not all of their coordinator processes"), transaction(engine):
        pytest.fail("rows would be stored without their offsets")
    assert not (tmp_path / "rows.db").exists()
