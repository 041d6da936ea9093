"""Nodes become a view: as they were captured, with garbage between them, with others' and our consumers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.coordinator.run.lineage import find_duplicates
from streamgroup.group.registry.nodes import GroupPaths
from streamgroup.group.registry.view import (
    OwnerNode,
    describe_holders,
    describe_members,
    host_in,
    owner_subtrees,
    owners_in,
    share,
    subtrees,
    view_of,
)
from streamgroup.group.user_data import RunIdentity, decode_identity, encode_identity
from streamgroup.model import Broker, Dialect, GroupState, TopicPartition
from streamgroup.znodes import Subtree, ZNode
from tests.fakes.nodes import nodes_of

OLD, NEW = GroupPaths("grp1", Dialect.KAFKA07), GroupPaths("g8", Dialect.KAFKA)
VM = "grp1_vm-1795200126907-19be2887"

CAPTURED_07 = {
    "/brokers/ids/0": "127.0.0.1-1795199826383:127.0.0.1:17092",
    "/brokers/ids/1": "127.0.0.1-1795199826379:127.0.0.1:17093",
    "/brokers/topics/ctopic/0": "3",
    "/brokers/topics/ctopic/1": "3",
    "/brokers/topics/dtopic/0": "1",
    f"/consumers/grp1/ids/{VM}": '{ "ctopic": 2 }',
    "/consumers/grp1/ids/grp1_c1": '{ "ctopic": 1,"dtopic": 1 }',
    "/consumers/grp1/owners/ctopic/0-0": "grp1_c1-0",
    "/consumers/grp1/owners/ctopic/1-2": f"{VM}-1",
}

CAPTURED_08 = {
    "/brokers/ids/1": '{"jmx_port":-1,"timestamp":"1795200966157","host":"127.0.0.1","version":1,"port":23844}',
    "/brokers/topics/t8": '{"version":1,"partitions":{"2":[1],"1":[1],"3":[1],"0":[1]}}',
    "/consumers/g8/ids/g8_vm-1795200970500-84e1c6c3": (
        '{"version":1,"subscription":{"t8":1},"pattern":"white_list","timestamp":"1795200970602"}'
    ),
    "/consumers/g8/ids/g8_vm-1795200970524-bac584a8": (
        '{"version":1,"subscription":{"t8":1},"pattern":"white_list","timestamp":"1795200970611"}'
    ),
    "/consumers/g8/owners/t8/0": "g8_vm-1795200970500-84e1c6c3-0",
    "/consumers/g8/owners/t8/3": "g8_vm-1795200970524-bac584a8-0",
}


def test_a_captured_group_of_0_7() -> None:
    view = view_of(OLD, nodes_of(CAPTURED_07))
    assert view.partitions == {"ctopic": (0, 1, 2, 10_000, 10_001, 10_002), "dtopic": (0,)}
    assert view.brokers == {0: Broker(0, "127.0.0.1", 17092), 1: Broker(1, "127.0.0.1", 17093)}
    assert view.consumers[VM].streams == {"ctopic": 2}
    assert {tp: owner.thread for tp, owner in view.owners.items()} == {
        TopicPartition("ctopic", 0): "grp1_c1-0",
        TopicPartition("ctopic", 10_002): f"{VM}-1",
    }
    assert view.foreign == ("grp1_c1", VM)
    assert view.ours == ()
    assert view.total == 7
    assert view.notes == ()
    shares = view.shares()
    assert all(shares[tp] == owner.thread for tp, owner in view.owners.items())


def test_a_captured_group_of_0_8() -> None:
    view = view_of(NEW, nodes_of(CAPTURED_08))
    assert view.partitions == {"t8": (0, 1, 2, 3)}
    shares = view.shares()
    assert all(shares[tp] == owner.thread for tp, owner in view.owners.items())


def test_partitions_of_0_7_are_in_the_order_of_their_names() -> None:
    nodes = nodes_of({"/brokers/topics/t/10": "2", "/brokers/topics/t/2": "11"})
    numbers = view_of(OLD, nodes).partitions["t"]
    assert numbers[:2] == (100_000, 100_001)  # "10-0" < "2-0"
    assert numbers[2:5] == (20_000, 20_001, 20_010)  # "2-1" < "2-10" < "2-2"


def test_a_topic_without_brokers_is_there_and_one_that_does_not_exist_is_not() -> None:
    nodes = nodes_of({"/brokers/topics/gone": "", "/consumers/grp1/ids/c": '{ "gone": 1,"never": 1 }'})
    view = view_of(OLD, nodes)
    assert view.partitions == {"gone": ()}
    assert view.consumers["c"].streams == {"gone": 1}
    assert view.shares() == {}


def test_a_pattern_means_the_topics_that_were_looked_at() -> None:
    nodes = nodes_of(CAPTURED_07 | {"/consumers/grp1/ids/w": "*3*[cd]topic"})
    assert view_of(OLD, nodes).consumers["w"].streams == {"ctopic": 3, "dtopic": 3}


def test_a_pattern_that_would_hang_the_driver_reads_nothing_and_is_noted() -> None:
    topic = "a" * 26
    values = {"/brokers/topics/" + topic: "", f"/brokers/topics/{topic}/0": "1"}
    nodes = nodes_of(CAPTURED_07 | values | {"/consumers/grp1/ids/w": "*1*(a+)+b"})
    view = view_of(OLD, nodes)
    assert view.consumers["w"].streams == {}
    assert any("(a+)+b" in note and "assigns no partitions to this consumer" in note for note in view.notes)


def test_ours_are_those_whose_member_node_is_of_the_same_session() -> None:
    paths = {"mine": 7, "clone": 8, "left": 9}
    values = {OLD.consumer(name): '{ "t": 1 }' for name in paths} | {OLD.member(name): "{}" for name in paths}
    sessions = {OLD.consumer(name): session for name, session in paths.items()}
    sessions |= {OLD.member("mine"): 7, OLD.member("clone"): 5}
    view = view_of(OLD, nodes_of(values, sessions=sessions))
    assert view.ours == ("mine",)
    assert view.foreign == ("clone", "left")
    assert view.consumers["mine"].identity == b"{}"
    assert view.consumers["mine"].session_id == 7


def test_garbage_is_left_out_and_noted() -> None:
    nodes = nodes_of(
        CAPTURED_07
        | {
            "/brokers/ids/x": "127.0.0.1-1:127.0.0.1:9",
            "/brokers/ids/5": "nonsense",
            "/brokers/topics/ctopic/5": "many",
            f"/consumers/grp1/ids/{VM}": b"\xff\xff",
            "/consumers/grp1/owners/ctopic/0-1": "",
            "/consumers/grp1/owners/ctopic/lock": "me",
        }
    )
    view = view_of(OLD, nodes)
    assert set(view.brokers) == {0, 1}
    assert view.partitions["ctopic"] == (0, 1, 2, 10_000, 10_001, 10_002)
    assert view.consumers[VM].streams == {}
    assert view.owners[TopicPartition("ctopic", 1)].thread == ""  # it keeps others out all the same
    for path in ("/brokers/ids/x", "/brokers/ids/5", "/brokers/topics/ctopic/5", VM, "ctopic/0-1", "'lock'"):
        assert any(path in note for note in view.notes), path
    assert len(view.notes) == 6


def test_another_spelling_of_a_broker_is_garbage_and_hides_no_broker() -> None:
    twice = {
        "/brokers/ids/00": "127.0.0.1-1:127.0.0.1:9",
        "/brokers/topics/ctopic/00": "7",
        "/consumers/grp1/owners/ctopic/0-01": "grp1_c9-0",
    }
    clean, view = view_of(OLD, nodes_of(CAPTURED_07)), view_of(OLD, nodes_of(CAPTURED_07 | twice))
    assert (view.brokers, view.partitions, view.owners) == (clean.brokers, clean.partitions, clean.owners)
    for path in ("/brokers/ids/00", "/brokers/topics/ctopic/00", "'0-01'"):
        assert any(path in note for note in view.notes), path


def test_garbage_in_a_topic_of_0_8_is_a_topic_without_partitions() -> None:
    view = view_of(NEW, nodes_of(CAPTURED_08 | {"/brokers/topics/t8": "[]"}))
    assert view.partitions == {"t8": ()}
    assert len(view.notes) == 1


def test_the_generation_is_the_newest_zxid_of_what_decides() -> None:
    nodes = nodes_of(CAPTURED_07)
    generation = view_of(OLD, nodes).generation
    decides = ("/brokers/ids", "/brokers/topics/ctopic", "/brokers/topics/dtopic", OLD.ids)
    assert generation == max(nodes[path].pzxid for path in decides)
    more = nodes_of(CAPTURED_07 | {"/consumers/grp1/ids/zz": "{}"})
    assert view_of(OLD, more).generation == more[OLD.ids].pzxid > generation
    owned = nodes_of(CAPTURED_07 | {"/consumers/grp1/owners/ctopic/0-2": "grp1_c1-0"})
    assert view_of(OLD, owned).generation == generation


def test_new_data_of_a_topic_of_0_8_is_a_new_generation() -> None:
    nodes = nodes_of(CAPTURED_08)
    topic = nodes["/brokers/topics/t8"]
    before = view_of(NEW, nodes).generation
    nodes["/brokers/topics/t8"] = replace(topic, mzxid=before + 5)
    assert view_of(NEW, nodes).generation == before + 5


def test_nothing_at_all_is_an_empty_view() -> None:
    view = view_of(NEW, {})
    assert (view.generation, view.consumers, view.partitions, view.brokers, view.owners) == (0, {}, {}, {}, {})


def test_what_is_looked_at() -> None:
    assert subtrees(OLD, ["t"]) == (
        Subtree("/consumers/grp1/ids"),
        Subtree("/consumers/grp1/streamgroup-members"),
        Subtree("/brokers/ids"),
        Subtree("/brokers/topics/t"),
    )
    assert subtrees(NEW, ["t", "a/b", ".."])[3:] == (Subtree("/brokers/topics/t", depth=0),)
    assert subtrees(OLD, None, watch=False)[3:] == (Subtree("/brokers/topics", depth=2, watch=False),)
    assert owner_subtrees(OLD, ["t", "."]) == (Subtree("/consumers/grp1/owners/t"),)
    assert owner_subtrees(NEW, None) == (Subtree("/consumers/g8/owners", depth=2),)


def test_owners_alone_are_found_among_their_nodes() -> None:
    nodes = {path: node for path, node in nodes_of(CAPTURED_08).items() if "/owners/" in path}
    assert owners_in(NEW, nodes) == view_of(NEW, nodes_of(CAPTURED_08)).owners
    owner = owners_in(NEW, nodes)[TopicPartition("t8", 0)]
    assert isinstance(owner, OwnerNode)
    assert owner.consumer_id == "g8_vm-1795200970500-84e1c6c3"


@pytest.mark.slow
@given(
    st.dictionaries(
        st.sampled_from(
            [
                "/brokers/ids/1",
                "/brokers/topics/t/1",
                "/brokers/topics/t",
                OLD.consumer("c"),
                OLD.member("c"),
                "/consumers/grp1/owners/t/1-0",
            ]
        ),
        st.binary(max_size=40) | st.sampled_from([b"3", b"*1*(a", b'{ "t": 1 }', b'{"partitions":{"0":[]}}']),
    ),
    st.sampled_from(Dialect),
)
def test_no_bytes_make_it_fail(values: dict[str, bytes], dialect: Dialect) -> None:
    view = view_of(GroupPaths("grp1", dialect), nodes_of(values))
    view.shares()


def of(topic: str, falls_to: dict[TopicPartition, str]) -> dict[str, list[int]]:
    by_thread: dict[str, list[int]] = {}
    for tp, thread in falls_to.items():
        if tp.topic == topic:
            by_thread.setdefault(thread, []).append(tp.partition)
    return by_thread


SIX = [0, 1, 2, 10_000, 10_001, 10_002]
"""Two brokers of 0.7 with three partitions each: 0-0 0-1 0-2 1-0 1-1 1-2."""


def test_three_consumers_on_two_brokers_of_three_partitions() -> None:
    got = share({"t": SIX}, {name: {"t": 1} for name in "CAB"})
    assert of("t", got) == {"A-0": [0, 1], "B-0": [2, 10_000], "C-0": [10_001, 10_002]}


def test_eighteen_partitions_on_four_consumers() -> None:
    got = share({"t": range(18)}, {name: {"t": 1} for name in "abcd"})
    assert [len(chunk) for chunk in of("t", got).values()] == [5, 5, 4, 4]


def test_a_captured_group_of_a_consumer_with_one_stream_and_one_with_two() -> None:
    vm = "grp1_vm-1795200126907-19be2887"
    got = share({"ctopic": SIX, "dtopic": [0]}, {vm: {"ctopic": 2}, "grp1_c1": {"ctopic": 1, "dtopic": 1}})
    assert of("ctopic", got) == {"grp1_c1-0": [0, 1], f"{vm}-0": [2, 10_000], f"{vm}-1": [10_001, 10_002]}
    assert of("dtopic", got) == {"grp1_c1-0": [0]}


def test_a_captured_group_of_two_consumers_of_0_8() -> None:
    ids = ["g8_vm-1795200970524-bac584a8", "g8_vm-1795200970500-84e1c6c3"]
    got = share({"t8": range(4)}, {name: {"t8": 1} for name in ids})
    assert of("t8", got) == {f"{ids[1]}-0": [0, 1], f"{ids[0]}-0": [2, 3]}


def test_threads_are_sorted_as_strings() -> None:
    got = share({"t": range(11)}, {"c": {"t": 11}})
    assert [thread for thread, _ in sorted(of("t", got).items(), key=lambda item: item[1])] == [
        "c-0", "c-1", "c-10", *(f"c-{n}" for n in range(2, 10)),
    ]  # fmt: skip


def test_names_are_compared_as_java_compares_them() -> None:
    """U+FF5E is below U+1F600 in Python, above the surrogates in Java."""
    got = share({"t": [0, 1]}, {"\uff5e": {"t": 1}, "\U0001f600": {"t": 1}})
    assert of("t", got) == {"\U0001f600-0": [0], "\uff5e-0": [1]}


def test_who_comes_too_late_gets_nothing_and_what_nobody_reads_falls_to_nobody() -> None:
    got = share({"t": [0, 1], "u": [0]}, {name: {"t": 1} for name in "abc"})
    assert of("t", got) == {"a-0": [0], "b-0": [1]}
    assert of("u", got) == {}


GROUPS = st.dictionaries(
    st.text("ab-01", min_size=1, max_size=4), st.dictionaries(st.sampled_from("tuv"), st.integers(1, 3)), max_size=5
)
TOPICS = st.dictionaries(st.sampled_from("tuvw"), st.lists(st.integers(0, 99), unique=True, max_size=12), max_size=4)


@pytest.mark.slow
@given(TOPICS, GROUPS, st.randoms(use_true_random=False))
def test_every_partition_that_is_read_falls_to_one_thread_whatever_the_order_of_the_nodes(
    topics: dict[str, list[int]], group: dict[str, dict[str, int]], chance: object
) -> None:
    got = share(topics, group)
    read = {t for streams in group.values() for t in streams}
    assert got.keys() == {TopicPartition(t, p) for t, numbers in topics.items() if t in read for p in numbers}
    for topic, numbers in topics.items():
        sizes = [len(chunk) for chunk in of(topic, got).values()]
        threads = sum(streams.get(topic, 0) for streams in group.values())
        assert len(sizes) <= threads
        if sizes and len(numbers) >= threads:
            assert len(sizes) == threads
            assert max(sizes) - min(sizes) <= 1
    items = list(group.items())
    chance.shuffle(items)  # type: ignore[attr-defined]
    assert share(topics, dict(items)) == got


@pytest.mark.slow
@given(TOPICS, GROUPS)
def test_nobody_gets_a_topic_that_it_does_not_read(
    topics: dict[str, list[int]], group: dict[str, dict[str, int]]
) -> None:
    threads = {f"{c}-{n}": t for c, streams in group.items() for t, count in streams.items() for n in range(count)}
    for tp, thread in share(topics, group).items():
        assert thread in threads
        assert any(thread == f"{c}-{n}" for c, s in group.items() for n in range(s.get(tp.topic, 0)))


# -- who is in the group -----------------------------------------------------------------------------------------------

PATHS = GroupPaths("g", Dialect.KAFKA)
ME, TWIN, REAL = "g_h1-1-aa", "g_h2-2-bb", "g_h3-3-cc"
MY_IDENTITY, ANOTHERS = RunIdentity("lineage", "run-2"), RunIdentity("lineage", "run-1", admitted=True)


def node(owner: int = 0, data: bytes = b"", children: tuple[str, ...] = (), czxid: int = 1) -> ZNode:
    return ZNode(data, 0, czxid, 1, 1, owner, children)


def group(told_by: int = 2) -> dict[str, ZNode]:
    """Two of ours, of which the other tells of itself in session `told_by`, and one of another make."""
    return {
        PATHS.ids: node(children=(ME, TWIN, REAL, "g_vanished-4-dd")),
        PATHS.consumer(ME): node(1),
        PATHS.consumer(TWIN): node(2),
        PATHS.consumer(REAL): node(3),
        PATHS.member(ME): node(1, encode_identity(MY_IDENTITY), czxid=8),
        PATHS.member(TWIN): node(told_by, encode_identity(ANOTHERS), czxid=7),
    }


def test_a_twin_in_zookeeper_is_found_as_one_in_kafka() -> None:
    described = describe_members(PATHS, group())
    assert [member.member_id for member in described.members] == [ME, TWIN, REAL]
    (twin,) = find_duplicates(described, MY_IDENTITY, ME).values()
    assert (twin.member_id, twin.host) == (TWIN, "h2")


def test_of_twins_in_zookeeper_the_one_that_registered_first_goes_before_whatever_they_have_written_since() -> None:
    """The first one may be admitted, and not have written it yet, when the second one describes the group."""
    first = node(2, encode_identity(replace(ANOTHERS, run="run-9", admitted=False)), czxid=7)
    described = describe_members(PATHS, group() | {PATHS.member(TWIN): first})
    assert set(find_duplicates(described, MY_IDENTITY, ME)) == {"run-9"}
    second = node(2, encode_identity(ANOTHERS), czxid=9)
    assert find_duplicates(describe_members(PATHS, group() | {PATHS.member(TWIN): second}), MY_IDENTITY, ME) == {}


def test_what_another_session_has_left_tells_nothing() -> None:
    assert find_duplicates(describe_members(PATHS, group(told_by=9)), MY_IDENTITY, ME) == {}
    assert describe_members(PATHS, {}).members == ()


@pytest.mark.parametrize(
    ("consumer", "host"), [("g_vm-1-1795200966157-84e1c6c3", "vm-1"), ("g_c1", "c1"), ("strange", "strange")]
)
def test_the_host_is_read_from_the_consumers_id(consumer: str, host: str) -> None:
    assert host_in("g", consumer) == host


def test_what_members_tell_is_their_user_data() -> None:
    described = describe_members(PATHS, group())
    assert [decode_identity(member.user_data) for member in described.members] == [MY_IDENTITY, ANOTHERS, None]


def test_a_group_that_is_not_there_is_dead() -> None:
    assert describe_holders("g", None).state == GroupState.DEAD
