"""A file of code of more than 800 lines holds more than one idea: consider whether to divide it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("streamgroup", "pyspark_streamgroup", "jobs", "tests", "tools", "benchmarks", "examples")
MOST_LINES = 800


def test_no_file_has_more_than_800_lines() -> None:
    files = [path for room in ROOMS for kind in ("*.py", "*.c", "*.h") for path in (ROOT / room).rglob(kind)]
    assert len(files) > 500, "the rooms have moved"
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in files}
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}
