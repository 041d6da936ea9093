"""`streamgroup skip`: what it gives up, and when it refuses."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamgroup.cli import skip as module
from streamgroup.cli.main import main
from streamgroup.driver.application import control
from streamgroup.errors import TransportError
from streamgroup.group.commit_metadata import CommitMetadata
from streamgroup.model import LATEST, CommittedOffset, TopicPartition
from streamgroup.options.types import ClientOptions
from streamgroup.planning.batch import replay_ranges
from streamgroup.planning.document import from_value
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

    @contextmanager
    def opened(options: ClientOptions) -> Iterator[Store]:
        yield fake

    monkeypatch.setattr(module, "opened_store", opened)
    monkeypatch.setattr(control, "drivers", list)
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
    text = (home / "offsets" / "2").read_text().splitlines()[-1]
    return replay_ranges(from_value(json.loads(text)), commits)


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


def test_one_partition_to_an_offset_leaves_the_rest_of_its_range_and_the_others(store: Store, home: Path) -> None:
    result = run(home, "--topic-partition", "orders-0", "--to-offset", "18", "--execute", "--json")
    assert result.exit_code == 0, result.output
    assert given_up(result) == [(0, 15, 18)]
    assert [(str(r.partition), r.start, r.until) for r in left(home, store.commits)] == [  # type: ignore[attr-defined]
        ("orders-0", 18, 30),
        ("orders-1", 22, 25),
    ]


def test_an_offset_beyond_the_batch_skips_what_follows_it_too(store: Store, home: Path) -> None:
    assert given_up(run(home, "--topic-partition", "orders-0", "--to-offset", "60", "--json")) == [(0, 15, 60)]


def test_what_the_group_has_committed_of_the_batch_is_not_given_up(store: Store, home: Path) -> None:
    store.commits[ZERO] = CommittedOffset(20, OURS)
    assert given_up(run(home, "--json")) == [(0, 20, 30), (1, 22, 25)]
    store.commits = {ZERO: CommittedOffset(30), ONE: CommittedOffset(25)}
    result = run(home)
    assert result.exit_code == 1
    assert "nothing to skip: the group has committed the ends of these ranges already" in result.output


def test_a_commit_that_the_query_owes_is_not_given_up_as_unread(store: Store, home: Path) -> None:
    """It has sunk up to 15 and committed 10 only: records below 15 are not given up, they have sunk (R5a)."""
    store.commits[ZERO] = CommittedOffset(10, OURS)
    assert given_up(run(home, "--json"))[0] == (0, 15, 30)


def test_a_reset_behind_the_batch_is_not_undone(store: Store, home: Path) -> None:
    store.commits[ZERO] = CommittedOffset(10)
    result = run(home, "--execute")
    assert result.exit_code == 1
    assert "cannot skip records of orders-0: group 'g' stands at 10" in result.output
    assert store.set == []


def test_a_sunk_batch_has_nothing_to_skip_unless_an_offset_is_given(store: Store, tmp_path: Path) -> None:
    home = write(tmp_path, {0: [FIRST]}, sunk=0)
    store.commits = {ZERO: CommittedOffset(10, OURS), ONE: CommittedOffset(20, OURS)}
    assert "nothing to skip: batch 0 has sunk" in run(home).output
    ahead = run(home, "--topic-partition", "orders-1", "--to-offset", "31", "--json")
    assert given_up(ahead) == [(1, 20, 31)]
    behind = run(home, "--topic-partition", "orders-1", "--to-offset", "20")
    assert "cannot skip orders-1 to offset 20: group 'g' goes on at 20, which is not before it" in behind.output


def test_a_running_query_and_a_group_with_members_are_refused(
    store: Store, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.state = "Stable"
    result = run(home, "--execute")
    assert "cannot skip records of group 'g': it is Stable" in result.output
    store.state = "Empty"
    monkeypatch.setattr(control, "drivers", lambda: [4711])
    monkeypatch.setattr(control, "survey", lambda pid: control.Survey({"r": {"lineage": "line"}}, []))
    result = run(home, "--execute")
    assert "cannot skip records: the query, or one with a copy of it, runs on this machine (driver 4711)" in (
        result.output
    )
    assert store.set == []


def test_without_a_group_there_is_no_safe_way_and_the_error_gives_the_offsets(store: Store, tmp_path: Path) -> None:
    home = write(tmp_path, {0: [document(1, (5, 10), (0, 20), group="")]}, sunk=-1)
    result = run(home, "--execute")
    assert result.exit_code == 1
    assert 'startingOffsets behind the records; the newest batch ends at {"orders": {"0": 10, "1": 20}}' in (
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
        (("--to-offset", "20"), "--to-offset requires one --topic-partition"),
    ],
)
def test_what_cannot_be_skipped_is_named(store: Store, home: Path, arguments: tuple[str, ...], text: str) -> None:
    result = run(home, *arguments, "--execute")
    assert result.exit_code != 0
    assert text in result.output
    assert store.set == []


def test_an_offset_inside_of_a_message_is_refused(store: Store, home: Path) -> None:
    store.starts = False
    result = run(home, "--topic-partition", "orders-0", "--to-offset", "20", "--execute")
    assert "to offset 20: no message begins there" in result.output


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
