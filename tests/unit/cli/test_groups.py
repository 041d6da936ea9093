from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streamgroup.cli import _change_options
from streamgroup.cli import _group_tables as tables
from streamgroup.cli import groups as module
from streamgroup.cli._click import json_rows, table
from streamgroup.cli._group_tables import OffsetRow
from streamgroup.cli._reset import OffsetLine, read_csv, write_csv
from streamgroup.cli.groups import starting_offsets
from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.logformat import KAFKA07_LOG, KAFKA_LOG, LogFormat
from streamgroup.model import (
    EARLIEST,
    LATEST,
    CommittedOffset,
    GroupDescription,
    GroupListing,
    MemberDescription,
    TopicPartition,
)
from streamgroup.options.types import ClientOptions
from tests.unit.cli.shown import cells, orders
from tests.unit.coordinator.channels import JVM, FakeCoordinator, home, serve


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


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("--list",), ["done", "g", "turning"]),
        (("--list", "--state"), ["GROUP STATE", "done Empty", "g Stable", "turning Stable"]),
        (
            ("--describe", "--group", "g"),
            [
                "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID",
                "g orders 0 90 100 10 a-1 /10.0.0.1 a",
                "g orders 1 - 100 - a-1 /10.0.0.1 a",
                "g orders 3 5 - - - - -",
                "g - - - - - b-1 /10.0.0.1 b",
            ],
        ),
        (
            ("--describe", "--group", "g", "--state"),
            ["GROUP COORDINATOR (ID) ASSIGNMENT-STRATEGY STATE #MEMBERS", "g broker:9092 (7) range Stable 2"],
        ),
    ],
    ids=["groups", "states, which an old broker does not list", "offsets", "coordinator"],
)
def test_a_table_has_the_columns_of_kafkas_tool_and_dashes_for_unknown_values(
    store: FakeStore, arguments: tuple[str, ...], shown: list[str]
) -> None:
    result = run(*arguments)
    assert (cells(result.stdout), result.exit_code, result.stderr) == (shown, 0, "")
    assert store.closed


@pytest.mark.parametrize(
    ("arguments", "column", "shown"),
    [
        (("--offsets",), 3, ["LEADER-EPOCH", "4", "-", "-", "-"]),
        (("--members",), -1, ["ASSIGNMENT", "orders(0,1)", "-"]),
    ],
    ids=["offsets", "members"],
)
def test_verbose_shows_a_further_column(
    store: FakeStore, arguments: tuple[str, ...], column: int, shown: list[str]
) -> None:
    lines = cells(run("--describe", "--group", "g", "--verbose", *arguments).stdout)
    assert [line.split()[column] for line in lines] == shown


def test_groups_without_members_or_in_a_rebalance_are_remarked_and_all_groups_are_tables(store: FakeStore) -> None:
    result = run("--describe", "--group", "done")
    assert cells(result.stdout)[1] == "done deleted 0 1 - - - - -", "the topic is deleted: its log has no end"
    assert result.stderr == "Consumer group 'done' has no active members.\n"
    result = run("--describe", "--group", "turning")
    assert (result.stdout, result.stderr) == ("", "Warning: Consumer group 'turning' is rebalancing.\n")
    first, second = run("--describe", "--all-groups").stdout.split("\n\n")
    assert (first.split()[9], second.split()[9]) == ("done", "g")


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
    monkeypatch.setattr(module, "troubles", lambda groups, deadline: TROUBLES if "g" in groups else {})


