from __future__ import annotations

import json
from typing import Any

from streamgroup.model import Dialect, GroupDescription, GroupState, MemberDescription, TopicPartition
from streamgroup.monitoring.page.history import views
from streamgroup.monitoring.page.history.batches import GroupReading
from streamgroup.monitoring.page.history.history import History
from tests.unit.monitoring.page.readings import group, partitions, reading, status

P = partitions(4)


def etl(history: History, *lines: str) -> dict[str, Any]:
    """The view of the group `etl`."""
    shown = views.group_view(history, "etl", lines)
    assert shown is not None
    return shown


def test_groups_come_with_the_largest_lag_first_and_unknown_ones_last() -> None:
    history = History()
    groups = [group("a", committed={P[0]: 9}), group("b", committed={P[0]: 1}), group("c"), group("d", held={"m": P})]
    history.add(reading(0, *groups, ends={P[0]: 10}))
    shown = views.overview(history)["groups"]
    assert [(row["group"], row["lag"]) for row in shown] == [("b", 9), ("a", 1), ("c", None), ("d", None)]


def test_a_falling_lag_has_a_time_until_it_is_caught_up() -> None:
    history = History()
    for at in range(10):
        history.add(reading(at * 5, group(committed={P[0]: at * 50}), ends={P[0]: 1000}))
    (row,) = views.overview(history)["groups"]
    assert (row["trend"], row["lag"], row["trend_per_s"], row["seconds_left"]) == ("falling", 550, -10.0, 55)


def test_the_view_of_a_group_is_json_with_a_row_for_each_partition() -> None:
    history = History()
    for at in range(3):
        one = group(held={"a": P[:2], "b": P[2:]}, committed=dict.fromkeys(P, at))
        history.add(reading(at, one, ends=dict.fromkeys(P, 5), statuses=[status("b", draining=True)]))
    shown = json.loads(json.dumps(etl(history)))
    assert [row["id"] for row in shown["partitions"]] == [f"orders-{n}" for n in range(4)]
    assert shown["owners"] == ["a", "b"]
    assert shown["spans"][3] == [[0, 2, 1]]
    assert shown["heat"][0] == [5, 4, 3]
    assert shown["times"] == [0, 1, 2]
    assert [m["local"] and m["local"]["draining"] for m in shown["members_list"]] == [None, True]
    assert [mark["kind"] for mark in shown["marks"]] == ["drain"]


def test_the_view_of_a_group_of_kip_848_shows_what_moves_and_to_whom() -> None:
    history = History()
    members = (
        MemberDescription("a", "client-a", assigned=tuple(P[:3]), epoch=4, target=tuple(P[:2])),
        MemberDescription("b", "client-b", assigned=(), epoch=5, target=tuple(P[2:])),
    )
    described = GroupDescription("etl", GroupState.RECONCILING, "consumer", "uniform", members, epoch=5)
    history.add(reading(0, GroupReading(described, {P[0]: 1}, "localhost:9092")))
    shown = etl(history)
    names = [*shown["owners"], None]
    holds = [(names[row["owner"] or 0], row["next"] and names[row["next"]]) for row in shown["partitions"][:3]]
    assert holds == [("a", None), ("a", None), ("a", "b")]
    assert (shown["partitions"][3]["owner"], names[shown["partitions"][3]["next"]]) == (None, "b")
    assert [(m["partitions"], m["target"], m["epoch"]) for m in shown["members_list"]] == [(3, 2, 4), (0, 2, 5)]
    assert shown["epoch"] == 5


def test_members_keep_their_numbers_and_so_their_colors_when_another_one_joins() -> None:
    history = History()
    history.add(reading(0, group(held={"b": P[:2], "c": P[2:]})))
    history.add(reading(5, group(held={"a": P[:1], "b": P[1:2], "c": P[2:]})))
    shown = etl(history)
    assert shown["owners"] == ["b", "c", "a"]
    assert [row["owner"] for row in shown["partitions"]] == [2, 0, 1, 1]


def test_partitions_of_kafka_0_7_have_the_names_of_its_tools_and_lags_in_bytes() -> None:
    history = History()
    of_0_7 = [TopicPartition("events", 0), TopicPartition("events", 10_001)]
    nameless = MemberDescription("etl_host-1", "", "", assigned=tuple(of_0_7))
    for at, members in enumerate([(nameless,), ()]):
        described = GroupDescription("etl", GroupState.STABLE, "consumer", "range", members)
        one = GroupReading(described, dict.fromkeys(of_0_7, 10), "ZooKeeper")
        history.add(reading(at, one, ends=dict.fromkeys(of_0_7, 30), dialect=Dialect.KAFKA07))
    history.add(reading(2, group(held={"b": of_0_7[1:]}, committed=one.committed), dialect=Dialect.KAFKA07))
    shown = etl(history)
    assert (shown["unit"], views.overview(history)["unit"]) == ("bytes", "bytes")
    assert sorted(line["name"] for line in shown["lines"]) == ["events-0-0", "events-1-1"]
    texts = [mark["text"] for mark in shown["marks"]]
    assert texts == ["etl_host-1 left", "2 partitions moved", "client-b joined", "events 1-1 moved"]


