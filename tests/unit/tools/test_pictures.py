"""The pictures of the pages are those that the code draws today, and each is shown where a reader meets it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from streamgroup.coordinator.run.lifecycle import TABLE as RUN
from streamgroup.group.membership import Membership
from tools.pictures import rooms
from tools.pictures.gallery import DIRECTORY, PICTURES
from tools.pictures.ladder import Arrow, Band, Ladder, draw
from tools.pictures.svg import PALETTE

DOCS = Path(__file__).parents[3] / "docs"
TEXT = "{http://www.w3.org/2000/svg}text"


def texts(svg: str) -> list[str]:
    return [str(element.text) for element in ET.fromstring(svg).iter(TEXT)]


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


def test_a_ladder_keeps_all_words_of_a_long_label() -> None:
    label = " ".join(f"word{index}" for index in range(40))
    svg = draw(Ladder("t", ("a", "b"), (Band("band", (Arrow(0, 1, label), Arrow(1, 1, "a note"))),)))
    assert " ".join(texts(svg)) == f"band a b {label} a note"


def test_texts_are_escaped() -> None:
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