@pytest.mark.usefixtures("here")
def test_members_on_this_machine_show_their_events() -> None:
    result = run("--describe", "--group", "g", "--members")
    members, troubles = result.stdout.split("\n\n")
    assert cells(members) == [
        "GROUP CONSUMER-ID GROUP-INSTANCE-ID HOST CLIENT-ID #PARTITIONS",
        "g a-1 - /10.0.0.1 a 2",
        "g b-1 b /10.0.0.1 b 0",
    ]
    assert cells(troubles)[:3] == [
        "CONSUMER-ID REBALANCE FENCE REPLAY SKIP REPEAT DATA-LOSS",
        "a-1 3 0 - - 1 -",
        "b-1 - - - - - -",
    ]
    assert cells(troubles)[3].startswith("-: not every member is a streamgroup query of this user on this machine")
    last = run("--describe", "--group", "g", "--members", "--verbose").stdout.split("\n\n")[1]
    assert cells(last)[:4] == [
        "CONSUMER-ID TROUBLE COUNT LAST REASON",
        "a-1 rebalance 3 2026-11-21T00:31:02+00:00 the group rebalances",
        "a-1 repeat 1 2026-11-21T00:31:03+00:00 stopped",
        "b-1 - - - -",
    ]
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


def test_groups_that_do_not_exist_fail_after_the_others_were_shown(store: FakeStore) -> None:
    result = run("--describe", "--group", "g", "--group", "absent", "--state")
    assert "g  " in result.stdout
    assert str(result.exception) == "consumer group 'absent' does not exist"


def test_json_has_every_column_and_null_for_unknown_values(store: FakeStore) -> None:
    rows = json.loads(run("--describe", "--all-groups", "--json").stdout)
    assert [row["group"] for row in rows] == ["done", "g", "g", "g", "g"]
    offsets = {"leader_epoch": 4, "current_offset": 90, "log_end_offset": 100, "lag": 10, "beyond_end": None}
    consumer = {"consumer_id": "a-1", "next_consumer_id": None, "host": "/10.0.0.1", "client_id": "a"}
    assert rows[1] == {"group": "g", "topic": "orders", "partition": 0, **offsets, **consumer}
    assert rows[3]["lag"] is None
    assert json.loads(run("--list", "--json").stdout)[0] == {"group": "done", "state": "Empty"}
    assert json.loads(run("--describe", "--group", "turning", "--json").stdout) == []


def test_an_invalid_bootstrap_server_is_explained() -> None:
    result = CliRunner().invoke(module.groups, ["-b", "broker:many", "--list"])
    assert isinstance(result.exception, ConfigError)
    assert "invalid broker address 'broker:many'" in str(result.exception)


NOW_MS = 1_800_000_000_000


class ChangingStore:
    """`orders` with three partitions that hold [10, 100); `g` and `h` without members, `busy` with one."""

    def __init__(self, log_format: LogFormat = KAFKA_LOG) -> None:
        self.notes: list[str] = []
        self.log_format = log_format
        self.topics = {"orders": (10000, 10001) if log_format.has_boundaries else (0, 1, 2)}
        self.states = {
            "g": GroupDescription("g", "Empty"),
            "h": GroupDescription("h", "Empty"),
            "busy": GroupDescription("busy", "Stable", members=(MemberDescription("m"),)),
            "other": GroupDescription("other", "Unknown"),
            "shares": GroupDescription("shares", "Empty", "share"),
        }
        numbers = self.topics["orders"]
        self.commits: dict[str, dict[TopicPartition, CommittedOffset]] = {
            "g": {orders(numbers[0]): CommittedOffset(50), orders(numbers[1]): CommittedOffset(60)},
            "h": {orders(numbers[0]): CommittedOffset(20), TopicPartition("deleted", 0): CommittedOffset(3)},
            "busy": {orders(numbers[0]): CommittedOffset(70)},
        }
        self.set: dict[str, Mapping[TopicPartition, int]] = {}
        self.deleted: list[Any] = []
        self.refused: dict[TopicPartition, str] = {}

    def list_groups(self, deadline: float) -> dict[str, GroupListing]:
        return {name: GroupListing(name, "consumer") for name in ("h", "g")} | {"w": GroupListing("w", "connect")}

    def describe(self, names: Collection[str], deadline: float) -> dict[str, GroupDescription]:
        return {name: self.states.get(name, GroupDescription(name, "Dead")) for name in names}

    def committed(self, group: str, deadline: float) -> dict[TopicPartition, CommittedOffset]:
        return self.commits.get(group, {})

    def partitions(self, topics: Collection[str], deadline: float) -> dict[str, tuple[int, ...]]:
        return {topic: numbers for topic, numbers in self.topics.items() if topic in topics}

    def offsets_at(self, wanted: Mapping[TopicPartition, int], deadline: float) -> dict[TopicPartition, int]:
        assert all(tp.topic == "orders" for tp in wanted)
        return {tp: {EARLIEST: 10, LATEST: 100}.get(at, 33) for tp, at in wanted.items()}

    def starts_message(self, tp: TopicPartition, offset: int, deadline: float) -> bool:
        return not self.log_format.has_boundaries or offset % 15 == 0

    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, int], deadline: float) -> None:
        self.set[group] = offsets

    def delete_group(self, group: str, deadline: float) -> None:
        self.deleted.append(group)

    def delete_offsets(
        self, group: str, partitions: Collection[TopicPartition], deadline: float
    ) -> dict[TopicPartition, str | None]:
        self.deleted.append((group, list(partitions)))
        return {tp: self.refused.get(tp) for tp in partitions}

    def name_of(self, partition: int) -> int | str:
        return self.log_format.partition_label(partition)


