"""The comparison of both clusters of a mirror: what it reads of each, and how it names what it has found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from pyspark.sql import SparkSession

from streamgroup.errors import ConfigError
from streamgroup.jobs.job_file import SparkSettings
from streamgroup.jobs.mirror import report
from streamgroup.jobs.mirror.clusters import Clusters
from streamgroup.jobs.mirror.columns import Abilities
from streamgroup.jobs.mirror.config import MirrorConfig
from streamgroup.jobs.mirror.plan import MirrorPlan, Placement, TopicPlan
from streamgroup.jobs.mirror.report import WHOLE_TOPIC, Comparison, Place, compare, differences, table
from streamgroup.model import Dialect

KAFKA, KAFKA07 = Dialect.KAFKA, Dialect.KAFKA07
KEPT = MirrorPlan({"t": TopicPlan("t", "copy", Placement.KEEP, {0: 0, 1: 1})})
HASHED = MirrorPlan({"t": TopicPlan("t", "copy", Placement.HASH, {0: 0, 1: 0})})
NOTHING = dict.fromkeys(
    [
        *("source_records", "copy_records", "source_sum", "copy_sum"),
        *("repeated", "lost", "behind", "extra", "disordered", "retimed"),
    ],
    0,
) | dict.fromkeys(
    [
        *("source_first", "source_last", "copy_first", "copy_last"),
        *("first_lost", "first_behind", "first_extra", "first_disordered", "first_retimed"),
    ]
)


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's functions of columns need a session; tests/spark runs the real ones."""
    monkeypatch.setattr(report, "F", MagicMock())
    monkeypatch.setattr(report, "Window", MagicMock())


def row(topic: str, place: int, **found: Any) -> dict[str, Any]:
    """Return a row of the summary, in which nothing was found but `found`."""
    assert not found.keys() - NOTHING.keys()
    return {"topic": topic, "place": place, **NOTHING, **found}


def at(partition: int, offset: int) -> dict[str, int]:
    return {"partition": partition, "offset": offset, "inner": 0}


class Frame:
    """Rows of Spark, which all transformations lead to the summary of a test."""

    columns = ("partition", "offset")

    def __init__(self, summary: list[dict[str, Any]]) -> None:
        self._summary = summary

    def collect(self) -> list[dict[str, Any]]:
        return self._summary

    def __getattr__(self, _: str) -> Any:
        return lambda *given, **named: self


class Session:
    """A session that keeps the options of its reads, the source's first."""

    def __init__(self, *summary: dict[str, Any]) -> None:
        self.reads: list[dict[str, str]] = []
        self._frame = Frame(list(summary))

    @property
    def read(self) -> Session:
        return self

    def format(self, name: str) -> Session:
        assert name == "streamgroup"
        return self

    def options(self, **options: str) -> Session:
        self.reads.append(options)
        return self

    def load(self) -> Frame:
        return self._frame


def config(source: dict[str, str] | None = None, **others: Any) -> MirrorConfig:
    options = source or {"subscribe": "t"}, others.pop("destination", {})
    return MirrorConfig(Path("m.toml"), None, *options, "c", "p", SparkSettings("it"), **others)


def compared(
    session: Session,
    plan: MirrorPlan = KEPT,
    config: MirrorConfig = config(),  # noqa: B008 - it is frozen
    dialects: tuple[Dialect, Dialect] = (KAFKA, KAFKA),
    abilities: tuple[Abilities, Abilities] = (Abilities(), Abilities()),
) -> list[Comparison]:
    clusters = SimpleNamespace(abilities=lambda: abilities, dialects=lambda: dialects)
    return compare(cast("SparkSession", session), config, cast("Clusters", clusters), plan)


# -- the reads ---------------------------------------------------------------------------------------------------------


def test_each_side_reads_the_topics_of_the_plan_by_their_names_there_with_its_own_connection() -> None:
    session = Session()
    plan = MirrorPlan({**KEPT.topics, "u": TopicPlan("u", "u-copy", Placement.HASH, {0: 0})})
    source = {"kafka.bootstrap.servers": "here:9092", "subscribePattern": ".*"}
    destination = {"kafka.bootstrap.servers": "there:9092", "partitioner": "murmur2"}
    compared(session, plan, config(source, destination=destination))
    assert session.reads == [
        {"kafka.bootstrap.servers": "here:9092", "subscribe": "t,u", "includeHeaders": "true"},
        {
            "kafka.bootstrap.servers": "there:9092",
            "subscribe": "copy,u-copy",
            "includeHeaders": "true",
            "kafka.isolation.level": "read_committed",
        },
    ], "an option that only writes have is left out"


