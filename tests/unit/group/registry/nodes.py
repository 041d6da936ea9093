"""Nodes for tests: what a look finds, written as a table of paths and values."""

from __future__ import annotations

from collections.abc import Mapping

from streamgroup.znodes import ZNode


def tree(values: Mapping[str, str | bytes], *, sessions: Mapping[str, int] | None = None) -> dict[str, ZNode]:
    """Nodes with their parents. zxids count the paths in their order; `sessions`: who has made ephemeral ones."""
    paths: dict[str, str | bytes] = {}
    for path, value in values.items():
        steps = path.split("/")[1:]
        for depth in range(1, len(steps)):
            paths.setdefault("/" + "/".join(steps[:depth]), b"")
        paths[path] = value
    nodes = {}
    for zxid, (path, value) in enumerate(paths.items(), start=1):
        below = [p for p in paths if p.rpartition("/")[0] == path]
        nodes[path] = ZNode(
            data=value.encode() if isinstance(value, str) else value,
            version=0,
            czxid=zxid,
            mzxid=zxid,
            pzxid=max([zxid, *(list(paths).index(p) + 1 for p in below)]),
            owner=(sessions or {}).get(path, 0),
            children=tuple(sorted(p.rpartition("/")[2] for p in below)),
        )
    return nodes
