"""The processes and threads of a query: who calls whom."""

from __future__ import annotations

from dataclasses import dataclass

from tools.pictures.svg import Drawing

_WIDE, _TALL, _PITCH, _TOP, _MARGIN = 146, 46, 92, 74, 22
_COLUMNS = (_MARGIN + 12, 306, 516, 700, 1012)
"""The left edges of: callers, threads that serve them, the run, threads that carry out, servers."""


@dataclass(frozen=True, slots=True)
class Box:
    """A process or thread in a column of the picture; rows may be fractions."""

    column: int
    row: float
    name: str
    about: str

    @property
    def x(self) -> float:
        return _COLUMNS[self.column]

    @property
    def y(self) -> float:
        return _TOP + self.row * _PITCH

    def at(self, side: int, shift: float = 0) -> tuple[float, float]:
        """A point in the middle of the left (0) or right (1) side, `shift` pixels lower."""
        return self.x + side * _WIDE, self.y + _TALL / 2 + shift


_SPARK = Box(0, 0, "micro-batch thread", "Spark's driver, the JVM")
_LISTENER = Box(0, 1, "listener", "the application")
_DRAIN = Box(0, 2, "drain(query), ranges()", "the application")
_SHELL = Box(0, 3, "streamgroup drain", "a shell; also pause, groups, ui")
_MAIN = Box(1, 0, "main", "serves Spark's calls")
_CONTROL = Box(1, 2, "streamgroup-control", "Unix socket")
_PARENT = Box(1, 3.25, "streamgroup-parent", "watches the JVM")
_GROUP = Box(3, 0, "streamgroup-group", "or")
_REGISTRY = Box(3, 1, "streamgroup-registry", "for groups in ZooKeeper")
_LOGS = Box(3, 2.8, "streamgroup-logs", "one question at a time")
_COORDINATOR = Box(4, 0, "coordinator", "the group's broker")
_ZOOKEEPER = Box(4, 1, "ZooKeeper", "brokers, old groups")
_LEADERS = Box(4, 2.8, "leaders", "brokers")
_BOXES = (
    _SPARK, _LISTENER, _DRAIN, _SHELL, _MAIN, _CONTROL, _PARENT, _GROUP, _REGISTRY, _LOGS, _COORDINATOR, _ZOOKEEPER,
    _LEADERS,
)  # fmt: skip
_CALLS = (
    (_SPARK, _MAIN, "latestOffset, partitions"),
    (_LISTENER, _CONTROL, "sunk"),
    (_DRAIN, _CONTROL, "drain, ranges"),
    (_SHELL, _CONTROL, "drain, pause, status"),
    (_GROUP, _COORDINATOR, "joins, heartbeats, commits"),
    (_REGISTRY, _ZOOKEEPER, "ids, owners, offsets"),
    (_LOGS, _ZOOKEEPER, "brokers, topics"),
    (_LOGS, _LEADERS, "Metadata, ListOffsets"),
)


def threads() -> str:
    """Return the picture as SVG."""
    width, height = _COLUMNS[4] + _WIDE + _MARGIN + 12, _TOP + 4.3 * _PITCH
    drawing = Drawing(width, height, "The processes and threads of a query, and who calls whom")
    left, right = _COLUMNS[1] - 20, _COLUMNS[3] + _WIDE + 20
    drawing.box(left, _MARGIN, right - left, height - 2 * _MARGIN, fill="band", line="rule")
    drawing.text(
        (left + right) / 2,
        _MARGIN + 22,
        "coordinator process: one for each run of a query",
        13,
        colour="soft",
        bold=True,
    )
    run_y, run_tall = _TOP - 4, height - _TOP - _MARGIN - 16
    for index, (source, target, label) in enumerate(_CALLS):
        shift = (index - 2) * 13 if target is _CONTROL else 0
        begin, end = source.at(1), target.at(0, shift)
        drawing.arrow([begin, end])
        drawing.text((begin[0] + end[0]) / 2, (begin[1] + end[1]) / 2 - 7, label, 12, on="page")
    for box in (_MAIN, _CONTROL, _PARENT, _GROUP, _REGISTRY, _LOGS):
        side = 1 if box.column == 1 else 0
        edge = _COLUMNS[2] + (1 - side) * 120
        drawing.arrow([box.at(side), (edge, box.at(side)[1])], "warm")
    for box in _BOXES:
        inside = box.column in {1, 3}
        drawing.box(box.x, box.y, _WIDE, _TALL, fill="box" if inside else "page", line="edge" if inside else "rule")
        drawing.text(box.x + _WIDE / 2, box.y + 20, box.name, 12.5, bold=True)
        drawing.text(box.x + _WIDE / 2, box.y + 36, box.about, 11.5, colour="soft")
    drawing.box(_COLUMNS[2], run_y, 120, run_tall, fill="pure", line="rule")
    for line, text in enumerate(("the run", "behind its inbox,", "under one lock:", "events in,", "actions out")):
        drawing.text(_COLUMNS[2] + 60, run_y + run_tall / 2 - 28 + 18 * line, text, 12.5, bold=line == 0)
    return drawing.render()
