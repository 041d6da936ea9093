"""docs/metrics-reference.md is that of the metrics that are served; docs/metrics.md explains every label."""

from __future__ import annotations

import re
from pathlib import Path

from streamgroup.monitoring.families import families
from tools.reference.metrics import NAME, page

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_is_that_of_the_metrics() -> None:
    assert (DOCS / NAME).read_text() == page(), "write it anew: make docs"


def test_the_page_lists_every_metric_with_what_it_is() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*) \| (\S.*) \|$", page(), re.MULTILINE)
    served = families([], [], "")
    assert sorted(row[:2] for row in rows) == sorted((family.name, family.kind.value) for family in served)
    assert all(family.doc.endswith(".") for family in served)


def test_every_label_is_explained() -> None:
    labels = {label for family in families([], [], "") for label in family.labels}
    assert labels <= set(re.findall(r"`(\w+)`", (DOCS / "metrics.md").read_text()))
