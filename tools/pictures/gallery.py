"""The pictures of the pages by the names of their files."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tools.pictures import batch, machines, rooms, threads

DIRECTORY = rooms.ROOT / "docs" / "pictures"
PICTURES: Mapping[str, Callable[[], str]] = {
    "architecture": rooms.architecture,
    "imports": rooms.allowed_imports,
    "batch": batch.life_of_a_batch,
    "threads": threads.threads,
    "run": machines.run,
    "producer": machines.producer,
    "member": machines.member,
    "registered-member": machines.registered_member,
}
"""A file that begins with `recorded-` is not drawn but recorded."""
