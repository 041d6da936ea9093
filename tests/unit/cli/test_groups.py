from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

import pytest
from click.testing import CliRunner, Result

from streamgroup.cli import groups as module
from streamgroup.errors import ConfigError
from streamgroup.model import CommittedOffset, GroupDescription, GroupListing, MemberDescription, TopicPartition
from streamgroup.options.types import ClientOptions
from tests.unit.cli.shown import cells, orders


def member(name: str, *partitions: TopicPartition, instance: str | None = None) -> MemberDescription:
    return MemberDescription(f"{name}-1", name, "/10.0.0.1", instance, assigned=partitions)


def group(name: str = "g", *members: MemberDescription, state: str = "Stable") -> GroupDescription:
    return GroupDescription(name, state, "consumer", "range" if members else "", members)


class FakeStore:
    """A cluster with `orders`, of which partition 3 has no leader; every log ends at 100.

    Groups: `g` with two members, `done` without any, `turning` rebalancing, a Connect cluster's group.
    """

    def __init__(self) -> None:
        self.closed = False
        self.notes: list[str] = []
        self.is_whole = False
        self._described = {
            "g": group("g", member("a", orders(0), orders(1)), member("b", instance="b")),
            "done": group("done", state="Empty"),
            "turning": group("turning", state="PreparingRebalance"),
        }
        self._commits = {
            "g": {orders(0): CommittedOffset(90, leader_epoch=4), orders(3): CommittedOffset(5)},
            "done": {TopicPartition("deleted", 0): CommittedOffset(1)},
        }

    def list_groups(self, deadline: float) -> dict[str, GroupListing]:
        listed = [GroupListing(name, "consumer", "Stable") for name in ("turning", "g")]
        listed += [GroupListing("done"), GroupListing("sink", "connect")]
        return {g.group_id: g for g in listed}

    def list_groups_once(self, deadline: float) -> dict[str, GroupListing]:
        return self.list_groups(deadline)

    def describe(self, names: Collection[str], deadline: float) -> dict[str, GroupDescription]:
        return {name: self._described.get(name, group("", state="Dead")) for name in names}

    def committed(self, name: str, deadline: float) -> Mapping[TopicPartition, CommittedOffset]:
        return self._commits.get(name, {})

    def log_ends(self, partitions: Iterable[TopicPartition], deadline: float) -> dict[TopicPartition, int]:
        return {tp: 100 for tp in partitions if tp.topic == "orders" and tp.partition != 3}

    def coordinator(self, name: str, deadline: float) -> str:
        return "broker:9092 (7)"

    def name_of(self, partition: int) -> int | str:
        return partition


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FakeStore:
    fake = FakeStore()

    @contextmanager
    def opened(options: ClientOptions) -> Iterator[FakeStore]:
        assert options.bootstrap_servers == (("broker", 9092),)
        yield fake
        fake.closed = True

    monkeypatch.setattr(module, "opened_store", opened)
    return fake


def run(*arguments: str) -> Result:
    return CliRunner().invoke(module.groups, ["-b", "broker:9092", *arguments])


def test_list_names_the_groups_of_consumers(store: FakeStore) -> None:
    assert run("--list").stdout == "done\ng\nturning\n"
    assert store.closed


def test_list_with_states_asks_for_those_that_an_old_broker_does_not_list(store: FakeStore) -> None:
    assert cells(run("--list", "--state").stdout) == [
        "GROUP STATE",
        "done Empty",
        "g Stable",
        "turning Stable",
    ]


def test_describe_has_the_columns_of_kafkas_tool_and_dashes_for_unknown_values(store: FakeStore) -> None:
    result = run("--describe", "--group", "g")
    assert cells(result.stdout) == [
        "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID",
        "g orders 0 90 100 10 a-1 /10.0.0.1 a",
        "g orders 1 - 100 - a-1 /10.0.0.1 a",
        "g orders 3 5 - - - - -",
        "g - - - - - b-1 /10.0.0.1 b",
    ]
    assert (result.exit_code, result.stderr) == (0, "")


def test_describe_verbose_shows_the_leader_epochs_of_the_commits(store: FakeStore) -> None:
    lines = cells(run("--describe", "--group", "g", "--offsets", "--verbose").stdout)
    assert [line.split()[3] for line in lines] == ["LEADER-EPOCH", "4", "-", "-", "-"]


def test_commits_of_a_deleted_topic_are_shown_without_a_log_end(store: FakeStore) -> None:
    result = run("--describe", "--group", "done")
    assert cells(result.stdout)[1] == "done deleted 0 1 - - - - -"
    assert result.stderr == "Consumer group 'done' has no active members.\n"


def test_a_rebalance_is_remarked(store: FakeStore) -> None:
    result = run("--describe", "--group", "turning")
    assert (result.stdout, result.stderr) == ("", "Warning: Consumer group 'turning' is rebalancing.\n")


def test_all_groups_are_tables_one_after_the_other(store: FakeStore) -> None:
    first, second = run("--describe", "--all-groups").stdout.split("\n\n")
    assert (first.split()[9], second.split()[9]) == ("done", "g")


