"""Translates Java's regular expressions (`java.util.regex.Pattern` of Java 17) for the Python package `regex`.

Both have possessive quantifiers, atomic groups, Unicode properties and sets within sets. Some of these are written
differently, and the same text may have another meaning: `[a--b]` is a difference of sets in `regex` and a range in
Java. An expression is therefore parsed by Java's grammar and translated. Parts that `regex` cannot express with the
same meaning raise ValueError: the flags `x` and `U`, the boundaries `\\b{g}` and `\\G`, characters by name, a reference
to a group that is not before it, and properties of upper and lower case together with the flag `i`. Java 17 finds
letters outside ASCII at `\\b`, this translation does not.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NoReturn

import regex

LENGTH_MOST = 10_000
"""The longest expression, in characters."""
SIZE_MOST = 100_000
"""The most pieces, where a piece that is repeated at least n times counts n times: `regex` copies it as often."""
SEARCH_TIMEOUT_S = 0.25
"""Seconds of CPU time that a search in one name may take. Most take microseconds, but the time of some expressions
doubles with each character of a name, and other users choose the names of topics."""

_FLAGS = regex.VERSION1 | regex.ASCII
_KEPT_FLAGS = frozenset("ims")
_DROPPED_FLAGS = frozenset("du")
"""Flags that change the meaning for line ends other than a line feed, and for letters outside ASCII."""

_CLASSES = {
    "d": "0-9",
    "w": "a-zA-Z0-9_",
    "s": r" \t\n\x0b\f\r",
    "h": r" \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000",
    "v": r"\n\x0b\f\r\x85\u2028\u2029",
}
"""The predefined classes. A capital letter is the complement."""
_POSIX = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-\x7e",
    "Graph": r"!-\x7e",
    "Print": r" -\x7e",
    "Blank": r" \t",
    "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": _CLASSES["s"],
    "javaLowerCase": r"\p{Lowercase}",
    "javaUpperCase": r"\p{Uppercase}",
    "LC": r"\p{Lu}\p{Ll}\p{Lt}",
    "L1": r"\x00-\xff",
    "LD": r"\p{L}\p{Nd}",
    "all": r"\x00-\U0010ffff",
}
_OF_CASE = frozenset({"Lu", "Ll", "Lt", "Uppercase", "Lowercase", "Titlecase", "javaLowerCase", "javaUpperCase"})
"""Properties that the flag `i` widens in Java, and not in `regex`."""
_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_PROPERTY_KEYS = {
    "sc": "Script",
    "script": "Script",
    "blk": "Block",
    "block": "Block",
    "gc": "General_Category",
    "general_category": "General_Category",
}
_BOUNDARIES = {"b": r"\b", "B": r"\B", "A": r"\A", "Z": r"\Z", "z": r"\Z"}


@lru_cache(maxsize=1024)
def compile_java(text: str) -> regex.Pattern[str]:
    """Compile an expression in Java's syntax. Raises ValueError with the cause and its position in the expression."""
    if len(text) > LENGTH_MOST:
        raise ValueError(f"the expression is longer than {LENGTH_MOST} characters")
    try:
        return regex.compile(_Translation(text).whole(), _FLAGS)
    except regex.error as error:
        raise ValueError(str(error)) from None
    except (RecursionError, OverflowError, MemoryError):
        raise ValueError("the expression is too large or too deeply nested") from None


def search_name(pattern: regex.Pattern[str], name: str) -> regex.Match[str] | None:
    """Return the first match in a topic name that another user has chosen.

    Raises ValueError if the search takes too long. The time of a search is limited, and not the number of ways to match
    (as `group.registry.patterns` does for other consumers): that limit would refuse valid expressions of this user,
    such as four names in a row.
    """
    try:
        return pattern.search(name, timeout=SEARCH_TIMEOUT_S)
    except TimeoutError:
        raise ValueError(
            f"the search takes more than {SEARCH_TIMEOUT_S} s. Replace repetitions within repetitions, such as "
            "(a+)+, and several .* in a row"
        ) from None


