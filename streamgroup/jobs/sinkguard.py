"""The guard that keeps two checkpoints from writing files into one directory.

Spark's file sink identifies a batch by its number in the output directory. If a second checkpoint writes a batch there
whose number `_spark_metadata` already lists, the sink skips the batch without an error, and its rows are lost.

So a job writes a note with its checkpoint into the directory, and refuses a directory with the note of another
checkpoint. In a directory without a note the guard compares batch numbers: a checkpoint logs a batch before the sink
does, so a sink is never ahead of its own checkpoint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streamgroup.errors import ConfigError
from streamgroup.frozen import frozen

NOTE = "_streamgroup_sink.json"
"""The name of the note. Spark's readers skip names that begin with an underscore."""

_SINK_BATCH = re.compile(r"(\d{1,18})(?:\.compact)?")
_CHECKPOINT_BATCH = re.compile(r"\d{1,18}")
_NONE = -1


class Files(Protocol):
    """The operations on a file system that the guard needs."""

    def qualified(self, path: str) -> str:
        """Return the absolute path with its scheme."""

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory, or no names if it does not exist."""

    def read(self, path: str) -> str | None:
        """Return the text of a file, or None if it does not exist."""

    def create(self, path: str, text: str) -> bool:
        """Create a file and its directories. Return False if the file exists already."""

    def replace(self, path: str, text: str) -> None:
        """Write a file, and replace an existing one."""


@frozen
class SinkOwner:
    """The checkpoint that writes into a sink's directory: its path, and its query's id once the query has started."""

    checkpoint: str
    query: str | None = None

    def text(self) -> str:
        return json.dumps({"checkpoint": self.checkpoint, "query": self.query}) + "\n"

    @classmethod
    def of(cls, text: str) -> SinkOwner | None:
        """Return the owner that a note names, or None if the note is invalid."""
        try:
            value = json.loads(text)
            return cls(str(value["checkpoint"]), None if value["query"] is None else str(value["query"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            return None


@frozen
class Evidence:
    """The values that the guard compares: notes and batch numbers of the sink's directory and of the checkpoint.

    Batches are the highest numbers, or -1 if there are none.
    """

    sink: str
    owner: SinkOwner
    sink_batch: int
    checkpoint_batch: int
    note: str | None


def objection(seen: Evidence) -> str | None:
    """Return why the checkpoint must not write into the directory, or None if it may."""
    if seen.note is not None:
        owner = SinkOwner.of(seen.note)
        if owner is None:
            return f"{seen.sink}/{NOTE} is invalid, so the checkpoint that writes there is unknown"
        if owner.query is not None and seen.owner.query is not None:
            same = owner.query == seen.owner.query  # a checkpoint keeps its query id when it moves
        else:
            same = owner.checkpoint == seen.owner.checkpoint
        if not same:
            query = "not started yet" if owner.query is None else f"query {owner.query}"
            return f"another checkpoint writes into it: {owner.checkpoint} ({query})"
    if seen.sink_batch > seen.checkpoint_batch:
        has = f"ends at {seen.checkpoint_batch}" if seen.checkpoint_batch > _NONE else "has none"
        return (
            f"its _spark_metadata lists batches up to {seen.sink_batch}, but the checkpoint "
            f"{seen.owner.checkpoint} {has}, so another or a deleted checkpoint has written them"
        )
    return None


def guard(files: Files, sink: str, checkpoint: str) -> None:
    """Claim the sink's directory for the checkpoint. Raises ConfigError if another checkpoint writes there.

    Of two jobs that start at the same moment only one wins if the file system creates files exclusively. HDFS does,
    local directories nearly do, object stores may not.
    """
    owner = SinkOwner(files.qualified(checkpoint), _query_id(files.read(f"{checkpoint}/metadata")))
    note = f"{sink}/{NOTE}"
    _refuse(_evidence(files, sink, owner))
    files.create(note, owner.text())
    _refuse(_evidence(files, sink, owner))  # another job may have created its note first


def confirm(files: Files, sink: str, checkpoint: str, query: str) -> None:
    """Write the query's id into the note once Spark has started it. The id identifies a checkpoint that moves."""
    owner = SinkOwner(files.qualified(checkpoint), query)
    if files.read(f"{sink}/{NOTE}") != owner.text():
        files.replace(f"{sink}/{NOTE}", owner.text())


def _evidence(files: Files, sink: str, owner: SinkOwner) -> Evidence:
    return Evidence(
        sink=files.qualified(sink),
        owner=owner,
        sink_batch=_highest(files.names(f"{sink}/_spark_metadata"), _SINK_BATCH),
        checkpoint_batch=_highest(files.names(f"{owner.checkpoint}/offsets"), _CHECKPOINT_BATCH),
        note=files.read(f"{sink}/{NOTE}"),
    )


def _refuse(seen: Evidence) -> None:
    reason = objection(seen)
    if reason is not None:
        raise ConfigError(
            f"cannot write files into directory {seen.sink}: {reason}. Spark would skip batches by their numbers, and "
            "their rows would be lost. Give every member its own directory ({member} in [sink] path and "
            "checkpoint), use "
            f"the checkpoint that has written there, or remove the directory with its _spark_metadata and {NOTE}"
        )


def _highest(names: Iterable[str], batch: re.Pattern[str]) -> int:
    matches = (batch.fullmatch(name) for name in names)
    return max((int(match[1] if match.re.groups else match[0]) for match in matches if match), default=_NONE)


def _query_id(metadata: str | None) -> str | None:
    """Return the query's id from a checkpoint's `metadata` file, or None if the file is absent or invalid."""
    try:
        return str(json.loads(metadata)["id"]) if metadata is not None else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


_EXISTS = ("FileAlreadyExistsException",)


class HadoopFiles:
    """`Files` over the file systems of this session's Hadoop configuration: local directories, HDFS, object stores."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        self._conf: Any = spark._jsc.hadoopConfiguration()

    def _at(self, path: str) -> tuple[Any, Any]:
        hadoop_path = self._jvm.org.apache.hadoop.fs.Path(path)
        return hadoop_path.getFileSystem(self._conf), hadoop_path

    def qualified(self, path: str) -> str:
        system, at = self._at(path)
        return str(at.makeQualified(system.getUri(), system.getWorkingDirectory()).toString())

    def names(self, directory: str) -> list[str]:
        system, at = self._at(directory)
        return [status.getPath().getName() for status in system.listStatus(at)] if system.exists(at) else []

    def read(self, path: str) -> str | None:
        system, at = self._at(path)
        if not system.exists(at):
            return None
        stream = system.open(at)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def create(self, path: str, text: str) -> bool:
        try:
            self._write(path, text, overwrite=False)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() in _EXISTS:
                return False
            raise
        return True

    def replace(self, path: str, text: str) -> None:
        self._write(path, text, overwrite=True)

    def _write(self, path: str, text: str, *, overwrite: bool) -> None:
        system, at = self._at(path)
        stream = system.create(at, overwrite)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
