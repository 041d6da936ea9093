"""Rows for properties of Kafka's Java clients, under Spark's prefix."""

from __future__ import annotations

from streamgroup.options import kinds
from streamgroup.options.rows import Effect, Option, Scope

PREFIX = "kafka."


def used(
    name: str, doc: str, kind: kinds.ValueKind, target: str = "", *, default: str = "", scope: Scope = Scope.ALL
) -> Option:
    return Option(PREFIX + name, doc, kind, target, default, scope)


def refused(name: str, why: str) -> Option:
    return Option(PREFIX + name, scope=Scope.NONE, elsewhere=Effect.REFUSED, why=why)


def ignored(names: str, why: str) -> tuple[Option, ...]:
    return tuple(Option(PREFIX + name, scope=Scope.NONE, why=why) for name in names.split())
