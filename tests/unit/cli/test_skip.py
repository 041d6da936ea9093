"""`streamgroup skip`: what it gives up, and when it refuses."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result

from streamgroup.cli import _checkpoint_files
from streamgroup.cli import skip as module
from streamgroup.cli.main import main
from streamgroup.cli.skip import Commits, plan_skips
from streamgroup.coordinator.control import channel
from streamgroup.coordinator.planning.batch import replay_ranges
from streamgroup.coordinator.planning.document import from_value
from streamgroup.errors import ConfigError, TransportError
from streamgroup.group.commits import CommitMetadata
from streamgroup.model import LATEST, CommittedOffset, Document, OffsetRange, Position, TopicPartition
from streamgroup.sql.offset_table import OffsetTable
from streamgroup.sql.operations import OffsetDatabase
from tests.unit.cli.shown import orders
from tests.unit.cli.test_checkpoint import FIRST, ONE, SECOND, SPARKS, THIRD, ZERO, FakeStore, document, write

OURS = CommitMetadata("line", "run", 2, 2, 1).text()


class Store(FakeStore):
    def __init__(self) -> None:
        super().__init__()
        self.set: list[dict[TopicPartition, int]] = []
        self.fails = False
        self.ends = {ZERO: 100, ONE: 100}
        self.starts = True

    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, int], deadline: float) -> None:
        if self.fails:
            raise TransportError("no broker answers")
        self.set.append(dict(offsets))
        self.commits = {**self.commits, **{tp: CommittedOffset(offset) for tp, offset in offsets.items()}}

    def offsets_at(self, wanted: Mapping[TopicPartition, int], deadline: float) -> dict[TopicPartition, int]:
        return {tp: self.ends[tp] if at == LATEST else 0 for tp, at in wanted.items() if tp in self.ends}

    def starts_message(self, tp: TopicPartition, offset: int, deadline: float) -> bool:
        return self.starts


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    fake = Store()
    fake.commits = {ZERO: CommittedOffset(15, OURS), ONE: CommittedOffset(22, OURS)}

    monkeypatch.setattr(module, "opened_store", lambda _: nullcontext(fake))
    monkeypatch.setattr(channel, "drivers", list)
    return fake


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Batch 2, which reads [15, 30) of partition 0 and [22, 25) of partition 1, has not sunk."""
    return write(tmp_path, {0: [FIRST], 1: [SECOND], 2: [THIRD]}, sunk=1)


def run(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["skip", "-b", "broker:9092", str(home), *arguments])


def given_up(result: Result) -> list[tuple[int, int, int]]:
    return [(row["partition"], row["from"], row["until"]) for row in json.loads(result.stdout)["skipped"]]


def left(home: Path, commits: Mapping[TopicPartition, CommittedOffset]) -> Collection[object]:
    """What a replay by a member reads after the skip."""
    return replay_ranges(from_value(document_of(home)), commits)


def test_a_dry_run_shows_the_batch_and_changes_nothing(store: Store, home: Path) -> None:
    result = run(home, "--json")
    assert result.exit_code == 0, result.output
    assert given_up(result) == [(0, 15, 30), (1, 22, 25)]
    assert "Dry run: no offset was changed" in result.stderr
    assert store.set == []
    assert not (home / module.AUDIT).exists()


def test_the_whole_batch_is_committed_so_that_its_replay_is_empty_and_the_skip_is_recorded(
    store: Store, home: Path
) -> None:
    result = run(home, "--execute")
    assert result.exit_code == 0, result.output
    assert store.set == [{ZERO: 30, ONE: 25}]
    assert left(home, store.commits) == []
    assert "skipped orders-0 from 15 to 30: these records are given up | event=operator_skip group=g" in result.stderr
    begun, done = map(json.loads, (home / module.AUDIT).read_text().splitlines())
    assert (begun["state"], done["state"], done["batch"]) == ("begun", "done", 2)
    assert [(row["partition"], row["from"], row["until"]) for row in done["skipped"]] == [(0, 15, 30), (1, 22, 25)]
    assert done["user"]


IN_TABLE = CommitMetadata("line", "run", 2, 2, 1, in_table=True)


def test_offsets_in_a_database_are_read_and_set_there(store: Store, home: Path, tmp_path: Path) -> None:
    """A commit to the group would have no effect, so the command asks for the database."""
    lineage = from_value(document_of(home)).lineage
    store.commits = {ZERO: CommittedOffset(15, replace(IN_TABLE, lineage=lineage).text())}
    refused = run(home, "--execute")
    assert refused.exit_code == 1
    assert "its query takes its offsets from a database (option offsets.store)" in refused.output
    assert "Name the database with --store" in refused.output
    assert not (home / module.AUDIT).exists()

    url = f"sqlite:///{tmp_path}/offsets.db"
    with sa.create_engine(url).begin() as connection:
        OffsetTable().create(connection)
    elsewhere = run(home, "--execute", "--store", url)
    assert "has no offset of it. Name the database of the query's option offsets.store" in elsewhere.output
    with OffsetDatabase(url, None, None, 1000) as database:
        database.reset("g", {ZERO: 18, ONE: 22})
        result = run(home, "--execute", "--json", "--store", url)
        assert result.exit_code == 0, result.output
        assert given_up(result) == [(0, 18, 30), (1, 22, 25)]
        assert {tp: row.stored.next_offset for tp, row in database.rows("g").items()} == {ZERO: 30, ONE: 25}
    assert store.set == []


