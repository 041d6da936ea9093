"""The named points of a batch's life, at which a test may end or stop processes; and a journal of the group's answers.

Nothing of this is in the product: `install` wraps the product's seams when their modules are imported, in whichever
process of the application that happens. A seam that is gone is an ImportError, which fails the query and so the test.

The directory of an application (STREAMGROUP_FAULTS) holds:

    processes      its process group and its JVM, written by `job_driver.py`
    coordinator    the process that plans its newest query
    package-KIND   the directory of the package that its processes of a kind import: coordinator, task
    armed-POINT    what is to be struck when POINT is passed next: a word of STROKES
    struck         which point, when (seconds of time.monotonic, one clock for all processes), written just before
    held           is there until the test lets the process continue that is held at a point
    commits.jsonl  one line per answer to an OffsetCommit

The functions that run in every batch build file names as plain strings. Python interns each part of a `Path`, so the
table of interned strings would grow, and a soak would count that as memory of the product.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

PLANNED, READ, SUNK, COMMITTING, COMMITTED = POINTS = "planned", "read", "sunk", "committing", "committed"
"""A document is made and Spark does not have it yet; a task has read its records; the sink has written them and Spark's
`commits/N` is to come; Spark has asked for the next batch and the commit is to be sent; the commit was accepted."""

LOADING, LOADED, STAGED, BEGUN, ADDED, STORED = SQL_POINTS = "loading", "loaded", "staged", "begun", "added", "stored"
"""Of `streamgroup.sql_sink`: a task has begun its COPY; it has filled its staging table; the driver has the answers of
all tasks; its transaction has locked the offsets; rows and offsets are changed and COMMIT is to be sent; COMMIT was
answered."""

TASK_DONE, WRITTEN, OFFSETS_ADDED, ENDED = TRANSACTION_POINTS = "task done", "written", "offsets added", "ended"
"""Of `streamgroup.exactly_once`: a task has written its records; the driver has the answers of all tasks; the offsets
are in the transaction; EndTxn was carried out, and its answer is not read yet. Then comes `stored`."""

TOGETHER, JVM, COORDINATOR, PAUSE = STROKES = "together", "jvm", "coordinator", "pause"
"""kill -9 of driver, JVM and coordinator at once, of one of them, or SIGSTOP of all."""

DRIVER, SELF, FAIL, HOLD = "driver", "self", "fail", "hold"
"""kill -9 of the Python driver, or of the process that passes the point; an exception there; or it waits there."""
LONGEST_HOLD_S = 120.0


def home() -> Path:
    """The directory of the application that this process belongs to."""
    return Path(os.environ["STREAMGROUP_FAULTS"])


def _place(name: str) -> str:
    return f"{os.environ['STREAMGROUP_FAULTS']}/{name}"


def _write(path: str, text: str) -> None:
    with open(path, "wb", buffering=0) as file:
        file.write(text.encode())


def pass_point(point: str) -> None:
    """Strike, if this point is armed: one process, once."""
    taken = _place(f"taken-{point}")
    try:
        os.rename(_place(f"armed-{point}"), taken)
    except FileNotFoundError:
        return
    stroke = Path(taken).read_text()
    processes = json.loads((home() / "processes").read_text())
    if stroke == HOLD:
        (home() / "held").touch()
    note = home() / "struck.new"
    note.write_text(json.dumps({"point": point, "stroke": stroke, "at": time.monotonic()}))
    note.rename(home() / "struck")
    match stroke:
        case "together":
            signal_together(processes["group"], signal.SIGKILL)
        case "jvm":
            os.kill(processes["jvm"], signal.SIGKILL)
        case "coordinator":
            os.kill(int((home() / "coordinator").read_text()), signal.SIGKILL)
        case "pause":
            signal_together(processes["group"], signal.SIGSTOP)
            time.sleep(1)  # another thread may take the signal, and this one would go on until all have stopped
        case "driver":
            os.kill(processes["group"], signal.SIGKILL)  # it leads the group
        case "self":
            os.kill(os.getpid(), signal.SIGKILL)
        case "fail":
            raise RuntimeError(f"the test has this process fail at the point {point}")
        case "hold":
            deadline = time.monotonic() + LONGEST_HOLD_S
            while (home() / "held").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
        case _:
            raise ValueError(f"armed with {stroke!r}, which is not a stroke")


def signal_together(application: int, number: signal.Signals) -> None:
    """Signal an application's process group, and its coordinators, which have left that group but not its session.

    The process that calls this comes last: it may end by it.
    """
    others = {pid for pid, group, session in _processes() if session == application != group}
    for pid in others - {os.getpid()}:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    os.killpg(application, number)
    if os.getpid() in others:
        os.kill(os.getpid(), number)


def _processes() -> Iterator[tuple[int, int, int]]:
    """Every process's pid, process group and session."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            yield int(stat.parent.name), int(fields[2]), int(fields[3])


