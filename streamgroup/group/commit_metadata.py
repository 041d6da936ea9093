"""What a commit's metadata says (R20): readable text in the offset store, seen by every tool that shows it."""

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
    """Who committed, after which documents.

    `sequence` is the newest document proven sunk, but for a partition gained later at least the newest document
    emitted when it was gained; `asked` the newest document whose partitions were asked; `founding` the generation of
    the group's first commit, copied by every later one (R7); `topic_id` the topic that the offset belongs to (R8);
    `batch` Spark's id of the newest batch proven sunk, None where no listener told it.
    """

    lineage: str
    run: str
    sequence: int
    asked: int
    founding: int
    topic_id: str = NO_TOPIC_ID
    batch: int | None = None

    def text(self) -> str:
        """The metadata as it is stored: JSON, well below the broker's `offset.metadata.max.bytes` (4096)."""
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
        """What `text` says, or None where it is not ours: another client's, an operator's reset, a newer format."""
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
    """Absent where no listener told it and in older releases' commits; nothing depends on it, so none is refused."""
    return value if type(value) is int and value >= 0 else None


def _is_format(value: Any) -> bool:
    """JSON's `true` and `1.0` equal 1 in Python, and are no number of a format."""
    return type(value) is int and value == FORMAT
