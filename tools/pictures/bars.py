"""Horizontal bars in groups: measured values side by side, from zero, with a note for each group."""

from __future__ import annotations

from dataclasses import dataclass

from tools.pictures.svg import Drawing, width_of

_MARGIN, _BAR, _GAP, _LONGEST_BAR = 20, 18, 16, 430
_COLOURS = ("edge", "warm", "soft")


@dataclass(frozen=True, slots=True)
class Group:
    """The values of one case, one for each series of the chart, and a note such as their ratio."""

    name: str
    values: tuple[float, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Bars:
    """A chart. `series` names the values of each group, `unit` what they count, `about` how they were measured."""

    title: str
    unit: str
    series: tuple[str, ...]
    groups: tuple[Group, ...]
    about: str = ""


def shown(value: float) -> str:
    """Return a value as a reader compares it: thousands apart, one decimal below a thousand."""
    return f"{value:,.0f}".replace(",", "\N{NO-BREAK SPACE}") if value >= 1000 else f"{value:.1f}".removesuffix(".0")


def draw(bars: Bars) -> str:
    """Return the chart as SVG. Raises ValueError where a group has not a value for each series."""
    if len(bars.series) > len(_COLOURS) or any(len(group.values) != len(bars.series) for group in bars.groups):
        raise ValueError(f"chart {bars.title!r}: each group has a value for each of {', '.join(bars.series)}")
    most = max(value for group in bars.groups for value in group.values)
    left = _MARGIN + max(width_of(group.name, 13) for group in bars.groups) + 14
    notes = max(width_of(group.note, 13) for group in bars.groups)
    width = left + _LONGEST_BAR + 92 + notes + _MARGIN
    tall = _BAR * len(bars.series)
    top = _MARGIN + 66
    height = top + (tall + _GAP) * len(bars.groups) + (22 if bars.about else 0) + _MARGIN - _GAP / 2
    drawing = Drawing(width, height, f"{bars.title}, {bars.unit}")
    drawing.text(_MARGIN, _MARGIN + 14, bars.title, 15, anchor="start", bold=True)
    _legend(drawing, bars)
    drawing.line([(left, top - 8), (left, top + (tall + _GAP) * len(bars.groups) - _GAP + 8)], "rule", 1.5)
    y = top
    for group in bars.groups:
        drawing.text(left - 12, y + tall / 2 + 4.5, group.name, 13, anchor="end")
        for index, value in enumerate(group.values):
            long, at = _LONGEST_BAR * value / most, y + _BAR * index
            drawing.box(left, at + 1, long, _BAR - 2, fill=_COLOURS[index], radius=2)
            drawing.text(left + long + 7, at + 13.5, shown(value), 12, anchor="start")
        drawing.text(width - _MARGIN, y + tall / 2 + 4.5, group.note, 13, anchor="end", bold=True)
        y += tall + _GAP
    drawing.text(_MARGIN, height - _MARGIN + 4, bars.about, 11.5, colour="soft", anchor="start")
    return drawing.render()


def _legend(drawing: Drawing, bars: Bars) -> None:
    x = float(_MARGIN)
    for index, name in enumerate(bars.series):
        drawing.box(x, _MARGIN + 30, 14, 14, fill=_COLOURS[index], radius=2)
        drawing.text(x + 20, _MARGIN + 42, name, 12.5, colour="soft", anchor="start")
        x += 40 + width_of(name, 12.5)
    drawing.text(x, _MARGIN + 42, bars.unit, 12.5, colour="soft", anchor="start")
