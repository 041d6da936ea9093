"""The plan of a mirror, into which partitions it writes, and the query that follows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from streamgroup.errors import AuthorizationError, ConfigError, TransportError
from streamgroup.jobs.job_file import SparkSettings
from streamgroup.jobs.mirror.clusters import Clusters
from streamgroup.jobs.mirror.columns import (
    HEADERS,
    TIMESTAMP,
    Abilities,
    columns_of,
    literal,
    partition_of,
    place_of,
    topic_of,
)
from streamgroup.jobs.mirror.config import MirrorConfig
from streamgroup.jobs.mirror.plan import MirrorPlan, Placement, Side, TopicPlan, latest, plan_topic, settle
from streamgroup.jobs.mirror.query import WATCH_S, PlanWatch, describe, query_name, source_options
from streamgroup.logformat import KAFKA07_LOG, KAFKA_LOG
from tests.fakes.files import LocalFiles

FILES = LocalFiles()
KEEP, HASH, AUTO = Placement.KEEP, Placement.HASH, Placement.AUTO


def ours(partitions: int | Sequence[int]) -> Side:
    return side("t", partitions)


def theirs(partitions: int | Sequence[int]) -> Side:
    return side("copy", partitions)


def side(name: str, partitions: int | Sequence[int]) -> Side:
    if isinstance(partitions, int):
        return Side(name, range(partitions), KAFKA_LOG)
    return Side(name, partitions, KAFKA07_LOG)


def before(placement: Placement, partitions: Mapping[int, int], destination: str = "copy") -> TopicPlan:
    return TopicPlan("t", destination, placement, partitions)


TWO_BROKERS = (0, 1, 10_000, 10_001)


@pytest.mark.parametrize(
    ("source", "destination", "wanted", "placement", "partitions"),
    [
        pytest.param(3, 3, AUTO, KEEP, {0: 0, 1: 1, 2: 2}, id="equal counts are kept"),
        pytest.param(3, 2, AUTO, HASH, {0: 0, 1: 1, 2: 0}, id="fewer at the destination: hashed"),
        pytest.param(2, 4, AUTO, HASH, {0: 0, 1: 1}, id="more at the destination: hashed"),
        pytest.param(2, 4, KEEP, KEEP, {0: 0, 1: 1}, id="more at the destination may be kept"),
        pytest.param(2, 2, HASH, HASH, {0: 0, 1: 1}, id="hashed because the file says so"),
        pytest.param(TWO_BROKERS, 4, AUTO, KEEP, {0: 0, 1: 1, 10_000: 2, 10_001: 3}, id="0.7, in order"),
        pytest.param(TWO_BROKERS, 3, AUTO, HASH, {0: 0, 1: 1, 10_000: 2, 10_001: 0}, id="0.7, hashed"),
        pytest.param(2, TWO_BROKERS, KEEP, KEEP, {0: 0, 1: 1}, id="into 0.7"),
        pytest.param((20_000,), (10_000,), AUTO, KEEP, {20_000: 10_000}, id="0.7 to 0.7, other brokers"),
    ],
)
def test_a_first_plan(
    source: int | Sequence[int],
    destination: int | Sequence[int],
    wanted: Placement,
    placement: Placement,
    partitions: dict[int, int],
) -> None:
    plan = plan_topic(ours(source), theirs(destination), wanted)
    assert plan == TopicPlan("t", "copy", placement, partitions)


def test_partitions_that_cannot_be_kept_are_refused() -> None:
    with pytest.raises(ConfigError) as raised:
        plan_topic(ours(4), theirs(2), KEEP)
    assert str(raised.value) == (
        "cannot keep the partitions of topic 't' (4 partitions): 'copy' (2 partitions) has none for partition 2, 3. "
        "Add partitions to 'copy', or place its records by their keys: [topics] partitions = \"hash\""
    )
    with pytest.raises(ConfigError, match=r"has none for partition 1-1\. Add partitions"):
        plan_topic(ours(TWO_BROKERS), theirs(3), KEEP)  # of 0.7: named by its broker
    with pytest.raises(ConfigError, match="Start the brokers"):
        plan_topic(ours(2), theirs(()), HASH)


# -- plans that follow one another -------------------------------------------------------------------------------------


KEPT, HASHED, TWO_KEPT = before(KEEP, {0: 0, 1: 1}), before(HASH, {0: 0, 1: 1, 2: 0}), before(KEEP, {0: 0, 10_000: 1})
REVERSED = {0: 1, 1: 0}


@pytest.mark.parametrize(
    ("source", "destination", "wanted", "planned", "following"),
    [
        pytest.param(2, 3, AUTO, KEPT, KEPT, id="more at the destination: still kept"),
        pytest.param(3, 3, AUTO, HASHED, HASHED, id="equal counts: still hashed"),
        pytest.param(3, 5, AUTO, HASHED, HASHED, id="records without a key stay where they were"),
        pytest.param(4, 2, AUTO, HASHED, before(HASH, {0: 0, 1: 1, 2: 0, 3: 1}), id="hashed, one more"),
        pytest.param(2, 2, HASH, before(KEEP, REVERSED), before(HASH, {0: 0, 1: 1}), id="the file wins"),
        pytest.param(2, 2, AUTO, before(HASH, REVERSED, "elsewhere"), KEPT, id="the topic is renamed"),
        pytest.param((0, 1, 10_000), 4, AUTO, TWO_KEPT, before(KEEP, {0: 0, 10_000: 1, 1: 2}), id="0.7, one more"),
        pytest.param((0,), 2, AUTO, TWO_KEPT, TWO_KEPT, id="0.7, a broker is away"),
    ],
)
def test_a_plan_goes_on_from_the_one_before(
    source: int | Sequence[int], destination: int, wanted: Placement, planned: TopicPlan, following: TopicPlan
) -> None:
    assert plan_topic(ours(source), theirs(destination), wanted, planned) == following


# -- the text of a plan ------------------------------------------------------------------------------------------------


def test_a_plan_is_read_back() -> None:
    plan = MirrorPlan({"t": before(KEEP, {0: 0, 10_000: 1}), "u": TopicPlan("u", "u", HASH, {0: 0})})
    assert MirrorPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("text", ["", "[]", '{"version": 2}', '{"version": 1}', '{"version": 1, "topics": {"t": {}}}'])
def test_another_text_is_not_a_plan(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting value|it lacks|its version is 2"):
        MirrorPlan.from_json(text)


@pytest.mark.parametrize("partitions", ['{"0": 1e999}', "[" * 5_000])
def test_a_text_that_python_cannot_take_in_is_not_a_plan(partitions: str) -> None:
    text = (
        f'{{"version": 1, "topics": {{"t": {{"destination": "u", "placement": "keep", "partitions": {partitions}}}}}}}'
    )
    with pytest.raises(ValueError, match="it cannot be read"):
        MirrorPlan.from_json(text)


def test_only_unchanged_numbers_are_the_identity() -> None:
    assert before(KEEP, {0: 0, 1: 1}).is_identity
    assert not before(KEEP, {0: 1, 1: 0}).is_identity
    assert not before(HASH, {0: 0}).is_identity


def plan(*topics: str) -> MirrorPlan:
    return MirrorPlan({topic: TopicPlan(topic, f"to-{topic}", KEEP, {0: 0}) for topic in topics})


def test_the_first_plan_has_number_0_and_an_unchanged_one_is_not_written_again(tmp_path: Path) -> None:
    assert latest(FILES, str(tmp_path)) == (-1, MirrorPlan())
    assert settle(FILES, str(tmp_path), lambda _: plan("a")) == plan("a")
    assert latest(FILES, str(tmp_path)) == (0, plan("a"))
    for number, planned in ((9, plan("a")), (10, plan("a", "b"))):
        (tmp_path / f"{number}.json").write_text(planned.to_json())
    assert settle(FILES, str(tmp_path), lambda before: before) == plan("a", "b")
    assert len(list(tmp_path.iterdir())) == 3


def test_members_that_plan_at_the_same_time_agree(tmp_path: Path) -> None:
    def make(before: MirrorPlan) -> MirrorPlan:
        FILES.create(f"{tmp_path}/0.json", plan("a", "b").to_json())  # by another member, after this one has looked
        return MirrorPlan({**before.topics, **plan("c").topics})

    assert settle(FILES, str(tmp_path), make) == plan("a", "b", "c")
    assert latest(FILES, str(tmp_path)) == (1, plan("a", "b", "c"))


def test_a_damaged_plan_is_refused(tmp_path: Path) -> None:
    (tmp_path / "3.json").write_text("{")
    with pytest.raises(ConfigError, match=r"cannot read the plan of the mirror in .*/3\.json: .*Restore the file"):
        latest(FILES, str(tmp_path))


def config(source: dict[str, str], member: str | None = None) -> MirrorConfig:
    return MirrorConfig(Path("m.toml"), member, source, {}, "c", "p", SparkSettings("it"))


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ({"subscribe": "a"}, {"subscribe": "a,b", "includeHeaders": "true"}),
        ({"subscribePattern": ".*", "x": "y"}, {"x": "y", "subscribe": "a,b", "includeHeaders": "true"}),
        ({"assign": '{"a": [0]}'}, {"assign": '{"a": [0]}', "includeHeaders": "true"}),
    ],
)
def test_the_read_names_the_topics_that_have_a_plan(source: dict[str, str], options: dict[str, str]) -> None:
    assert source_options(config(source), ["a", "b"], Abilities()) == options


def test_headers_are_read_only_if_they_can_be_written() -> None:
    assert source_options(config({}), ["a"], Abilities(headers=False)) == {"subscribe": "a"}


def test_members_have_names_of_their_own_in_sparks_pages() -> None:
    assert (query_name(config({})), query_name(config({}, "b"))) == ("it", "it-b")


def test_a_long_plan_is_described_in_one_line() -> None:
    assert describe(plan("a", "b")) == "a -> to-a (keep), b -> to-b (keep)"
    assert describe(plan(*"abcdefg")).endswith("e -> to-e (keep) and 2 more topics")


class Watched:
    """Clusters with a plan and topics, or an error; and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.found = plan("a")
        self.named = ["a"]
        self.error: Exception | None = None
        self.looks = 0
        self.said: list[str] = []
        clusters = cast("Clusters", self)
        self.watch = PlanWatch(clusters, plan("a"), ["a"], self.said.append, lambda: self.now)

    def source(self) -> list[str]:
        return self.named

    def plan(self, before: MirrorPlan, source: list[str]) -> MirrorPlan:
        assert (before, source) == (plan("a"), self.named)
        self.looks += 1
        if self.error is not None:
            raise self.error
        return self.found

    def topics(self, source: list[str]) -> list[str]:
        return source

    def later(self) -> bool:
        self.now += WATCH_S
        return self.watch.has_changed()


