"""Run as a program, writes what Java's CooperativeStickyAssignor gives in each scenario to tests/vectors/assignors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from streamgroup.group.assignors import Assignment
from tests.live.java.cases import RELEASES, Case, ask_java, parse
from tests.live.java.sticky_scenarios import cases

VECTORS = Path(__file__).parents[2] / "vectors" / "assignors" / "cooperative-sticky.jsonl"


def rows(played: Sequence[tuple[str, Case]], answers: Sequence[str]) -> list[str]:
    """One JSON object for each round of each scenario: the group and Java's assignment."""
    return [row(name, case, parse(answer)) for (name, case), answer in zip(played, answers, strict=True)]


def row(name: str, case: Case, assignment: Assignment) -> str:
    members = {
        member_id: {"topics": member.topics, "owned": [str(tp) for tp in member.owned], "generation": member.generation}
        for member_id, member in case.members.items()
    }
    given = {member_id: [str(tp) for tp in assignment[member_id]] for member_id in members}
    counts = {topic.name: len(topic.partitions) for topic in case.topics.values()}
    return json.dumps({"scenario": name, "topics": counts, "members": members, "assignment": given})


if __name__ == "__main__":
    VECTORS.parent.mkdir(parents=True, exist_ok=True)
    scenarios = list(cases())
    lines = rows(scenarios, ask_java(RELEASES[-1], [case.line() for _, case in scenarios]))
    VECTORS.write_text("\n".join(lines) + "\n")
