"""The messages of one .proto file in their order, by which a message index finds one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class MessageTree:
    """A message and those within it. A file is one without a name, or with that of its package.

    `is_implicit` marks the messages that a map field and a group stand for.
    """

    name: str
    is_implicit: bool = False
    inner: list[MessageTree] = field(default_factory=list)

    def names_at(self, index: Sequence[int]) -> frozenset[str]:
        """Return the full names of the messages that an index may mean: none, one or two.

        Serializers number the messages within a message in two ways: Java's leaves implicit ones out, those of Python
        and Go count them. An implicit message is never the message of a value.
        """
        found = (self._at(index, explicit_only) for explicit_only in (True, False))
        return frozenset(one for one in found if one)

    def _at(self, index: Iterable[int], explicit_only: bool) -> str:
        here, path = self, [self.name]
        for position in index:
            among = [one for one in here.inner if not (explicit_only and one.is_implicit)]
            if position >= len(among):
                return ""
            here = among[position]
            path.append(here.name)
        return "" if here.is_implicit else ".".join(filter(None, path))
