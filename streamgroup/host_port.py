"""The text of a host and a port, for options, messages and URLs. A leaf module."""

from __future__ import annotations

from collections.abc import Iterable


def host_port(host: str, port: int) -> str:
    """Return `host:port`, with an IPv6 address in brackets."""
    bare = host.strip("[]")
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"


def host_ports(servers: Iterable[tuple[str, int]]) -> str:
    """Return `host:port,host:port`, as options list servers."""
    return ",".join(host_port(host, port) for host, port in servers)
