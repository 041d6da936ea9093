"""The demos as pictures of a terminal, from their recorded output.

`python -m tools.pictures.terminal demo` runs a demo (about a minute; it needs Java) and records it again;
`demo-sql` is the other one.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

_COLUMNS = 104
_STYLES = re.compile(r"\x1b\[[0-9;]*m")
_STEP = re.compile(r"(\d)\. ")
_BATCH = re.compile(r"   (\w) \| batch \d+: ")


@dataclass(frozen=True, slots=True)
class Recording:
    """The recorded output of a demo. `command` is typed in the terminal, and `steps` are shown."""

    name: str
    arguments: tuple[str, ...]
    command: str
    about: str
    steps: tuple[int, ...]

    @property
    def file(self) -> Path:
        return Path(__file__).with_name(f"{self.name}.ansi")


DEMO = Recording(
    "demo",
    ("demo",),
    "make demo",
    "two jobs share a group, one leaves, and every record has arrived exactly once",
    steps=(3, 4),
)
DEMO_SQL = Recording(
    "demo-sql",
    ("demo", "--sql"),
    "streamgroup demo --sql",
    "one of two jobs is killed in a batch and starts again, and every record is in the table exactly once",
    steps=(4, 5),
)
_SVG = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>{about}</title>
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


def excerpt(lines: Iterable[str], steps: Iterable[int]) -> Iterator[str]:
    """Yield the lines of these steps and of the result. A line `⋮` stands for left out batches, steps and logs."""
    shown_steps = {*steps, sys.maxsize}
    step, left_out, batches = 0, False, 0
    for line in lines:
        plain = _STYLES.sub("", line)
        if (begun := _STEP.match(plain)) is not None:
            step, batches = int(begun[1]), 0
        step = sys.maxsize if " result " in plain else step
        batches += bool(_BATCH.match(plain))
        shown = step in shown_steps and not (_BATCH.match(plain) and batches > 2)
        if shown and plain.strip() and not plain.startswith("Files and logs"):
            yield from ("   \N{VERTICAL ELLIPSIS}",) if left_out else ()
            yield line
        left_out = not shown or (left_out and not plain.strip())


def picture(recording: Recording) -> str:
    """Return a recorded demo as SVG."""
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in recording.file.read_text().splitlines():
        console.print(Text.from_ansi(line))
    frame = _SVG.replace("{about}", f"The output of {recording.command}: {recording.about}")
    svg = console.export_svg(title=recording.command, code_format=frame, unique_id=recording.name)
    return "\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n"


def demo() -> str:
    return picture(DEMO)


def demo_sql() -> str:
    return picture(DEMO_SQL)


def record(recording: Recording) -> None:
    """Run the demo, and keep what the picture shows. Raises CalledProcessError if the demo fails."""
    command = [str(Path(sys.executable).with_name("streamgroup")), *recording.arguments]
    environment = os.environ | {"FORCE_COLOR": "1", "COLUMNS": str(_COLUMNS)}
    ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    recording.file.write_text("\n".join(excerpt(ran.stdout.splitlines(), recording.steps)) + "\n")


if __name__ == "__main__":
    record({one.name: one for one in (DEMO, DEMO_SQL)}[sys.argv[1]])
