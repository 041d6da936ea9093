"""The row of the option tables."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from enum import Enum
from typing import Any

from streamgroup.options.kinds import TEXT, Kind
from streamgroup.options.types import (
    ClientOptions,
    FetchOptions,
    GroupOptions,
    LimitOptions,
    SourceOptions,
    SplitOptions,
    ZooKeeperOptions,
)


class Effect(Enum):
    """What giving an option does."""

    USED = "used"
    WITHOUT_EFFECT = "without effect"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name as users write it, what it does, and what becomes of it in a stream and in a batch read.

    `target` names the field that it sets, such as `fetch.min_bytes`; an option without one is composed with others by
    `parse`. `why` says why it is refused or without effect (`why_batch` where the reason is another one in a batch
    read). `default` is for the docs, where no field has it.
    """

    name: str
    doc: str
    kind: Kind = TEXT
    target: str = ""
    default: str = ""
    stream: Effect = Effect.USED
    batch: Effect = Effect.USED
    why: str = ""
    why_batch: str = ""

    def effect(self, *, streaming: bool) -> Effect:
        """What becomes of it in a stream or in a batch read."""
        return self.stream if streaming else self.batch

    def reason(self, *, streaming: bool) -> str:
        """Why it is refused or without effect there."""
        return self.why if streaming else self.why_batch or self.why


SECTIONS: dict[str, Any] = {
    "client": ClientOptions,
    "fetch": FetchOptions,
    "limits": LimitOptions,
    "split": SplitOptions,
    "group": GroupOptions,
    "source": SourceOptions,
    "zookeeper": ZooKeeperOptions,
}
"""What the first part of a `target` means."""


def default_of(option: Option) -> Any:
    """The default of the field that an option sets; MISSING where it has no field or no default."""
    section, _, name = option.target.partition(".")
    if not section:
        return MISSING
    return next(field.default for field in fields(SECTIONS[section]) if field.name == name)