def test_clusters_are_looked_at_from_time_to_time() -> None:
    watched = Watched()
    assert not watched.watch.has_changed()
    assert watched.looks == 0
    assert not watched.later()
    assert not watched.watch.has_changed()
    assert watched.looks == 1


def new_partition(watched: Watched) -> None:
    watched.found = plan("a", "b")


def new_topic_that_an_earlier_run_has_planned(watched: Watched) -> None:
    watched.named = ["a", "b"]


@pytest.mark.parametrize("change", [new_partition, new_topic_that_an_earlier_run_has_planned])
def test_a_change_is_noticed(change: Callable[[Any], None]) -> None:
    watched = Watched()
    change(watched)
    assert watched.later()


@pytest.mark.parametrize(
    "error", [ConfigError("no topic b"), TransportError("no broker"), AuthorizationError("cannot create topic b")]
)
def test_an_error_is_said_once_and_the_mirror_goes_on(error: Exception) -> None:
    watched = Watched()
    watched.error = error
    assert not watched.later()
    assert not watched.later()
    assert watched.said == [f"warning: {error}"]
    watched.error = None
    watched.found = plan("a", "b")
    assert watched.later()


def plan_of_topics(*topics: tuple[str, str, Placement, Mapping[int, int]]) -> MirrorPlan:
    return MirrorPlan({topic[0]: TopicPlan(*topic) for topic in topics})


