"""The probe that runs in every executor before the stream starts.

The driver pickles it by value, because an executor may lack this package. So the module imports only the standard
library.
"""

import importlib
import platform
import sys

NEEDED = ("streamgroup", "pyarrow", "numpy", "cramjam", "google_crc32c")
"""The packages that a task imports."""


def look(_: int) -> dict[str, str]:
    """Return the host and the Python of this task, and the version of each package that it can import."""
    found = {"host": platform.node(), "python": sys.executable, "python_version": platform.python_version()}
    for name in NEEDED:
        try:
            module = importlib.import_module(name)
        except Exception:  # a broken installation may raise any exception
            continue
        found[name] = str(getattr(module, "__version__", "unknown"))
    return found