@pytest.fixture
def changing_store(monkeypatch: pytest.MonkeyPatch) -> ChangingStore:
    fake = ChangingStore()
    use(monkeypatch, fake)
    return fake


def use(monkeypatch: pytest.MonkeyPatch, fake: ChangingStore) -> None:
    monkeypatch.setattr(module, "opened_store", lambda _: nullcontext(fake))
    monkeypatch.setattr(_change_options.time, "time", lambda: NOW_MS / 1000)


RESET = ("--reset-offsets", "--group", "g")


def test_a_dry_run_shows_what_kafkas_tool_shows_and_sets_nothing(changing_store: ChangingStore) -> None:
    result = run(*RESET, "--topic", "orders", "--to-earliest")
    assert cells(result.stdout) == [
        "GROUP TOPIC PARTITION NEW-OFFSET",
        "g orders 0 10",
        "g orders 1 10",
        "g orders 2 10",
    ]
    assert result.stderr == "Dry run: no offset was changed. Add --execute to set these offsets.\n"
    assert (changing_store.set, result.exit_code) == ({}, 0)


def test_execute_sets_what_is_shown(changing_store: ChangingStore) -> None:
    result = run(*RESET, "--topic", "orders:0,2", "--to-offset", "40", "--execute", "--verbose")
    assert cells(result.stdout) == [
        "GROUP TOPIC PARTITION CURRENT-OFFSET NEW-OFFSET",
        "g orders 0 50 40",
        "g orders 2 - 40",
    ]
    assert changing_store.set == {"g": {orders(0): 40, orders(2): 40}}
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        (("--to-latest",), {0: 100, 1: 100}),
        (("--to-current",), {0: 50, 1: 60}),
        (("--shift-by", "-5"), {0: 45, 1: 55}),
        (("--shift-by", "500"), {0: 100, 1: 100}),
        (("--to-datetime", "2026-11-21T08:30:00.000"), {0: 33, 1: 33}),
        (("--by-duration", "PT1H"), {0: 33, 1: 33}),
    ],
)
def test_every_way_resets_the_committed_partitions(
    changing_store: ChangingStore, way: tuple[str, ...], expected: dict[int, int]
) -> None:
    assert run(*RESET, "--all-topics", *way, "--execute").exit_code == 0
    assert changing_store.set == {"g": {orders(number): offset for number, offset in expected.items()}}


@pytest.mark.parametrize(
    ("export", "lines", "expected"),
    [
        (("--export", "--group", "g"), ["orders,0,50", "orders,1,60"], {"h": {orders(0): 50, orders(1): 60}}),
        (
            ("--reset-offsets", "--all-groups", "--topic", "orders:1", "--to-latest", "--export"),
            ["g,orders,1,100", "h,orders,1,100"],
            {"g": {orders(1): 100}, "h": {orders(1): 100}},
        ),
    ],
    ids=["the commits", "a reset before it is executed"],
)
def test_what_is_exported_sets_the_same_offsets_again(
    changing_store: ChangingStore, tmp_path: Path, export: tuple[str, ...], lines: list[str], expected: dict[str, Any]
) -> None:
    exported = run(*export)
    assert exported.stdout.splitlines() == lines
    file = tmp_path / "offsets.csv"
    file.write_text(exported.stdout)
    groups = [word for name in expected for word in ("--group", name)]
    assert run("--reset-offsets", *groups, "--from-file", str(file), "--execute").exit_code == 0
    assert changing_store.set == expected


