from __future__ import annotations

from typing import Any

import pytest

from streamgroup.errors import ConfigError
from streamgroup.options.types import GroupMode, GroupOptions, Subscription
from tests.unit.options.reads import A, B, batch, stream

# -- what is read ------------------------------------------------------------------------------------------------------


def test_topics_are_separated_by_commas() -> None:
    assert stream(subscribe=" b, a,,b ").subscription.topics == ("b", "a")


@pytest.mark.parametrize(
    ("given", "said"), [("assign", "subscribe and assign"), ("subscribePattern", "subscribePattern")]
)
def test_two_subscriptions_are_an_error_that_names_both(given: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"{said} are set. Set exactly one of"):
        batch(**{given: '{"orders": [0]}' if given == "assign" else "o.*"})


@pytest.mark.parametrize("read", [batch, stream])
def test_a_pattern_or_partitions_may_be_read(read: Any) -> None:
    assert read(subscribe=None, subscribePattern="o.*").subscription == Subscription(pattern="o.*")
    assert read(subscribe=None, assign='{"orders": [1, 0, 1]}').subscription == Subscription(assign=(A, B))


# -- the modes ---------------------------------------------------------------------------------------------------------

NO_GROUP = {"kafka.group.id": None}
BY_ITSELF = {"subscribe": None, "assign": '{"orders": [0]}'}


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        ({}, GroupMode.MEMBER),
        (NO_GROUP, GroupMode.OFF),
        (BY_ITSELF, GroupMode.COMMIT),
        ({**BY_ITSELF, **NO_GROUP}, GroupMode.OFF),
        ({**BY_ITSELF, "group.mode": "off"}, GroupMode.OFF),
        ({"group.mode": "commit"}, GroupMode.COMMIT),
        ({"group.mode": "MEMBER"}, GroupMode.MEMBER),
        ({**NO_GROUP, "group.mode": "off"}, GroupMode.OFF),
    ],
)
def test_the_mode_is_the_one_given_or_follows_from_group_and_subscription(given: Any, mode: GroupMode) -> None:
    assert stream(**given).group == GroupOptions("" if mode is GroupMode.OFF else "etl", mode)


@pytest.mark.parametrize("mode", ["member", "commit"])
def test_a_mode_with_a_group_requires_a_group_id(mode: str) -> None:
    with pytest.raises(ConfigError, match=rf"group\.mode={mode}. Add option\('kafka.group.id', '<name>'\), or .*=off"):
        stream(**{**NO_GROUP, "group.mode": mode})


def test_a_member_cannot_assign_partitions_to_itself() -> None:
    with pytest.raises(ConfigError, match=r"cannot use assign with group\.mode=member.*subscribe.*commit or off"):
        stream(**{**BY_ITSELF, "group.mode": "member"})


def test_there_are_three_modes() -> None:
    with pytest.raises(
        ConfigError, match=r"^invalid value 'assign' for option group.mode: expected " r"member or commit or off$"
    ):
        stream(**{"group.mode": "assign"})


@pytest.mark.parametrize(
    ("mode", "ignored"),
    [
        ("commit", {"kafka.group.instance.id", "kafka.heartbeat.interval.ms"}),
        ("off", {"group.joinTimeout", "kafka.group.id", "kafka.group.instance.id", "kafka.heartbeat.interval.ms"}),
    ],
)
def test_options_outside_the_mode_are_ignored(mode: str, ignored: set[str]) -> None:
    given = {"kafka.group.instance.id": "a", "kafka.heartbeat.interval.ms": "60000", "group.joinTimeout": "5s"}
    (note,) = stream(**given, **{"group.mode": mode}).notes
    names, _, why = note.removeprefix("ignored options ").partition(": ")
    assert set(names.split(", ")) == ignored
    assert why.startswith(f"with group.mode={mode} ")
