"""The changes of `streamgroup topics` are checked before a broker is asked, and say what was done."""

from __future__ import annotations

import json

import click
import pytest

from streamgroup.cli import _topic_changes as module
from streamgroup.cli._topic_changes import TopicChange, carry_out
from streamgroup.cluster.kafka import KafkaCluster
from streamgroup.errors import StreamGroupError
from streamgroup.options.types import ClientOptions
from tests.unit.cli.topic_requests import changes

__all__ = ["changes"]

CREATE = TopicChange("create", ("a", "b"), 3)


@pytest.mark.parametrize(
    "change",
    [
        CREATE,
        TopicChange("create", ("a",), 1, 3, ("retention.ms=1", "cleanup.policy=", "x=y=z"), if_not_exists=True),
        TopicChange("alter", ("a",), 4),
        TopicChange("delete", ("a", "b")),
    ],
)
def test_a_change_with_the_options_of_its_action_is_accepted(change: TopicChange) -> None:
    change.check()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (TopicChange("create", (), 3), "--create requires --topic"),
        (TopicChange("delete", ()), "--delete requires --topic"),
        (TopicChange("create", ("a",)), "--create requires --partitions"),
        (TopicChange("alter", ("a",)), "--alter requires --partitions"),
        (TopicChange("delete", ("a",), 3), "--delete does not take --partitions"),
        (TopicChange("alter", ("a",), 3, 2), "require --create"),
        (TopicChange("delete", ("a",), configs=("x=y",)), "require --create"),
        (TopicChange("delete", ("a",), if_not_exists=True), "require --create"),
        (TopicChange("create", ("a",), 3, configs=("x=y", "x")), "invalid value 'x' for --config"),
        (TopicChange("create", ("a",), 3, configs=("=y",)), "invalid value '=y' for --config: expected NAME=VALUE"),
    ],
)
def test_a_change_with_other_options_names_the_one_that_is_wrong(change: TopicChange, reason: str) -> None:
    with pytest.raises(click.UsageError, match=reason):
        change.check()


@pytest.fixture
def cluster() -> KafkaCluster:
    """Connects at its first request, so never in these tests."""
    return KafkaCluster(ClientOptions((("127.0.0.1", 1),)))


def test_new_topics_have_the_brokers_default_replication_and_the_text_behind_the_first_equals_sign(
    changes: list[tuple[object, ...]], cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    carry_out(TopicChange("create", ("a", "b"), 3, configs=("x=y=z", "n=")), cluster, 7.5, as_json=False)
    configs = {name: {"x": "y=z", "n": ""} for name in "ab"}
    assert changes == [("create", {"a": 3, "b": 3}, 7.5, {"replication_factor": -1, "configs": configs})]
    assert capsys.readouterr() == ("Created topic a.\nCreated topic b.\n", "")


def test_a_topic_that_exists_is_passed_over_only_where_the_user_says_so(
    changes: list[tuple[object, ...]], cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(click.ClickException, match=r"topic 'old' exists already\. Set --if-not-exists to pass over it"):
        carry_out(TopicChange("create", ("new", "old"), 3), cluster, 0.0, as_json=False)
    assert capsys.readouterr().out == ""
    carry_out(TopicChange("create", ("new", "old"), 3, if_not_exists=True), cluster, 0.0, as_json=False)
    assert capsys.readouterr().out == "Created topic new.\nThere is a topic old.\n"


def test_json_has_the_topics_and_the_warning_of_more_partitions_stays_on_standard_error(
    changes: list[tuple[object, ...]], cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    carry_out(TopicChange("alter", ("a", "b"), 1), cluster, 1.0, as_json=True)
    shown, warned = capsys.readouterr()
    assert json.loads(shown) == {
        "alter": ["a", "b"],
        "messages": ["Topic a has 1 partition.", "Topic b has 1 partition."],
    }
    assert warned.startswith("Warning: records with a key may now go to another partition")
    carry_out(TopicChange("delete", ("a",)), cluster, 1.0, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"delete": ["a"], "messages": ["Deleted topic a."]}
    assert changes == [("grow", {"a": 1, "b": 1}, 1.0), ("delete", ("a",), 1.0)]


def test_a_refusal_of_the_brokers_prints_nothing(
    cluster: KafkaCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StreamGroupError("cannot grow topic 'a'")

    monkeypatch.setattr(module, "grow_topics", refuse)
    with pytest.raises(StreamGroupError, match="cannot grow topic 'a'"):
        carry_out(TopicChange("alter", ("a",), 1), cluster, 1.0, as_json=False)
    assert capsys.readouterr() == ("", "")
