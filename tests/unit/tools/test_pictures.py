"""The pictures of the pages are those that the code draws today, and each is shown where a reader meets it."""

from __future__ import annotations

import re
import statistics
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks import charts
from benchmarks.charts import RESULTS, pairs_chart, record, recorded, rounds_chart
from streamgroup.coordinator.run.lifecycle import TABLE as RUN
from streamgroup.group.membership import Membership
from tools.pictures import rooms
from tools.pictures.bars import Bars, Group, shown
from tools.pictures.bars import draw as draw_bars
from tools.pictures.gallery import DIRECTORY, PICTURES
from tools.pictures.ladder import Arrow, Band, Ladder, draw
from tools.pictures.svg import PALETTE
from tools.pictures.terminal import DEMO, DEMO_SQL, Recording, excerpt, picture

DOCS = Path(__file__).parents[3] / "docs"
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [str(element.text) for element in ET.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_the_one_that_the_code_draws(name: str) -> None:
    assert (DIRECTORY / f"{name}.svg").read_text() == PICTURES[name](), "run `make pictures`, and look at it"


def test_every_picture_is_drawn_and_shown_on_a_page() -> None:
    pages = [*DOCS.glob("*.md"), DOCS.parent / "README.md"]
    shown = {name for page in pages for name in re.findall(r"pictures/([\w-]+)\.svg", page.read_text())}
    assert {path.stem for path in DIRECTORY.glob("*.svg")} == shown == set(PICTURES)


@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*.svg")), ids=lambda path: path.stem)
def test_a_picture_loads_nothing_from_elsewhere(path: Path) -> None:
    addresses = set(re.findall(r"https?://[^\"' )<]*", path.read_text()))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "<script" not in path.read_text()


def test_a_picture_has_colours_for_light_and_dark_pages() -> None:
    svg = PICTURES["run"]()
    light, dark = svg.split("@media (prefers-color-scheme: dark)")
    for name, (on_light, on_dark) in PALETTE.items():
        assert f".fill-{name}{{fill:{on_light}}}" in light
        assert f".fill-{name}{{fill:{on_dark}}}" in dark


# --- what is drawn ---------------------------------------------------------------------------------------------------


def test_the_picture_of_a_run_has_an_arrow_for_each_change_of_state() -> None:
    svg = PICTURES["run"]()
    changes = {(row.state, row.to) for row in RUN.rows if row.state is not row.to}
    assert svg.count("<polygon") == len(changes) + len(RUN.starts)


def test_the_picture_of_a_member_has_an_arrow_for_each_change_of_state() -> None:
    changes = {(row.state, to) for row in Membership.TABLE.values() for to in row.to if to is not row.state}
    assert PICTURES["member"]().count("<polygon") == len(changes) + 1


def test_a_ladder_keeps_all_words_of_a_long_label_and_escapes_them() -> None:
    label = " ".join(f"word{index}" for index in range(40))
    svg = draw(Ladder("t", ("a", "b"), (Band("band", (Arrow(0, 1, label), Arrow(1, 1, "a note"))),)))
    assert " ".join(texts(svg)) == f"band a b {label} a note"
    svg = draw(Ladder("a < b", ("<a>", "b & c"), (Band("", (Arrow(0, 1, "x < y"),)),)))
    assert {"<a>", "b & c", "x < y"} <= set(texts(svg))


@pytest.mark.slow
def test_the_layers_hold_every_room_once_above_what_it_imports() -> None:
    layers = rooms.layers()
    assert sorted(room for layer in layers for room in layer) == sorted(rooms.rooms())
    level = {room: index for index, layer in enumerate(layers) for room in layer}
    assert all(level[source] > level[target] for source, target in rooms.imports())


@pytest.mark.slow
def test_no_room_imports_what_a_contract_forbids_but_for_the_exceptions_of_the_contract() -> None:
    excepted = {
        tuple(rooms.room_of(module.strip()) for module in exception.split("->"))
        for contract in rooms.contracts()
        for exception in contract.get("ignore_imports", ())
        if exception.count("streamgroup.") == 2  # others are of packages outside, which no room is
    }
    assert rooms.imports() & rooms.forbidden() <= excepted


def test_the_pure_rooms_are_those_that_no_contract_lets_touch_a_socket_or_clock() -> None:
    pure = {"options", "group", "coordinator.planning", "coordinator.run", "spark.parsing"}
    assert pure | {"kafka.wire", "kafka.records", "kafka.producer"} <= rooms.pure()
    assert not rooms.pure() & {"kafka.net", "kafka.cluster", "coordinator", "executor", "spark", "cli", "zookeeper"}


# --- charts of benchmarks ---------------------------------------------------------------------------------------------

RATES = {"streamgroup_per_s": 3e6, "kafka_per_s": 1e6, "ratio": 3.0, "ratios": [2.5, 4]}
RESULT = {"case": "100 B", "records": 10, **RATES}
RECORDED = {
    "batch_read": "performance.md",
    "batch_write": "performance-writing.md",
    "micro_batch_read": "performance.md",
    "micro_batch_write": "performance-writing.md",
}
"""The page of each file of results."""


def bars(svg: str) -> list[float]:
    """The lengths of the bars from top to bottom; those of the legend are left out."""
    boxes = [box for box in ET.fromstring(svg).iter(f"{SVG}rect") if box.get("height") == "16"]
    return [float(box.get("width", 0)) for box in boxes]


def test_bars_are_as_long_as_their_values_from_zero() -> None:
    svg = draw_bars(Bars("t", "u", ("a", "b"), (Group("x", (100, 50)), Group("y", (25, 0)))))
    assert bars(svg) == [430, 215, 107.5, 0]


def test_a_chart_shows_names_values_notes_and_how_they_were_measured() -> None:
    svg = draw_bars(Bars("title", "unit", ("a", "b"), (Group("case", (1234567, 12.34), "note"),), "machine"))
    assert set(texts(svg)) == {"title", "unit", "a", "b", "case", "1\xa0234\xa0567", "12.3", "note", "machine"}


def test_a_group_that_lacks_a_value_is_refused() -> None:
    with pytest.raises(ValueError, match="chart 't': each group has a value for each of a, b"):
        draw_bars(Bars("t", "u", ("a", "b"), (Group("x", (1,)),)))


@pytest.mark.parametrize(("value", "text"), [(999.94, "999.9"), (35.0, "35"), (1000, "1\xa0000"), (2.04, "2")])
def test_values_are_shown_as_readers_compare_them(value: float, text: str) -> None:
    assert shown(value) == text


def test_pairs_are_drawn_with_their_ratio_and_its_spread() -> None:
    svg = pairs_chart([RESULT], "A read", "Spark's connector")
    assert "3.00  (2.50 - 4.00)" in texts(svg)
    ours, theirs = bars(svg)
    assert ours == pytest.approx(3 * theirs, rel=0.01)


def test_rounds_are_drawn_by_their_medians() -> None:
    kafka, ours = [{"addBatch": ms} for ms in (10.0, 30.0, 20.0)], [{"addBatch": 40.0}]
    rounds = {"kafka": kafka, "streamgroup": ours}
    svg = rounds_chart(rounds, "A batch", "Spark's sink")
    assert bars(svg) == [215, 430]
    assert {"Spark's sink", "streamgroup", "20", "40"} <= set(texts(svg))


def test_every_file_of_results_is_tested() -> None:
    assert {path.stem for path in RESULTS.iterdir()} == RECORDED.keys()


@pytest.mark.parametrize(("name", "page"), RECORDED.items())
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


# --- the demo in a terminal ------------------------------------------------------------------------------------------

RECORDING = """
1. starting Kafka
   brokers at 127.0.0.1:1
3. \x1b[1mspark-submit\x1b[0m --member b
   a | batch 3: 1 rows
   a | batch 4: 1 rows
   a | batch 5: 1 rows

   b | joined
4. SIGTERM to b
   a | batch 9: 1 rows
5. the producer stops
   a | batch 10: 1 rows
---- result ----
every record arrived exactly once

Files and logs are in /tmp/x
"""


def test_two_steps_and_the_result_are_shown_and_what_is_left_out_is_marked() -> None:
    left_out = "   \N{VERTICAL ELLIPSIS}"
    assert list(excerpt(RECORDING.splitlines(), (3, 4))) == [
        left_out,
        "3. \x1b[1mspark-submit\x1b[0m --member b",
        "   a | batch 3: 1 rows",
        "   a | batch 4: 1 rows",
        left_out,
        "   b | joined",
        "4. SIGTERM to b",
        "   a | batch 9: 1 rows",
        left_out,
        "---- result ----",
        "every record arrived exactly once",
    ]


@pytest.mark.parametrize("recording", [DEMO, DEMO_SQL], ids=lambda recording: recording.name)
def test_the_recording_is_of_a_demo_that_succeeded(recording: Recording) -> None:
    assert recording.file.read_text().splitlines()[-1].endswith("every record arrived exactly once\x1b[0m")
    svg = picture(recording)
    assert f"<title>The output of {recording.command}: " in svg
    assert "every&#160;record&#160;arrived&#160;exactly&#160;once" in svg
    assert "@font-face" not in svg
