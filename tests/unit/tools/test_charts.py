"""Charts of benchmarks: bars are as long as their values, and the recorded figures are those of the pages."""

from __future__ import annotations

import re
import statistics
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks import charts
from benchmarks.charts import RESULTS, pairs_chart, record, recorded, rounds_chart
from tools.pictures.bars import Bars, Group, draw, shown

DOCS = Path(__file__).parents[3] / "docs"
SVG = "{http://www.w3.org/2000/svg}"
RESULT = {
    "case": "100 B",
    "records": 10,
    "streamgroup_per_s": 3e6,
    "kafka_per_s": 1e6,
    "ratio": 3.0,
    "ratios": [2.5, 4],
}


def bars(svg: str) -> list[float]:
    """The lengths of the bars from top to bottom; those of the legend are left out."""
    boxes = [box for box in ET.fromstring(svg).iter(f"{SVG}rect") if box.get("height") == "16"]
    return [float(box.get("width", 0)) for box in boxes]


def texts(svg: str) -> list[str]:
    return [str(element.text) for element in ET.fromstring(svg).iter(f"{SVG}text")]


def test_bars_are_as_long_as_their_values_from_zero() -> None:
    svg = draw(Bars("t", "u", ("a", "b"), (Group("x", (100, 50)), Group("y", (25, 0)))))
    assert bars(svg) == [430, 215, 107.5, 0]


def test_a_chart_shows_names_values_notes_and_how_they_were_measured() -> None:
    svg = draw(Bars("title", "unit", ("a", "b"), (Group("case", (1234567, 12.34), "note"),), "machine"))
    assert set(texts(svg)) == {"title", "unit", "a", "b", "case", "1\xa0234\xa0567", "12.3", "note", "machine"}


def test_a_group_that_lacks_a_value_is_refused() -> None:
    with pytest.raises(ValueError, match="chart 't': each group has a value for each of a, b"):
        draw(Bars("t", "u", ("a", "b"), (Group("x", (1,)),)))


@pytest.mark.parametrize(("value", "text"), [(999.94, "999.9"), (35.0, "35"), (1000, "1\xa0000"), (2.04, "2")])
def test_values_are_shown_as_readers_compare_them(value: float, text: str) -> None:
    assert shown(value) == text


def test_pairs_are_drawn_with_their_ratio_and_its_spread() -> None:
    svg = pairs_chart([RESULT], "A read", "Spark's connector")
    assert "3.00  (2.50 - 4.00)" in texts(svg)
    ours, theirs = bars(svg)
    assert ours == pytest.approx(3 * theirs, rel=0.01)


def test_rounds_are_drawn_by_their_medians() -> None:
    rounds = {
        "kafka": [{"addBatch": 10.0}, {"addBatch": 30.0}, {"addBatch": 20.0}],
        "streamgroup": [{"addBatch": 40.0}],
    }
    svg = rounds_chart(rounds, "A batch", "Spark's sink")
    assert bars(svg) == [215, 430]
    assert {"Spark's sink", "streamgroup", "20", "40"} <= set(texts(svg))


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("batch_read", "performance.md"),
        ("batch_write", "performance-writing.md"),
        ("micro_batch_read", "performance.md"),
        ("micro_batch_write", "performance-writing.md"),
    ],
)
def test_the_recorded_figures_are_those_of_the_page(name: str, page: str) -> None:
    text = (DOCS / page).read_text()
    tables = {cell.strip("* ") for line in text.splitlines() if line.startswith("|") for cell in line.split("|")}
    about, results = recorded(name)
    assert re.match(r"python -m benchmarks\.\w+", about)
    assert about.partition(", ")[0] in text or about.partition(" --pairs")[0] in text
    for result in results:
        rates = [value for key, value in result.items() if key.endswith("_per_s")]
        rounds = [runs for runs in result.values() if isinstance(runs, list) and isinstance(runs[0], dict)]
        medians = [statistics.median(run[phase] for run in runs) for runs in rounds for phase in runs[0]]
        cells = {f"{rate:,}".replace(",", " ") for rate in rates} | {f"{value:.1f}" for value in medians}
        assert cells <= tables
        assert cells


@pytest.mark.parametrize("option", [["--record", "two cores"], ["--record=two cores"]], ids=["two words", "one"])
def test_a_benchmark_keeps_its_results_with_the_command_that_gives_them(
    option: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["batch_read.py", "--pairs", "5", *option, "--tls"])
    result = {"case": "100 B", "records": 10, "streamgroup_per_s": 3.7, "kafka_per_s": 2.0, "ratios": [1.234, 2.0]}
    record("batch_read", [result, {"kafka": [{"addBatch": 1.255}]}], "two cores")
    about, kept = recorded("batch_read")
    assert about.startswith("python -m benchmarks.batch_read --pairs 5 --tls, two cores, ")
    rates = {"streamgroup_per_s": 4, "kafka_per_s": 2, "ratios": [1.23, 2.0]}
    assert kept == [{"case": "100 B", "records": 10, **rates}, {"kafka": [{"addBatch": 1.25}]}]


def test_every_file_of_results_is_tested() -> None:
    assert {path.stem for path in RESULTS.iterdir()} == {
        "batch_read",
        "batch_write",
        "micro_batch_read",
        "micro_batch_write",
    }
