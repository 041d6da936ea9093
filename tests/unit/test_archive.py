"""The package in an archive, as `--py-files` and `addPyFile` bring it, and a file of the user in its place: the import
says what to do instead."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import streamgroup

PACKAGE = Path(streamgroup.__file__).parent


@pytest.mark.parametrize("name", ["streamgroup.zip", "streamgroup-0.1.0-cp311-abi3-linux_x86_64.whl"])
def test_an_archive_of_the_package_is_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        archive.write(PACKAGE / "__init__.py", "streamgroup/__init__.py")
        archive.write(PACKAGE / "errors.py", "streamgroup/errors.py")
    program = f"import sys; sys.path.insert(0, {str(tmp_path / name)!r}); import streamgroup"
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    said = ended.stderr.splitlines()[-1]
    assert said.startswith(f"ImportError: cannot import streamgroup from {tmp_path / name}: it requires compiled")
    assert "Leave the archive out of --py-files and addPyFile" in said
    assert "spark.archives (docs/clusters.md)" in said


@pytest.mark.parametrize("path", ["streamgroup.py", "streamgroup/__init__.py"])
def test_a_file_of_the_user_in_the_place_of_the_package_is_named(tmp_path: Path, path: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(exist_ok=True)
    file.touch()
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import pyspark_streamgroup"
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    said = "cannot import the package streamgroup: Python finds {} instead. Rename that file or directory"
    assert ended.stderr.splitlines()[-1] == f"ImportError: {said.format(file)}"
