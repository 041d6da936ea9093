"""A pytest plugin for runs in a copy: refuse to test anything but the copy's own code, with its compiled kernel."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest
from hypothesis import Phase, settings

COPY = "STREAMGROUP_MUTANTS_COPY"
"""The environment variable that names the root of the copy."""
REFUSED = 79
"""The exit code of a run that would test other code."""


def pytest_sessionstart(session: pytest.Session) -> None:
    """Stop the run where a module comes from elsewhere: the environment installs the original in editable mode."""
    # A mutant may well be slow, and what fails need not be made small.
    settings.register_profile("mutants", derandomize=True, deadline=None, phases=(Phase.explicit, Phase.generate))
    settings.load_profile("mutants")
    copy = Path(os.environ[COPY])
    compiled = [file.relative_to(copy) for file in (copy / "streamgroup").rglob("*.so")]
    assert compiled, f"{copy} has no compiled module"
    for name in (
        "streamgroup",
        "tests",
        *(".".join([*file.parts[:-1], file.name.partition(".")[0]]) for file in compiled),
    ):
        file = importlib.import_module(name).__file__ or ""
        if not Path(file).is_relative_to(copy):
            pytest.exit(f"{name} is imported from {file}, not from {copy}", returncode=REFUSED)
