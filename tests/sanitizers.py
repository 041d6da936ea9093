"""The tests of records with the compiled kernel under the address and the undefined-behaviour sanitizer.

    python -m tests.sanitizers [FILE ...]

A copy of the code has a kernel that stops the process at the first access outside of a buffer and at the first
operation that C does not define. Files are below `tests/`, by default `unit/records`. Needs gcc with its sanitizers.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path

from tests.mutants.copies import Copy

FLAGS = ("-O1", "-g", "-shared", "-fPIC", "-fno-omit-frame-pointer", "-Wall", "-Wextra", "-Werror")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
LIBRARIES = ("libasan.so", "libubsan.so", "libstdc++.so")
"""Python is not linked with the sanitizers, so they are loaded before it; Arrow throws exceptions through the last."""
TIMEOUT_S = 3_600
_REPORT = "sanitizer"
"""How the names of the reports begin: what a process writes as it ends would be lost in pytest's capture."""
_MEASURING = "memory and not memoryviews"
"""Tests of these names limit the memory of the process, of which the sanitizers need several times as much."""


def build(root: Path) -> None:
    """Replace the compiled kernel below `root` by one with sanitizers."""
    (extension,) = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
    target = root / (extension["name"].replace(".", "/") + ".abi3.so")
    for built in target.parent.glob("*.so"):
        built.unlink()
    include = f"-I{sysconfig.get_path('include')}"
    command = ["gcc", *FLAGS, *SANITIZERS, include, *extension["sources"], "-o", str(target)]
    subprocess.run(command, cwd=root, check=True)


def libraries() -> str:
    """Return what has to be loaded before Python, as LD_PRELOAD names it."""
    found = (
        subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        for name in LIBRARIES
    )
    return ":".join(os.path.realpath(path) for path in found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", default=["unit/records"], metavar="FILE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="streamgroup-sanitizers-") as where:
        copy = Copy(Path(where))
        build(copy.root)
        os.environ |= {
            "LD_PRELOAD": libraries(),
            # Python frees little at its end. A test may ask for more memory than there is, which raises MemoryError.
            "ASAN_OPTIONS": f"detect_leaks=0:allocator_may_return_null=1:log_path={copy.root / _REPORT}",
            "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={copy.root / _REPORT}",
            "PYTHONMALLOC": "malloc",  # Python's own allocator would hide accesses from the sanitizer
            "STREAMGROUP_KERNEL": "compiled",
        }
        code, output = copy.test(arguments.suites, TIMEOUT_S, but=_MEASURING)
        print(output, *(report.read_text() for report in copy.root.glob(f"{_REPORT}*")), sep="\n")
    return 1 if code is None else code


if __name__ == "__main__":
    sys.exit(main())