def test_the_view_of_a_group_marks_what_its_members_on_this_machine_have_paused() -> None:
    history = History()
    here = status("a", name="east", positions={"orders-0": 1, "orders-1": 1}, paused=["orders-1"], paused_whole=False)
    whole = status("b", run="r2", positions={"orders-2": 1}, paused=["orders-2"], paused_whole=True)
    other = status("c", group="other", positions={"orders-3": 1}, paused=["orders-3"])
    history.add(reading(0, group(committed=dict.fromkeys(P, 1)), statuses=[here, whole, other]))
    shown = etl(history)
    assert [row["paused"] for row in shown["partitions"]] == [False, True, True, None]
    assert shown["pauses"] == [
        {"name": "east", "whole": False, "partitions": 1},
        {"name": "r2", "whole": True, "partitions": 1},
    ]


def test_a_partition_whose_last_stable_offset_stays_below_the_log_end_is_marked() -> None:
    history = History()
    ends = dict.fromkeys(P, 50)

    def at(seconds: int, stable: int, end: int = 50) -> list[Any]:
        stables = {P[0]: stable, P[1]: 50, P[2]: seconds}
        one = group(committed=dict.fromkeys(P, 1))
        history.add(reading(seconds, one, ends={**ends, P[0]: end}, stable=stables))
        rows = views.topic_view(history, "orders")
        assert rows is not None
        marks = [row["held_up"] for row in etl(history)["partitions"]]
        assert marks == [row["held_up"] for row in rows["rows"]]
        return marks

    assert at(0, 20) == at(10, 30) == at(40, 30) == [None] * 4, "not yet for a minute"
    command = "streamgroup topics --open-transactions --topic orders"
    assert at(70, 30, 60) == [{"offset": 30, "since": 10, "command": command}, None, None, None]
    assert at(80, 40, 60) == [None] * 4, "the transaction has ended, and another one is open"
    assert at(200, 60, 60) == [None] * 4


def test_the_view_of_a_group_names_the_offset_table_of_its_members_on_this_machine() -> None:
    history = History()
    here = [status(one, run=one, offsets_store="postgresql://db/shop") for one in ("a", "b")]
    older, other = status("c", run="c"), status("d", group="other", offsets_store="sqlite:////o.db")
    history.add(reading(0, group(committed=dict.fromkeys(P, 1)), statuses=[*here, older, other]))
    assert etl(history)["stores"] == ["postgresql://db/shop"]


def test_a_member_of_this_machine_shows_its_batch_in_flight() -> None:
    history = History()
    flying, older = status("b", idle=False, in_flight_s=312.5), status("c", idle=False)
    history.add(reading(0, group(held={"a": P[:2], "b": P[2:3], "c": P[3:]}), statuses=[flying, older]))
    shown = etl(history)
    found = [m["local"] and (m["local"]["idle"], m["local"]["in_flight_s"]) for m in shown["members_list"]]
    assert found == [None, (False, 312.5), (False, None)], "a member of an older release does not say since when"


def test_the_lines_are_those_of_the_largest_lags_or_those_chosen() -> None:
    history = History()
    many = partitions(20)
    history.add(reading(0, group(committed=dict.fromkeys(many, 0)), ends={tp: tp.partition for tp in many}))

    assert [line["id"] for line in etl(history)["lines"]] == [f"orders-{n}" for n in range(19, 11, -1)]
    assert [line["id"] for line in etl(history, "orders-3", "orders-4")["lines"]] == ["orders-3", "orders-4"]


def test_a_view_of_a_long_history_has_as_many_points_as_a_screen_shows_and_the_newest() -> None:
    history = History()
    for at in range(700):
        history.add(reading(at, group(committed={P[0]: at}), ends={P[0]: 1000}))
    shown = etl(history)
    assert len(shown["times"]) == len(shown["heat"][0]) <= views.POINTS
    assert (shown["times"][-1], shown["totals"]["lag"][-1]) == (699, 301)


def test_a_topic_shows_its_groups_and_their_lags() -> None:
    history = History()
    history.add(reading(0, group(committed={P[1]: 3}), group("idle"), ends={P[1]: 5}))
    shown = views.topic_view(history, "orders")
    assert shown is not None
    assert (shown["groups"], shown["in_log"]) == (["etl"], 5)
    assert [row["lags"] for row in shown["rows"]] == [{"etl": None}, {"etl": 2}, {"etl": None}, {"etl": None}]
    assert [row["topic"] for row in views.topics_view(history)["topics"]] == ["orders"]


def test_what_does_not_exist_has_no_view() -> None:
    history = History()
    assert views.topic_view(history, "orders") is views.group_view(history, "etl") is None
    assert views.overview(history)["groups"] == views.cluster_view(history)["brokers"] == []


def test_the_cluster_names_partitions_without_a_leader_and_errors() -> None:
    history = History()
    history.add(reading(0, notes=["cannot read"], topics={"orders": 2, "payments": 1}))
    shown = views.cluster_view(history)
    assert (shown["topics_count"], shown["partitions_count"], shown["degraded_count"]) == (2, 3, 0)
    assert [(b["id"], b["leads"], b["controller"]) for b in shown["brokers"]] == [(1, 3, True)]
    assert [error["text"] for error in shown["errors"]] == ["cannot read"]
