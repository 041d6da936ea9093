from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from streamgroup.authorization import Operation, refusal
from streamgroup.cli import _clocks as module
from streamgroup.cli._clocks import of_clocks
from streamgroup.cli._findings import CheckVerdict
from streamgroup.cluster.requests import ListedOffset
from streamgroup.errors import TransportError
from streamgroup.model import Broker, ClusterSnapshot, PartitionInfo, TopicInfo, TopicPartition
from streamgroup.options.types import ClientOptions, Isolation

OPTIONS = ClientOptions((("127.0.0.1", 1),))
OFFSETS = TopicInfo("__consumer_offsets", (PartitionInfo(0, 1), PartitionInfo(1, 2), PartitionInfo(2, -1)))
BROKERS = {1: Broker(1, "one", 9092)}


class Cluster:
    """Brokers of which the second is away, and timestamps, one for each look."""

    def __init__(self, *stamps: int | Exception, version: int = 11, topic: TopicInfo | None = OFFSETS) -> None:
        self.stamps = list(stamps)
        self.version = version
        self.topic = topic
        self.closed = False

    def deadline(self, timeout_ms: int | None = None) -> float:
        return self.clock() + 10

    def clock(self) -> float:
        return time.monotonic()

    def newest_version(self, kind: object, deadline: float) -> int:
        return self.version

    def snapshot(self, topics: list[str], deadline: float) -> ClusterSnapshot:
        return ClusterSnapshot(BROKERS, {} if self.topic is None else {self.topic.name: self.topic})

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation, deadline: float
    ) -> dict[TopicPartition, ListedOffset]:
        assert wanted == {TopicPartition("__consumer_offsets", 0): -3}
        stamp = self.stamps.pop(0)
        if isinstance(stamp, Exception):
            raise stamp
        return {tp: ListedOffset(7, stamp) for tp in wanted}

    def close(self) -> None:
        self.closed = True


def findings(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> list[tuple[str, CheckVerdict, str]]:
    monkeypatch.setattr(module, "open_cluster", lambda _: cluster)
    monkeypatch.setattr(module, "_EVERY_S", 0.0)
    found = [(row.subject, row.verdict, row.text) for row in of_clocks(OPTIONS, now=lambda: 1_000.0)]
    assert cluster.closed
    return found


def test_the_watch_ends_when_every_clock_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(999_000, 999_000, 999_990, 999_995)
    ((subject, verdict, text),) = findings(monkeypatch, cluster)
    assert (subject, verdict) == ("clock of broker 1", CheckVerdict.OK)
    assert "by commits during the check" in text
    assert cluster.stamps == [999_995]


def test_a_user_who_may_not_describe_the_topic_gets_a_warning_with_the_right(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = refusal(29, "cannot list offsets", Operation.DESCRIBE, "__consumer_offsets")
    ((subject, verdict, text),) = findings(monkeypatch, Cluster(refused))
    assert (subject, verdict) == ("clocks", CheckVerdict.WARN)
    assert text.startswith(
        "not compared with this machine's: this user is not allowed the operation Describe on topic "
    )


def test_brokers_that_do_not_answer_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    ((_, verdict, text),) = findings(monkeypatch, Cluster(TransportError("no offsets: timed out")))
    assert (verdict, text) == (CheckVerdict.WARN, "not compared with this machine's: no offsets: timed out")


@pytest.mark.parametrize(
    ("cluster", "said"),
    [(Cluster(version=6), "brokers before Kafka 3.0"), (Cluster(topic=None), "does not exist before a group commits")],
    ids=["old brokers", "no groups"],
)
def test_clusters_without_such_timestamps_are_not_compared(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, said: str
) -> None:
    ((subject, verdict, text),) = findings(monkeypatch, cluster)
    assert (subject, verdict) == ("clocks", CheckVerdict.OK)
    assert text.startswith("not compared: ")
    assert said in text