def test_headers_are_compared_only_if_both_clusters_have_them() -> None:
    session = Session()
    compared(session, abilities=(Abilities(), Abilities(headers=False)))
    assert ["includeHeaders" in read for read in session.reads] == [False, False]


def test_only_the_side_whose_messages_share_offsets_reads_their_index() -> None:
    session = Session()
    compared(session, dialects=(KAFKA07, KAFKA))
    compared(session, dialects=(KAFKA, KAFKA07))
    assert [read.get("includeInnerIndex") for read in session.reads] == ["true", None, None, "true"]


def test_the_options_of_verify_win_and_a_start_among_them_replaces_that_of_the_mirror() -> None:
    session = Session()
    compared(
        session,
        config=config(
            {"subscribe": "t", "startingOffsets": "latest", "kafka.client.id": "m"},
            verify_source={"startingTimestamp": "5", "kafka.client.id": "v"},
            verify_destination={"endingOffsets": "latest"},
        ),
    )
    source, destination = session.reads
    assert "startingOffsets" not in source
    assert (source["startingTimestamp"], source["kafka.client.id"]) == ("5", "v")
    assert destination["endingOffsets"] == "latest"


@pytest.mark.parametrize("name", ["startingOffsets", "STARTINGOFFSETS"])
def test_a_mirror_that_began_at_the_latest_offsets_is_verified_only_with_another_start(name: str) -> None:
    session = Session()
    latest = {"subscribe": "t", name: "Latest"}
    with pytest.raises(ConfigError, match=r"began at the latest offsets.*\[verify\] source = \{ startingTimestamp"):
        compared(session, config=config(latest))
    assert session.reads == [], "no record was read"
    with pytest.raises(ConfigError, match="began at the latest offsets"):
        compared(session, config=config(latest, verify_source={"endingOffsets": "latest"}))
    compared(session, config=config({"subscribe": "t", name: "earliest"}))


# -- the result --------------------------------------------------------------------------------------------------------


def test_a_planned_partition_without_records_on_either_side_is_an_equal_empty_row() -> None:
    rows = compared(Session())
    assert rows == [Comparison("t-0", "copy-0"), Comparison("t-1", "copy-1")]
    assert all(each.is_equal for each in rows)


def test_the_numbers_of_a_partition_arrive_in_the_report_with_the_first_place_of_each_difference() -> None:
    sides = {"source_first": at(1, 100), "source_last": at(1, 108), "copy_first": at(1, 0), "copy_last": at(1, 7)}
    numbers = {"source_records": 9, "copy_records": 8, "source_sum": 70, "copy_sum": 60, "repeated": 1}
    kinds = ("lost", "behind", "extra", "disordered", "retimed")
    counts = {kind: 2 + n for n, kind in enumerate(kinds)}
    firsts = {f"first_{kind}": at(1, 100 + n) for n, kind in enumerate(kinds)}
    assert compared(Session(row("copy", 1, **sides, **numbers, **counts, **firsts)))[1] == Comparison(
        "t-1",
        "copy-1",
        source_records=9,
        destination_records=8,
        source_offsets=(100, 108),
        destination_offsets=(0, 7),
        source_sum=70,
        destination_sum=60,
        repeated=1,
        **counts,
        **{f"first_{kind}": Place("1", 100 + n) for n, kind in enumerate(kinds)},
    )


def test_a_side_without_records_has_no_offsets() -> None:
    only = at(0, 5)
    found = row("copy", 0, source_records=1, source_first=only, source_last=only, behind=1, first_behind=only)
    (first, _) = compared(Session(found))
    assert (first.source_offsets, first.destination_offsets) == ((5, 5), None)
    assert not first.is_equal


def test_a_topic_whose_records_are_placed_by_their_keys_is_one_row_without_offsets() -> None:
    found = row("copy", WHOLE_TOPIC, source_records=1, copy_records=1, source_first=at(1, 5), source_last=at(1, 5))
    assert compared(Session(found), HASHED) == [Comparison("t", "copy", source_records=1, destination_records=1)]


