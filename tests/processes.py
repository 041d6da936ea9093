"""Processes of this machine, as the tests see them."""

from __future__ import annotations

from pathlib import Path


def is_running(pid: int) -> bool:
    """Whether a process exists and is more than an entry that nobody has asked for."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
