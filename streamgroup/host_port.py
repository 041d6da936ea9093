"""Hosts and ports as texts and URLs have them. A leaf module."""

from __future__ import annotations


def host_port(host: str, port: int) -> str:
    """Return `host:port`, with an IPv6 address in brackets (RFC 3986)."""
    bare = host.strip("[]")
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"
