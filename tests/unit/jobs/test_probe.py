"""The probe shows, before a stream starts, which Python and which packages the executors of a cluster have."""

from __future__ import annotations

import ast
import os
import platform
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import streamgroup
from streamgroup.jobs import probe

HEALTHY = probe.look(0)


def test_a_task_reports_its_host_its_python_and_the_version_of_each_package() -> None:
    assert HEALTHY.keys() == {"host", "python", "python_version", *probe.NEEDED}
    assert (HEALTHY["host"], HEALTHY["python"]) == (platform.node(), sys.executable)
    assert HEALTHY["python_version"] == platform.python_version()
    assert HEALTHY["streamgroup"] == streamgroup.__version__


def test_a_package_that_cannot_be_imported_is_left_out_and_the_others_are_reported() -> None:
    found = probe.look(0, ("no_such_package", "streamgroup"))
    assert found.keys() == {"host", "python", "python_version", "streamgroup"}


@pytest.mark.parametrize("error", ["raise RuntimeError('broken')", "import no_such_library", "1 +"])
def test_a_package_whose_installation_is_broken_counts_as_missing(
    error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_package.py").write_text(error)
    monkeypatch.syspath_prepend(tmp_path)
    assert "broken_package" not in probe.look(0, ("broken_package",))


def test_a_package_without_a_version_is_reported_as_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package_without_version.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert probe.look(0, ("package_without_version",))["package_without_version"] == "unknown"
    finally:
        sys.modules.pop("package_without_version", None)


def test_the_module_imports_the_standard_library_alone_because_an_executor_may_lack_the_package() -> None:
    tree = ast.parse(Path(probe.__file__).read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported <= sys.stdlib_module_names
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]


def test_a_held_probe_names_the_process_that_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[float] = []
    monkeypatch.setattr(probe, "time", SimpleNamespace(sleep=held.append))
    assert probe.look_and_hold(0) == HEALTHY | {"parent": str(os.getppid())}
    assert held == [probe.HOLD_S]
