"""The nodes of a commit in ZooKeeper, and when our metadata beside the offset counts (R32)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import DecodeError
from streamgroup.group.commit_metadata import CommitMetadata
from streamgroup.group.registry.formats import GroupPaths
from streamgroup.group.registry.stored import committed_in, committed_subtrees, metadata_data, read_committed
from streamgroup.model import CommittedOffset, Dialect, TopicPartition
from streamgroup.znodes import Subtree, ZNode
from tests.fakes.nodes import nodes_of

PATHS = GroupPaths("g", Dialect.KAFKA07)
TEXT = CommitMetadata("5a", "c3", 7, 8, 12).text()


def node(data: bytes, version: int = 0) -> ZNode:
    return ZNode(data, version, 1, 1, 1)


def test_the_metadata_is_readable_where_the_nodes_are_shown() -> None:
    assert metadata_data(CommittedOffset(194, TEXT), 3) == (
        b'{"streamgroup":1,"offset":194,"version":3,"commit":{"streamgroup":1,"lineage":"5a","run":"c3","sequence":7,'
        b'"asked":8,"founding":12,"topic":""}}'
    )


@given(st.integers(0, 2**63 - 1), st.text() | st.just(TEXT) | st.just('{"a": 1}'), st.integers(-1, 9), st.integers(0))
def test_a_commit_is_read_back_as_it_was_made(offset: int, metadata: str, epoch: int, version: int) -> None:
    commit = CommittedOffset(offset, metadata, epoch)
    beside = node(metadata_data(commit, version))
    assert read_committed("/o", node(str(offset).encode(), version), beside) == commit


def test_metadata_does_not_count_once_somebody_else_has_written_the_offset() -> None:
    commit = CommittedOffset(5, TEXT)
    beside = node(metadata_data(commit, 3))
    assert read_committed("/o", node(b"5", 3), beside) == commit
    assert read_committed("/o", node(b"5", 4), beside) == CommittedOffset(5)  # a real consumer, at the same offset
    assert read_committed("/o", node(b"9", 3), beside) == CommittedOffset(9)  # deleted and made anew
    assert read_committed("/o", node(b"5", 3), None) == CommittedOffset(5)


@pytest.mark.parametrize(
    "change",
    [
        {"streamgroup": 2},
        {"streamgroup": True},
        {"commit": 5},
        {"commit": None},
        {"version": "3"},
        {"offset": "5"},
    ],
)
def test_metadata_of_another_shape_does_not_count(change: dict[str, object]) -> None:
    value = json.loads(metadata_data(CommittedOffset(5, TEXT), 3)) | change
    assert read_committed("/o", node(b"5", 3), node(json.dumps(value).encode())) == CommittedOffset(5)


@given(st.binary(max_size=40))
def test_no_bytes_beside_an_offset_are_an_error(data: bytes) -> None:
    assert read_committed("/o", node(b"5"), node(data)).offset == 5


def test_all_commits_of_a_group_whatever_else_lies_there() -> None:
    nodes = nodes_of(
        {
            "/consumers/g/offsets/t/0-1": "5",
            "/consumers/g/offsets/t/1-0": "7",
            "/consumers/g/offsets/t/lock": "x",
            "/consumers/g/offsets/members/0-0": "1",
            "/consumers/g/streamgroup/t/0-1": metadata_data(CommittedOffset(5, TEXT), 0),
        }
    )
    assert committed_in(PATHS, nodes) == {
        TopicPartition("t", 1): CommittedOffset(5, TEXT),
        TopicPartition("t", 10_000): CommittedOffset(7),
        TopicPartition("members", 0): CommittedOffset(1),
    }
    assert committed_in(PATHS, {}) == {}


def test_an_offset_that_is_none_is_an_error_that_names_its_node() -> None:
    nodes = nodes_of({"/consumers/g/offsets/t/0-1": "many"})
    with pytest.raises(DecodeError, match="/consumers/g/offsets/t/0-1"):
        committed_in(PATHS, nodes)
    assert committed_in(PATHS, nodes, lambda tp: tp.topic != "t") == {}, "garbage of a topic that nobody asks for"


def test_what_is_looked_at() -> None:
    assert committed_subtrees(PATHS, None) == (
        Subtree("/consumers/g/offsets", 2, watch=False),
        Subtree("/consumers/g/streamgroup", 2, watch=False),
    )
    assert committed_subtrees(PATHS, [TopicPartition("t", 10_001)]) == (
        Subtree("/consumers/g/offsets/t/1-1", 0, watch=False),
        Subtree("/consumers/g/streamgroup/t/1-1", 0, watch=False),
    )


def test_an_epoch_of_another_kind_is_none() -> None:
    told = json.loads(metadata_data(CommittedOffset(5, TEXT, 4), 0)) | {"epoch": "x"}
    found = read_committed("/o", node(b"5"), node(json.dumps(told).encode()))
    assert found == replace(CommittedOffset(5, TEXT), leader_epoch=-1)
