"""The package as users install it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def built_wheel(home: Path) -> Path:
    """Build the wheel from a copy of the sources below `home`, as `pip install .` does, and return its path."""
    source = home / "source"
    for name in ("streamgroup", "pyspark_streamgroup"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--no-build-isolation", "-w", str(home)]
    subprocess.run([*build, str(source)], check=True, env={**os.environ, "PYTHONWARNINGS": "ignore"})
    (wheel,) = home.glob("streamgroup-*.whl")
    return wheel
