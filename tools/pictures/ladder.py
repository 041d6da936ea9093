"""Columns with arrows between them, row by row: state machines and sequences of messages.

Nothing has to be laid out by hand, and no arrow hides another one, however many a table has.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field

from tools.pictures.svg import Drawing, width_of

_SIZE, _LEADING = 12.5, 15
_MARGIN, _HEAD_HEIGHT, _HEAD_GAP = 20, 30, 16
_LONGEST = 62
"""Letters in a line of a label."""


@dataclass(frozen=True, slots=True)
class Arrow:
    """From one column to another, or a note at a column where both are the same."""

    source: int
    target: int
    label: str


@dataclass(frozen=True, slots=True)
class Band:
    """Rows that belong together, with a name in the margin."""

    name: str
    rows: tuple[Arrow, ...]


@dataclass(frozen=True, slots=True)
class Ladder:
    """`starts` maps a column to the reason to begin there, or ""; things end in the columns `ends`."""

    title: str
    columns: tuple[str, ...]
    bands: tuple[Band, ...]
    pitch: float = 106
    starts: dict[int, str] = field(default_factory=dict)
    ends: frozenset[int] = frozenset()


def _lines(label: str) -> list[str]:
    return textwrap.wrap(label, _LONGEST, break_long_words=False)


def _row_height(row: Arrow) -> float:
    return _LEADING * len(_lines(row.label)) + 15


def draw(ladder: Ladder) -> str:
    """Return the picture as SVG."""
    gutter = max((width_of(band.name, 12) for band in ladder.bands), default=0) + 24
    left = _MARGIN + gutter + ladder.pitch / 2
    width = left + ladder.pitch * (len(ladder.columns) - 0.5) + _MARGIN
    top = _MARGIN + (34 if ladder.starts else 0)
    body = top + _HEAD_HEIGHT + _HEAD_GAP
    height = body + sum(sum(map(_row_height, band.rows)) + 14 for band in ladder.bands) + _MARGIN
    drawing = Drawing(width, height, ladder.title)
    at = [left + ladder.pitch * index for index in range(len(ladder.columns))]

    y: float = body
    for index, band in enumerate(ladder.bands):
        tall = sum(map(_row_height, band.rows)) + 14
        if index % 2 == 0:
            drawing.box(_MARGIN, y, width - 2 * _MARGIN, tall, fill="band")
        drawing.text(_MARGIN + 12, y + tall / 2 + 4, band.name, 12, colour="soft", anchor="start", bold=True)
        y += tall
    _heads(drawing, ladder, at, top, height - _MARGIN)
    y = body
    for index, band in enumerate(ladder.bands):
        y += 7
        for row in band.rows:
            _row(drawing, row, at, y, width=width, ground="page" if index % 2 else "band")
            y += _row_height(row)
        y += 7
    return drawing.render()


def _heads(drawing: Drawing, ladder: Ladder, at: list[float], top: float, bottom: float) -> None:
    for index, (x, name) in enumerate(zip(at, ladder.columns, strict=True)):
        drawing.line([(x, top + _HEAD_HEIGHT), (x, bottom)], dash="3 4")
        wide = min(ladder.pitch - 8, max(76, width_of(name, 12.5) + 20))
        drawing.box(x - wide / 2, top, wide, _HEAD_HEIGHT, fill="box", line="edge")
        if index in ladder.ends:
            drawing.box(x - wide / 2 - 3, top - 3, wide + 6, _HEAD_HEIGHT + 6, line="edge", radius=8)
        drawing.text(x, top + 20, name, 12.5, bold=True)
        if index in ladder.starts:
            drawing.dot(x, top - 28, 5, "ink")
            drawing.arrow([(x, top - 28), (x, top - 1)], "ink")
            drawing.text(x + 10, top - 14, ladder.starts[index], 12, colour="soft", anchor="start")


def _row(drawing: Drawing, row: Arrow, at: list[float], y: float, *, width: float, ground: str) -> None:
    lines = _lines(row.label)
    line_y = y + _LEADING * len(lines) + 5
    source, target = at[row.source], at[row.target]
    if row.source == row.target:
        wide = max(width_of(line, _SIZE) for line in lines) + 18
        x = min(max(source, at[0] - 40 + wide / 2), width - _MARGIN - wide / 2)
        drawing.box(x - wide / 2, y + 3, wide, _LEADING * len(lines) + 7, fill="page", line="rule", radius=4)
    else:
        drawing.dot(source, line_y, 3.5)
        drawing.arrow([(source, line_y), (target, line_y)])
        half = max(width_of(line, _SIZE) for line in lines) / 2
        x = min(max((source + target) / 2, at[0] - 40 + half), width - _MARGIN - 6 - half)
    for index, line in enumerate(lines):
        down = 17.5 if row.source == row.target else 12
        drawing.text(x, y + down + _LEADING * index, line, _SIZE, on="page" if row.source == row.target else ground)
