"""The numbered files of a mirror's plan."""

from __future__ import annotations

import pytest

from streamgroup.errors import ConfigError
from streamgroup.jobs.mirror.plan import MirrorPlan, Placement, TopicPlan
from streamgroup.jobs.mirror.plan_log import latest, settle


class MemoryFiles:
    """Files by path, and a member that creates one just before this one does."""

    def __init__(self, **files: str) -> None:
        self.files = {f"plan/{name.removeprefix('f')}.json": text for name, text in files.items()}
        self.first: dict[str, str] = {}

    def qualified(self, path: str) -> str:
        return path

    def names(self, directory: str) -> list[str]:
        return [path.removeprefix(f"{directory}/") for path in self.files]

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def create(self, path: str, text: str) -> bool:
        if path in self.first:
            self.files[path] = self.first.pop(path)
            return False
        self.files[path] = text
        return True

    def replace(self, path: str, text: str) -> None:
        raise AssertionError("a plan is never replaced")


def plan(*topics: str) -> MirrorPlan:
    return MirrorPlan({topic: TopicPlan(topic, topic, Placement.KEEP, {0: 0}) for topic in topics})


def test_the_first_plan_has_number_0() -> None:
    files = MemoryFiles()
    assert latest(files, "plan") == (-1, MirrorPlan())
    assert settle(files, "plan", lambda _: plan("a")) == plan("a")
    assert files.files == {"plan/0.json": plan("a").to_json()}
    assert latest(files, "plan") == (0, plan("a"))


def test_an_unchanged_plan_is_not_written_again() -> None:
    files = MemoryFiles(f9=plan("a").to_json(), f10=plan("a", "b").to_json())
    assert settle(files, "plan", lambda before: before) == plan("a", "b")
    assert len(files.files) == 2


def test_members_that_plan_at_the_same_time_agree() -> None:
    files = MemoryFiles(f0=plan("a").to_json())
    files.first["plan/1.json"] = plan("a", "b").to_json()
    settled = settle(files, "plan", lambda before: MirrorPlan({**before.topics, **plan("c").topics}))
    assert settled == plan("a", "b", "c")
    assert latest(files, "plan") == (2, settled)


def test_a_damaged_plan_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"cannot read the plan of the mirror in plan/3\.json: .*Restore the file"):
        latest(MemoryFiles(f3="{"), "plan")
