"""Nodes in ZooKeeper: commits, when our metadata beside the offset counts (R32), consumers, and their patterns."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import ConfigError, DecodeError
from streamgroup.group.commits import CommitMetadata
from streamgroup.group.registry import nodes as f
from streamgroup.group.registry.nodes import (
    GroupPaths,
    Incarnation,
    Interest,
    committed_in,
    committed_subtrees,
    metadata_data,
    read_committed,
)
from streamgroup.group.registry.patterns import WAYS_MOST, matches, ways
from streamgroup.java_regex import compile_java
from streamgroup.kafka.wire import registrations
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
    [{"streamgroup": 2}, {"streamgroup": True}, {"commit": 5}, {"commit": None}, {"version": "3"}, {"offset": "5"}],
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


OLD, NEW = Dialect.KAFKA07, Dialect.KAFKA
PATH = "/consumers/g/ids/c"


# -- paths ------------------------------------------------------------------------------------------------------------


def test_the_paths_of_0_7_are_those_of_its_consumers() -> None:
    paths, tp = GroupPaths("grp1", OLD), TopicPartition("ctopic", 10_002)
    assert paths.consumer("grp1_c1") == "/consumers/grp1/ids/grp1_c1"
    assert paths.owner(tp) == "/consumers/grp1/owners/ctopic/1-2"
    assert paths.offset(tp) == "/consumers/grp1/offsets/ctopic/1-2"
    assert paths.metadata_of(tp) == "/consumers/grp1/streamgroup/ctopic/1-2"


def test_the_paths_of_0_8_have_plain_numbers() -> None:
    paths, tp = GroupPaths("g8", NEW), TopicPartition("t8", 3)
    assert paths.owner(tp) == "/consumers/g8/owners/t8/3"
    assert paths.offset(tp) == "/consumers/g8/offsets/t8/3"


@pytest.mark.parametrize("group", ["", ".", "..", "a/b", "a\0", "/"])
def test_a_group_that_no_node_can_be_called_after_is_refused(group: str) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.group\.id"):
        GroupPaths(group, NEW)


def test_a_topic_called_members_is_in_nobodys_way() -> None:
    paths = GroupPaths("g", NEW)
    assert not paths.member("x").startswith(paths.metadata() + "/")
    assert not paths.metadata_of(TopicPartition("members", 0)).startswith(paths.members + "/")


# -- consumers --------------------------------------------------------------------------------------------------------


def test_we_register_as_the_real_consumers_spell_it() -> None:
    assert f.registration(OLD, ["dtopic", "ctopic"], 5) == b'{ "ctopic": 1,"dtopic": 1 }'
    assert f.registration(NEW, ["t8"], 1795200970602) == (
        b'{"version":1,"subscription":{"t8":1},"pattern":"static","timestamp":"1795200970602"}'
    )


@given(st.sets(st.text(max_size=5), max_size=4), st.sampled_from(Dialect))
def test_what_we_register_is_read_as_it_was_meant(topics: set[str], dialect: Dialect) -> None:
    data = f.registration(dialect, topics, 1)
    assert f.read_consumer(PATH, data, dialect) == Interest(f.STATIC, dict.fromkeys(topics, 1))


@pytest.mark.parametrize(
    ("dialect", "data", "streams"),
    [
        (OLD, '{ "ctopic": 1,"dtopic": 2 }', {"ctopic": 1, "dtopic": 2}),
        (OLD, "*2*j-.*", {"j-1": 2, "j-2": 2}),
        (OLD, "!2!j-.*", {"ctopic": 2, "dtopic": 2, "__consumer_offsets": 2, "k_1": 2}),
        (OLD, "*1*ctopic, dtopic", {"ctopic": 1, "dtopic": 1}),
        (OLD, "*1*'j-1'", {"j-1": 1}),
        (OLD, "*1*j", {}),  # the whole name has to match
        (OLD, "*3*.*", dict.fromkeys(["ctopic", "dtopic", "j-1", "j-2", "k_1", "__consumer_offsets"], 3)),
        (NEW, '{"version":1,"subscription":{"t8":1},"pattern":"static","timestamp":"1"}', {"t8": 1}),
        (NEW, '{"version":1,"subscription":{"j-.*":2},"pattern":"white_list","timestamp":"1"}', {"j-1": 2, "j-2": 2}),
        (NEW, '{"version":1,"subscription":{"j-.*":1},"pattern":"black_list"}', {"ctopic": 1, "dtopic": 1, "k_1": 1}),
        (NEW, '{"version":1,"subscription":{".*offsets":1},"pattern":"white_list"}', {}),
        (NEW, '{"version":1,"subscription":{},"pattern":"white_list"}', {}),
        (NEW, '{"version":1,"subscription":{"t8":1},"pattern":{}}', {"t8": 1}),
        (NEW, '{"version":1,"subscription":{"t8":1},"pattern":["white_list"]}', {"t8": 1}),
        (NEW, '{"version":1,"subscription":{"__consumer_offsets":1},"pattern":"static"}', {"__consumer_offsets": 1}),
    ],
)
def test_what_real_consumers_register(dialect: Dialect, data: str, streams: dict[str, int]) -> None:
    interest = f.read_consumer(PATH, data.encode(), dialect)
    there = ["ctopic", "dtopic", "j-1", "j-2", "k_1", "__consumer_offsets"]
    assert interest.topics(there, dialect) == streams


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80",
        b"[1]",
        b"{",
        b'{"subscription":7,"pattern":"static"}',
        b'{"subscription":{"t":0},"pattern":"static"}',
        b'{"subscription":{"t":2000000000},"pattern":"static"}',
        b'{"subscription":{"t":true},"pattern":"static"}',
        b"*0*t",
        b"*2000000000*t",
        b"[" * 100_000,
    ],
)
def test_garbage_is_no_consumer_and_the_error_names_the_node(data: bytes, dialect: Dialect) -> None:
    with pytest.raises(DecodeError, match=PATH):
        f.read_consumer(PATH, data, dialect)


def test_a_pattern_has_the_syntax_of_java() -> None:
    assert f.read_consumer(PATH, rb"*1*\p{Alpha}+", OLD).topics(["t", "1"], OLD) == {"t": 1}
    unknown = f.read_consumer(PATH, rb"*1*\p{Letters}+", OLD)
    with pytest.raises(DecodeError, match="Letters"):
        unknown.topics(["t"], OLD)


def test_our_ids_look_like_the_real_ones() -> None:
    me = Incarnation.of("grp1", "vm", 1795200126907, 0xAB19BE2887)
    assert me == Incarnation("grp1_vm-1795200126907-19be2887", 1795200126907)
    assert registrations.is_node_name(Incarnation.of("g", "a/b\0", 1, 2).consumer_id)


def test_owner_nodes_name_a_thread() -> None:
    thread = f.read_owner("/o", f.owner_data("grp1_c1-10"))
    assert thread == "grp1_c1-10"
    assert f.consumer_of(thread) == "grp1_c1"
    with pytest.raises(DecodeError, match="/o"):
        f.read_owner("/o", b"somebody")


@given(st.integers(0, 2**63 - 1))
def test_offsets_are_bare_decimals(offset: int) -> None:
    assert f.offset_data(offset) == str(offset).encode()
    assert f.read_offset("/o", f.offset_data(offset)) == offset


@pytest.mark.parametrize("data", [b"", b"-1", b" 5", b"5\n", b"1.0", b"0x5", b"9223372036854775808", "٣".encode()])
def test_garbage_is_no_offset(data: bytes) -> None:
    with pytest.raises(DecodeError, match="/o"):
        f.read_offset("/o", data)


def test_an_error_shows_no_more_than_the_beginning_of_garbage() -> None:
    with pytest.raises(DecodeError) as caught:
        f.read_offset("/o", b"x" * 100_000)
    assert len(str(caught.value)) < 200


# -- other consumers' patterns: none takes long to be matched or refused ----------------------------------------------

LETTERS = "a" * 26
LONGEST = "a" * 249
SOON_S = 2.0


@pytest.mark.parametrize(
    ("pattern", "topic"),
    [
        ("(a+)+b", LETTERS),
        ("(a|a)*b", LETTERS),
        ("(a|aa)+b", LETTERS),
        ("(a*)*b", LETTERS),
        ("(a?b?){20}c", LETTERS),
        (".*.*.*.*x", LONGEST),
        ("a?" * 30 + "a" * 30, "a" * 29),
        ("(a|a)" * 30 + "b", "a" * 30),
        ("(?:(?:(?:){30}){30}){30}", "a"),
        ("[]](a+)+b", "]" + LETTERS),
        ("[[a]](a+)+b", "a" + LETTERS),
        (r"\[(a+)+b", "[" + LETTERS),
        (r"[\]](a+)+b", "]" + LETTERS),
    ],
)
def test_a_pattern_that_would_be_tried_in_too_many_ways_is_refused(pattern: str, topic: str) -> None:
    compile_java(pattern)
    begun = time.thread_time()
    with pytest.raises(DecodeError, match="cannot be used here: there are too many ways"):
        matches(pattern, topic)
    assert time.thread_time() - begun < SOON_S


@pytest.mark.parametrize(
    ("pattern", "topic", "is_meant"),
    [
        (".*a.*b.*", LONGEST, False),
        (".*.*.*x", LONGEST, False),
        ("[a-z]+-[a-z]+-[a-z]+-[0-9]+", "payments-eu-refunds-12", True),
        ("(foo|bar)-.*", "bar-" + LETTERS, True),
        ("a.*,b.*,c.*,d.*,e.*,f.*", "f" + LETTERS, True),
        ("(?!test).*", "tests", False),
        ("(?i)EVENTS.*", "events-1", True),
        (r"events\.v[0-9]{2}", "events.v12", True),
        ("(ab){3}", "ababab", True),
    ],
)
def test_what_people_write_is_matched_soon(pattern: str, topic: str, is_meant: bool) -> None:
    begun = time.thread_time()
    assert matches(pattern, topic) is is_meant
    assert time.thread_time() - begun < SOON_S


def test_a_pattern_longer_than_any_that_is_meant_is_not_even_compiled() -> None:
    with pytest.raises(DecodeError, match="longer than 1000 characters"):
        matches("a" * 1001, "a")


def test_a_pattern_has_the_meaning_of_java() -> None:
    assert matches("[a-z&&[^b]]+", "acd")
    assert not matches("[a-z&&[^b]]+", "abc")
    assert matches(r"\p{Alpha}+[[0-9]_]", "orders_")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("a(", r"a \( without a \)"),
        ("x{}", r"the quantifier \{\}"),
        ("(?#[)(a+)+b", "the flag '#'"),  # a comment in Python
        ("(?x)#[\n(a+)+b", "the flag 'x'"),
    ],
)
def test_a_pattern_that_is_none_in_java_cannot_be_used(pattern: str, reason: str) -> None:
    with pytest.raises(DecodeError, match=f"cannot be used here: {reason}"):
        matches(pattern, LETTERS)


def test_the_same_is_matched_once() -> None:
    matches.cache_clear()
    for _ in range(3):
        matches("j-.*", "j-1")
    assert (matches.cache_info().misses, matches.cache_info().hits) == (1, 2)


PIECES = ["a", "b", ".", "(", ")", "|", "*", "+", "?", "{2}", "{1,}", "[ab]", "(?:", "(?=", r"\w"]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_what_is_let_pass_never_takes_long(pattern: str) -> None:
    try:
        compiled = compile_java(pattern)
    except ValueError:
        return
    topic = "a" * 40
    if ways(pattern, len(topic)) <= WAYS_MOST:
        begun = time.process_time()
        compiled.fullmatch(topic)
        assert time.process_time() - begun < SOON_S
