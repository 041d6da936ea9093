"""Run suites in a copy of the code, with a mutant planted or without.

A *copy* has the package, the tests and the docs, not the virtual environment. Each job has one of its own, and
plants one mutant at a time in it.
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from importlib.util import cache_from_source
from pathlib import Path

from tests.mutants.imported import COPY
from tests.mutants.table import PACKAGE, ROOT, Mutant, planted

TEST_TIMEOUT_S = 60
"""A test that hangs under a mutant fails after this."""
_COPIED = (PACKAGE, "tests", "docs", "pyproject.toml")
_PASSED, _FAILED = 0, 1  # pytest's exit codes
_FAILURE = re.compile(r"^(?:FAILED|ERROR) tests/(.+?)(?: - ([\w.]+).*)?$", re.MULTILINE)
_SLIPS = {"NameError", "UnboundLocalError", "SyntaxError", "ImportError", "ModuleNotFoundError"}
"""A mutant that fails with one of these breaks no rule: its text is wrong."""


class Verdict(Enum):
    """The result of one run of suites."""

    PASSED = "passed"
    KILLED = "killed"
    SURVIVED = "SURVIVED"
    TIMED_OUT = "TIMED OUT"
    """The suites neither failed nor ended: name narrower ones."""
    BROKEN = "BROKEN"
    """Without a mutant: the suites fail. With one: they did not run, or the new text is wrong Python."""


@dataclass(frozen=True)
class Outcome:
    """One run: which test failed first, or the end of the output where that is what matters."""

    verdict: Verdict
    seconds: float
    noticed_by: str = ""
    output: str = ""


class Copy:
    """A copy of the code, in which one mutant at a time is planted."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in _COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(ROOT / name, root / name)

    @contextmanager
    def with_mutant(self, mutant: Mutant) -> Iterator[None]:
        """Plant `mutant`, and restore the file afterwards."""
        place = mutant.place(self.root)
        path = self.root / place.path
        text = path.read_text()
        try:
            self._write(path, planted(mutant, text, place))
            yield
        finally:
            self._write(path, text)

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.write_text(text)
        # Python compares size and whole seconds only: it would run the compiled code of the text before.
        Path(cache_from_source(str(path))).unlink(missing_ok=True)

    def test(self, suites: Iterable[str], timeout_s: float, but: str = "") -> tuple[int | None, str]:
        """Run `suites` until the first failure. Return pytest's exit code, None after `timeout_s`, and its output.

        Tests whose names fit pytest's expression `but` are left out.
        """
        options = ["-k", f"not ({but})"] if but else []
        options += ["-x", "-q", "-rfE", "--tb=short", "--no-header", f"--timeout={TEST_TIMEOUT_S}"]
        plugins = ["-p", "no:cacheprovider", "-p", "tests.mutants.imported"]
        command = [sys.executable, "-m", "pytest", *options, *plugins, f"--basetemp={self.root / 'tmp'}"]
        environment = os.environ | {"PYTHONPATH": str(self.root), COPY: str(self.root)}
        process = subprocess.Popen(
            [*command, *(f"tests/{suite}" for suite in suites)],
            cwd=self.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # so that what tests start ends with them
        )
        try:
            output, _ = process.communicate(timeout=timeout_s)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()


class Copies:
    """As many copies as there are jobs, lent to one run at a time."""

    def __init__(self, where: Path, jobs: int) -> None:
        self._free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for number in range(jobs):
            (where / str(number)).mkdir()
            self._free.put(Copy(where / str(number)))

    @contextmanager
    def lend(self) -> Iterator[Copy]:
        copy = self._free.get()
        try:
            yield copy
        finally:
            self._free.put(copy)


def judge_unmutated(copies: Copies, suite: str, timeout_s: float) -> Outcome:
    """Run a suite without a mutant: it must pass, else its failures would prove nothing."""
    began = time.monotonic()
    with copies.lend() as copy:
        code, output = copy.test([suite], timeout_s)
    verdict = Verdict.TIMED_OUT if code is None else Verdict.PASSED if code == _PASSED else Verdict.BROKEN
    return Outcome(verdict, time.monotonic() - began, _noticed_by(output)[0], _end(output))


def judge(copies: Copies, mutant: Mutant, timeout_s: float) -> Outcome:
    """Run the suites of `mutant` with it planted."""
    began = time.monotonic()
    with copies.lend() as copy, copy.with_mutant(mutant):
        code, output = copy.test(mutant.suites, timeout_s)
    seconds = time.monotonic() - began
    test, error = _noticed_by(output)
    if code == _PASSED:
        return Outcome(Verdict.SURVIVED, seconds, f"nobody: {mutant.breaks}")
    if code is None:
        return Outcome(Verdict.TIMED_OUT, seconds)
    if code != _FAILED or error in _SLIPS or not test:
        return Outcome(Verdict.BROKEN, seconds, test, _end(output))
    return Outcome(Verdict.KILLED, seconds, test)


def _noticed_by(output: str) -> tuple[str, str]:
    """The first test that failed, and the name of its error."""
    found = _FAILURE.search(output)
    return ("", "") if found is None else (found[1], (found[2] or "").rpartition(".")[2])


def _end(output: str) -> str:
    return "\n".join(output.splitlines()[-15:])
