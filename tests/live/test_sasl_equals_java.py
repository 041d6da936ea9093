"""The reading of sasl.jaas.config and the messages of SASL, against the Java client's."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroup.options.sasl import parse_jaas
from streamgroup.testing.releases import NEWEST
from tests.live.java.cases import RELEASES
from tests.live.java.write_sasl_vectors import (
    VECTORS,
    ask_about_both,
    ask_about_jaas,
    lines,
)
from tests.unit.options.jaas_cases import as_row, expected_of, random_configs

pytestmark = pytest.mark.live


@pytest.mark.parametrize("release", RELEASES)
def test_the_stored_answers_are_those_of_java(release: str) -> None:
    jaas, messages = ask_about_both(release)
    assert lines(jaas) == (VECTORS / "jaas.jsonl").read_text()
    assert lines(messages) == (VECTORS / "messages.jsonl").read_text()


def test_java_reads_ten_thousand_other_configurations_alike() -> None:
    rows = ask_about_jaas(NEWEST, random_configs(10_000, seed=8))
    refused = [row for row in rows if "refused" in row]
    assert 1_000 < len(refused) < 9_000
    for row in rows:
        assert ours(row["config"]) == expected_of(row), row["config"]


def ours(config: str) -> dict[str, Any] | None:
    try:
        return as_row(parse_jaas(config))
    except ValueError:
        return None
