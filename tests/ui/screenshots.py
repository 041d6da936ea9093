"""Writes pictures of the page, from simulated clusters: python -m tests.ui.screenshots [DIRECTORY]

Without a directory it writes those that the pages of docs/ show, into docs/pictures/.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from streamgroup.monitoring.page.server import Board
from tests.browser import Browser
from tests.ui import world
from tests.ui.served import served

DOCS = Path(__file__).parents[2] / "docs" / "pictures"
PHONE, LAPTOP, WIDE = (400, 800), (1366, 850), (3840, 2160)
DRAWN = "document.querySelector('main table tbody tr, main .empty:not([hidden])') !== null"


@dataclass(frozen=True, slots=True)
class Picture:
    name: str
    made: Callable[[float], world.SimulatedCluster]
    path: str
    size: tuple[int, int]
    dark: bool = False
    whole: bool = False
    in_docs: bool = False


PICTURES = (
    Picture("ui-groups", world.fifty, "#/groups", LAPTOP, in_docs=True),
    Picture("ui-group", world.one, "#/group/orders-ingest", LAPTOP, whole=True, in_docs=True),
    Picture("ui-group-phone-dark", world.one, "#/group/orders-ingest", PHONE, dark=True, in_docs=True),
    Picture("groups-phone", world.fifty, "#/groups", PHONE),
    Picture("ui-groups-wide-dark", world.fifty, "#/groups", WIDE, dark=True, in_docs=True),
    Picture("ui-groups-none", world.nothing, "#/groups", LAPTOP, in_docs=True),
    Picture("groups-none-phone-dark", world.nothing, "#/groups", PHONE, dark=True),
    Picture("ui-groups-one-dark", world.one, "#/groups", LAPTOP, dark=True, in_docs=True),
    Picture("group-dark", world.one, "#/group/orders-ingest", LAPTOP, dark=True, whole=True),
    Picture("group-phone", world.one, "#/group/orders-ingest", PHONE, whole=True),
    Picture("group-wide", world.one, "#/group/orders-ingest", WIDE, whole=True),
    Picture(
        "ui-group-rebalances", lambda until: world.one(until, (40, 139)), "#/group/orders-ingest", LAPTOP, in_docs=True
    ),
    Picture("group-500", world.wide, "#/group/clicks-etl", LAPTOP, whole=True),
    Picture("topics", world.fifty, "#/topics", LAPTOP),
    Picture("topic-phone-dark", world.fifty, "#/topic/orders", PHONE, dark=True),
    Picture("topic", world.fifty, "#/topic/orders", LAPTOP),
    Picture("cluster", world.one, "#/cluster", LAPTOP),
    Picture("cluster-phone", world.one, "#/cluster", PHONE),
)


def take(browser: Browser, picture: Picture, directory: Path) -> None:
    board = Board()
    for reading in picture.made(time.time()).readings():
        board.add(reading)
    with served(board) as url:
        browser.show(*picture.size, dark=picture.dark)
        browser.open(f"{url}/{picture.path}")
        browser.wait_for(DRAWN)
        browser.evaluate("new Promise(done => setTimeout(done, 300))")  # observers of sizes have drawn
        browser.screenshot(directory / f"{picture.name}.png", whole=picture.whole)
        assert browser.console == [], (picture.name, browser.console)
        wider = browser.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        print(f"{picture.name}: {directory / picture.name}.png" + (f", {wider} px too wide" if wider else ""))


def main() -> None:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS
    directory.mkdir(parents=True, exist_ok=True)
    with Browser() as browser:
        for picture in PICTURES:
            if picture.in_docs or directory != DOCS:
                take(browser, picture, directory)


if __name__ == "__main__":
    main()