def test_offsets_beyond_the_log_and_commits_of_deleted_topics_are_warned_of(changing_store: ChangingStore) -> None:
    result = run(*RESET, "--topic", "orders:0", "--to-offset", "101")
    assert cells(result.stdout)[1] == "g orders 0 100"
    assert "Warning: new offset 101 of orders-0 is higher than the latest one: it is set to 100" in result.stderr
    result = run("--reset-offsets", "--group", "h", "--all-topics", "--to-latest", "--execute")
    assert changing_store.set == {"h": {orders(0): 100}}
    assert "Warning: not reset, because they do not exist any more: deleted-0" in result.stderr


def test_a_group_that_has_or_may_have_members_is_left_alone_with_advice_to_stop_them(
    changing_store: ChangingStore,
) -> None:
    way = ("--topic", "orders", "--to-earliest", "--execute")
    result = run("--reset-offsets", "--group", "busy", "--group", "other", "--group", "g", *way)
    assert (changing_store.set.keys(), result.exit_code) == ({"g"}, 1)
    text = str(result.exception)
    assert "cannot change group 'busy': it is Stable, with 1 member(s)" in text
    assert "`streamgroup drain --group busy`" in text
    assert "cannot change group 'other': its state is Unknown" in text, "it may be of another protocol"


@pytest.mark.parametrize(
    "way",
    [("--delete",), ("--reset-offsets", "--topic", "orders", "--to-earliest", "--execute")],
    ids=lambda way: way[0],
)
def test_a_share_group_is_neither_deleted_nor_reset(changing_store: ChangingStore, way: tuple[str, ...]) -> None:
    result = run(*way, "--group", "shares")
    assert str(result.exception) == ("cannot change group 'shares': it is a share group. Use kafka-share-groups.sh")
    assert (changing_store.deleted, changing_store.set) == ([], {})


def test_a_group_that_does_not_exist_can_be_given_offsets_before_its_first_member(
    changing_store: ChangingStore,
) -> None:
    assert run("--reset-offsets", "--group", "new", "--topic", "orders:0", "--to-latest", "--execute").exit_code == 0
    assert changing_store.set == {"new": {orders(0): 100}}
    result = run("--reset-offsets", "--group", "new", "--all-topics", "--to-latest")
    assert "it has no committed offsets. Choose topics by --topic" in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--topic", "orders:7", "--to-latest"), "partitions that do not exist: orders-7"),
        (("--topic", "orders:x", "--to-latest"), "invalid partition of --topic orders"),
        (("--topic", "absent", "--to-latest"), "topic 'absent' does not exist"),
        (("--topic", "orders", "--shift-by", "1"), "cannot shift the offsets of orders-2"),
    ],
)
def test_partitions_that_cannot_be_reset_are_an_error(
    changing_store: ChangingStore, arguments: tuple[str, ...], error: str
) -> None:
    result = run(*RESET, *arguments, "--execute")
    assert isinstance(result.exception, StreamGroupError)
    assert error in str(result.exception)
    assert changing_store.set == {}


def test_positions_of_kafka_07_must_be_those_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = ChangingStore(KAFKA07_LOG)
    use(monkeypatch, fake)
    assert cells(run(*RESET, "--topic", "orders:1-1", "--to-offset", "30").stdout)[1] == "g orders 1-1 30"
    result = run(*RESET, "--topic", "orders:1-1", "--to-offset", "31", "--execute")
    assert "cannot reset orders 1-1 to 31: no message begins there" in str(result.exception)
    assert fake.set == {}
    assert "does not read Kafka 0.7" in str(run("--export", "--group", "g", "--format", "spark").exception)


# -- export ------------------------------------------------------------------------------------------------------------


