"""The memory of this process."""

from __future__ import annotations

import resource
from pathlib import Path


def resident_mb() -> float:
    """Return the resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6
