"""Each module that decides something has a test file of its name, in the folder of its room."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests" / "unit"
WITHOUT = {
    "streamgroup/driver/membership/executor.py": "protocols alone: mypy checks the classes against them",
    "streamgroup/driver/membership/group_backend.py": "a protocol alone: mypy checks both backends against it",
}
"""Modules without such a file, and the reason."""


def modules() -> list[Path]:
    found = [path for package in ("streamgroup", "pyspark_streamgroup") for path in (ROOT / package).rglob("*.py")]
    return sorted(path for path in found if path.stem not in ("__init__", "__main__") and has_functions(path))


def has_functions(path: Path) -> bool:
    """Whether the module has code to run: one of declarations alone (events, schemas, keys) has nothing to test."""
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(ast.parse(path.read_text()))
    )


def names_of_tests(module: Path) -> tuple[str, ...]:
    """Return the names that a test file of the module may have: the module's, or those of its package and itself."""
    name = module.stem.lstrip("_")
    return (f"test_{name}", f"test_{module.parent.name}_{name}")


def has_test_file(module: Path) -> bool:
    room = module.relative_to(ROOT).parts[1:-1][:1]
    files = TESTS.joinpath(*room).rglob("test_*.py") if room else TESTS.glob("test_*.py")
    names = names_of_tests(module)
    return any(path.stem == name or path.stem.startswith(f"{name}_") for path in files for name in names)


def test_each_module_with_code_has_a_test_file_of_its_name() -> None:
    found = modules()
    assert len(found) > 400, "the packages have moved"
    assert not has_test_file(ROOT / "streamgroup" / "wire" / "no_such_module.py")
    assert [str(path.relative_to(ROOT)) for path in found if not has_test_file(path)] == sorted(WITHOUT)
