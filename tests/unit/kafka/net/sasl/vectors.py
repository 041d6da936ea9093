"""The messages that Java's client sends, from tests/vectors/sasl (written by tests/live/java)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parents[4] / "vectors" / "sasl" / "messages.jsonl"


def java_rows(mechanism: str) -> list[dict[str, Any]]:
    """The rows of the mechanisms whose name begins so. `messages` is None where Java refuses."""
    rows = [json.loads(line) for line in _FILE.read_text().splitlines()]
    return [row for row in rows if row["mechanism"].startswith(mechanism)]