def document_of(home: Path) -> Any:
    return json.loads((home / "offsets" / "2").read_text().splitlines()[-1])


def test_one_partition_to_an_offset_leaves_the_rest_of_its_range_and_the_others(store: Store, home: Path) -> None:
    result = run(home, "--topic-partition", "orders-0", "--to-offset", "18", "--execute", "--json")
    assert result.exit_code == 0, result.output
    assert given_up(result) == [(0, 15, 18)]
    assert [(str(r.partition), r.start, r.until) for r in left(home, store.commits)] == [  # type: ignore[attr-defined]
        ("orders-0", 18, 30),
        ("orders-1", 22, 25),
    ]


def test_what_the_group_has_committed_of_the_batch_is_not_given_up(store: Store, home: Path) -> None:
    store.commits[ZERO] = CommittedOffset(20, OURS)
    assert given_up(run(home, "--json")) == [(0, 20, 30), (1, 22, 25)]
    store.commits = {ZERO: CommittedOffset(30), ONE: CommittedOffset(25)}
    result = run(home)
    assert result.exit_code == 1
    assert "nothing to skip: the group has committed the ends of these ranges already" in result.output


def test_a_sunk_batch_has_nothing_to_skip_unless_an_offset_is_given(store: Store, tmp_path: Path) -> None:
    home = write(tmp_path, {0: [FIRST]}, sunk=0)
    store.commits = {ZERO: CommittedOffset(10, OURS), ONE: CommittedOffset(20, OURS)}
    assert "nothing to skip: batch 0 is complete" in run(home).output
    ahead = run(home, "--topic-partition", "orders-1", "--to-offset", "31", "--json")
    assert given_up(ahead) == [(1, 20, 31)]
    behind = run(home, "--topic-partition", "orders-1", "--to-offset", "20")
    assert "cannot skip orders-1 to offset 20: group 'g' continues at 20, which is not before it" in behind.output


def test_a_running_query_and_a_group_with_members_are_refused(
    store: Store, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.state = "Stable"
    result = run(home, "--execute")
    assert "cannot skip records of group 'g': it is Stable" in result.output
    store.state = "Empty"
    monkeypatch.setattr(_checkpoint_files, "_ENDING_S", 0.0)
    monkeypatch.setattr(channel, "drivers", lambda: [4711])
    monkeypatch.setattr(channel, "survey", lambda pid: channel.Survey({"r": {"lineage": "line"}}, []))
    result = run(home, "--execute")
    assert "cannot skip records: the query, or one with a copy of it, runs on this machine (driver 4711)" in (
        result.output
    )
    assert store.set == []


def test_without_a_group_there_is_no_safe_way_and_the_error_gives_the_offsets(store: Store, tmp_path: Path) -> None:
    home = write(tmp_path, {0: [document(1, (5, 10), (0, 20), group="")]}, sunk=-1)
    result = run(home, "--execute")
    assert result.exit_code == 1
    assert 'startingOffsets after the records; the newest batch ends at {"orders": {"0": 10, "1": 20}}' in (
        result.output
    )


def test_a_checkpoint_of_another_source_is_refused(store: Store, tmp_path: Path) -> None:
    result = run(write(tmp_path, {0: [SPARKS]}, sunk=-1))
    assert (result.exit_code, store.set) == (1, [])
    assert "its newest batch has no source of streamgroup" in result.output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--topic-partition", "orders-7"), "the newest batch of the checkpoint does not have orders-7"),
        (("--topic-partition", "orders-0", "--to-offset", "101"), "to offset 101: its log ends at 100"),
        (("--topic-partition", "orders-0", "--to-offset", "20"), "to offset 20: no message begins there"),
        (("--to-offset", "20"), "--to-offset requires one --topic-partition"),
    ],
)
def test_what_cannot_be_skipped_is_named(store: Store, home: Path, arguments: tuple[str, ...], text: str) -> None:
    store.starts = False
    result = run(home, *arguments, "--execute")
    assert result.exit_code != 0
    assert text in result.output
    assert store.set == []


def test_a_commit_that_fails_leaves_a_record_that_says_so(store: Store, home: Path) -> None:
    store.fails = True
    result = run(home, "--execute")
    assert (result.exit_code, result.stderr) == (1, "Error: no broker answers\n")
    (line,) = (home / module.AUDIT).read_text().splitlines()
    assert json.loads(line)["state"] == "begun"


