"""Parses the options `-X NAME=VALUE`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamgroup.options.properties import PREFIX
from streamgroup.options.rows import Option
from streamgroup.options.zookeeper import PREFIX as ZOOKEEPER_PREFIX


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