SAME = plan_of_topics(("a", "a", KEEP, {0: 0, 1: 1}))
UNPLANNED = "raise_error(concat('topic a has a partition that the mirror has not planned: ', partition))"


def test_topics_are_renamed_and_unchanged_names_and_numbers_are_the_columns_of_the_source() -> None:
    assert (topic_of(SAME), partition_of(SAME)) == ("topic", "partition")
    renamed = plan_of_topics(("a", "x", KEEP, {0: 0}), ("b", "b", KEEP, {0: 0}))
    assert topic_of(renamed) == "CASE topic WHEN 'a' THEN 'x' WHEN 'b' THEN 'b' ELSE topic END"
    assert topic_of(plan_of_topics(("1", "2", KEEP, {0: 0}))) == "CASE topic WHEN '1' THEN '2' ELSE topic END"


def test_partitions_of_0_7_get_the_numbers_of_the_plan() -> None:
    numbered = plan_of_topics(("a", "a", KEEP, {0: 0, 10_000: 1}))
    numbers = f"CASE partition WHEN 0 THEN 0 WHEN 10000 THEN 1 ELSE {UNPLANNED} END"
    assert partition_of(numbered) == f"CASE topic WHEN 'a' THEN {numbers} ELSE partition END"


def test_keys_place_records_and_the_partition_those_without_a_key() -> None:
    hashed = plan_of_topics(("a", "a", HASH, {0: 1, 1: 0}))
    numbers = f"CASE partition WHEN 0 THEN 1 WHEN 1 THEN 0 ELSE {UNPLANNED} END"
    by_key = f"CASE WHEN key IS NULL THEN {numbers} END"
    assert partition_of(hashed) == f"CASE topic WHEN 'a' THEN {by_key} ELSE partition END"
    assert partition_of(hashed, by_key=False) == f"CASE topic WHEN 'a' THEN {numbers} ELSE partition END"


