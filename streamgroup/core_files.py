"""Keeps passwords and keys out of core files, which the kernel writes when a process crashes."""

from __future__ import annotations

import functools
import resource


@functools.cache
def disable_core_files() -> None:
    """Set this process's soft limit for the size of core files to 0.

    Only the first call does so: a program may raise the limit again afterwards.

    The memory of a process that authenticates holds passwords, tokens and private keys. PR_SET_DUMPABLE would do more,
    but it would also keep debuggers, profilers and Spark's own memory accounting of this user away from the process.
    """
    _soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
