"""The rows of option tables: an option's name, description, kind of value and scope. Java's properties get a prefix."""

from __future__ import annotations

from dataclasses import MISSING, fields
from enum import Enum, Flag, auto
from typing import Any

from streamgroup.frozen import frozen
from streamgroup.options import kinds
from streamgroup.options.kinds import TEXT, ValueKind
from streamgroup.options.tls import TlsOptions
from streamgroup.options.types import (
    ClientOptions,
    FetchOptions,
    GroupMode,
    GroupOptions,
    LimitOptions,
    ProducerOptions,
    SinkOptions,
    SourceOptions,
    SplitOptions,
    ZooKeeperOptions,
)


class Scope(Flag):
    """The reads or writes in which an option takes effect. A stream that reads has a mode (`group.mode`)."""

    NONE = 0
    BATCH = auto()
    MEMBER = auto()
    COMMIT = auto()
    OFF = auto()
    GROUP = MEMBER | COMMIT
    """Streams that commit to a group."""
    STREAM = MEMBER | COMMIT | OFF
    ALL = BATCH | STREAM
    """All reads. Reads and writes have tables of their own."""
    WRITE = auto()


SCOPE_OF_MODE = {GroupMode.MEMBER: Scope.MEMBER, GroupMode.COMMIT: Scope.COMMIT, GroupMode.OFF: Scope.OFF}

_OUT_OF_SCOPE = {
    Scope.BATCH: "a batch read never joins a group and commits nothing",
    Scope.COMMIT: "with group.mode=commit the query is not a member of its group",
    Scope.OFF: "with group.mode=off the query has no group",
}
"""Why an option of groups has no effect in a read."""


FOR_READS = "the option is for reads"
FOR_CONSUMERS = "the property is for consumers"
FOR_PRODUCERS = "the property is for producers"


class Effect(Enum):
    """The effect of setting an option."""

    USED = "used"
    IGNORED = "ignored"
    """The log names the option once."""
    REFUSED = "refused"
    """The read or the write fails with a ConfigError."""


@frozen
class Option:
    """One option of `format("streamgroup")`."""

    name: str
    """The name as the docs write it. Users may write it in any case."""
    doc: str = ""
    """The description: what the option does, its unit, when it applies, when to change it. Empty without a scope."""
    kind: ValueKind = TEXT
    target: str = ""
    """The field that the option sets, such as `fetch.min_bytes`. Empty if `parse` combines several options."""
    default_text: str = ""
    """The default as the docs show it, if they can't show the default of `target`'s field. It sets nothing."""
    scope: Scope = Scope.ALL
    elsewhere: Effect = Effect.IGNORED
    """The effect of setting the option outside its scope."""
    why: str = ""
    """Why the option is ignored or refused outside its scope. Empty if the scope itself is the reason."""
    batch_kind: ValueKind | None = None
    """The kind of value in a batch read, if it differs from `kind`."""

    def effect(self, scope: Scope) -> Effect:
        """Return the effect of setting the option in a read of `scope`. `Scope.STREAM` is a stream of any mode."""
        return Effect.USED if self.scope & scope else self.elsewhere

    def reason(self, scope: Scope) -> str:
        """Return why the option is ignored or refused in a read of `scope`."""
        return self.why or _OUT_OF_SCOPE.get(scope, "")

    def kind_in(self, scope: Scope) -> ValueKind:
        """Return the kind of value in a read of `scope`."""
        return self.batch_kind if self.batch_kind is not None and scope is Scope.BATCH else self.kind


SECTIONS: dict[str, Any] = {
    "client": ClientOptions,
    "tls": TlsOptions,
    "fetch": FetchOptions,
    "limits": LimitOptions,
    "split": SplitOptions,
    "group": GroupOptions,
    "source": SourceOptions,
    "zookeeper": ZooKeeperOptions,
    "zookeeper_tls": TlsOptions,
    "producer": ProducerOptions,
    "sink": SinkOptions,
}
"""The dataclass for the first part of a `target`."""


def default_of(option: Option) -> Any:
    """Return the default of the field that an option sets, or MISSING without a field or a default."""
    section, _, name = option.target.partition(".")
    if not section:
        return MISSING
    return next(field.default for field in fields(SECTIONS[section]) if field.name == name)


PREFIX = "kafka."


def used(
    name: str, doc: str, kind: kinds.ValueKind, target: str = "", *, default_text: str = "", scope: Scope = Scope.ALL
) -> Option:
    return Option(PREFIX + name, doc, kind, target, default_text, scope)


def refused(name: str, why: str) -> Option:
    return Option(PREFIX + name, scope=Scope.NONE, elsewhere=Effect.REFUSED, why=why)


def ignored(names: str, why: str) -> tuple[Option, ...]:
    return tuple(Option(PREFIX + name, scope=Scope.NONE, why=why) for name in names.split())
