"""Alert rules and board of `conf/` beside the metrics that exist. `live/test_alert_rules.py` fires the rules."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from streamgroup.cli.main import main
from streamgroup.monitoring.metric_families import MetricKind, families
from tests.unit.test_doc_blocks import parse
from tests.unit.test_docs import anchors

CONF = Path(__file__).parents[3] / "conf"
DOCS = CONF.parent / "docs"
RULES = (CONF / "prometheus" / "alerts.yml").read_text()
COMMANDS = [
    command.replace("{{ $labels.group }}", "orders")
    for command in re.findall(r"streamgroup [a-z]+ (?:-\S+ ?|BROKER ?|\{\{ \$labels\.group \}\} ?)+", RULES)
]
OF_THIS_MACHINE = frozenset({"resume"})
"""Commands that reach queries by their drivers."""


def test_no_rule_is_left_out_of_the_tests() -> None:
    rules = re.findall(r"- alert: (\w+)", RULES)
    tests = (CONF / "prometheus" / "alerts.test.yml").read_text()
    for rule in rules:
        assert len(re.findall(rf"alertname: {rule}\b", tests)) >= 3, f"{rule}: before it, while it fires, after it"


def test_rules_and_board_name_metrics_that_exist() -> None:
    known = {"up"}
    for family in families([], [], ""):
        known |= {f"{family.name}_sum", f"{family.name}_count"} if family.kind is MetricKind.SUMMARY else {family.name}
    board = json.loads((CONF / "grafana" / "streamgroup.json").read_text())
    used = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    named = set(re.findall(r"\b(?:streamgroup_|kafka_)\w+", RULES + " ".join(used)))
    assert named
    assert named <= known


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_of_an_action_parses_and_names_a_cluster(command: str) -> None:
    words = shlex.split(command)
    parse(main, words[1:])
    assert words[1] in OF_THIS_MACHINE or "-b" in words


def test_actions_have_commands() -> None:
    assert len(COMMANDS) >= 3


def test_the_page_lists_each_rule_and_the_rules_name_pages_that_exist() -> None:
    page = (DOCS / "alerts.md").read_text()
    assert re.findall(r"^\| `(Streamgroup\w+)` \|", page, re.MULTILINE) == re.findall(r"- alert: (\w+)", RULES)
    for name, anchor in re.findall(r"docs/([\w-]+\.md)(?:#([\w-]+))?", RULES):
        assert not anchor or anchor in anchors(DOCS / name), f"{name}#{anchor}"
        assert (DOCS / name).exists(), name