def test_a_partition_of_the_destination_that_the_plan_does_not_fill_is_compared_with_the_topic() -> None:
    found = row("copy", 7, copy_records=1, extra=1, copy_first=at(7, 0), copy_last=at(7, 0), first_extra=at(7, 0))
    *planned, other = compared(Session(found))
    assert [each.destination for each in planned] == ["copy-0", "copy-1"]
    assert (other.source, other.destination, other.extra) == ("t", "copy-7", 1)


def test_records_of_a_source_partition_that_the_plan_lacks_come_first_under_the_names_of_the_topics() -> None:
    only = at(2, 0)
    found = row("copy", -2, source_records=1, source_first=only, source_last=only, behind=1, first_behind=only)
    first, *planned = compared(Session(found))
    assert (first.source, first.destination, first.behind, first.first_behind) == ("t", "copy", 1, Place("2", 0))
    assert len(planned) == 2


def test_rows_of_another_topic_are_left_out() -> None:
    assert compared(Session(row("other", 5, copy_records=1, extra=1))) == compared(Session())


def test_each_side_names_its_partitions_as_its_own_cluster_does() -> None:
    plan = MirrorPlan({"t": TopicPlan("t", "copy", Placement.KEEP, {10_001: 0})})
    found = row("copy", 0, lost=1, first_lost=at(10_001, 512), extra=1, first_extra=at(0, 3))
    (only,) = compared(Session(found), plan, dialects=(KAFKA07, KAFKA))
    assert (only.source, only.destination) == ("t-1-1", "copy-0")
    assert (only.first_lost, only.first_extra) == (Place("1-1", 512), Place("0", 3))


EQUAL = Comparison(
    "orders-0",
    "copy-0",
    source_records=3,
    destination_records=3,
    source_offsets=(5, 7),
    destination_offsets=(0, 2),
    source_sum=255,
    destination_sum=255,
)
AT = Place("0", 6)
HERE, THERE = (f"at partition 0, offset 6 of the {side}" for side in ("source", "destination"))


def test_an_equal_copy_has_no_differences() -> None:
    assert EQUAL.is_equal
    assert differences([EQUAL, Comparison("orders-1", "copy-1")]) == []


def test_repeated_records_are_not_a_difference() -> None:
    repeated = replace(EQUAL, destination_records=5, repeated=2)
    assert repeated.is_equal
    assert differences([repeated]) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lost": 1, "first_lost": AT}, f"copy-0 lacks 1 record of orders-0, the first {HERE}"),
        (
            {"behind": 2, "first_behind": AT},
            f"copy-0 does not have 2 records at the end of orders-0 yet, the first {HERE}. If the mirror has "
            "stopped, they are lost",
        ),
        (
            {"extra": 2, "first_extra": AT},
            f"copy-0 has 2 records that orders-0 lacks, the first {THERE}. Another producer has written them, "
            "or the source has deleted its own",
        ),
        ({"disordered": 1, "first_disordered": AT}, f"copy-0 has 1 record of orders-0 too early, the first is {HERE}"),
        (
            {"retimed": 1, "first_retimed": AT},
            f"copy-0 has 1 record of orders-0 with another timestamp, the first is {HERE}",
        ),
        ({"destination_sum": 254}, f"the checksums of orders-0 and copy-0 differ: {'0' * 14}ff and {'0' * 14}fe"),
    ],
)
def test_a_difference_is_a_sentence_with_its_first_record(changes: dict[str, Any], said: str) -> None:
    row = replace(EQUAL, **changes)
    assert not row.is_equal
    assert differences([EQUAL, row]) == [said]


def test_checksums_are_sums_of_64_bits() -> None:
    assert replace(EQUAL, source_sum=-1, destination_sum=(1 << 64) + 1).checksums == ("f" * 16, "0" * 15 + "1")


def test_the_table_has_a_line_for_each_row() -> None:
    heading, first, second = table([EQUAL, replace(EQUAL, source="orders", source_offsets=None, lost=12)])
    assert heading.startswith("source    destination  offsets  offsets there  records  records there  lost  behind")
    assert first.startswith("orders-0  copy-0       5..7     0..2           3        3              0     0")
    assert second.startswith("orders    copy-0       -        0..2           3        3              12    0")
    assert first.endswith("00000000000000ff  00000000000000ff")
