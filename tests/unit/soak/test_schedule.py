"""The events of a soak: repeatable, of every kind, with an upgrade in the middle."""

from __future__ import annotations

import pytest

from tests.soak.schedule import Kind, interval, schedule

MEMBERS = ("a", "b", "c")


def test_a_seed_gives_the_same_events_and_another_seed_others() -> None:
    assert schedule(1, 600, MEMBERS) == schedule(1, 600, MEMBERS)
    assert schedule(1, 600, MEMBERS) != schedule(2, 600, MEMBERS)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("seconds", [300, 600, 7200])
def test_every_kind_happens_and_the_upgrade_once(seed: int, seconds: float) -> None:
    events = schedule(seed, seconds, MEMBERS)
    kinds = [event.kind for event in events]
    assert set(kinds) == set(Kind)
    assert kinds.count(Kind.UPGRADE) == 1
    (upgrade,) = (event for event in events if event.kind is Kind.UPGRADE)
    assert upgrade.at_s == pytest.approx(seconds / 3)
    assert [event.at_s for event in events] == sorted(event.at_s for event in events)
    assert events[0].at_s >= interval(seconds)
    assert events[-1].at_s < seconds


def test_an_event_of_one_member_names_it() -> None:
    for event in schedule(5, 7200, MEMBERS):
        assert (event.member in MEMBERS) is (event.kind not in (Kind.BROKER, Kind.UPGRADE))


def test_the_first_member_lives_from_the_upgrade_to_the_end() -> None:
    events = [event for seed in range(20) for event in schedule(seed, 7200, MEMBERS)]
    struck = {kind: {event.member for event in events if event.kind is kind} for kind in Kind}
    assert struck[Kind.SIGKILL] == struck[Kind.SIGTERM] == {"b", "c"}
    assert struck[Kind.PAUSE] == set(MEMBERS)
