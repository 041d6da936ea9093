"""The documents in a checkpoint of Structured Streaming, batch by batch, and whether its query runs."""

from __future__ import annotations

import json
from collections.abc import Collection

from streamgroup.cli._checkpoint_files import VOID, CheckpointFiles, OffsetLines
from streamgroup.driver.application import control
from streamgroup.errors import StreamGroupError
from streamgroup.model import Document, TopicPartition
from streamgroup.planning.document import from_value


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
        """By batch and index of the source, of streamgroup's sources."""
        self.newest = self.documents[self.last]

    def name_of(self, source: int) -> str:
        """Return the name of a source in the directory `sources`."""
        return self.batches[self.last].source_id(source)

    def topics_of(self, source: int) -> frozenset[str]:
        """Return the topics that the source has read."""
        found = (documents[source] for documents in self.documents.values() if source in documents)
        return frozenset(tp.topic for document in found for tp in document.positions)

    def lineages(self) -> frozenset[str]:
        """Return the lineages of the newest documents, by which a running query is known."""
        return frozenset(document.lineage for document in self.newest.values() if document.lineage)


def documents_in(lines: OffsetLines) -> dict[int, Document]:
    """Return the documents of streamgroup by the index of their source. Raises ConfigError for one that is invalid."""
    found = {}
    for index, text in enumerate(lines.sources):
        try:
            value = json.loads(text) if text != VOID else None
        except (ValueError, RecursionError):
            continue
        # In an offset of Spark's own connector, "streamgroup" may be a topic, whose value is not a number.
        if isinstance(value, dict) and isinstance(value.get("streamgroup"), int):
            found[index] = from_value(value)
    return found


def batch_of(document: Document, tp: TopicPartition) -> tuple[int, int]:
    """Return the offsets of one partition that the batch of a document starts and ends at."""
    for each in document.ranges:
        if each.partition == tp:
            return each.start, each.until
    offset = document.positions[tp].offset
    return offset, offset


def refuse_running(what: str, lineages: Collection[str]) -> None:
    """Raise StillRunningError if a query with one of `lineages` runs on this machine. `what` is what it prevents.

    It is raised, too, if a coordinator process does not answer: its query may have one of them.
    """
    if not lineages:
        return
    surveys = {pid: control.survey(pid) for pid in control.drivers()}
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