@pytest.mark.parametrize(
    ("common", "columns"),
    [
        (Abilities(), ["key", f"{TIMESTAMP} AS timestamp", f"{HEADERS} AS headers"]),
        (Abilities(headers=False), ["key", f"{TIMESTAMP} AS timestamp"]),
        (Abilities(timestamps=False, headers=False), ["key"]),
        (Abilities(keys=False, timestamps=False, headers=False), []),
    ],
)
def test_only_what_both_clusters_have_is_copied(common: Abilities, columns: list[str]) -> None:
    assert columns_of(SAME, common) == ["value", "topic AS topic", "partition AS partition", *columns]


def test_both_clusters_have_what_each_has() -> None:
    assert Abilities(headers=False) & Abilities(keys=False) == Abilities(keys=False, headers=False)


def test_a_comparison_is_by_partition_or_by_topic() -> None:
    both = plan_of_topics(("a", "x", HASH, {0: 0}), ("b", "y", KEEP, {0: 1, 10_000: 0}))
    numbers = "CASE partition WHEN 0 THEN 1 WHEN 10000 THEN 0 ELSE -2 END"
    assert place_of(both, -1, source=True) == f"CASE topic WHEN 'a' THEN -1 WHEN 'b' THEN {numbers} ELSE partition END"
    assert place_of(both, -1, source=False) == "CASE topic WHEN 'x' THEN -1 ELSE partition END"


def test_names_are_quoted() -> None:
    assert literal("a'b\\") == r"'a\'b\\'"
