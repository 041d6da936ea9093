"""Alert rules and board of `conf/` beside the metrics that exist. `live/test_alert_rules.py` fires the rules."""

from __future__ import annotations

import json
import re
from pathlib import Path

from streamgroup.monitoring.families import families
from streamgroup.monitoring.family import Kind

CONF = Path(__file__).parents[3] / "conf"


def test_no_rule_is_left_out_of_the_tests() -> None:
    rules = re.findall(r"- alert: (\w+)", (CONF / "prometheus" / "alerts.yml").read_text())
    tests = (CONF / "prometheus" / "alerts.test.yml").read_text()
    for rule in rules:
        assert len(re.findall(rf"alertname: {rule}\b", tests)) >= 3, f"{rule}: before it, while it fires, after it"


def test_rules_and_board_name_metrics_that_exist() -> None:
    known = {"up"}
    for family in families([], [], ""):
        known |= {f"{family.name}_sum", f"{family.name}_count"} if family.kind is Kind.SUMMARY else {family.name}
    board = json.loads((CONF / "grafana" / "streamgroup.json").read_text())
    used = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    named = set(
        re.findall(r"\b(?:streamgroup_|kafka_)\w+", (CONF / "prometheus" / "alerts.yml").read_text() + " ".join(used))
    )
    assert named
    assert named <= known
