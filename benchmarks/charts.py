"""Charts of the results of benchmarks, of a run (`--chart FILE.svg`) and of the recorded figures in `results/`.

A file of `results/` has JSON lines: first the command, the machine and the day, then the results.
"""

from __future__ import annotations

import json
import shlex
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from tools.pictures.bars import Bars, Group, draw

RESULTS = Path(__file__).parent / "results"
NAMES = {"streamgroup": "streamgroup", "nothing": "a Python sink that does nothing"}

chart_option: Callable[[Callable[..., None]], Callable[..., None]] = click.option(
    "--chart", type=click.Path(path_type=Path, dir_okay=False), help="Also draw the results into this SVG file."
)

record_option: Callable[[Callable[..., None]], Callable[..., None]] = click.option(
    "--record",
    metavar="MACHINE",
    help="Also keep the results in benchmarks/results/, with these words about the machine.",
)


def record(name: str, results: Sequence[Mapping[str, Any]], machine: str) -> None:
    """Write results into the file `name` of `results/`: rates as whole numbers, ratios with two digits."""
    arguments = sys.argv[1:]
    at = next(n for n, each in enumerate(arguments) if each.partition("=")[0] == "--record")
    del arguments[at : at + (1 if "=" in arguments[at] else 2)]
    now = datetime.now(UTC)
    header = {
        "command": shlex.join(["python", "-m", f"benchmarks.{name}", *arguments]),
        "machine": machine,
        "day": f"{now.day} {now:%B %Y}",
    }
    lines = [header, *({key: _rounded(key, value) for key, value in one.items()} for one in results)]
    (RESULTS / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def _rounded(key: str, value: Any) -> Any:
    if key.endswith("_per_s"):
        return round(value)
    match value:
        case float():
            return round(value, 2)
        case list():
            return [_rounded("", each) for each in value]
        case dict():
            return {name: _rounded(name, each) for name, each in value.items()}
    return value


def pairs_chart(results: Sequence[Mapping[str, Any]], title: str, other: str, about: str = "") -> str:
    """Draw the rates of `compare`: ours beside those of `other`, and the ratio with its spread."""
    groups = tuple(
        Group(
            str(one["case"]),
            (one["streamgroup_per_s"], one["kafka_per_s"]),
            f"{one['ratio']:.2f}  ({min(one['ratios']):.2f} - {max(one['ratios']):.2f})",
        )
        for one in results
    )
    return draw(Bars(title, "records per second; ratio (min - max)", (NAMES["streamgroup"], other), groups, about))


def rounds_chart(results: Mapping[str, Sequence[Mapping[str, float]]], title: str, other: str, about: str = "") -> str:
    """Draw the medians of `take_turns`: the milliseconds of each phase, for each format."""
    phases = list(next(iter(results.values()))[0])
    groups = tuple(
        Group(phase, tuple(statistics.median(run[phase] for run in runs) for runs in results.values()))
        for phase in phases
    )
    series = tuple(NAMES.get(name, other) for name in results)
    return draw(Bars(title, "milliseconds, median; less is better", series, groups, about))


def recorded(name: str) -> tuple[str, list[dict[str, Any]]]:
    """Return how the results of a file were measured, and the results."""
    header, *results = map(json.loads, (RESULTS / f"{name}.jsonl").read_text().splitlines())
    return f"{header['command']}, {header['machine']}, {header['day']}", results


def batch_read() -> str:
    """Return the chart of recorded batch reads."""
    about, results = recorded("batch_read")
    return pairs_chart(results, "A batch read, beside Spark's own connector", "Spark's connector", about)


def batch_write() -> str:
    """Return the chart of recorded batch writes."""
    about, results = recorded("batch_write")
    return pairs_chart(results, "A batch write, beside Spark's own sink", "Spark's sink", about)


def micro_batch_write() -> str:
    """Return the chart of recorded micro-batches of one row."""
    about, results = recorded("micro_batch_write")
    return rounds_chart(results[0], "A micro-batch that writes one row", "Spark's sink", about)


def micro_batch_read() -> str:
    """Return the chart of recorded micro-batches of one record."""
    about, results = recorded("micro_batch_read")
    return rounds_chart(results[0], "A micro-batch that reads one record", "Spark's source", about)