# --- the product's seams ----------------------------------------------------------------------------------------------


def _around_stream(module: ModuleType) -> None:
    reader = getattr(module, "GroupStreamReader", None)
    if reader is None or reader.__module__ != module.__name__:
        return  # a release that defines it in the other module
    plan, read = _seam(reader, "latestOffset"), _seam(reader, "read")

    @functools.wraps(plan)
    def latest_offset(self: Any, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        _write(_place("coordinator"), str(os.getpid()))
        _note_package("coordinator", module)
        document: dict[str, Any] = plan(self, start, limit)
        if document != start and document["ranges"]:
            pass_point(PLANNED)
        return document

    @functools.wraps(read)
    def read_and_pass(self: Any, partition: Any) -> Iterator[Any]:
        yield from read(self, partition)
        _note_package("task", module)
        pass_point(READ)

    reader.latestOffset, reader.read = latest_offset, read_and_pass


def _note_package(kind: str, module: ModuleType) -> None:
    """Write down from where this process has imported the product: tests mix releases."""
    directory = str(module.__file__).rsplit(os.sep, 3)[0]
    note = _place(f"{kind}.{os.getpid()}.new")
    _write(note, directory)
    os.rename(note, _place(f"package-{kind}"))


def _around_member(module: ModuleType) -> None:
    member = module.Member
    commit, own_answer = _seam(member, "_commit"), _seam(member, "_own_answer")
    sent: dict[int, Any] = {}

    @functools.wraps(commit)
    def commit_and_pass(self: Any, wanted: Any, *arguments: Any) -> None:
        commit(self, wanted, *arguments)
        sent[self._committing[0]] = wanted
        pass_point(COMMITTING)

    @functools.wraps(own_answer)
    def answer_and_pass(self: Any, answer: Any, *arguments: Any) -> None:
        own_answer(self, answer, *arguments)
        verdicts, answered = getattr(answer, "verdicts", None), sent.pop(answer.token, None)
        if verdicts is not None and answered is not None:  # also where the member has given that commit up
            codes = {str(tp): verdict.code for tp, verdict in verdicts.items()}
            _journal(self.ledger.group, self._instance_id or answered.member_id, answered, codes)
            if not any(codes.values()):
                pass_point(COMMITTED)

    member._commit, member._own_answer = commit_and_pass, answer_and_pass


def _around_sql_sink(module: ModuleType) -> None:
    open_transaction, stage = _seam(module, "transaction"), _seam(module.Stage, "stage")

    @contextmanager
    def transaction(engine: Any) -> Iterator[Any]:
        pass_point(STAGED)
        with open_transaction(engine) as opened:
            pass_point(BEGUN)
            yield opened
        pass_point(STORED)

    @functools.wraps(stage)
    def stage_and_pass(self: Any, batches: Any) -> Any:
        staged = stage(self, batches)
        if staged.table:
            pass_point(LOADED)
        return staged

    module.transaction, module.Stage.stage = transaction, stage_and_pass  # type: ignore[attr-defined]


def _around_copy(module: ModuleType) -> None:
    rows = _seam(module, "rows")

    @functools.wraps(rows)
    def rows_and_pass(batch: Any) -> Any:
        from pyspark import TaskContext  # noqa: PLC0415  (most processes with points do not use it)

        encoded = rows(batch)
        if TaskContext.get() is not None:
            pass_point(LOADING)
        return encoded

    module.rows = rows_and_pass  # type: ignore[attr-defined]


def _around_offset_table(module: ModuleType) -> None:
    add = _seam(module.OffsetTable, "add")

    @functools.wraps(add)
    def add_and_pass(*arguments: Any) -> None:
        add(*arguments)
        pass_point(ADDED)

    module.OffsetTable.add = add_and_pass


def _around_exactly_once(module: ModuleType) -> None:
    writer, task = module._TransactionWriter, module.Write
    write, commit, run = _seam(writer, "_write_records"), _seam(writer, "_commit"), _seam(task, "__call__")

    @functools.wraps(write)
    def write_and_pass(*arguments: Any, **options: Any) -> Any:
        count = write(*arguments, **options)
        pass_point(WRITTEN)
        return count

    @functools.wraps(commit)
    def commit_and_pass(*arguments: Any) -> None:
        commit(*arguments)
        pass_point(STORED)

    @functools.wraps(run)
    def run_and_pass(self: Any, batches: Any) -> Iterator[Any]:
        results = list(run(self, batches))
        pass_point(TASK_DONE)
        yield from results

    writer._write_records, writer._commit, task.__call__ = write_and_pass, commit_and_pass, run_and_pass


def _around_transactions(module: ModuleType) -> None:
    ask = _seam(module.TransactionRunner, "_asked")
    points = {"TxnOffsetCommitRequest": OFFSETS_ADDED, "EndTxnRequest": ENDED}

    @functools.wraps(ask)
    def ask_and_pass(self: Any, step: Any, *arguments: Any) -> Any:
        reply = ask(self, step, *arguments)
        if point := points.get(step.kind.__name__):
            pass_point(point)
        return reply

    module.TransactionRunner._asked = ask_and_pass


def _journal(group: str, owner: str, commit: Any, codes: dict[str, int]) -> None:
    line = {
        "at": time.monotonic(),
        "group": group,
        "owner": owner,
        "member": commit.member_id,
        "generation": commit.generation,
        "offsets": {str(tp): committed.offset for tp, committed in commit.offsets.items()},
        "codes": codes,
    }
    append(_place("commits.jsonl"), line)


def append(path: str | Path, line: dict[str, Any]) -> None:
    """Write one line of JSON in one go, so that a process that is killed leaves whole lines; and to the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, (json.dumps(line) + "\n").encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _seam(owner: type | ModuleType, name: str) -> Callable[..., Any]:
    found: Callable[..., Any] | None = getattr(owner, name, None)
    if found is None:
        raise ImportError(f"{owner} has no {name}: the named points need another seam")
    return found


SEAMS: dict[str, Callable[[ModuleType], None]] = {
    "streamgroup.spark.source": _around_stream,
    "streamgroup.spark.stream": _around_stream,  # in 0.1.0
    "streamgroup.group.member": _around_member,
    "streamgroup.spark.sql_sink": _around_sql_sink,
    "streamgroup.sql.copy_binary": _around_copy,
    "streamgroup.sql.offset_table": _around_offset_table,
    "streamgroup.spark.exactly_once": _around_exactly_once,
    "streamgroup.kafka.cluster.transactions": _around_transactions,
}


class _Finder(importlib.abc.MetaPathFinder):
    """Finds a module as the others would, and wraps what it defines once it has run."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        wrap = SEAMS.get(name)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if wrap else None
        if wrap is None or spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def run_and_wrap(module: ModuleType) -> None:
            run(module)
            wrap(module)

        spec.loader.exec_module = run_and_wrap  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Wrap the seams of this process, once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
