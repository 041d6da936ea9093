"""Sphinx builds the site from the pages as they lie in the repository: `make site`.

The reasons for Sphinx are in pyproject.toml, beside the extra `docs`.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import streamgroup  # noqa: E402
from tools.site.navigation import PROJECT, toctrees  # noqa: E402

project = "streamgroup"
author = "the contributors of streamgroup"
version = release = streamgroup.__version__
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["README.md", "docs/*.md", *(f"{page}.md" for page in PROJECT)]
exclude_patterns = [".*", "build", "dist", "streamgroup", "tests", "benchmarks", "tools", "jobs", "**/__pycache__"]
nitpicky = True
myst_heading_anchors = 6  # GitHub makes an anchor of every heading, and the pages use them
html_theme = "furo"  # brings its fonts and scripts along: the site is readable without a network
html_title = f"streamgroup {version}"
html_static_path = [str(Path(__file__).parent / "static")]
html_css_files = ["site.css"]
html_show_sourcelink = html_copy_source = False
html_show_sphinx = html_show_copyright = False
highlight_language = "none"


def add_navigation(_app: Any, page: str, source: list[str]) -> None:
    """Let links show titles, and put the pages that docs/README.md lists into the sidebar."""
    source[0] = re.sub(r"\[[\w/.-]+\.md\]\((?=[\w/.-]+\.md)", "[](", source[0])  # MyST writes the page's title
    if page == root_doc:
        source[0] += "\n" + "\n".join(toctrees((ROOT / "docs" / "README.md").read_text()))


def add_front_doors(app: Any, failure: Exception | None) -> None:
    """Copy both READMEs to index.html, which a server and a browser look for in a directory."""
    if failure is None and app.builder.format == "html":
        for directory in (Path(app.outdir), Path(app.outdir) / "docs"):
            shutil.copyfile(directory / "README.html", directory / "index.html")


def setup(app: Any) -> None:
    """Register both with Sphinx."""
    app.connect("source-read", add_navigation)
    app.connect("build-finished", add_front_doors)