def test_members_show_instances_where_there_are_any(store: FakeStore) -> None:
    assert cells(run("--describe", "--group", "g", "--members").stdout) == [
        "GROUP CONSUMER-ID GROUP-INSTANCE-ID HOST CLIENT-ID #PARTITIONS",
        "g a-1 - /10.0.0.1 a 2",
        "g b-1 b /10.0.0.1 b 0",
    ]


def test_members_verbose_show_their_assignment(store: FakeStore) -> None:
    lines = cells(run("--describe", "--group", "g", "--members", "--verbose").stdout)
    assert [line.split()[-1] for line in lines] == ["ASSIGNMENT", "orders(0,1)", "-"]


TROUBLES = {
    "a-1": {
        "rebalance": {"count": 3, "last": "2026-11-21T00:31:02+00:00", "reason": "the group rebalances"},
        "fence": {"count": 0, "last": None, "reason": None},
        "repeat": {"count": 1, "last": "2026-11-21T00:31:03+00:00", "reason": "stopped"},
    }
}


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, store: FakeStore) -> None:
    """Member a's coordinator runs on this machine."""
    asked = lambda groups, deadline: TROUBLES if "g" in groups else {}  # noqa: E731
    monkeypatch.setattr(module, "troubles", asked)


@pytest.mark.usefixtures("here")
def test_members_on_this_machine_show_their_events() -> None:
    result = run("--describe", "--group", "g", "--members")
    members, troubles = result.stdout.split("\n\n")
    assert cells(members)[0] == "GROUP CONSUMER-ID GROUP-INSTANCE-ID HOST CLIENT-ID #PARTITIONS"
    assert cells(troubles)[:3] == [
        "CONSUMER-ID REBALANCE FENCE REPLAY SKIP REPEAT DATA-LOSS",
        "a-1 3 0 - - 1 -",
        "b-1 - - - - - -",
    ]
    assert cells(troubles)[3].startswith("-: not every member is a streamgroup query of this user on this machine")


@pytest.mark.usefixtures("here")
def test_members_verbose_show_when_and_why_it_was_last() -> None:
    troubles = run("--describe", "--group", "g", "--members", "--verbose").stdout.split("\n\n")[1]
    assert cells(troubles)[:4] == [
        "CONSUMER-ID TROUBLE COUNT LAST REASON",
        "a-1 rebalance 3 2026-11-21T00:31:02+00:00 the group rebalances",
        "a-1 repeat 1 2026-11-21T00:31:03+00:00 stopped",
        "b-1 - - - -",
    ]


@pytest.mark.usefixtures("here")
def test_members_as_json_have_their_counters_or_null() -> None:
    rows = json.loads(run("--describe", "--group", "g", "--members", "--json").stdout)
    assert [row["trouble"] for row in rows] == [TROUBLES["a-1"], None]


def test_without_members_on_this_machine_only_the_table_of_kafkas_tool_is_shown(
    monkeypatch: pytest.MonkeyPatch, store: FakeStore
) -> None:
    monkeypatch.setattr(module, "troubles", lambda groups, deadline: {})
    result = run("--describe", "--group", "g", "--members")
    assert len(cells(result.stdout)) == 3
    assert result.stderr.startswith("no member is a streamgroup query of this user on this machine")
    assert run("--describe", "--group", "done", "--members").stderr == "Consumer group 'done' has no active members.\n"


def test_state_shows_the_coordinator(store: FakeStore) -> None:
    assert cells(run("--describe", "--group", "g", "--state").stdout) == [
        "GROUP COORDINATOR (ID) ASSIGNMENT-STRATEGY STATE #MEMBERS",
        "g broker:9092 (7) range Stable 2",
    ]


def test_groups_that_do_not_exist_fail_after_the_others_were_shown(store: FakeStore) -> None:
    result = run("--describe", "--group", "g", "--group", "absent", "--state")
    assert "g  " in result.stdout
    assert str(result.exception) == "consumer group 'absent' does not exist"


def test_json_has_every_column_and_null_for_unknown_values(store: FakeStore) -> None:
    rows = json.loads(run("--describe", "--all-groups", "--json").stdout)
    assert [row["group"] for row in rows] == ["done", "g", "g", "g", "g"]
    assert rows[1] == {
        "group": "g",
        "topic": "orders",
        "partition": 0,
        "leader_epoch": 4,
        "current_offset": 90,
        "log_end_offset": 100,
        "lag": 10,
        "beyond_end": None,
        "consumer_id": "a-1",
        "host": "/10.0.0.1",
        "client_id": "a",
    }
    assert rows[3]["lag"] is None
    assert json.loads(run("--list", "--json").stdout)[0] == {"group": "done", "state": "Empty"}
    assert json.loads(run("--describe", "--group", "turning", "--json").stdout) == []


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--list", "--describe"),
        ("--describe",),
        ("--describe", "--group", "g", "--all-groups"),
        ("--list", "--group", "g"),
        ("--list", "--members"),
        ("--list", "--verbose"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(store: FakeStore, arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


def test_an_invalid_bootstrap_server_is_explained() -> None:
    result = CliRunner().invoke(module.groups, ["-b", "broker:many", "--list"])
    assert isinstance(result.exception, ConfigError)
    assert "invalid broker address 'broker:many'" in str(result.exception)
