"""The clocks of real brokers, as a machine with another clock sees them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Event, Thread

import pytest

from streamgroup.cli._cluster import cluster_of
from streamgroup.cli._doctor_checks import CheckVerdict, Finding, of_clocks
from streamgroup.kafka.cluster.changes import commit_as_admin
from streamgroup.model import TopicPartition
from streamgroup.options.types import ClientOptions
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic

pytestmark = pytest.mark.live

HOUR_S = 3_600.0


@contextmanager
def commits(server: KafkaServer, topic: str) -> Iterator[ClientOptions]:
    """A group commits again and again, from before the block until its end. The block gets options of the cluster."""
    stop, begun = Event(), Event()
    with closing(cluster_of(server.bootstrap_servers, "streamgroup-tests", 20_000)) as cluster:

        def commit() -> None:
            while not stop.wait(0.1):
                commit_as_admin(cluster, topic, {TopicPartition(topic, 0): 0}, cluster.deadline())
                begun.set()

        thread = Thread(target=commit)
        thread.start()
        try:
            assert begun.wait(20), "the group cannot commit"
            yield cluster.options
        finally:
            stop.set()
            thread.join()


def seen(options: ClientOptions, ahead_s: float, watch_s: float = 20.0) -> Finding:
    """Return the finding about the only broker on a machine whose clock is `ahead_s` seconds ahead of it."""
    (finding,) = of_clocks(options, now=lambda: time.time() + ahead_s, watch_s=watch_s)
    return finding


def test_commits_during_the_check_measure_the_clock_in_both_directions(
    kafka41: KafkaServer, make_topic: MakeTopic
) -> None:
    with commits(kafka41, make_topic(kafka41, 1)) as options:
        same, behind, ahead = (seen(options, ahead_s) for ahead_s in (0, HOUR_S, -HOUR_S))
    assert same.verdict is CheckVerdict.OK, same
    assert "by commits during the check" in same.text
    assert (behind.verdict, behind.text.split(":")[0]) == (CheckVerdict.WARN, "behind"), behind
    assert (ahead.verdict, ahead.text.split(":")[0]) == (CheckVerdict.WARN, "ahead"), ahead


def test_without_commits_only_a_clock_that_is_ahead_shows(kafka41: KafkaServer, make_topic: MakeTopic) -> None:
    with commits(kafka41, make_topic(kafka41, 1)) as options:
        pass
    ahead, unknown = (seen(options, ahead_s, watch_s=0.5) for ahead_s in (-HOUR_S, HOUR_S))
    assert (ahead.verdict, ahead.text.split(":")[0]) == (CheckVerdict.WARN, "ahead now or earlier"), ahead
    assert (unknown.verdict, unknown.text.split(":")[0]) == (CheckVerdict.OK, "not measured"), unknown
