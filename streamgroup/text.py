"""Texts for options, messages and URLs: hosts and ports, plurals, lists of names. A leaf module."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def host_port(host: str, port: int) -> str:
    """Return `host:port`, with an IPv6 address in brackets."""
    bare = host.strip("[]")
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"


def host_ports(servers: Iterable[tuple[str, int]]) -> str:
    """Return `host:port,host:port`, the format of server lists in options."""
    return ",".join(host_port(host, port) for host, port in servers)


MOST_NAMED = 3
"""How many partitions, topics, brokers or causes a message names: there may be thousands."""
_HISSES = ("s", "x", "ch", "sh")


def counted(count: int, noun: str) -> str:
    """Return the count with its noun: `1 record`, `2 records`, `3 batches`. The plural of `noun` must be regular."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}{'es' if noun.endswith(_HISSES) else 's'}"


def first_of(names: Sequence[str], most: int, noun: str, separator: str = ", ") -> str:
    """Return `a, b and 3 more topics`: the first `most` of `names`, and how many more there are."""
    more = len(names) - most
    shown = separator.join(names[:most])
    return f"{shown} and {counted(more, f'more {noun}')}" if more > 0 else shown
