"""The package is imported without PySpark, and a query's processes load no slow package that few queries need.

From an archive, as `--py-files` and `addPyFile` bring it, or with a file of the user in its place, the import fails and
says what to do instead.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import streamgroup

_WITHOUT = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == "pyspark":
            raise ModuleNotFoundError("No module named 'pyspark'", name=name)
sys.meta_path.insert(0, Hidden())
{code}
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _WITHOUT.format(code=code)], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    "code",
    [
        "import streamgroup; streamgroup.StreamGroupError, streamgroup.SchemaRegistry, streamgroup.Parser",
        "import streamgroup.cli.main",
        "import streamgroup.monitoring.page.server",
    ],
)
def test_what_needs_no_spark_is_imported(code: str) -> None:
    found = run(code)
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize("name", ["listen", "dead_letters", "metrics"])
def test_what_needs_spark_says_how_to_get_it(name: str) -> None:
    found = run(f"from streamgroup import {name}")
    last = found.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: cannot import streamgroup.{name}: this Python has no PySpark.")
    assert last.endswith("pip install 'streamgroup[spark]'")


SLOW = ("cryptography", "pandas", "kazoo", "regex")
"""The first take a tenth and a quarter of a second of CPU time, the others some 60 ms of a coordinator's 300."""
DECODERS = ("pyarrow.compute", "streamgroup.kafka.records.kernel", "streamgroup.kafka.cluster.kafka07")
"""Some 90 ms. A coordinator needs them if its brokers are Kafka 0.7, or if the size of a batch is limited."""


@pytest.mark.parametrize(
    ("code", "slow"),
    [
        ("import streamgroup.spark.source, streamgroup.coordinator.process", SLOW + DECODERS),
        (
            "import streamgroup.executor.read.fetcher, streamgroup.executor.write.sink_writer, pyarrow as pa; "
            "from streamgroup.kafka.records import columns; columns.constant('t', pa.string(), 10)",
            SLOW,
        ),
        ("import streamgroup.executor.read.fetcher", (*SLOW, "pyarrow.compute", "streamgroup.executor.write.producer")),
    ],
    ids=["coordinator", "task", "task that reads"],
)
def test_no_process_of_a_query_loads_a_slow_package(code: str, slow: tuple[str, ...]) -> None:
    for package in SLOW:
        pytest.importorskip(package)
    shown = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*(p for p in {slow} if p in sys.modules))"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert shown.stdout == "\n"


def refusal(first: Path, package: str) -> str:
    """The error of a process that imports a package, with this directory or archive first in its path."""
    program = f"import sys; sys.path.insert(0, {str(first)!r}); import {package}"
    where = first if first.is_dir() else first.parent
    ended = subprocess.run([sys.executable, "-c", program], cwd=where, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    return ended.stderr.splitlines()[-1]


@pytest.mark.parametrize("name", ["streamgroup.zip", "streamgroup-0.1.0-cp311-abi3-linux_x86_64.whl"])
def test_an_archive_of_the_package_is_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        for file in ("__init__.py", "errors.py", "frozen.py"):
            archive.write(Path(streamgroup.__file__).parent / file, f"streamgroup/{file}")
    said = refusal(tmp_path / name, "streamgroup")
    assert said.startswith(f"ImportError: cannot import streamgroup from {tmp_path / name}: it requires compiled")
    assert "Leave the archive out of --py-files and addPyFile" in said
    assert "spark.archives (docs/clusters.md)" in said


@pytest.mark.parametrize("path", ["streamgroup.py", "streamgroup/__init__.py"])
def test_a_file_of_the_user_in_the_place_of_the_package_is_named(tmp_path: Path, path: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(exist_ok=True)
    file.touch()
    said = "cannot import the package streamgroup: Python finds {} instead. Rename that file or directory"
    assert refusal(tmp_path, "pyspark_streamgroup") == f"ImportError: {said.format(file)}"
