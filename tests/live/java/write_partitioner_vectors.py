"""Run as a program, writes the hashes that Java computes of 10 000 keys to tests/vectors/partitioners."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.live.java.cases import RELEASES, ask_java
from tests.unit.kafka.producer.reference import keys

VECTORS = Path(__file__).parents[2] / "vectors" / "partitioners" / "java.tsv"
PROGRAM = Path(__file__).parent / "Partitions.java"
KEYS = tuple(keys(10_000, seed=12))


def questions() -> list[str]:
    return [f"key\t{key.hex()}" for key in KEYS]


def rows(answers: Sequence[str]) -> list[str]:
    """One line for each key: its hex, murmur2, hashCode of the string and of the bytes (all signed), and CRC-32."""
    return [f"{key.hex()}\t{answer}" for key, answer in zip(KEYS, answers, strict=True)]


if __name__ == "__main__":
    VECTORS.parent.mkdir(parents=True, exist_ok=True)
    VECTORS.write_text("\n".join(rows(ask_java(RELEASES[-1], questions(), program=PROGRAM))) + "\n")
