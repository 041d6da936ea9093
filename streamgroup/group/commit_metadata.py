"""The metadata of a commit (R20): readable text in the offset store, seen by every tool that shows it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from streamgroup.model import NO_TOPIC_ID

FORMAT = 1
NOT_FOUNDED = -1
"""The founding generation of a group whose first commit was not ours."""


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """The run that committed, and its documents by sequence number.

    `sequence` is the newest document proven sunk. For a partition gained later it is at least the newest document that
    Spark was given when the partition was gained. `asked` is the newest document for which Spark called `partitions`.
    `founding` is the generation of the group's first commit, copied by every later one (R7). `topic_id` is the topic
    that the offset belongs to (R8). `batch` is Spark's id of the newest batch proven sunk, None without a listener.
    """

    lineage: str
    run: str
    sequence: int
    asked: int
    founding: int
    topic_id: str = NO_TOPIC_ID
    batch: int | None = None

    def text(self) -> str:
        """Return the metadata as it is stored: JSON, well below the broker's `offset.metadata.max.bytes` (4096)."""
        value: dict[str, int | str] = {
            "streamgroup": FORMAT,
            "lineage": self.lineage,
            "run": self.run,
            "sequence": self.sequence,
            "asked": self.asked,
            "founding": self.founding,
            "topic": self.topic_id,
        }
        if self.batch is not None:
            value["batch"] = self.batch
        return json.dumps(value, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> CommitMetadata | None:
        """Read `text`. None: another client wrote it, an operator with a reset, or a later format."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, dict) or not _is_format(value.get("streamgroup")):
            return None
        match value:
            case {
                "lineage": str(lineage),
                "run": str(run),
                "sequence": int(sequence),
                "asked": int(asked),
                "founding": int(founding),
                "topic": str(topic_id),
            } if bool not in map(type, (sequence, asked, founding)):
                return cls(lineage, run, sequence, asked, founding, topic_id, _batch(value.get("batch")))
        return None


def _batch(value: Any) -> int | None:
    """Return Spark's batch id, None where it is absent or unreadable: nothing depends on it."""
    return value if type(value) is int and value >= 0 else None


def _is_format(value: Any) -> bool:
    """Return whether `value` is the number of the format. In Python JSON's `true` and `1.0` equal 1, too."""
    return type(value) is int and value == FORMAT
