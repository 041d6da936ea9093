"""Requests and responses captured from a running Kafka 0.7.2: `tests/vectors/kafka07.txt`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).parent / "vectors" / "kafka07.txt"

_SAMPLE = re.compile(
    r"(?P<name>\S.*)\n  > (?P<sent>[0-9a-f]+)\n  < (?P<got>[0-9a-f]+|\(nothing\))   \[(?P<state>.*)\]\n"
)
_STATES = {"open": False, "CLOSED by broker": True}


@dataclass(frozen=True, slots=True)
class Sample:
    """The bytes sent, the answer (may be empty), and whether the broker then closed the connection."""

    name: str
    sent: bytes
    got: bytes
    closed: bool

    def __str__(self) -> str:
        return self.name


def samples() -> list[Sample]:
    """All of them, in the order in which they were captured: each builds on what those before it have written."""
    _, body = FILE.read_text().split("\n", 1)
    found, end = [], 0
    for match in _SAMPLE.finditer(body):
        assert match.start() == end, f"not a sample: {body[end : match.start()]!r}"
        end = match.end()
        got = b"" if match["got"] == "(nothing)" else bytes.fromhex(match["got"])
        found.append(Sample(match["name"], bytes.fromhex(match["sent"]), got, _STATES[match["state"]]))
    assert not body[end:].strip(), f"not a sample: {body[end:]!r}"
    return found


def frames(data: bytes) -> list[bytes]:
    """`data` cut into frames, without their sizes."""
    cut = []
    while data:
        size = int.from_bytes(data[:4], "big")
        assert len(data) >= 4 + size
        cut.append(data[4 : 4 + size])
        data = data[4 + size :]
    return cut
