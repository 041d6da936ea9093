"""Keeps two checkpoints from writing files into one directory.

Spark's file sink knows a batch by its number, per output directory: what a second checkpoint writes there under a
number that `_spark_metadata` holds already is skipped, without a word, and its rows are gone. So a job leaves a note in
the directory that says whose it is, and refuses a directory that is somebody else's. Directories from before the note
are told apart by their numbers: a checkpoint logs a batch before the sink does, so a sink is never ahead of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from streamgroup.errors import ConfigError

NOTE = "_streamgroup_sink.json"
"""Readers pass over names that begin with an underscore."""

_SINK_BATCH = re.compile(r"(\d{1,18})(?:\.compact)?")
_CHECKPOINT_BATCH = re.compile(r"\d{1,18}")
_NONE = -1


class Files(Protocol):
    """The file system of a path, as far as the guard needs it."""

    def qualified(self, path: str) -> str:
        """The path in full: absolute, with its scheme."""

    def names(self, directory: str) -> list[str]:
        """The names in a directory; none where it does not exist."""

    def read(self, path: str) -> str | None:
        """A file's text; None where it does not exist."""

    def create(self, path: str, text: str) -> bool:
        """Write a file that does not exist yet, and its directories; False where it does."""

    def replace(self, path: str, text: str) -> None:
        """Write a file, whether it exists or not."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a directory is: the checkpoint's path, and its query's id once Spark has given it one."""

    checkpoint: str
    query: str | None = None

    def text(self) -> str:
        """As it stands in the note."""
        return json.dumps({"checkpoint": self.checkpoint, "query": self.query}) + "\n"

    @classmethod
    def of(cls, text: str) -> Owner | None:
        """What a note says; None where it says nothing that we know."""
        try:
            value = json.loads(text)
            return cls(str(value["checkpoint"]), None if value["query"] is None else str(value["query"]))
        except (ValueError, KeyError, TypeError):
            return None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What lies in the sink's directory and in the checkpoint. Batches are the highest numbers, -1 for none."""

    sink: str
    checkpoint: Owner
    sink_batch: int
    checkpoint_batch: int
    note: str | None


def objection(seen: Evidence) -> str | None:
    """Why this checkpoint must not write into this directory; None where it may."""
    if seen.note is not None:
        owner = Owner.of(seen.note)
        if owner is None:
            return f"{seen.sink}/{NOTE} cannot be read, so nobody knows which checkpoint writes there"
        if owner.query is not None and seen.checkpoint.query is not None:
            same = owner.query == seen.checkpoint.query  # a checkpoint that has moved is the same one
        else:
            same = owner.checkpoint == seen.checkpoint.checkpoint
        if not same:
            query = "not started yet" if owner.query is None else f"query {owner.query}"
            return f"{seen.sink} is written by another checkpoint: {owner.checkpoint} ({query})"
    if seen.sink_batch > seen.checkpoint_batch:
        has = f"ends at {seen.checkpoint_batch}" if seen.checkpoint_batch > _NONE else "has none yet"
        return (
            f"{seen.sink} holds batches up to {seen.sink_batch} in _spark_metadata, and the checkpoint "
            f"{seen.checkpoint.checkpoint} {has}: they were written by another checkpoint, or by one that is gone"
        )
    return None


def guard(files: Files, sink: str, checkpoint: str) -> None:
    """Let the checkpoint take the sink's directory, or raise ConfigError that says why not and what to do.

    Two jobs that start at the same moment are told apart as well as the file system creates files exclusively: HDFS
    does, local directories nearly, object stores may not.
    """
    owner = Owner(files.qualified(checkpoint), _query_id(files.read(f"{checkpoint}/metadata")))
    note = f"{sink}/{NOTE}"
    _refuse(_evidence(files, sink, owner))
    files.create(note, owner.text())
    _refuse(_evidence(files, sink, owner))  # somebody may have been quicker


def confirm(files: Files, sink: str, checkpoint: str, query: str) -> None:
    """Write the query's id, known since its start, into the note: with it the checkpoint is known wherever it moves."""
    owner = Owner(files.qualified(checkpoint), query)
    if files.read(f"{sink}/{NOTE}") != owner.text():
        files.replace(f"{sink}/{NOTE}", owner.text())


def _evidence(files: Files, sink: str, owner: Owner) -> Evidence:
    return Evidence(
        sink=files.qualified(sink),
        checkpoint=owner,
        sink_batch=_highest(files.names(f"{sink}/_spark_metadata"), _SINK_BATCH),
        checkpoint_batch=_highest(files.names(f"{owner.checkpoint}/offsets"), _CHECKPOINT_BATCH),
        note=files.read(f"{sink}/{NOTE}"),
    )


def _refuse(seen: Evidence) -> None:
    reason = objection(seen)
    if reason is not None:
        raise ConfigError(
            f"{reason}. Spark would skip batches by their number there and their rows would be lost. Give every member "
            "a directory of its own ({member} in [sink] path and checkpoint), keep the checkpoint that has written "
            f"there, or, if the directory is not needed any more, remove it with its _spark_metadata and {NOTE}"
        )


def _highest(names: Iterable[str], batch: re.Pattern[str]) -> int:
    matches = (batch.fullmatch(name) for name in names)
    return max((int(match[1] if match.re.groups else match[0]) for match in matches if match), default=_NONE)


def _query_id(metadata: str | None) -> str | None:
    """The query's id in a checkpoint's `metadata` file; None where there is none or it cannot be read."""
    try:
        return str(json.loads(metadata)["id"]) if metadata is not None else None
    except (ValueError, KeyError, TypeError):
        return None
