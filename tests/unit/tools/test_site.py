"""The site: its navigation is the index of the pages, and Sphinx builds it without a warning and without a network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.site.navigation import groups, toctrees

ROOT = Path(__file__).parents[3]
INDEX = (ROOT / "docs" / "README.md").read_text()


def test_every_page_has_one_place_in_the_navigation() -> None:
    pages = [page for group in groups(INDEX).values() for page in group]
    assert sorted(pages) == sorted(path.stem for path in (ROOT / "docs").glob("*.md") if path.name != "README.md")


def test_the_navigation_keeps_the_order_and_the_names_of_the_index() -> None:
    index = "## Do: how-to guides\n\n| move | after it |\n|---|---|\n| [a.md](a.md) | x |\n\n| page | b |\n|---|---|\n"
    index += (
        "| [b.md](b.md) | y |\n| [c.md](c.md) | z |\n\n## Learn: the tutorial\n\n| page | c |\n| [d.md](d.md) | u |"
    )
    assert groups(index) == {"move": ["a"], "how-to guides": ["b", "c"], "tutorial": ["d"]}
    assert list(groups(index)) == ["move", "how-to guides", "tutorial"]
    lines = "\n".join(toctrees(index)).splitlines()
    assert lines[lines.index(":caption: How-to guides") :][:4] == [":caption: How-to guides", "", "docs/b", "docs/c"]


@pytest.mark.slow
@pytest.mark.timeout(400)  # beside the tests with servers; alone it takes 30 s
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = f"-m sphinx -q -W -c tools/site -b html -d {tmp_path / 'cache'} . {tmp_path / 'site'}".split()
    built = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    site = tmp_path / "site"
    assert (site / "index.html").read_text() == (site / "README.html").read_text()
    for page in site.rglob("*.html"):
        text = page.read_text()
        loaded = re.findall(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=\"(?:https?:)?//[^\"]*\"", text)
        assert not loaded, f"{page.name} loads {loaded}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)[\"' ]*(?:https?:)?//", sheet.read_text()), sheet.name
