from __future__ import annotations

from streamgroup.monitoring.pauses import pauses


def test_the_partitions_of_all_members_on_this_machine_are_known_and_no_others() -> None:
    statuses = [
        {"group": "g", "positions": {"t-0": 5, "t-1": 7}, "paused": ["t-1"]},
        {"group": "g", "positions": {"t-2": 0}, "paused": ["t-2"]},
        {"group": "other", "positions": {"t-3": 1}, "paused": ["t-3"]},
    ]
    assert pauses(statuses, "g") == {"t-0": False, "t-1": True, "t-2": True}


def test_a_status_without_positions_says_nothing() -> None:
    assert pauses([{"group": "g"}, {"group": "g", "positions": None, "paused": None}], "g") == {}
