"""What a commit's metadata says (R20): readable text in the offset store, seen by every tool that shows it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from streamgroup.model import NO_TOPIC_ID

FORMAT = 1
NOT_FOUNDED = -1
"""The founding generation of a group whose first commit was not ours."""


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """Who committed, after which documents.

    `sequence` is the newest document proven sunk, but for a partition gained later at least the newest document
    emitted when it was gained; `asked` the newest document whose partitions were asked; `founding` the generation of
    the group's first commit, copied by every later one (R7); `topic_id` the topic that the offset belongs to (R8).
    """

    lineage: str
    run: str
    sequence: int
    asked: int
    founding: int
    topic_id: str = NO_TOPIC_ID

    def text(self) -> str:
        """The metadata as it is stored: JSON, well below the broker's `offset.metadata.max.bytes` (4096)."""
        value = {
            "streamgroup": FORMAT,
            "lineage": self.lineage,
            "run": self.run,
            "sequence": self.sequence,
            "asked": self.asked,
            "founding": self.founding,
            "topic": self.topic_id,
        }
        return json.dumps(value, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> CommitMetadata | None:
        """What `text` says, or None where it is not ours: another client's, an operator's reset, a newer format."""
        try:
            value = json.loads(text)
        except ValueError:
            return None
        if not isinstance(value, dict) or value.get("streamgroup") != FORMAT:
            return None
        texts = [value.get(key) for key in ("lineage", "run", "topic")]
        numbers = [value.get(key) for key in ("sequence", "asked", "founding")]
        if not all(isinstance(t, str) for t in texts) or not all(type(n) is int for n in numbers):
            return None
        return cls(texts[0], texts[1], *numbers, topic_id=texts[2])