def test_without_a_record_nothing_is_skipped(store: Store, home: Path) -> None:
    (home / module.AUDIT).mkdir()
    result = run(home, "--execute")
    assert "run the command again; nothing was skipped" in result.output
    assert store.set == []


OUR_GROUP = CommitMetadata("line", "run", 1, 1, 1).text()
OF_ANOTHER = CommitMetadata("another", "run", 1, 1, 1).text()
DOCUMENT = Document(
    "g",
    "line",
    "run",
    3,
    (OffsetRange(orders(0), 10, 20), OffsetRange(orders(1), 5, 9)),
    {orders(0): Position(20), orders(1): Position(9), orders(2): Position(40)},
)
"""Its batch reads partitions 0 and 1. The query holds partition 2 too, which has no new records."""


def planned(
    committed: Commits | None = None,
    partitions: Collection[TopicPartition] = (),
    to_offset: int | None = None,
    *,
    is_sunk: bool = False,
) -> list[str]:
    skips = plan_skips(DOCUMENT, committed or {}, partitions, to_offset, is_sunk=is_sunk)
    assert all(skip.group == "g" for skip in skips)
    return [str(skip.range) for skip in skips]


@pytest.mark.parametrize(
    ("commit", "expected"),
    [
        (CommittedOffset(10), ["orders-0[10, 20)"]),
        (CommittedOffset(11), ["orders-0[11, 20)"]),
        (CommittedOffset(19, OF_ANOTHER), ["orders-0[19, 20)"]),
        (CommittedOffset(20), []),
        (CommittedOffset(25), []),
        (CommittedOffset(7, OUR_GROUP), ["orders-0[10, 20)"]),
    ],
    ids=["at the start", "within", "within, of another member", "at the end", "behind the end", "owed by the query"],
)
def test_a_skip_begins_where_the_group_goes_on(commit: CommittedOffset, expected: list[str]) -> None:
    assert planned({orders(0): commit}, [orders(0)]) == expected


@pytest.mark.parametrize("metadata", ["", "of another client", OF_ANOTHER])
def test_a_commit_behind_the_batch_that_is_not_of_the_query_is_left_alone(metadata: str) -> None:
    with pytest.raises(ConfigError) as refused:
        planned({orders(0): CommittedOffset(7, metadata)})
    text = str(refused.value)
    assert "cannot skip records of orders-0: group 'g' is at 7" in text
    assert "the incomplete batch begins at 10" in text
    assert "streamgroup groups --reset-offsets --to-offset" in text
    with pytest.raises(ConfigError, match="is at 19, and the newest batch ends at 20"):
        planned({orders(0): CommittedOffset(19, metadata)}, [orders(0)], 30, is_sunk=True)


@pytest.mark.parametrize(
    ("partition", "to_offset", "is_sunk", "expected"),
    [
        (0, 11, False, "orders-0[10, 11)"),
        (0, 99, False, "orders-0[10, 99)"),
        (2, 41, False, "orders-2[40, 41)"),
        (0, 21, True, "orders-0[20, 21)"),
    ],
    ids=["a part of the range", "behind the range", "a partition without a range", "behind a sunk batch"],
)
def test_an_offset_says_how_far_to_skip(partition: int, to_offset: int, is_sunk: bool, expected: str) -> None:
    assert planned({}, [orders(partition)], to_offset, is_sunk=is_sunk) == [expected]


@pytest.mark.parametrize(("to_offset", "is_sunk", "begin"), [(10, False, 10), (0, False, 10), (20, True, 20)])
def test_an_offset_that_skips_nothing_is_refused_with_the_way_to_read_again(
    to_offset: int, is_sunk: bool, begin: int
) -> None:
    with pytest.raises(ConfigError) as refused:
        planned({}, [orders(0)], to_offset, is_sunk=is_sunk)
    assert f"cannot skip orders-0 to offset {to_offset}: group 'g' continues at {begin}" in str(refused.value)
    assert "streamgroup groups --reset-offsets" in str(refused.value)


@pytest.mark.parametrize(
    ("partition", "to_offset", "is_sunk", "reason", "known"),
    [
        (2, None, False, "has no incomplete range of it", "It has orders-0, orders-1"),
        (0, None, True, "has no incomplete range of it", "It has none"),
        (7, 50, False, "does not have it", "It has orders-0, orders-1, orders-2"),
    ],
    ids=["no range", "sunk", "not held"],
)
def test_a_partition_that_the_batch_does_not_have_is_named_with_those_that_it_has(
    partition: int, to_offset: int | None, is_sunk: bool, reason: str, known: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        planned({}, [orders(partition)], to_offset, is_sunk=is_sunk)
    assert f"cannot skip orders-{partition}: the newest batch of the checkpoint {reason}. {known}" in str(refused.value)
