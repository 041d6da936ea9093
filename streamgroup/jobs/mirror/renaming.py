"""The names of topics at the destination: a table for single topics, else a regular expression and a prefix."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import regex

from streamgroup.errors import ConfigError
from streamgroup.java_regex import search_name

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class Renaming:
    """The rule by which topics are renamed. Without any field set, a topic keeps its name."""

    table: Mapping[str, str] = field(default_factory=dict)
    """The names of single topics. They take precedence over the other fields."""
    match: str = ""
    """A regular expression in Python's syntax. Its first match in the name is replaced by `replace`."""
    replace: str = ""
    """The text of `match`; `\\\\1` is the first group."""
    prefix: str = ""
    """A text before each name that is not in the table, also after a replacement."""

    def name(self, topic: str) -> str:
        """Return the name of `topic` at the destination.

        Raises ConfigError if it is not a valid topic name, or if the search for `match` takes too long.
        """
        renamed = self.table[topic] if topic in self.table else self.prefix + self._replaced(topic)
        if not _TOPIC.fullmatch(renamed) or renamed in {".", ".."}:
            raise ConfigError(
                f"cannot rename topic {topic!r} to {renamed!r}: expected 1 to 249 letters, digits, '.', '_' and '-'. "
                "Correct [rename]"
            )
        return renamed

    def _replaced(self, topic: str) -> str:
        try:
            found = search_name(regex.compile(self.match), topic) if self.match else None
        except ValueError as error:
            raise ConfigError(f"cannot rename topic {topic!r} by [rename] match {self.match!r}: {error}") from None
        return topic if found is None else topic[: found.start()] + found.expand(self.replace) + topic[found.end() :]

    def names(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the name of each topic. Raises ConfigError if two topics would have one name."""
        names = {topic: self.name(topic) for topic in sorted(topics)}
        sources: dict[str, str] = {}
        for topic, renamed in names.items():
            if renamed in sources:
                raise ConfigError(
                    f"cannot mirror topics {sources[renamed]!r} and {topic!r} into one topic {renamed!r}: the order of "
                    "their records would be mixed. Correct [rename]"
                )
            sources[renamed] = topic
        return names


def check_pattern(match: str, replace: str) -> None:
    """Raise ValueError if `match` is not a regular expression, or `replace` names a group that it lacks.

    Both are of Python's `re`, and the package `regex` reads all of that alike. It searches, as `re` has no timeout.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            compiled = re.compile(match)
    except re.error as error:
        raise ValueError(f"match is not a regular expression: {error}") from None
    except FutureWarning as warning:  # such as [[a], in which the inner bracket may begin a set of its own
        raise ValueError(
            f"match may mean something else in a later Python: {warning}. Escape it by a backslash"
        ) from None
    # Python checks the groups of a template only when something matches, so it is tried on empty groups.
    groups = ["()"] * compiled.groups
    for name, number in compiled.groupindex.items():
        groups[number - 1] = f"(?P<{name}>)"
    try:
        re.sub("".join(groups), replace, "", count=1)
    except (re.error, IndexError) as error:
        raise ValueError(f"replace does not fit match: {error}") from None
