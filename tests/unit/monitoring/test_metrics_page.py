"""docs/metrics.md lists every metric with its type, and names every label."""

from __future__ import annotations

import re
from pathlib import Path

from streamgroup.monitoring.families import families

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()


def test_the_page_lists_the_metrics_that_are_served() -> None:
    listed = re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted((family.name, family.kind.value) for family in families([], [], "c"))


def test_the_page_names_every_label() -> None:
    labels = {label for family in families([], [], "c") for label in family.labels}
    assert labels <= set(re.findall(r"`(\w+)`", PAGE))
