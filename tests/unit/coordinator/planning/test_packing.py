from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.coordinator.planning.limits import byte_limit
from streamgroup.coordinator.planning.packing import KEPT, MOST_SMALL_TASKS, UNIT, UNKNOWN, RecordSizes, pack
from streamgroup.logformat import KAFKA07_LOG
from streamgroup.model import Broker, FetchRange, FetchTask, OffsetRange, TopicPartition

ONE, TWO = Broker(1, "b1", 9092), Broker(2, "b2", 9092)
Table = list[list[tuple[int, int, int]]]


def fetch(partition: int, start: int, until: int, leader: Broker | None = ONE) -> FetchRange:
    return FetchRange(OffsetRange(TopicPartition("t", partition), start, until), leader, "id", 3)


def table(tasks: Sequence[FetchTask]) -> Table:
    """The tasks as rows of (partition, start, until)."""
    return [[(r.range.partition.partition, r.range.start, r.range.until) for r in task.ranges] for task in tasks]


@pytest.mark.parametrize(
    ("ranges", "min_partitions", "expected"),
    [
        ([(0, 1, 5)], None, [[(0, 1, 5)]]),
        ([(0, 1, 5)], 1, [[(0, 1, 5)]]),
        ([(0, 1, 5)], 4, [[(0, 1, 2)], [(0, 2, 3)], [(0, 3, 4)], [(0, 4, 5)]]),
        ([(0, 1, 5)], 9, [[(0, 1, 2)], [(0, 2, 3)], [(0, 3, 4)], [(0, 4, 5)]]),
        ([(0, 0, 10)], 3, [[(0, 6, 10)], [(0, 0, 3)], [(0, 3, 6)]]),
        ([(0, 1, 2), (1, 1, 2), (2, 1, 2)], 3, [[(0, 1, 2)], [(1, 1, 2)], [(2, 1, 2)]]),
        ([(0, 1, 2), (1, 1, 2), (2, 1, 2)], 2, [[(0, 1, 2)], [(1, 1, 2)], [(2, 1, 2)]]),
        # skewed: the large one takes the tasks that the small one leaves
        ([(0, 0, 1), (1, 0, 10)], 3, [[(1, 0, 5)], [(1, 5, 10)], [(0, 0, 1)]]),
        (
            [(0, 0, 2), (1, 0, 2), (2, 0, 100)],
            6,
            [*([(2, n, n + 25)] for n in (0, 25, 50, 75)), [(0, 0, 2)], [(1, 0, 2)]],
        ),
        ([(0, 0, 30), (1, 0, 60)], 3, [[(0, 0, 30)], [(1, 0, 30)], [(1, 30, 60)]]),
        # SPARK-28489: what does not divide is not dropped
        ([(0, 0, 7)], 2, [[(0, 3, 7)], [(0, 0, 3)]]),
        ([(0, 5, 5), (1, 0, 4)], 2, [[(1, 0, 2)], [(1, 2, 4)]]),
        ([(0, 5, 5)], 2, []),
        ([], 2, []),
    ],
)
def test_large_ranges_are_split_in_proportion_to_their_size(
    ranges: list[tuple[int, int, int]], min_partitions: int | None, expected: Table
) -> None:
    assert table(pack([fetch(*r) for r in ranges], min_partitions=min_partitions, packed_offsets=0)) == expected


@pytest.mark.parametrize(
    ("ranges", "most", "min_partitions", "expected"),
    [
        ([(0, 0, 10)], 10, None, [[(0, 0, 10)]]),
        ([(0, 0, 11)], 10, None, [[(0, 5, 11)], [(0, 0, 5)]]),
        ([(0, 0, 3)], 1, None, [[(0, 0, 1)], [(0, 1, 2)], [(0, 2, 3)]]),
        ([(0, 0, 4), (1, 0, 12)], 6, None, [[(1, 0, 6)], [(1, 6, 12)], [(0, 0, 4)]]),
        ([(0, 0, 4), (1, 0, 12)], 6, 5, [[(0, 0, 4)], [(1, 0, 3)], [(1, 3, 6)], [(1, 6, 9)], [(1, 9, 12)]]),
        ([(0, 0, 12)], 3, 2, [[(0, n, n + 3)] for n in (0, 3, 6, 9)]),
        ([(0, 0, 4), (1, 0, 4), (2, 0, 4)], 8, None, [[(0, 0, 4), (1, 0, 4)], [(2, 0, 4)]]),
    ],
)
def test_max_records_per_partition_caps_a_task(
    ranges: list[tuple[int, int, int]], most: int, min_partitions: int | None, expected: Table
) -> None:
    tasks = pack(
        [fetch(*r) for r in ranges], min_partitions=min_partitions, max_records_per_partition=most, packed_offsets=100
    )
    assert table(tasks) == expected


