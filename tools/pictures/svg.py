"""A drawing of rectangles, lines and texts as SVG. It is readable on a light and on a dark page."""

from __future__ import annotations

from html import escape

FONT = "Helvetica, Arial, 'DejaVu Sans', sans-serif"
_NARROW, _WIDE = frozenset("fijlrt.,:;'|!()[] -"), frozenset("mwMW@%")
_NARROW_EM, _WIDE_EM, _CAPITAL_EM, _OTHER_EM = 0.32, 0.88, 0.70, 0.56

PALETTE = {
    "page": ("#ffffff", "#10151f"),
    "ink": ("#1b2430", "#e6eaf0"),
    "soft": ("#55606e", "#a5afbd"),
    "rule": ("#c3cbd6", "#3c4758"),
    "band": ("#f2f5f9", "#1a2230"),
    "box": ("#e3ecfb", "#1f3354"),
    "pure": ("#dcf1e4", "#1a3f2c"),
    "edge": ("#2a5db0", "#8ab4f8"),
    "warm": ("#d9822b", "#f0a860"),
}
"""Each colour on a light page and on a dark one."""


def width_of(text: str, size: float) -> float:
    """Return roughly how wide `text` is; a reader's font may differ by some percent."""

    def em(letter: str) -> float:
        if letter in _NARROW:
            return _NARROW_EM
        if letter in _WIDE:
            return _WIDE_EM
        return _CAPITAL_EM if letter.isupper() else _OTHER_EM

    return size * sum(map(em, text))


def _style() -> str:
    def colours(which: int) -> str:
        rules = []
        for name, shades in PALETTE.items():
            shade = shades[which]
            rules.append(f".fill-{name}{{fill:{shade}}}.line-{name}{{stroke:{shade}}}")
        halos = [f".on-{name}{{stroke:{PALETTE[name][which]}}}" for name in ("page", "band")]
        return "".join(rules + halos)

    shapes = f"text{{font-family:{FONT};stroke-width:4px;paint-order:stroke;stroke-linejoin:round}}"
    shapes += ".none{fill:none}.bold{font-weight:bold}"
    return f"{shapes}{colours(0)}@media (prefers-color-scheme: dark){{{colours(1)}}}"


def number(value: float) -> str:
    """Return a coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


class Drawing:
    """Elements in the order in which they are added: later ones lie above."""

    def __init__(self, width: float, height: float, title: str) -> None:
        """`title` is read to those who do not see the picture. Sizes are pixels."""
        self.width, self.height, self.title = width, height, title
        self._elements: list[str] = []

    def box(
        self, x: float, y: float, width: float, height: float, *, fill: str = "", line: str = "", radius: float = 6
    ) -> None:
        """Add a rectangle with its upper left corner at x, y, filled, with an edge, or both."""
        kinds = f"{f'fill-{fill}' if fill else 'none'}{f' line-{line}' if line else ''}"
        where = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
        self._elements.append(f'<rect {where} rx="{number(radius)}" class="{kinds}"/>')

    def line(self, points: list[tuple[float, float]], colour: str = "rule", width: float = 1, dash: str = "") -> None:
        """Add a line through `points`."""
        path = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self._elements.append(
            f'<polyline points="{path}" fill="none" class="line-{colour}" stroke-width="{number(width)}"{dashes}/>'
        )

    def arrow(self, points: list[tuple[float, float]], colour: str = "edge", width: float = 1.6) -> None:
        """Add a line through `points` with a head at the last one."""
        (x0, y0), (x1, y1) = points[-2:]
        length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
        dx, dy = (x1 - x0) / length, (y1 - y0) / length
        base = (x1 - 8 * dx, y1 - 8 * dy)
        self.line([*points[:-1], base], colour, width)
        corners = [(x1, y1), (base[0] - 4 * dy, base[1] + 4 * dx), (base[0] + 4 * dy, base[1] - 4 * dx)]
        head = " ".join(f"{number(x)},{number(y)}" for x, y in corners)
        self._elements.append(f'<polygon points="{head}" class="fill-{colour}"/>')

    def dot(self, x: float, y: float, radius: float, colour: str = "edge") -> None:
        """Add a filled circle."""
        self._elements.append(f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" class="fill-{colour}"/>')

    def text(
        self, x: float, y: float, text: str, size: float = 13, *, colour: str = "ink", anchor: str = "middle",
        bold: bool = False, on: str = "",
    ) -> None:  # fmt: skip
        """Add one line of text with its baseline at y. With `on` it has a halo of that colour, above lines."""
        kinds = f"fill-{colour}{f' on-{on}' if on else ''}{' bold' if bold else ''}"
        where = f'x="{number(x)}" y="{number(y)}" font-size="{number(size)}" text-anchor="{anchor}"'
        self._elements.append(f'<text {where} class="{kinds}">{escape(text, quote=False)}</text>')

    def slanted(self, x: float, y: float, text: str, size: float = 13, bold: bool = False) -> None:
        """Add a text that begins at x, y and rises to the right."""
        kinds = f"fill-ink{' bold' if bold else ''}"
        turn = f'transform="rotate(-50 {number(x)} {number(y)})"'
        where = f'x="{number(x)}" y="{number(y)}" font-size="{number(size)}" {turn}'
        self._elements.append(f'<text {where} class="{kinds}">{escape(text, quote=False)}</text>')

    def render(self) -> str:
        """Return the SVG, a line for each element, so that a change shows in a diff."""
        size = f'width="{number(self.width)}" height="{number(self.height)}"'
        view = f'viewBox="0 0 {number(self.width)} {number(self.height)}"'
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view} role="img">',
            f"<title>{escape(self.title, quote=False)}</title>",
            f"<style>{_style()}</style>",
            '<rect width="100%" height="100%" rx="8" class="fill-page"/>',
            *self._elements,
            "</svg>\n",
        ])  # fmt: skip
