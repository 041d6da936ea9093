"""The files of a checkpoint of Structured Streaming that hold offsets, in a local directory.

    offsets/N      the version, a line of metadata, a line for each source: the offsets at which batch N ends
    commits/N      exists if batch N is completed
    sources/ID/0   of Spark's Kafka source ID: where the source's first batch began

The id of a source is its index in version 1 of offsets/N (`v1`). In version 2 the line begins with the id and a colon:
the name from `readStream.name()`, or the index of a source without a name. Version 2 has the sources in any order.
`-` stands for a source without offsets.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from streamgroup.coordinator.control import channel
from streamgroup.coordinator.planning.document import from_value
from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.frozen import frozen
from streamgroup.model import Document, TopicPartition

VOID = "-"
_ENDING_S = 5.0
"""How long a query that has just ended may take to leave its group, which `refuse_running` waits for."""
_POLL_S = 0.1
_NAMED = "v2"
_VERSIONS = ("v1", _NAMED)
_HEAD = 2
"""The number of lines in offsets/N before the sources: the version and the metadata."""
_FILE_URL = re.compile(r"file:(?://(?:localhost)?(?=/)|(?!//))", re.IGNORECASE)
"""The part before the path in a `file:` URL of this machine."""
_OTHER_URL = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
"""The beginning of a URL of another file system or host."""


@frozen
class OffsetLines:
    """One file offsets/N. `sources` has the text of each source's line by the id of the source."""

    version: str
    metadata: str
    sources: Mapping[str, str]

    def with_sources(self, sources: Mapping[str, str]) -> OffsetLines:
        """Return the same lines with other texts for some of their sources, by their ids."""
        found = {name: sources.get(name, text) for name, text in self.sources.items()}
        return OffsetLines(self.version, self.metadata, found)

    def text(self) -> str:
        named = self.version == _NAMED
        lines = (f"{name}:{text}" if named else text for name, text in self.sources.items())
        return "\n".join((self.version, self.metadata, *lines))


class CheckpointFiles:
    """The checkpoint at `where`, a path or a `file:` URL. Raises ConfigError for other places, and without offsets."""

    def __init__(self, where: str) -> None:
        self.home = local_path(where)
        if not (self.home / "offsets").is_dir():
            raise ConfigError(
                f"no checkpoint of a streaming query in {self.home}: it has no directory offsets. Give the value of "
                "the query's option checkpointLocation"
            )

    def batches(self) -> list[int]:
        """Return the numbers of the batches with offsets, ascending. Raises ConfigError if there are none."""
        numbers = _numbers(self.home / "offsets")
        if not numbers:
            raise ConfigError(f"the checkpoint {self.home} has no offsets: the query has not planned a batch yet")
        return numbers

    def is_sunk(self, batch: int) -> bool:
        """Return whether Spark has written that `batch` has sunk."""
        return batch in _numbers(self.home / "commits")

    def offsets(self, batch: int) -> OffsetLines:
        """Return the lines of offsets/`batch`. Raises ConfigError if Spark did not write the file in this format."""
        path = self.home / "offsets" / str(batch)
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot read {path}: {error}") from None
        version, sources = lines[0] if lines else "", lines[_HEAD:]
        if not sources or version not in _VERSIONS or (version == _NAMED and not all(":" in line for line in sources)):
            raise ConfigError(
                f"cannot read {path}: expected the version {' or '.join(_VERSIONS)}, metadata, and a line for each "
                "source. Restore the file"
            )
        if version == _NAMED:
            return OffsetLines(version, lines[1], dict(line.split(":", 1) for line in sources))
        return OffsetLines(version, lines[1], {str(index): text for index, text in enumerate(sources)})

    def has_initial(self, source: str) -> bool:
        return (self.home / "sources" / source / "0").exists()

    # -- writing -------------------------------------------------------------------------------------------------------

    def back_up(self, name: str) -> None:
        """Copy offsets and sources to the new directory `name` in the checkpoint, which Spark ignores."""
        target = self.home / name
        target.mkdir()
        for each in ("offsets", "sources"):
            if (self.home / each).is_dir():
                shutil.copytree(self.home / each, target / each)

    def write_offsets(self, batch: int, lines: OffsetLines) -> None:
        """Replace offsets/`batch` atomically."""
        _replace(self.home / "offsets" / str(batch), lines.text().encode())

    def write_initial(self, source: str, value: Any) -> None:
        """Write the initial offset of a source as KafkaSourceInitialOffsetWriter does."""
        directory = self.home / "sources" / source
        directory.mkdir(parents=True, exist_ok=True)
        # The first byte is for Spark 2.1.0, which would otherwise read the version as a number (SPARK-19517).
        _replace(directory / "0", b"\0v1\n" + json.dumps(value, separators=(",", ":")).encode())


