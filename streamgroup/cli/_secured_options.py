"""The options of a client of a secured server, as lines to paste into a program or a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamgroup.testing.background import BackgroundClient


def options_text(client: BackgroundClient) -> str:
    """Return the options in Python and in TOML, and Java's properties, which are read from their file."""
    # A string of JSON is also one of Python and TOML. TOML refuses JSON's escape of a character beyond U+FFFF, which is
    # a pair of surrogates, so such characters stay as they are.
    pairs = [(name, json.dumps(value, ensure_ascii=False)) for name, value in client.options.items()]
    return "\n".join(
        (
            f"\n# {client.mechanism} in Python: .options(**options)",
            "options = {",
            *(f"    {json.dumps(name)}: {value}," for name, value in pairs),
            "}",
            f"\n# {client.mechanism} in TOML: conf/ingest.toml",
            "[source]",
            *(f"{name} = {value}" for name, value in pairs),
            f"\n# {client.mechanism} for streamgroup's commands and Java's tools: --command-config {client.properties}",
            *(f"# export KAFKA_OPTS={flag}" for flag in client.jvm_flags),
            Path(client.properties).read_text().rstrip("\n"),
        )
    )