class _Translation:
    """Translates one expression into the syntax of `regex`, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._groups = 0
        self._size = 0
        self._names: set[str] = set()
        self._ignores_case = self._asks_for_case = False

    def whole(self) -> str:
        """Return the translation of all of it."""
        translated = self._alternatives()
        if self._at < len(self._text):
            self._fail("a ) without a (")
        if self._ignores_case and self._asks_for_case:
            raise ValueError("the flag i together with a property of upper or lower case is not supported")
        return translated

    def _peek(self, ahead: int = 0) -> str:
        return self._text[self._at + ahead : self._at + ahead + 1]

    def _take(self, expected: str) -> bool:
        if not self._text.startswith(expected, self._at):
            return False
        self._at += len(expected)
        return True

    def _next(self, what: str) -> str:
        if self._at >= len(self._text):
            self._fail(f"it ends where {what} is expected")
        self._at += 1
        return self._text[self._at - 1]

    def _until(self, end: str, what: str) -> str:
        found = self._text.find(end, self._at)
        if found < 0:
            self._fail(f"{what} without {end}")
        inner = self._text[self._at : found]
        self._at = found + len(end)
        return inner

    def _fail(self, reason: str) -> NoReturn:
        raise ValueError(f"{reason} at position {self._at}")

    def _alternatives(self) -> str:
        """Translate up to the end or to the parenthesis that closes this group."""
        pieces = []
        while self._peek() not in {"", ")"}:
            if self._take("|"):
                pieces.append("|")
                continue
            before = self._size
            self._size += 1
            piece, can_repeat = self._piece()
            quantifier, least = self._quantifier(can_repeat)
            self._size = before + (self._size - before) * max(1, least)
            if self._size > SIZE_MOST:
                self._fail(f"more than {SIZE_MOST} pieces, counting repetitions,")
            pieces.append(piece + quantifier)
        return "".join(pieces)

    def _piece(self) -> tuple[str, bool]:
        """Translate one piece. Return it, and whether a quantifier may follow."""
        character = self._next("a character")
        match character:
            case "(":
                return self._group()
            case "[":
                return self._set(), True
            case "\\":
                return self._escape(), True
            case "." | "^" | "$":
                return character, True
            case "*" | "+" | "?" | "{":
                self._fail(f"a {character} with nothing before it to repeat")
        return regex.escape(character, special_only=False), True

    def _quantifier(self, can_repeat: bool) -> tuple[str, int]:
        """Translate a quantifier, or nothing. Return it, and how often the piece before it occurs at least."""
        if self._peek() not in {"*", "+", "?", "{"}:
            return "", 1
        times = 0
        if not can_repeat:
            self._fail("a quantifier after flags")
        sign = self._next("a quantifier")
        if sign == "{":
            bounds = self._until("}", "a {")
            least, comma, most = bounds.partition(",")
            if not _is_number(least) or (most and not _is_number(most)):
                self._fail(f"the quantifier {{{bounds}}}; write a brace itself as \\{{")
            if most and int(most) < int(least):
                self._fail(f"the quantifier {{{bounds}}} with its bounds the wrong way round")
            times = int(least)
            sign = f"{{{times}{comma}{int(most) if most else ''}}}"
        manner = self._next("a quantifier") if self._peek() in {"?", "+"} else ""
        if self._peek() in {"*", "+", "?", "{"}:
            self._fail("a quantifier after a quantifier")
        return sign + manner, times

    def _group(self) -> tuple[str, bool]:
        if not self._take("?"):
            self._groups += 1
            return self._closed("("), True
        for opening in (":", ">", "=", "!", "<=", "<!"):
            if self._take(opening):
                return self._closed(f"(?{opening}"), True
        if self._take("<"):
            name = self._until(">", "the name of a group")
            if not (name.isascii() and name.isalnum() and name[0].isalpha()):
                self._fail(f"the name {name!r} of a group")
            if name in self._names:
                self._fail(f"a second group {name!r}")
            self._names.add(name)
            self._groups += 1
            return self._closed(f"(?<{name}>"), True
        return self._flags()

    def _closed(self, opening: str) -> str:
        inner = self._alternatives()
        if not self._take(")"):
            self._fail("a ( without a )")
        return f"{opening}{inner})"

    def _flags(self) -> tuple[str, bool]:
        """Translate `(?i-s)` for the rest of the group, or `(?i-s:...)` for what it encloses."""
        sides: list[str] = [""]
        while (flag := self._next("a flag or a )")) not in {")", ":"}:
            if flag == "-" and len(sides) == 1:
                sides.append("")
            elif flag in _KEPT_FLAGS:
                sides[-1] += flag
            elif flag not in _DROPPED_FLAGS:
                self._fail(f"the flag {flag!r}, which is not supported,")
        self._ignores_case |= "i" in sides[0]
        switched = "-".join(sides).rstrip("-")
        if flag == ":":
            return self._closed(f"(?{switched}:"), True
        return (f"(?{switched})" if switched else ""), False

    def _escape(self) -> str:
        """Translate an escape outside a set."""
        letter = self._peek()
        if letter in _BOUNDARIES:
            self._at += 1
            if letter == "b" and self._peek() == "{":
                self._fail("the boundary \\b{g}, which is not supported,")
            return r"(?=\n?\Z)" if letter == "Z" else _BOUNDARIES[letter]
        if letter in {"R", "X"}:
            self._at += 1
            return rf"(?:\r\n|[{_CLASSES['v']}])" if letter == "R" else r"\X"
        if letter == "k":
            self._at += 1
            name = self._until(">", "the name of a group") if self._take("<") else ""
            if name not in self._names:
                self._fail(f"a reference to a group {name!r} that is not before it,")
            return f"(?P={name})"
        if letter and letter in "123456789":
            return self._reference()
        if letter == "Q":
            self._at += 1
            end = self._text.find("\\E", self._at)
            quoted = self._text[self._at : end if end >= 0 else None]
            self._at = end + 2 if end >= 0 else len(self._text)
            # A quantifier behind the quotation is for its last character, as in Java.
            return regex.escape(quoted, special_only=False)
        members = self._escaped_class()
        return f"[{members}]" if members is not None else regex.escape(self._escaped_character(), special_only=False)

    def _reference(self) -> str:
        """Translate a reference to a group. Java takes further digits as long as there are so many groups."""
        number = int(self._next("a digit"))
        while _is_number(self._peek()) and number * 10 + int(self._peek()) <= self._groups:
            number = number * 10 + int(self._next("a digit"))
        if number > self._groups:
            self._fail(f"a reference to group {number}, which is not before it,")
        return rf"(?:\g<{number}>)"

    def _escaped_class(self) -> str | None:
        """Translate an escape that stands for many characters into members of a set. Return None for any other."""
        letter = self._peek()
        if letter and letter.lower() in _CLASSES:
            self._at += 1
            members = _CLASSES[letter.lower()]
            return members if letter.islower() else f"[^{members}]"
        if letter not in {"p", "P"}:
            return None
        self._at += 1
        name = self._until("}", "a property") if self._take("{") else self._next("a property")
        members = self._property(name)
        return members if letter == "p" else f"[^{members}]"

    def _property(self, name: str) -> str:
        key, equals, value = name.partition("=")
        self._asks_for_case |= (value or name).removeprefix("Is") in _OF_CASE
        if name in _POSIX:
            return _POSIX[name]
        if equals:
            if key.lower() not in _PROPERTY_KEYS:
                self._fail(f"the property {name!r}, which is not supported,")
            return rf"\p{{{_PROPERTY_KEYS[key.lower()]}={value}}}"
        for prefix, replacement in (("In", "Block="), ("Is", "")):
            if name.startswith(prefix) and len(name) > 2:
                return rf"\p{{{replacement}{name[2:]}}}"
        if len(name) > 2 or not name.isalpha():
            self._fail(f"the property {name!r}, which is not supported,")
        return rf"\p{{General_Category={name}}}"

    def _escaped_character(self) -> str:
        letter = self._next("a character after \\")
        if letter in _CHARACTERS:
            return _CHARACTERS[letter]
        if letter == "x" and self._take("{"):
            return self._character(self._until("}", "a number of a character"))
        if letter in {"x", "u"}:
            return self._character("".join(self._next("a digit") for _ in range(2 if letter == "x" else 4)))
        if letter == "0":
            return self._octal()
        if letter == "c":
            return chr(ord(self._next("a letter")) ^ 64)
        if letter.isascii() and letter.isalnum():
            self._at -= 1
            self._fail(f"the escape \\{letter}, which is not supported,")
        return letter

    def _character(self, digits: str) -> str:
        try:
            return chr(int(digits, 16)) if digits.isalnum() else self._fail(f"the number {digits!r} of a character")
        except (ValueError, OverflowError):
            self._fail(f"the number {digits!r} of a character")

    def _octal(self) -> str:
        digits = ""
        while self._peek() and self._peek() in "01234567" and len(digits) < 3 and int(digits + self._peek(), 8) < 256:
            digits += self._next("a digit")
        if not digits:
            self._fail("\\0 without digits")
        return chr(int(digits, 8))

    def _set(self) -> str:
        """Translate a set whose bracket has been read: members, ranges, sets, and intersections of them."""
        negation = "^" if self._take("^") else ""
        operands: list[str] = [""]
        is_first = True
        while True:
            if self._peek() == "]" and not is_first:
                self._at += 1
                break
            if self._take("&&"):
                if not operands[-1] or self._peek() in {"]", "&"}:
                    self._fail("&& without a set on both sides")
                operands.append("")
                continue
            is_first = False
            operands[-1] += self._member()
        return f"[{negation}{'&&'.join(operands)}]"

    def _member(self) -> str:
        if self._take("["):
            return self._set()
        if self._take("\\"):
            if self._take("Q"):
                return "".join(map(_in_set, self._until("\\E", "\\Q in a set")))
            members = self._escaped_class()
            if members is not None:
                return members
            first = self._escaped_character()
        else:
            first = self._next("a ]")
        if self._peek() != "-" or self._peek(1) in {"]", "[", ""} or self._text.startswith("-&&", self._at):
            return _in_set(first)
        self._at += 1
        if self._take("\\"):
            if self._peek() and self._peek() in "dDwWsShHvVpPQ":
                self._fail("a class as the end of a range")
            last = self._escaped_character()
        else:
            last = self._next("the end of a range")
        if last < first:
            self._fail(f"the range {first}-{last} the wrong way round")
        return f"{_in_set(first)}-{_in_set(last)}"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _in_set(character: str) -> str:
    """Return a member of a set that is this character, whatever `regex` would read into it."""
    return character if character.isascii() and character.isalnum() else f"\\U{ord(character):08x}"