def test_starting_offsets_for_spark_have_all_partitions_of_the_topics(changing_store: ChangingStore) -> None:
    result = run("--export", "--group", "h", "--format", "spark")
    assert json.loads(result.stdout) == {"orders": {"0": 20, "1": -2, "2": -2}}
    assert "left out, because the topic does not have it: deleted-0" in result.stderr
    planned = run(*RESET, "--topic", "orders", "--to-offset", "40", "--export", "--format", "spark")
    assert planned.stdout == '{"orders":{"0":40,"1":40,"2":40}}\n'


def test_topics_of_an_export_can_be_chosen_and_a_running_group_is_warned_of(changing_store: ChangingStore) -> None:
    assert run("--export", "--group", "h", "--topic", "orders").stdout == "orders,0,20\n"
    assert run("--export", "--all-groups", "--topic", "orders:0").stdout == "g,orders,0,50\nh,orders,0,20\n"
    assert "it has not committed any" in str(run("--export", "--group", "new").exception)
    result = run("--export", "--group", "busy")
    assert result.stdout == "orders,0,70\n"
    assert "Warning: group 'busy' is Stable: its members commit other offsets later" in result.stderr


# -- deletions ---------------------------------------------------------------------------------------------------------


def test_groups_are_deleted_but_those_with_members(changing_store: ChangingStore) -> None:
    result = run("--delete", "--group", "g", "--group", "busy", "--group", "h")
    assert result.stdout == "Deletion of requested consumer groups ('g', 'h') was successful.\n"
    assert "cannot change group 'busy'" in str(result.exception)
    assert changing_store.deleted == ["g", "h"]
    assert "cannot delete consumer group 'new': it does not exist" in str(run("--delete", "--group", "new").exception)


def test_offsets_of_topics_are_deleted_and_a_refusal_fails_the_command(
    changing_store: ChangingStore,
) -> None:
    result = run("--delete-offsets", "--group", "h", "--topic", "deleted")
    assert cells(result.stdout) == ["GROUP TOPIC PARTITION STATUS", "h deleted 0 Successful"]
    run("--delete-offsets", "--group", "g", "--topic", "orders:1,2")
    assert changing_store.deleted == [("h", [TopicPartition("deleted", 0)]), ("g", [orders(1), orders(2)])]
    assert "it has none of these topics" in str(run("--delete-offsets", "--group", "g", "--topic", "x").exception)
    changing_store.refused = {orders(1): "the group still subscribes to the topic"}
    result = run("--delete-offsets", "--group", "g", "--all-topics")
    refused = "g orders 1 Error: the group still subscribes to the topic"
    assert cells(result.stdout)[1:] == ["g orders 0 Successful", refused]
    assert str(result.exception) == "1 of 2 offsets were not deleted: see their status"


