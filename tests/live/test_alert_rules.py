"""The alert rules of `conf/prometheus`, fired and cleared by Prometheus' own tool."""

from __future__ import annotations

import json
import re
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


def test_no_rule_is_left_out_of_the_tests() -> None:
    rules = re.findall(r"- alert: (\w+)", (RULES / "alerts.yml").read_text())
    tests = (RULES / "alerts.test.yml").read_text()
    for rule in rules:
        assert len(re.findall(rf"alertname: {rule}\b", tests)) == 3, f"{rule}: before it, while it fires, after it"


def test_rules_and_board_name_metrics_that_exist() -> None:
    from streamgroup.monitoring.families import families  # noqa: PLC0415
    from streamgroup.monitoring.family import Kind  # noqa: PLC0415

    known = {"up"}
    for family in families([], [], ""):
        known |= {f"{family.name}_sum", f"{family.name}_count"} if family.kind is Kind.SUMMARY else {family.name}
    board = json.loads((RULES.parent / "grafana" / "streamgroup.json").read_text())
    used = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    named = set(re.findall(r"\b(?:streamgroup_|kafka_)\w+", (RULES / "alerts.yml").read_text() + " ".join(used)))
    assert named
    assert named <= known
