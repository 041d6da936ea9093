"""Patterns of topics that other consumers have registered, matched in bounded time.

Any client of ZooKeeper may register any pattern, and matching by backtracking may take exponential time: the pattern
`(a+)+b` takes seconds for 26 letters, and twice as long for each further letter. The number of ways to match is
therefore estimated first. A pattern with more than `WAYS_MOST` is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

import regex

from streamgroup.errors import DecodeError
from streamgroup.java_regex import compile_java

LENGTH_MOST = 1000
"""The longest pattern, in characters."""
WAYS_MOST = 2**24
"""This many ways take about half a second. Three `.*` against a topic name of 249 characters need fewer."""
_EXPONENT_MOST = 64

_PIECE = regex.compile(
    r"""(?P<escape> \\. )
      | (?P<set>    \[ (?: \\. | [^\[\]\\] | (?&set) )* \] )
      | (?P<open>   \( (?: \?: | \?<?[=!] )? (?! \? ) )
      | (?P<flag>   \(\?i\) )
      | (?P<close>  \) )
      | (?P<either> \| )
      | (?P<times>  (?: [*+?] | \{ (?!\}) (?P<least>[0-9]*) (?P<to>,?) (?P<most>[0-9]*) \} ) [?+]? )
      | (?P<plain>  [^\[\\(] )""",
    regex.VERBOSE | regex.DOTALL,
)


@lru_cache(maxsize=8192)
def matches(raw: str, topic: str) -> bool:
    """Return whether the pattern matches the topic. Raises DecodeError for a pattern that is invalid or too slow."""
    pattern = _compiled(raw)
    if ways(pattern.pattern, len(topic)) > WAYS_MOST:
        raise _useless(raw, f"there are too many ways to match it with the {len(topic)} characters of a topic")
    return pattern.fullmatch(topic) is not None


def _compiled(raw: str) -> regex.Pattern[str]:
    """Compile a pattern as `TopicFilter` reads it.

    A comma is an `or`. Blanks are ignored, as are quotes around the pattern, which come from property files.
    """
    if len(raw) > LENGTH_MOST:
        raise _useless(raw, f"it is longer than {LENGTH_MOST} characters")
    text = re.sub("^[\"']+|[\"']+$", "", raw.strip().replace(",", "|").replace(" ", ""))
    try:
        return compile_java(text)
    except ValueError as error:
        raise _useless(raw, str(error)) from None


def _useless(raw: str, reason: str) -> DecodeError:
    return DecodeError(f"the pattern {raw[:200]!r} cannot be used here: {reason}")


@dataclass(slots=True)
class _Group:
    """An expression in parentheses: the ways of the earlier branches, and of the pieces of this branch."""

    before: int = 0
    pieces: list[int] = field(default_factory=list)

    @property
    def branch(self) -> int:
        product = 1
        for piece in self.pieces:
            product = min(product * piece, WAYS_MOST + 1)
        return product

    @property
    def ways(self) -> int:
        return min(self.before + self.branch, WAYS_MOST + 1)


def ways(text: str, length: int) -> int:
    """Return an upper bound of the ways in which an expression of the package `regex` may match `length` characters.

    The ways of a sequence are the product of the ways of its pieces; for branches it is the sum. `WAYS_MOST + 1` stands
    for any larger number, and for expressions that are not analyzed: comments, conditions, verbose expressions.
    """
    groups, at = [_Group()], 0
    while at < len(text):
        found = _PIECE.match(text, at)
        if found is None:
            return WAYS_MOST + 1
        at = found.end()
        group = groups[-1]
        match found.lastgroup:
            case "open":
                groups.append(_Group())
            case "close":
                groups.pop()
                groups[-1].pieces.append(group.ways)
            case "either":
                groups[-1] = _Group(group.before + group.branch)
            case "times":
                group.pieces.append(_repeated(group.pieces.pop() if group.pieces else 1, found, length))
            case _:
                group.pieces.append(1)
    return groups[0].ways


def _repeated(piece: int, times: regex.Match[str], length: int) -> int:
    """Return the ways of a repetition: the number of counts if the piece has one way, else of all repetitions."""
    least, most = _bounds(times, length)
    if piece == 1:
        return max(min(most, length) + 1, least)
    all_ways: int = (piece + 1) ** min(most, max(length, least), _EXPONENT_MOST)
    return min(all_ways, WAYS_MOST + 1)


def _bounds(times: regex.Match[str], length: int) -> tuple[int, int]:
    """Return the least and the largest number of repetitions, at most `length`, since empty repetitions end."""
    sign = times["times"][0]
    if sign != "{":
        return int(sign == "+"), 1 if sign == "?" else length
    least = int(times["least"] or 0)
    if not times["to"]:
        return least, least
    return least, int(times["most"]) if times["most"] else length
