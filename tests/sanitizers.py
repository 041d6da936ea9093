"""The tests of records with the compiled kernel under the address and the undefined-behaviour sanitizer.

    python -m tests.sanitizers [FILE ...]
    python -m tests.sanitizers --fuzz CASES [--planted]

A copy of the code has a kernel that stops the process at the first access outside of a buffer and at the first
operation that C does not define. Files are below `tests/`, by default `unit/kafka/records`. With `--fuzz` the fuzzer
(`tests/fuzz`) tries so many cases at each decoder of records, and at the encoders, instead. `--planted` removes checks
from the kernel, one after the other: the fuzzer must find each. Needs gcc with its sanitizers.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from dataclasses import dataclass
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


_DECODERS = "records/"
"""How the names begin of the fuzzer's decoders that use the kernel."""


@dataclass(frozen=True, slots=True)
class Removed:
    """A check of the kernel to remove: `old` becomes `new` in a file of `streamgroup/kafka/records`."""

    file: str
    old: str
    new: str


PLANTED = (
    Removed("_kernel.c", "if (in->at >= in->end) {", "if (in->at >= in->end + 9) {"),
    Removed("_kernel.c", "if (length < 0 || length > in->end - in->at) {", "if (length < 0) {"),
    Removed("_messages.c", "|| size > end - at - FRAME_SIZE) {", ") {"),
    Removed("_messages07.c", "if (end - at < LEAST_FRAME) {", "if (end - at < 1) {"),
    Removed("_encode.h", "|| end > column->data.len) {", ") {"),
)


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


def watched(root: Path) -> dict[str, str]:
    """Return the environment in which a kernel of `build` writes its reports below `root`."""
    return {
        "LD_PRELOAD": libraries(),
        # Python frees little at its end. A test may ask for more memory than there is, which raises MemoryError.
        "ASAN_OPTIONS": f"detect_leaks=0:allocator_may_return_null=1:log_path={root / _REPORT}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={root / _REPORT}",
        "PYTHONMALLOC": "malloc",  # Python's own allocator would hide accesses from the sanitizer
        "STREAMGROUP_KERNEL": "compiled",
    }


def fuzz(root: Path, cases: int) -> tuple[int, str]:
    """Run the fuzzer with the kernel below `root`. Return its exit code, and its output with the reports."""
    command = [sys.executable, "-m", "tests.fuzz", "--sanitized", "--cases", str(cases), "--only", _DECODERS]
    environment = os.environ | watched(root) | {"PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, "\n".join((done.stdout, done.stderr, *reports(root)))


def reports(root: Path) -> list[str]:
    """Return what the sanitizers have written."""
    return [report.read_text() for report in sorted(root.glob(f"{_REPORT}*"))]


def find_planted(where: Path, cases: int) -> int:
    """Remove each check in turn, and fuzz the kernel without it. Return the number of removals that were not found."""
    missed = 0
    for number, removed in enumerate(PLANTED):
        copy = Copy(where / str(number))
        path = copy.root / "streamgroup" / "kafka" / "records" / removed.file
        text = path.read_text()
        if text.count(removed.old) != 1:
            raise ValueError(f"{removed.file} has not {removed.old!r} once: correct PLANTED")
        path.write_text(text.replace(removed.old, removed.new))
        build(copy.root)
        code, output = fuzz(copy.root, cases)
        missed += code == 0
        found = next((line for line in output.splitlines() if "ERROR: AddressSanitizer" in line), "")
        missed += not found
        print(f"{removed.file}, without {removed.old!r}: {found or 'NOT FOUND'}", flush=True)
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", default=["unit/kafka/records"], metavar="FILE")
    parser.add_argument("--fuzz", type=int, metavar="CASES")
    parser.add_argument("--planted", action="store_true")
    arguments = parser.parse_args()
    if arguments.planted and not arguments.fuzz:
        parser.error("--planted needs --fuzz CASES")
    with tempfile.TemporaryDirectory(prefix="streamgroup-sanitizers-") as where:
        if arguments.planted:
            return find_planted(Path(where), arguments.fuzz)
        copy = Copy(Path(where))
        build(copy.root)
        if arguments.fuzz:
            code, output = fuzz(copy.root, arguments.fuzz)
            print(output)
            return code
        os.environ |= watched(copy.root)
        tested, output = copy.test(arguments.suites, TIMEOUT_S, but=_MEASURING)
        print(output, *reports(copy.root), sep="\n")
    return 1 if tested is None else tested


if __name__ == "__main__":
    sys.exit(main())
