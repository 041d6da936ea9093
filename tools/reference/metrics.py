"""Write the page of all metrics: `python -m tools.reference.metrics docs`, or `make docs`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from streamgroup.monitoring.metric_families import families

NAME = "metrics-reference.md"
_INTRODUCTION = """\
# All metrics

For operators who write queries, panels and alerts. This page has every metric of a driver, with its labels and the
text that Prometheus shows with it. [metrics.md](metrics.md) says how to serve them, and what the labels mean.
`make docs` writes this page from the metrics that are served."""
_SECTIONS = (
    ("kafka_", "Groups and logs", "Their names and labels are those of kafka-lag-exporter."),
    (
        "streamgroup_",
        "Members and queries",
        "Metrics with the label `run` are of a member, those with `query` of a query.",
    ),
)


def page() -> str:
    """Return the text of the page."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield _INTRODUCTION
    found = families([], [], "")
    for prefix, title, introduction in _SECTIONS:
        yield f"\n## {title}\n\n{introduction}\n"
        yield "| metric | type | labels | value |"
        yield "|---|---|---|---|"
        for family in found:
            if family.name.startswith(prefix):
                labels = ", ".join(f"`{label}`" for label in family.labels)
                yield f"| `{family.name}` | {family.kind.value} | {labels} | {family.doc} |"


if __name__ == "__main__":
    (Path(sys.argv[1]) / NAME).write_text(page())
