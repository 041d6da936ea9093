"""examples/notebook.py by both words: it prints the same lines, which docs/notebook.md shows."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.spark.beside import BOTH, OURS, THEIRS

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
COLUMN = 60


@pytest.mark.long
def test_one_word_changes_and_a_notebook_prints_the_same(
    spark: SparkSession,
    kafka4: KafkaServer,
    make_topic: MakeTopic,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    notebook = runpy.run_path(str(ROOT / "examples" / "notebook.py"))["Notebook"]
    printed = {}
    for form in BOTH:
        topics = [make_topic(kafka4, 2) for _ in range(2)]
        capsys.readouterr()
        notebook(spark, form, kafka4.bootstrap_servers, *topics, home=str(tmp_path / form)).run()
        printed[form] = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert printed[OURS] == printed[THEIRS]
    both = [(f'format("{form}")' for form in BOTH), *zip(printed[THEIRS], printed[OURS], strict=True)]
    side_by_side = "\n".join(f"{left:<{COLUMN}}{right}" for left, right in both)
    assert side_by_side in (ROOT / "docs" / "notebook.md").read_text(), side_by_side