def local_path(where: str) -> Path:
    """Return the directory of a path or a `file:` URL. Raises ConfigError for another file system."""
    if url := _FILE_URL.match(where):
        return Path(unquote(where[url.end() :]))
    if not _OTHER_URL.match(where):
        return Path(where)
    raise ConfigError(
        f"cannot rewrite the checkpoint {where}: this command reads local directories only. Copy the checkpoint to "
        "this machine (hdfs dfs -get, aws s3 cp --recursive, ...), rewrite the copy, and copy its directories offsets "
        "and sources back"
    )


def _numbers(directory: Path) -> list[int]:
    """Return the names of files that are numbers; Spark's temporary files and checksums have others."""
    with suppress(FileNotFoundError):
        return sorted(int(path.name) for path in directory.iterdir() if path.name.isdecimal())
    return []


def _replace(path: Path, data: bytes) -> None:
    """Write a file atomically, and remove Hadoop's checksum file, which is of the old content."""
    new = path.with_name(f".{path.name}.streamgroup")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    new.replace(path)


class StillRunningError(StreamGroupError):
    """The query of the checkpoint runs, or its group has members."""


class CheckpointHistory:
    """The offsets of all batches in a checkpoint, and which of its sources are streamgroup's."""

    def __init__(self, files: CheckpointFiles) -> None:
        self.files = files
        self.batches = {batch: files.offsets(batch) for batch in files.batches()}
        self.last = max(self.batches)
        self.is_sunk = files.is_sunk(self.last)
        self.documents = {batch: documents_in(lines) for batch, lines in self.batches.items()}
        """By batch and id of the source, of streamgroup's sources."""
        self.newest = self.documents[self.last]

    def first_batch(self, source: str) -> int:
        """Return the oldest batch with offsets of a source of `newest`."""
        return min(batch for batch, documents in self.documents.items() if source in documents)

    def topics_of(self, source: str) -> frozenset[str]:
        found = (documents[source] for documents in self.documents.values() if source in documents)
        return frozenset(tp.topic for document in found for tp in document.positions)

    def lineages(self) -> frozenset[str]:
        """Return the lineages of the newest offsets. A running query is identified by its lineage."""
        return frozenset(document.lineage for document in self.newest.values() if document.lineage)


def documents_in(lines: OffsetLines) -> dict[str, Document]:
    """Return the offsets of streamgroup's sources by the id of the source.

    Raises ConfigError if they are invalid.
    """
    found = {}
    for source, text in lines.sources.items():
        try:
            value = json.loads(text) if text != VOID else None
        except (ValueError, RecursionError):
            continue
        # In an offset of Spark's own connector, "streamgroup" may be a topic, whose value is not a number.
        if isinstance(value, dict) and isinstance(value.get("streamgroup"), int):
            found[source] = from_value(value)
    return found


def batch_of(document: Document, tp: TopicPartition) -> tuple[int, int]:
    """Return the offsets at which the batch of `document` starts and ends in one partition."""
    for each in document.ranges:
        if each.partition == tp:
            return each.start, each.until
    offset = document.positions[tp].offset
    return offset, offset


def refuse_running(what: str, lineages: Collection[str]) -> None:
    """Raise StillRunningError if a query with one of `lineages` runs on this machine. `what` is the action.

    Waits up to 5 s for the query to end: after `drain`, or the end of its driver, it still has to leave its group.
    Also raises it if a coordinator process does not answer, because its query may have one of these lineages.
    """
    if not lineages:
        return
    deadline = time.monotonic() + _ENDING_S
    while True:
        surveys = {pid: channel.survey(pid) for pid in channel.drivers()}
        runs = any(
            status.get("lineage") in lineages for found in surveys.values() for status in found.statuses.values()
        )
        if not runs or time.monotonic() > deadline:
            break
        time.sleep(_POLL_S)
    for pid, found in surveys.items():
        for status in found.statuses.values():
            if status.get("lineage") in lineages:
                raise StillRunningError(
                    f"cannot {what}: the query, or one with a copy of it, runs on this machine (driver "
                    f"{pid}). Drain it first: streamgroup drain --pid {pid}"
                )
    for pid, found in surveys.items():
        if found.silent:
            raise StillRunningError(
                f"cannot {what}: the coordinator process of run {found.silent[0]} (driver {pid}) does not answer, and "
                "its query may be the one that writes this checkpoint. Resume that process if it is stopped (kill "
                "-CONT); if it hangs, stop its query. Then repeat the command"
            )