def test_each_partition_is_a_task_unless_the_caller_packs() -> None:
    ranges = [fetch(n, 7, 8, ONE if n % 2 else TWO) for n in range(40)]
    assert [len(task) for task in pack(ranges)] == [1] * 40
    assert [len(task) for task in pack(ranges, packed_offsets=40)] == [40]


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 3, 70])
def test_small_ranges_of_very_many_partitions_share_tasks(size: int) -> None:
    ranges = [fetch(n, 0, size, ONE if n % 3 else TWO) for n in range(10_000)]
    tasks = pack(ranges)
    assert len(tasks) == MOST_SMALL_TASKS
    assert sum(map(len, tasks)) == 10_000 * size
    assert len(pack(ranges[:MOST_SMALL_TASKS])) == MOST_SMALL_TASKS, "each has a task"
    assert len(pack(ranges[: MOST_SMALL_TASKS + 1])) == MOST_SMALL_TASKS
    assert len(pack(ranges, packed_offsets=5_000)) < 150, "cheap records need fewer tasks"


def test_ranges_above_the_packed_offsets_stay_alone_and_come_first() -> None:
    ranges = [fetch(n, 0, size) for n, size in enumerate((3, 90, 4, 20_001))]
    assert table(pack(ranges, packed_offsets=50)) == [[(3, 0, 20_001)], [(1, 0, 90)], [(0, 0, 3), (2, 0, 4)]]
    assert [len(task) for task in pack(ranges, packed_offsets=10**9)] == [20_001, 97], "no task is above SMALL"


@pytest.mark.parametrize(
    ("ranges", "tasks"),
    [
        ([(40, ONE), (40, TWO), (40, ONE), (40, TWO)], [[(0, 0, 40), (2, 0, 40)], [(1, 0, 40), (3, 0, 40)]]),
        ([(90, ONE), (30, ONE), (30, TWO), (30, None)], [[(0, 0, 90)], [(1, 0, 30), (2, 0, 30), (3, 0, 30)]]),
    ],
    ids=["of one leader", "left over by the leaders"],
)
def test_small_ranges_share_a_task(ranges: list[tuple[int, Broker | None]], tasks: Table) -> None:
    given = [fetch(n, 0, size, leader) for n, (size, leader) in enumerate(ranges)]
    assert table(pack(given, packed_offsets=100)) == tasks


def test_packing_leaves_as_many_tasks_as_asked_for() -> None:
    ranges = [fetch(n, 0, 10) for n in range(5)]
    assert [len(task.ranges) for task in pack(ranges, min_partitions=3, packed_offsets=100)] == [2, 2, 1]
    assert [len(task.ranges) for task in pack(ranges, min_partitions=2, packed_offsets=100)] == [3, 2]


def test_a_task_carries_all_that_a_fetch_needs() -> None:
    (task, _) = pack([fetch(0, 0, 10, TWO)], min_partitions=2)
    assert task.ranges[0] == FetchRange(OffsetRange(TopicPartition("t", 0), 0, 5), TWO, "id", 3)


SIZES = st.integers(0, 5) | st.integers(0, 200) | st.integers(0, 10**6)


@st.composite
def plans(draw: st.DrawFn) -> list[FetchRange]:
    rows = draw(st.lists(st.tuples(st.integers(0, 2**62), SIZES, st.sampled_from([ONE, TWO, None])), max_size=12))
    return [fetch(n, start, start + size, leader) for n, (start, size, leader) in enumerate(rows)]


FEWEST = st.none() | st.integers(1, 40)
MOST = st.none() | st.integers(50_000, 10**6)


