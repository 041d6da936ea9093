"""The package as users install it, and the checks of what a release's files contain.

    python -m tests.wheels dist/*.whl dist/*.tar.gz dist/*.cdx.json

`make wheel`, `make sbom` and cibuildwheel call this with the standard library alone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("streamgroup", "pyspark_streamgroup", "pyspark_streamgroup_sql")
_TYPED = ("streamgroup/py.typed", "streamgroup/kafka/records/_kernel.pyi")
_DATA = ("streamgroup/testing/jars.sha256",)
_PAGE = "streamgroup/monitoring/page/static"
_KERNEL = re.compile(r"streamgroup/kafka/records/_kernel\.abi3\.so")
TAG = re.compile(r"-cp311-abi3-(manylinux|musllinux|macosx)\S+\.whl")
"""The end of the name of a wheel that is published."""
_NOT_OF_USERS = {"dev", "docs"}
_NOT_LOCKED = {"kerberos"}
_STRANGER = re.compile(r"^(tests|benchmarks|jobs|docs)/|\.c$|\.h$|__pycache__")


def built_wheel(home: Path) -> Path:
    """Build the wheel from a copy of the sources below `home`, as `pip install .` does, and return its path."""
    source = home / "source"
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--no-build-isolation", "-w", str(home)]
    subprocess.run([*build, str(source)], check=True, env={**os.environ, "PYTHONWARNINGS": "ignore"})
    (wheel,) = home.glob("streamgroup-*.whl")
    return wheel


def version() -> str:
    """Return the version in development."""
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "streamgroup" / "__init__.py").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def sources() -> set[str]:
    """Return the names of all modules and of the data that the package needs."""
    modules = {p.relative_to(ROOT).as_posix() for name in PACKAGES for p in (ROOT / name).rglob("*.py")}
    page = {p.relative_to(ROOT).as_posix() for p in (ROOT / _PAGE).rglob("*") if p.is_file()}
    return {*modules, *page, *_TYPED, *_DATA}


def kernel_sources() -> set[str]:
    """Return the files that the kernel is compiled from, headers too."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        (kernel,) = tomllib.load(file)["tool"]["setuptools"]["ext-modules"]
    return {*kernel["sources"], *kernel["depends"]}


def problems_of_wheel(wheel: Path) -> list[str]:
    """Return what a wheel lacks, or has and should not have."""
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        metadata = file.read(f"streamgroup-{version()}.dist-info/METADATA").decode() if names else ""
    found = [f"{name} is missing" for name in sorted(sources() - names)]
    found += [f"{name} does not belong there" for name in sorted(names) if _STRANGER.search(name)]
    if not any(map(_KERNEL.fullmatch, names)):
        found.append("the compiled kernel is missing: is there a compiler with Python's headers?")
    if f"streamgroup-{version()}.dist-info/licenses/LICENSE" not in names:
        found.append("the license is missing")
    if "\nClassifier: Typing :: Typed\n" not in metadata or "\nRequires-Python: >=3.11\n" not in metadata:
        found.append("the metadata name neither types nor the oldest Python")
    return found


def problems_of_release_wheel(wheel: Path) -> list[str]:
    """Return the problems of a wheel that is to be published: its tag must name a platform, not this machine."""
    tag = [] if TAG.search(wheel.name) else [f"the tag names no platform of users: {wheel.name}"]
    return [*tag, *problems_of_wheel(wheel)]


def problems_of_sdist(sdist: Path) -> list[str]:
    """Return what a source distribution lacks to be built and compiled."""
    with tarfile.open(sdist) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    needed = sources() | kernel_sources() | {"pyproject.toml", "README.md", "LICENSE", "PKG-INFO"}
    return [f"{name} is missing" for name in sorted(needed - names)]


def requirements() -> dict[str, list[str]]:
    """Return what the package requires, below `""`, and what each extra requires that a bill of materials covers."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    extras = project["optional-dependencies"].items()
    covered = {name: needed for name, needed in extras if name not in _NOT_OF_USERS | _NOT_LOCKED}
    return {"": project["dependencies"], **covered}


def problems_of_sbom(sbom: Path) -> list[str]:
    """Return what a bill of materials lacks: the package's version, its dependencies, the extras', uPlot, licenses."""
    bill = json.loads(sbom.read_text())
    every = [requirement for needed in requirements().values() for requirement in needed]
    needed = {"uplot", *(re.split(r"[\[><=]", requirement)[0].lower() for requirement in every)}
    components = {component["name"].lower().replace("_", "-"): component for component in bill["components"]}
    found = [f"{name} is missing" for name in sorted(needed - set(components))]
    found += [f"{name} has no version" for name, each in sorted(components.items()) if not each.get("version")]
    found += [f"{name} has no license" for name, each in sorted(components.items()) if not each.get("licenses")]
    ours = bill["metadata"]["component"].get("version")
    return found if ours == version() else [*found, f"it is of streamgroup {ours}, not {version()}"]


CHECKS: dict[str, Callable[[Path], list[str]]] = {
    ".whl": problems_of_release_wheel,
    ".gz": problems_of_sdist,
    ".json": problems_of_sbom,
}


def main(paths: Sequence[str]) -> int:
    """Check files and print what is wrong with each. Return the exit code."""
    failed = 0
    for path in map(Path, paths):
        problems = CHECKS[path.suffix](path)
        print(f"{path}: {'; '.join(problems) or 'complete'}")
        failed |= bool(problems)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
