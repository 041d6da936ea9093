"""The pictures of state machines on the pages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def check_picture(page: str, lines: Iterable[str]) -> None:
    """Fail unless the only picture on the page is drawn by these lines."""
    pictures = re.findall(r"```mermaid\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    drawn = "\n".join(lines) + "\n"
    assert pictures == [drawn], f"put this into {page}:\n{drawn}"