@given(plans(), FEWEST, MOST, st.integers(0, 1_000))
def test_the_tasks_tile_the_ranges_exactly(
    ranges: list[FetchRange], fewest: int | None, most: int | None, small: int
) -> None:
    tasks = pack(ranges, min_partitions=fewest, max_records_per_partition=most, packed_offsets=small)
    pieces = sorted((r for task in tasks for r in task.ranges), key=lambda r: r.range)
    for whole in ranges:
        mine = [piece for piece in pieces if piece.range.partition == whole.range.partition]
        assert sum(len(piece.range) for piece in mine) == len(whole.range)
        ends = [whole.range.start, *(piece.range.until for piece in mine)]
        assert [piece.range.start for piece in mine] == ends[:-1]
        assert not mine or ends[-1] == whole.range.until
        assert all(piece.leader == whole.leader for piece in mine)
    assert all(len(piece.range) for piece in pieces)
    assert all(task.ranges for task in tasks)


@pytest.mark.slow
@given(plans(), FEWEST, MOST, st.integers(0, 1_000))
def test_the_number_and_the_size_of_tasks_keep_their_bounds(
    ranges: list[FetchRange], fewest: int | None, most: int | None, small: int
) -> None:
    tasks = pack(ranges, min_partitions=fewest, max_records_per_partition=most, packed_offsets=small)
    filled = [r for r in ranges if len(r.range)]
    if most is not None:
        assert all(len(task) <= most for task in tasks)
    if fewest is None and most is None:
        assert len(tasks) <= len(filled)
    if fewest is not None:
        assert len(tasks) >= min(fewest, len(filled))
    assert all(len(task) <= small for task in tasks if len(task.ranges) > 1)
    assert [len(task) for task in tasks] == sorted((len(task) for task in tasks), reverse=True)


@pytest.mark.slow
@given(plans().flatmap(lambda r: st.tuples(st.just(r), st.permutations(r))), FEWEST)
def test_the_order_of_the_ranges_does_not_matter(
    orders: tuple[list[FetchRange], list[FetchRange]], fewest: int | None
) -> None:
    first, second = (pack(order, min_partitions=fewest, packed_offsets=100) for order in orders)
    assert first == second


# -- Kafka 0.7: offsets are bytes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("segments", "parts", "expected"),
    [
        ((0, 40, 80), 1, [[(0, 0, 100)]]),
        ((0, 40, 80), 2, [[(0, 40, 100)], [(0, 0, 40)]]),
        ((0, 40, 80), 3, [[(0, 0, 40)], [(0, 40, 80)], [(0, 80, 100)]]),
        ((0, 40, 80), 50, [[(0, 0, 40)], [(0, 40, 80)], [(0, 80, 100)]]),
        ((0,), 5, [[(0, 0, 100)]]),
        ((), 5, [[(0, 0, 100)]]),
    ],
)
def test_bytes_are_divided_where_segments_start(segments: tuple[int, ...], parts: int, expected: Table) -> None:
    ranges = [fetch(0, 0, 100)]
    where = {ranges[0].range.partition: segments}
    assert table(pack(ranges, KAFKA07_LOG, min_partitions=parts, segments=where)) == expected


@given(
    segments=st.lists(st.integers(0, 1_000), max_size=30, unique=True).map(sorted),
    start=st.integers(0, 900),
    size=st.integers(1, 500),
    parts=st.integers(1, 40),
    most=st.none() | st.integers(1, 600),
)
def test_divided_bytes_tile_the_range_and_are_cut_at_segments_only(
    segments: list[int], start: int, size: int, parts: int, most: int | None
) -> None:
    ranges = [fetch(0, start, start + size)]
    tasks = pack(
        ranges,
        KAFKA07_LOG,
        min_partitions=parts,
        max_records_per_partition=most,
        segments={ranges[0].range.partition: segments},
    )
    pieces = sorted((r.range.start, r.range.until) for task in tasks for r in task.ranges)
    assert (pieces[0][0], pieces[-1][1]) == (start, start + size)
    cuts = [end for _, end in pieces[:-1]]
    assert [begin for begin, _ in pieces[1:]] == cuts
    assert set(cuts) <= set(segments)
    inside = sum(start < segment < start + size for segment in segments)
    assert len(pieces) >= min(parts, size, inside + 1)