def test_json_of_every_change(changing_store: ChangingStore) -> None:
    def rows(*arguments: str) -> Any:
        return json.loads(run(*arguments, "--json").stdout)

    assert rows(*RESET, "--topic", "orders:0", "--to-latest") == [
        {"group": "g", "topic": "orders", "partition": 0, "current_offset": 50, "new_offset": 100}
    ]
    assert rows("--export", "--group", "busy") == [{"group": "busy", "topic": "orders", "partition": 0, "offset": 70}]
    assert rows("--delete", "--group", "g", "--group", "new") == [
        {"group": "g", "deleted": True, "error": None},
        {"group": "new", "deleted": False, "error": "cannot delete consumer group 'new': it does not exist"},
    ]
    assert rows("--delete-offsets", "--group", "busy", "--topic", "orders") == [
        {"group": "busy", "topic": "orders", "partition": 0, "status": "Successful"}
    ]


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
        ("--reset-offsets", "--topic", "t", "--to-latest"),
        ("--reset-offsets", "--group", "g", "--all-groups", "--topic", "t", "--to-latest"),
        (*RESET, "--topic", "t", "--to-latest", "--members"),
        (*RESET, "--topic", "t", "--to-latest", "--describe"),
        ("--describe", "--group", "g", "--topic", "t"),
        ("--export", "--format", "spark", "--all-groups"),
        ("--export", "--group", "g", "--list"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused_and_change_nothing(
    changing_store: ChangingStore, arguments: tuple[str, ...]
) -> None:
    assert run(*arguments).exit_code == 2
    assert (changing_store.set, changing_store.deleted) == ({}, [])


LINES = [OffsetLine("g", "orders", 0, 7), OffsetLine('of "many", it is', "orders", 1, 9)]


def test_what_is_written_is_read_again_without_the_lines_of_other_groups() -> None:
    text = write_csv(LINES, with_group=True)
    assert text.splitlines()[0] == "g,orders,0,7"
    of_g, of_many = {TopicPartition("orders", 0): 7}, {TopicPartition("orders", 1): 9}
    assert read_csv(text, ["g", 'of "many", it is'], KAFKA_LOG) == {"g": of_g, 'of "many", it is': of_many}
    assert read_csv(text, ["g"], KAFKA_LOG) == {"g": of_g}
    assert read_csv("g,events,1-2,30", ["g"], KAFKA07_LOG) == {"g": {TopicPartition("events", 10002): 30}}


@pytest.mark.parametrize(
    ("text", "groups", "reason"),
    [
        ("orders,0,7", ["g", "h"], "line 1 .* has 3 columns"),
        ("g,orders,0,7,8", ["g"], "line 1 .* has 5 columns"),
        ("g,orders,0,7\ng,orders,zero,7", ["g"], "line 2 .* invalid partition 'zero'"),
        ("g,orders,0,-7", ["g"], "invalid offset '-7'"),
        ("g,orders,0,٣", ["g"], "invalid offset"),
        (f"g,orders,0,{2**63}", ["g"], "invalid offset"),
        ("g,orders,0,7\ng,orders,0,8", ["g"], "line 2 .* orders-0 of group 'g' is on an earlier line already"),
        ("g,orders,0,7", ["g", "h"], "has no line for group 'h'"),
    ],
)
def test_an_invalid_line_is_an_error_with_its_number(text: str, groups: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        read_csv(text, groups, KAFKA_LOG)


def test_starting_offsets_have_every_partition_that_exists_and_no_other() -> None:
    offsets = {TopicPartition("orders", 0): 7, TopicPartition("orders", 9): 1, TopicPartition("deleted", 0): 3}
    text, notes = starting_offsets(offsets, {"orders": (0, 1)})
    assert json.loads(text) == {"orders": {"0": 7, "1": -2}}
    assert text == '{"orders":{"0":7,"1":-2}}'
    assert notes == [
        "left out, because the topic does not have it: deleted-0, orders-9",
        "no committed offset, so Spark starts at the earliest (-2): orders-1",
    ]


__all__ = ["home", "serve"]

COUNTERS = {"rebalance": {"count": 1, "last": "now", "reason": "the query starts"}}


def tell(coordinator: FakeCoordinator, **status: Any) -> None:
    coordinator.status = lambda: status  # type: ignore[method-assign]


def troubles(*groups: str, within: float = 5.0) -> dict[str, Any]:
    return dict(module.troubles(set(groups), time.monotonic() + within))


def test_members_of_the_groups_asked_for_are_found_by_their_ids(serve: Callable[..., FakeCoordinator]) -> None:
    for number, (group, member) in enumerate([("g", "m-1"), ("other", "m-2"), ("g", "")]):
        tell(serve(f"r{number}"), group=group, member=member, trouble=COUNTERS)
    tell(serve("older"), group="g", member="m-3")
    assert troubles("g") == {"m-1": COUNTERS}
    assert troubles("g", "other").keys() == {"m-1", "m-2"}
    assert troubles("g", within=0.0) == {}


def test_killed_and_busy_coordinators_are_left_out(
    serve: Callable[..., FakeCoordinator], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.2)
    assert troubles("g") == {}, "no driver runs"
    busy = serve("busy")
    (home / str(JVM) / "killed.sock").touch()
    busy.may_answer.clear()
    tell(serve("r1"), group="g", member="m-1", trouble=COUNTERS)
    deadline = time.monotonic() + 30.0
    while not (found := troubles("g")) and time.monotonic() < deadline:
        pass  # this process may be too busy itself to answer in time
    assert found == {"m-1": COUNTERS}
    busy.may_answer.set()


# -- the rows of the tables --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("committed", "log_end", "lag", "beyond_end"),
    [
        (CommittedOffset(90), 100, 10, None),
        (CommittedOffset(100), 100, 0, None),
        (CommittedOffset(12), 10, 0, 2),
        (CommittedOffset(0), 0, 0, None),
        (None, 100, None, None),
        (CommittedOffset(5), None, None, None),
    ],
    ids=["behind", "caught up", "beyond the end", "empty log", "no commit", "no log end"],
)
def test_the_lag_is_the_distance_to_the_end_of_the_log_where_both_are_known(
    committed: CommittedOffset | None, log_end: int | None, lag: int | None, beyond_end: int | None
) -> None:
    row = OffsetRow("g", orders(0), committed, log_end, None)
    assert (row.lag, row.beyond_end) == (lag, beyond_end)


def test_a_column_shows_commits_beyond_the_end_if_there_are_any() -> None:
    within, beyond = (OffsetRow("g", orders(0), CommittedOffset(offset), 10, None, 0) for offset in (9, 12))
    assert "BEYOND-END" not in table(tables.OFFSETS, [within])
    assert table(tables.OFFSETS, [within, beyond]).splitlines()[0].split()[5:7] == ["LAG", "BEYOND-END"]


def test_each_partition_that_is_held_or_committed_has_one_row_and_members_without_any_are_last() -> None:
    payments = TopicPartition("payments", 0)
    idle, second, first = member("z"), member("b", orders(0), payments), member("a", orders(10), orders(2))
    rows = tables.offset_rows(
        group("g", idle, second, first),
        {orders(2): CommittedOffset(7), orders(3): CommittedOffset(8)},
        {orders(2): 9, payments: 4},
    )
    assert rows == [
        OffsetRow("g", orders(0), None, None, second, 0),
        OffsetRow("g", orders(2), CommittedOffset(7), 9, first, 2),
        OffsetRow("g", orders(3), CommittedOffset(8), None, None, 3),
        OffsetRow("g", orders(10), None, None, first, 10),
        OffsetRow("g", payments, None, 4, second, 0),
        OffsetRow("g", None, None, None, idle),
    ]


def test_a_partition_that_a_group_of_kip_848_moves_shows_the_member_that_gets_it() -> None:
    old = replace(member("a", orders(0), orders(1)), target=(orders(0),))
    new = replace(member("b", orders(2)), target=(orders(1), orders(2), orders(3)))
    rows = tables.offset_rows(group("g", old, new), {}, {})
    assert [
        (row.name, row.member and row.member.client_id, row.next_member and row.next_member.client_id) for row in rows
    ] == [
        (0, "a", None),
        (1, "a", "b"),
        (2, "b", None),
        (3, None, "b"),
    ]
    assert "NEXT-CONSUMER-ID" in table(tables.OFFSETS, rows)
    assert "NEXT-CONSUMER-ID" not in table(tables.OFFSETS, rows[:1]), "the group moves nothing"


def test_partitions_have_the_names_that_the_cluster_gives_them() -> None:
    named = group("g", member("a", orders(10001), TopicPartition("payments", 20000)))
    label = lambda number: f"{number // 10000}-{number % 10000}"  # noqa: E731
    assert [row.name for row in tables.offset_rows(named, {}, {}, label)] == ["1-1", "2-0"]
    (shown,) = json_rows(tables.MEMBERS, tables.member_rows(named, name_of=label))
    assert shown["assignment"] == "orders(1-1),payments(2-0)"


def test_an_unreadable_assignment_is_unknown_not_empty() -> None:
    rows = tables.member_rows(group("g", MemberDescription("a", assigned=None), MemberDescription("b")))
    shown = [(row["partitions"], row["assignment"]) for row in json_rows(tables.MEMBERS, rows)]
    assert shown == [(None, None), (0, None)]
