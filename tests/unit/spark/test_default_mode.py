"""`streamgroup.default_mode` lets the streams of a session read alone unless they set `group.mode`."""

from __future__ import annotations

import pickle
from typing import Any

import pyspark
import pytest

import streamgroup
from pyspark_streamgroup import DefaultSource
from streamgroup.errors import ConfigError
from streamgroup.spark.default_mode import AloneByDefault, default_mode
from streamgroup.spark.source import StreamGroupDataSource, row_schema
from tests.unit.spark.test_source import STREAM, modes


class Session:
    """A session that keeps the source registered last."""

    def __init__(self) -> None:
        self.dataSource = self

    def register(self, source: type[DefaultSource]) -> None:
        self.source = pickle.loads(pyspark.cloudpickle.dumps(source))  # as PySpark sends it to its workers


def test_a_session_may_have_another_default_than_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    session: Any = Session()
    monkeypatch.setenv("STREAMGROUP_GROUP_MODE", "member")
    streamgroup.default_mode(session, "off")
    assert session.source.name() == "streamgroup"
    assert modes(dict(STREAM), session.source) == ["off", ""]
    assert modes({**STREAM, "group.mode": "member"}, session.source) == ["member", "g"]
    streamgroup.default_mode(session, "member")
    assert modes(dict(STREAM), session.source) == ["member", "g"]
    with pytest.raises(
        ConfigError, match=r"invalid value 'commit' for the mode of streamgroup\.default_mode: expected off"
    ):
        streamgroup.default_mode(session, "commit")


@pytest.mark.parametrize(
    ("mode", "source"), [("off", AloneByDefault), (" OFF ", AloneByDefault), ("member", StreamGroupDataSource)]
)
def test_the_session_gets_a_source_of_the_same_name(mode: str, source: type[StreamGroupDataSource]) -> None:
    session: Any = Session()
    default_mode(session, mode)
    assert session.source is source
    assert source.name() == StreamGroupDataSource.name() == "streamgroup"


def test_a_mode_that_is_refused_leaves_the_session_as_it_is() -> None:
    session: Any = Session()
    default_mode(session, "off")
    with pytest.raises(ConfigError, match=r"invalid value 'of' for the mode of streamgroup\.default_mode"):
        default_mode(session, "of")
    assert session.source is AloneByDefault


def test_a_stream_that_sets_the_mode_of_a_group_keeps_it() -> None:
    assert modes({**STREAM, "GROUP.mode": "commit"}, AloneByDefault) == ["commit", "g"]


def test_the_log_of_a_stream_names_the_call_that_has_set_its_mode() -> None:
    reader: Any = AloneByDefault(dict(STREAM)).streamReader(row_schema(False))
    assert reader._options.notes[-1] == "group.mode is off: streamgroup.default_mode sets it"


def test_a_batch_read_joins_no_group_and_so_has_no_mode() -> None:
    reader: Any = AloneByDefault(dict(STREAM)).reader(row_schema(False))
    assert [note for note in reader._options.notes if "group.mode" in note] == []
