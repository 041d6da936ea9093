"""The query of a mirror: a stream from one cluster to the other, which starts again when the plan must change."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamgroup.errors import StreamGroupError
from streamgroup.jobs.following import POLL_S, Following, RowsWithOffsets, Say, ends_of_logs, trigger_options
from streamgroup.jobs.mirror.clusters import Clusters
from streamgroup.jobs.mirror.columns import Abilities, columns_of
from streamgroup.jobs.mirror.config import MirrorConfig
from streamgroup.jobs.mirror.plan import MirrorPlan, Placement, settle
from streamgroup.jobs.signals import StopRequest
from streamgroup.jobs.sinkguard import Files
from streamgroup.options.parse import parse_sink
from streamgroup.spark.exactly_once import ExactlyOnceSink
from streamgroup.text import first_of

WATCH_S = 10.0
"""Seconds between two looks for new topics and partitions."""
_SUBSCRIPTIONS = ("subscribe", "subscribepattern")


def mirror(
    spark: SparkSession, config: MirrorConfig, clusters: Clusters, files: Files, *, stop: StopRequest, say: Say
) -> None:
    """Copy records until the backlog is read or a signal requests a stop.

    Raises ConfigError if a topic cannot be mirrored, StreamingQueryException if the query fails.
    """
    if config.in_transaction:
        clusters.refuse_two_clusters()
    common = _common(clusters, say)
    store_of(config, MirrorPlan(), common)  # invalid options raise before a topic is created
    while not stop:
        source = clusters.source()
        plan = settle(files, config.plan, partial(clusters.plan, source=source))
        topics = clusters.topics(source)
        watch = PlanWatch(clusters, plan, topics, say)
        if not topics:
            say("no topic matches subscribePattern yet; waiting for one")
            while not stop and not watch.has_changed():
                time.sleep(POLL_S)
            continue
        store = store_of(config, plan.of(topics), common)
        query = start(spark, config, plan.of(topics), common, store)
        say(f"started {describe(plan.of(topics))}; query {query.id}")
        following = Following(query, say, ends_of_logs(spark))
        try:
            still_runs = following.follow(stop, watch.has_changed)
        except StreamingQueryException:
            if clusters.plan(plan, clusters.source()) == plan:
                if store is not None and store.error is not None:
                    raise store.error from None
                raise
            say("the query failed at a partition that was added after its start: starting it again at the failed batch")
            continue
        if not still_runs:
            return
        if stop:
            following.finish_on_signal(stop.name, config.stop.timeout_seconds)
        else:
            say("topics or partitions have changed; starting again with them")
            following.finish(config.stop.timeout_seconds)


def _common(clusters: Clusters, say: Say) -> Abilities:
    """Return the fields that records of both clusters can have. Report those that the destination lacks."""
    source, destination = clusters.abilities()
    for what in ("keys", "timestamps", "headers"):
        if getattr(source, what) and not getattr(destination, what):
            say(f"{what} are not copied: the records of the destination have none")
    return source & destination


def store_of(config: MirrorConfig, plan: MirrorPlan, common: Abilities) -> RowsWithOffsets | None:
    """Return the function for `foreachBatch` that copies in transactions; None without transactions.

    If all partitions are kept, a task writes the partitions that it reads, and the rows are not shuffled. Raises
    ConfigError for options of the destination with which no transaction can be written.
    """
    if not config.in_transaction:
        return None
    is_kept = all(topic.placement is Placement.KEEP for topic in plan.topics.values())
    return RowsWithOffsets(ExactlyOnceSink(parse_sink(_written(config, common)), clustered=is_kept))


def _written(config: MirrorConfig, common: Abilities) -> dict[str, str]:
    """Return the options of the write."""
    return {**config.destination, **({"includeTimestamp": "true"} if common.timestamps else {})}


def start(
    spark: SparkSession, config: MirrorConfig, plan: MirrorPlan, common: Abilities, store: RowsWithOffsets | None
) -> StreamingQuery:
    """Start the query, which writes by `store` if it is given."""
    rows = spark.readStream.format("streamgroup").options(**source_options(config, list(plan.topics), common)).load()
    writer: Any = rows.selectExpr(*columns_of(plan, common)).writeStream.outputMode("append")
    if store is None:
        writer = writer.format("streamgroup").options(**_written(config, common))
    else:
        writer = writer.foreachBatch(store)
    writer = writer.option("checkpointLocation", config.checkpoint).queryName(query_name(config))
    if trigger := trigger_options(config.trigger):
        writer = writer.trigger(**trigger)
    query: StreamingQuery = writer.start()
    return query


def source_options(config: MirrorConfig, topics: Sequence[str], common: Abilities) -> dict[str, str]:
    """Return the options of the read.

    The mirror resolves a pattern itself, so that no record of a topic arrives before the topic has a plan.
    """
    options = {name: value for name, value in config.source.items() if name.lower() not in _SUBSCRIPTIONS}
    if not any(name.lower() == "assign" for name in options):
        options["subscribe"] = ",".join(topics)
    if common.headers:
        options["includeHeaders"] = "true"
    return options


def query_name(config: MirrorConfig) -> str:
    """Return the query's name in Spark's web UI, with the member's name."""
    return config.spark.app_name if config.member is None else f"{config.spark.app_name}-{config.member}"


def describe(plan: MirrorPlan) -> str:
    shown = [f"{t.source} -> {t.destination} ({t.placement.value})" for t in plan.topics.values()]
    return first_of(shown, 5, "topic")


class PlanWatch:
    """Checks every WATCH_S seconds whether new topics or partitions require another plan."""

    def __init__(
        self,
        clusters: Clusters,
        plan: MirrorPlan,
        topics: Sequence[str],
        say: Say,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clusters = clusters
        self._plan = plan
        self._topics = list(topics)
        self._say = say
        self._clock = clock
        self._next = clock() + WATCH_S
        self._said = ""

    def has_changed(self) -> bool:
        """Return whether the plan must change. A cluster that cannot be reached changes nothing."""
        if self._clock() < self._next:
            return False
        try:
            source = self._clusters.source()
            planned = self._clusters.plan(self._plan, source)
            return planned != self._plan or self._clusters.topics(source) != self._topics
        except StreamGroupError as error:
            # The topics in the plan are still mirrored. Each error is reported once, not at each check.
            if str(error) != self._said:
                self._say(f"warning: {error}")
            self._said = str(error)
            return False
        finally:
            self._next = self._clock() + WATCH_S
