"""The alert rules of `conf/prometheus`, fired and cleared by Prometheus' own tool."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.prometheus import program

pytestmark = [pytest.mark.live, pytest.mark.long, pytest.mark.timeout(120)]

RULES = Path(__file__).parents[2] / "conf" / "prometheus"


def test_every_rule_fires_and_clears(tmp_path: Path) -> None:
    tool = program("promtool", tmp_path)
    for arguments in (("check", "rules", "alerts.yml"), ("test", "rules", "alerts.test.yml")):
        ran = subprocess.run([tool, *arguments], cwd=RULES, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
