"""The demo as a picture of a terminal, from its recorded output.

`python -m tools.pictures.terminal` runs the demo (about a minute; it needs Java) and records it anew.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

RECORD = Path(__file__).with_name("demo.ansi")
_COLUMNS = 104
_STYLES = re.compile(r"\x1b\[[0-9;]*m")
_STEP = re.compile(r"(\d)\. ")
_BATCH = re.compile(r"   (\w) \| batch \d+: ")
_FIRST_STEP, _LAST_STEP = 3, 4
"""The steps that are shown: a second member joins, and leaves again."""
_SVG = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>The output of make demo: two jobs share a group, one leaves, and every record has arrived exactly once</title>
<style>
.{unique_id}-matrix {{ font-family: Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: {char_height}px;
line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: Helvetica, Arial, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""The frame of the picture: rich's own loads a font from elsewhere."""


def excerpt(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of two steps and of the result. A line `⋮` stands for left out batches, steps and logs."""
    step, left_out, batches = 0, False, 0
    for line in lines:
        plain = _STYLES.sub("", line)
        if (begun := _STEP.match(plain)) is not None:
            step, batches = int(begun[1]), 0
        step = sys.maxsize if " result " in plain else step
        batches += bool(_BATCH.match(plain))
        shown = (_FIRST_STEP <= step <= _LAST_STEP or step == sys.maxsize) and not (_BATCH.match(plain) and batches > 2)
        if shown and plain.strip() and not plain.startswith("Files and logs"):
            yield from ("   \N{VERTICAL ELLIPSIS}",) if left_out else ()
            yield line
        left_out = not shown or (left_out and not plain.strip())


def demo() -> str:
    """Return the recorded demo as SVG."""
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in RECORD.read_text().splitlines():
        console.print(Text.from_ansi(line))
    svg = console.export_svg(title="make demo", code_format=_SVG, unique_id="demo")
    return "\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n"


def record() -> None:
    """Run the demo, and keep what the picture shows. Raises CalledProcessError if the demo fails."""
    command = [str(Path(sys.executable).with_name("streamgroup")), "demo"]
    environment = os.environ | {"FORCE_COLOR": "1", "COLUMNS": str(_COLUMNS)}
    ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    RECORD.write_text("\n".join(excerpt(ran.stdout.splitlines())) + "\n")


if __name__ == "__main__":
    record()
