"""A fixture that records the topic changes that a command requests; no cluster carries them out."""

from __future__ import annotations

import pytest

from streamgroup.cli import topics as module


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """The changes that the cluster was asked for, each with its deadline; the topic `old` exists there."""
    made: list[tuple[object, ...]] = []

    def create(_: object, topics: dict[str, int], deadline: float, **settings: object) -> frozenset[str]:
        made.append(("create", topics, deadline, settings))
        return frozenset(topics) - {"old"}

    monkeypatch.setattr(module, "create_topics", create)
    monkeypatch.setattr(module, "grow_topics", lambda _, counts, deadline: made.append(("grow", counts, deadline)))
    monkeypatch.setattr(module, "delete_topics", lambda _, names, deadline: made.append(("delete", names, deadline)))
    return made
