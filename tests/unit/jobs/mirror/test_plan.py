"""Into which partitions a mirror writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from streamgroup.errors import ConfigError
from streamgroup.jobs.mirror.plan import MirrorPlan, Placement, Side, TopicPlan, latest, plan_topic, settle
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


def test_partitions_of_0_7_that_cannot_be_kept_are_named_by_their_brokers() -> None:
    with pytest.raises(ConfigError, match=r"has none for partition 1-1\. Add partitions"):
        plan_topic(ours(TWO_BROKERS), theirs(3), KEEP)


def test_a_destination_without_brokers_is_refused() -> None:
    with pytest.raises(ConfigError, match="Start the brokers"):
        plan_topic(ours(2), theirs(()), HASH)


# -- plans that follow one another -------------------------------------------------------------------------------------


def test_auto_stays_what_it_was_when_partitions_are_added() -> None:
    assert plan_topic(ours(2), theirs(3), AUTO, before(KEEP, {0: 0, 1: 1})).placement is KEEP
    assert plan_topic(ours(3), theirs(3), AUTO, before(HASH, {0: 0, 1: 1, 2: 0})).placement is HASH


def test_the_file_wins_over_the_plan_before() -> None:
    assert plan_topic(ours(2), theirs(2), HASH, before(KEEP, {0: 1, 1: 0})).partitions == {0: 0, 1: 1}
    renamed = before(HASH, {0: 1, 1: 0}, destination="elsewhere")
    assert plan_topic(ours(2), theirs(2), AUTO, renamed) == before(KEEP, {0: 0, 1: 1})


def test_partitions_of_0_7_keep_their_place_when_a_broker_gains_one() -> None:
    grown = (0, 1, 10_000)
    plan = plan_topic(ours(grown), theirs(4), AUTO, before(KEEP, {0: 0, 10_000: 1}))
    assert plan.partitions == {0: 0, 10_000: 1, 1: 2}


def test_partitions_of_an_absent_broker_keep_their_place() -> None:
    held = before(KEEP, {0: 0, 10_000: 1})
    assert plan_topic(ours((0,)), theirs(2), AUTO, held) == held


def test_records_without_a_key_stay_where_they_were() -> None:
    plan = plan_topic(ours(3), theirs(5), AUTO, before(HASH, {0: 0, 1: 1, 2: 0}))
    assert plan.partitions == {0: 0, 1: 1, 2: 0}
    assert plan_topic(ours(4), theirs(2), AUTO, plan).partitions == {0: 0, 1: 1, 2: 0, 3: 1}


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
    return MirrorPlan({topic: TopicPlan(topic, topic, Placement.KEEP, {0: 0}) for topic in topics})


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
