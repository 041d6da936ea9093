"""The contradictions among a producer's properties, and the idempotence that results, against Java's ProducerConfig."""

from __future__ import annotations

import itertools

import pytest

from streamgroup.errors import ConfigError
from streamgroup.options.parse import parse_sink
from streamgroup.testing.releases import NEWEST
from tests.live.java.cases import ask_java
from tests.live.java.write_partitioner_vectors import PROGRAM

pytestmark = pytest.mark.live

VALUES: dict[str, tuple[str | None, ...]] = {
    "acks": (None, "all", "-1", "1", "0"),
    "enable.idempotence": (None, "true", "false"),
    "retries": (None, "0", "3"),
    "max.in.flight.requests.per.connection": (None, "5", "6"),
}
ALONE = [
    {name: value}
    for name, values in {
        "acks": ("2", "ALL", ""),
        "compression.type": ("none", "gzip", "snappy", "lz4", "zstd", "brotli"),
        "compression.gzip.level": ("-2", "-1", "0", "1", "9", "10"),
        "compression.lz4.level": ("0", "1", "17", "18"),
        "compression.zstd.level": ("-131073", "-131072", "22", "23"),
        "linger.ms": ("-1", "0"),
        "batch.size": ("-1", "0"),
        "buffer.memory": ("-1", "0", "5000000000"),
        "max.in.flight.requests.per.connection": ("0", "1"),
        "max.block.ms": ("-1", "0"),
        "metadata.max.idle.ms": ("4999", "5000"),
        "retries": ("-1", "2147483647", "2147483648"),
    }.items()
    for value in values
]
STRICTER_IN_JAVA = [{"acks": "ALL"}]
"""Words may be written in any case here."""


def combinations() -> list[dict[str, str]]:
    together = itertools.product(*(values for values in VALUES.values()))
    return [
        *({name: value for name, value in zip(VALUES, row, strict=True) if value is not None} for row in together),
        *(row for row in ALONE if row not in STRICTER_IN_JAVA),
    ]


def ours(properties: dict[str, str]) -> str:
    """Idempotence and acks as Partitions.java prints them, or `!` where the options are refused."""
    named = {f"kafka.{name}": value for name, value in properties.items()}
    try:
        producer = parse_sink({"kafka.bootstrap.servers": "localhost:9092", **named}).producer
    except ConfigError:
        return "!"
    return f"{str(producer.enable_idempotence).lower()}\t{producer.acks}"


def test_the_same_properties_are_refused_and_switch_idempotence_off() -> None:
    asked = [f"config\t{','.join(f'{name}={value}' for name, value in row.items())}" for row in combinations()]
    answers = ask_java(NEWEST, asked, program=PROGRAM)
    theirs = ["!" if answer.startswith("!") else answer.replace("all", "-1") for answer in answers]
    assert dict(zip(asked, map(ours, combinations()), strict=True)) == dict(zip(asked, theirs, strict=True))
    assert 20 < theirs.count("!") < len(theirs) / 2
