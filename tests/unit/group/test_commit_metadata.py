from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.group.commit_metadata import NOT_FOUNDED, CommitMetadata

METADATA = CommitMetadata("1c0ffee5", "deadbeef", sequence=7, asked=8, founding=3, topic_id="topic-id")
TEXT = '{"streamgroup":1,"lineage":"1c0ffee5","run":"deadbeef","sequence":7,"asked":8,"founding":3,"topic":"topic-id"}'
BROKERS_LIMIT = 4096


def changed(**values: object) -> str:
    return json.dumps(json.loads(TEXT) | values)


def test_the_text_is_readable_and_stays_as_it_is() -> None:
    assert METADATA.text() == TEXT
    assert CommitMetadata.parse(TEXT) == METADATA


@given(
    st.builds(
        CommitMetadata,
        lineage=st.text(max_size=20),
        run=st.text(max_size=20),
        sequence=st.integers(0, 2**63 - 1),
        asked=st.integers(0, 2**63 - 1),
        founding=st.integers(NOT_FOUNDED, 2**31 - 1),
        topic_id=st.text(max_size=36),
        batch=st.none() | st.integers(0, 2**63 - 1),
    )
)
def test_what_was_written_is_read(metadata: CommitMetadata) -> None:
    text = metadata.text()
    assert CommitMetadata.parse(text) == metadata
    assert len(text.encode()) < BROKERS_LIMIT


def test_sparks_batch_id_is_named_where_a_listener_reported_it() -> None:
    named = replace(METADATA, batch=12)
    assert named.text() == TEXT[:-1] + ',"batch":12}'
    assert CommitMetadata.parse(named.text()) == named


@pytest.mark.parametrize("batch", [None, "12", 12.0, True, -1, [12]])
def test_a_batch_id_that_is_none_takes_nothing_from_the_rest(batch: object) -> None:
    """Nothing is decided by it."""
    assert CommitMetadata.parse(changed(batch=batch)) == METADATA


def test_keys_that_a_later_release_adds_are_no_hindrance() -> None:
    assert CommitMetadata.parse(changed(epoch=12)) == METADATA


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="an operator's reset, or a Java consumer"),
        pytest.param("node-17", id="another client's text"),
        pytest.param('"streamgroup"', id="a JSON text"),
        pytest.param("[1]", id="a JSON array"),
        pytest.param("{}", id="an empty object"),
        pytest.param("[" * 5000, id="deeper than anybody reads"),
        pytest.param("9" * 5000, id="a longer number than Python reads"),
        pytest.param(TEXT[:-1], id="cut off"),
        pytest.param(changed(streamgroup=2), id="a newer format"),
        pytest.param(changed(streamgroup=True), id="true is no format"),
        pytest.param(changed(streamgroup=1.0), id="1.0 is no format"),
        pytest.param(changed(run=None), id="no run"),
        pytest.param(changed(lineage=5), id="a number for the lineage"),
        pytest.param(changed(topic=0), id="a number for the topic"),
        pytest.param(changed(sequence="7"), id="a text for a number"),
        pytest.param(changed(asked=8.0), id="a float for a number"),
        pytest.param(changed(founding=True), id="true for a number"),
    ],
)
def test_what_is_not_ours_tells_nothing(text: str) -> None:
    assert CommitMetadata.parse(text) is None


@pytest.mark.slow
@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_text_is_read_without_an_error(text: str) -> None:
    assert CommitMetadata.parse(text) is None
