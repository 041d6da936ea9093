"""What runs in an executor before the stream starts. Pickled by value: the executor may lack this package.

So it refers to nothing of ours at the module's level, and to nothing but the standard library.
"""

import importlib
import platform
import sys

NEEDED = ("streamgroup", "pyarrow", "numpy", "cramjam", "google_crc32c")
"""What a task imports."""


def look(_: int) -> dict[str, str]:
    """Where this task runs, and `name -> version` of what it can import; what it cannot is absent."""
    found = {"host": platform.node(), "python": sys.executable, "python_version": platform.python_version()}
    for name in NEEDED:
        try:
            module = importlib.import_module(name)
        except Exception:  # a broken installation raises what it likes
            continue
        found[name] = str(getattr(module, "__version__", "unknown"))
    return found
