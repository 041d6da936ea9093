"""Keeps Python's garbage collector away from the modules of Spark's worker processes and of coordinators.

PySpark's daemon runs a full collection after each task of a worker process that it reuses. The collection walks over
all modules, those of PySpark and Arrow among them, and takes some 20 ms of a core. The smallest micro-batch has two to
four such tasks. A coordinator loads hundreds of modules, and the collections at the exit of its process take some 70
ms.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_done = False


def exempt_modules() -> None:
    """Exempt all objects that exist now from later collections. Later calls in the same process do nothing.

    To be called when all modules are loaded, such as at the end of a process's first task. Objects are still freed with
    their last reference; only cycles among those that exist now, after the collection here, stay.
    """
    global _done  # noqa: PLW0603  (of the process, as the collector is)
    if not _done:
        _done = True
        gc.collect()
        gc.freeze()


@contextmanager
def loading_modules() -> Iterator[None]:
    """Load modules in this block without a collection, and exempt them and all other objects from later ones."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
    exempt_modules()
