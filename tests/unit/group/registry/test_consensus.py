"""The shares of the seeds and of captured groups, and what holds for every group."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.group.registry.consensus import share
from streamgroup.model import TopicPartition


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
def test_nobody_gets_of_a_topic_that_it_does_not_read(
    topics: dict[str, list[int]], group: dict[str, dict[str, int]]
) -> None:
    threads = {f"{c}-{n}": t for c, streams in group.items() for t, count in streams.items() for n in range(count)}
    for tp, thread in share(topics, group).items():
        assert thread in threads
        assert any(thread == f"{c}-{n}" for c, s in group.items() for n in range(s.get(tp.topic, 0)))
