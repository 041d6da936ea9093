"""Parses the options `-X NAME=VALUE`, and removes the prefix `kafka.` from property names in messages."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence

from streamgroup.options.rows import PREFIX, Option
from streamgroup.options.zookeeper import PREFIX as ZOOKEEPER_PREFIX

_NAME = re.compile(r"(?P<before>\boption ')?(?<![\w./:@-])kafka\.(?P<name>\w+(?:\.\w+)*)", re.IGNORECASE)


def parse_properties(
    values: Sequence[str], table: Mapping[str, Option], *, own: Mapping[str, str], others: Mapping[str, str]
) -> dict[str, str]:
    """Return the options that `-X NAME=VALUE` sets; the prefix `kafka.` may be left out.

    `table` has the options by names in lower case, `own` the options of the command that set a property, and `others`
    the names in lower case that have no prefix. Raises ValueError for a text without `=`, and for a property of `own`.
    """
    properties = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not (name and equals):
            raise ValueError(f"invalid property {value!r}: expected NAME=VALUE")
        if name.lower() in others:
            properties[others[name.lower()]] = text
            continue
        full = name if name.lower().startswith((PREFIX, ZOOKEEPER_PREFIX)) else PREFIX + name
        if full.lower() in own:
            raise ValueError(f"cannot set {name}: use {own[full.lower()]}")
        properties[table[full.lower()].name if full.lower() in table else full] = text
    return properties


def without_prefix(message: str) -> str:
    """Return `message` with property names as in Kafka's files and `-X`: without `kafka.`.

    Other words with this beginning, such as the host `kafka.example.com`, are kept.
    """

    def replace(found: re.Match[str]) -> str:
        is_property = found["before"] or f"{PREFIX}{found['name']}".lower() in _known()
        return f"{found['before'] or ''}{found['name']}" if is_property else found[0]

    return _NAME.sub(replace, message)


@functools.cache
def _known() -> frozenset[str]:
    from streamgroup.options.kafka import KAFKA  # noqa: PLC0415  (only messages need all tables)
    from streamgroup.options.producer import PRODUCER  # noqa: PLC0415

    return frozenset(row.name.lower() for row in (*KAFKA, *PRODUCER))
