"""The probe that runs in every executor before the stream starts.

The driver pickles it by value, because an executor may lack this package. So the module imports only the standard
library.
"""

import importlib
import os
import platform
import sys
import time

NEEDED = ("streamgroup", "pyarrow", "numpy", "cramjam", "google_crc32c")
"""The packages that every task imports."""


def look(_: int, packages: tuple[str, ...] = NEEDED) -> dict[str, str]:
    """Return the host and the Python of this task, and the version of each of `packages` that it can import."""
    found = {"host": platform.node(), "python": sys.executable, "python_version": platform.python_version()}
    for name in packages:
        try:
            module = importlib.import_module(name)
        except Exception:  # a broken installation may raise any exception
            continue
        found[name] = str(getattr(module, "__version__", "unknown"))
    return found


HOLD_S = 1.0
"""Seconds that a task occupies its core, so that Spark schedules the next task on another one."""


def look_and_hold(number: int) -> dict[str, str]:
    """Return the result of `look` with the pid of the parent process, after HOLD_S.

    Python workers of one executor have one parent, Spark's Python daemon, so host and parent identify the executor.
    """
    found = look(number) | {"parent": str(os.getppid())}
    time.sleep(HOLD_S)
    return found
