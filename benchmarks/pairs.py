"""Comparisons with Spark's own connector: alternating pairs after a warm-up, and their table."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from streamgroup.kafka.records import kernel

PARTITIONS = 4
SIDES = ("streamgroup", "kafka")
"""The formats that are compared."""


def compare(name: str, run: Callable[[str], float], records: int, pairs: int, *, warm_up: int = 1) -> dict[str, object]:
    """Return the rates and ratios of `pairs` alternating pairs after `warm_up` others. `run` returns seconds."""
    times: dict[str, list[float]] = {side: [] for side in SIDES}
    for pair in range(warm_up + pairs):
        for side in SIDES if pair % 2 else SIDES[::-1]:
            seconds = run(side)
            if pair >= warm_up:
                times[side].append(seconds)
    ratios = [k / s for s, k in zip(times["streamgroup"], times["kafka"], strict=True)]
    return {
        "case": name,
        "records": records,
        "streamgroup_per_s": records / statistics.median(times["streamgroup"]),
        "kafka_per_s": records / statistics.median(times["kafka"]),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
    }


def show(results: list[dict[str, object]], what: str, other: str) -> None:
    """Print the results as a table. `what` is done to the records; `other` names Spark's side."""
    table = Table(title=f"records/s {what}, local[2], {PARTITIONS} partitions, kernel: {kernel.name()}")
    for column in ("case", "records", "streamgroup", other, "ratio (median)", "min - max"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for r in results:
        ratios = r["ratios"]
        assert isinstance(ratios, list)
        table.add_row(
            str(r["case"]),
            f"{r['records']:,}",
            f"{r['streamgroup_per_s']:,.0f}",
            f"{r['kafka_per_s']:,.0f}",
            f"{r['ratio']:.2f}",
            f"{min(ratios):.2f} - {max(ratios):.2f}",
        )
    Console().print(table)