@given(st.lists(st.integers(1, 30), max_size=40), st.integers(1, 30))
def test_small_ranges_of_one_leader_go_largest_first_into_the_first_task_with_room(
    sizes: list[int], bound: int
) -> None:
    tasks = pack([fetch(n, 0, size) for n, size in enumerate(sizes)], packed_offsets=bound)
    expected: list[list[int]] = []
    packed = sorted((size for size in sizes if size <= bound), reverse=True)
    for size in packed:
        into = next((task for task in expected if sum(task) + size <= bound), None)
        if into is None:
            expected.append([size])
        else:
            into.append(size)
    expected += [[size] for size in sizes if size > bound]
    assert sorted(sorted(len(r.range) for r in task.ranges) for task in tasks) == sorted(map(sorted, expected))


@given(st.lists(st.integers(1, 499), unique=True, max_size=40).map(sorted), st.integers(2, 40))
def test_a_log_is_divided_at_the_segments_nearest_to_equal_parts(inside: list[int], parts: int) -> None:
    tp = TopicPartition("t", 0)
    tasks = pack([fetch(0, 0, 500)], KAFKA07_LOG, min_partitions=parts, segments={tp: inside})
    parts = min(parts, len(inside) + 1)
    expected, first = [], 0
    for part in range(1, parts):
        ideal, last = 500 * part // parts, len(inside) - (parts - 1 - part)
        nearest = min(range(first, last), key=lambda index, ideal=ideal: abs(inside[index] - ideal))
        expected.append(inside[nearest])
        first = nearest + 1
    assert sorted(task.ranges[0].range.start for task in tasks) == [0, *expected]


P0, P1, P2 = (TopicPartition("t", n) for n in range(3))
OTHER = TopicPartition("u", 0)


def test_a_partition_without_a_sample_has_the_largest_density_of_its_topic() -> None:
    sizes = RecordSizes()
    sizes.add(P0, 0, 1_000, 10)
    sizes.add(P1, 0, 700, 10)
    assert sizes.densities([P0, P1, P2, OTHER]) == {P0: 100 * UNIT, P1: 70 * UNIT, P2: 100 * UNIT, OTHER: UNKNOWN}


def test_less_than_a_byte_for_an_offset_counts_with_its_fraction_and_is_rounded_up() -> None:
    sizes = RecordSizes()
    sizes.add(P0, 0, 1, 3)
    assert sizes.densities([P0]) == {P0: 342}


def test_the_largest_of_the_last_samples_counts_until_it_is_old() -> None:
    sizes = RecordSizes()
    sizes.add(P0, 0, 1_000, 1)
    for position in range(1, KEPT):
        sizes.add(P0, position, 10, 1)
        assert sizes.densities([P0]) == {P0: 1_000 * UNIT}
    sizes.add(P0, KEPT, 10, 1)
    assert sizes.densities([P0]) == {P0: 10 * UNIT}


def test_partitions_without_a_sample_come_first_then_those_with_the_oldest() -> None:
    sizes = RecordSizes()
    sizes.add(P0, 5, 10, 1)
    sizes.add(P1, 5, 10, 1)
    sizes.add(P0, 6, 10, 1)
    assert list(sizes.wanted({P0: 7, P1: 7, P2: 7})) == [P2, P1, P0]
    assert sizes.wanted({P0: 6, P1: 7}) == {P1: 7}, "the sample of P0 is of this position"


def test_a_partition_that_is_not_held_any_more_is_forgotten() -> None:
    sizes = RecordSizes()
    sizes.add(P0, 5, 10, 1)
    sizes.wanted({OTHER: 0})
    assert sizes.densities([P0]) == {P0: UNKNOWN}
    assert sizes.wanted({P0: 5}) == {P0: 5}


@given(st.lists(st.integers(1, 10**6), min_size=KEPT + 2, max_size=40), st.integers(1, 10**7))
def test_batches_of_records_that_do_not_grow_stay_below_the_limit(records: list[int], limit: int) -> None:
    """Each batch is sampled where it begins: records that shrink from there on make it smaller, never larger."""
    records = sorted(records, reverse=True)
    sizes, position = RecordSizes(), 0
    while position < len(records):
        sizes.add(P0, position, records[position], 1)
        until = byte_limit({P0: OffsetRange(P0, position, len(records))}, limit, sizes.densities([P0]))[P0]
        assert until > position, "never stuck"
        assert sum(records[position:until]) <= max(limit, records[position])
        position = until
