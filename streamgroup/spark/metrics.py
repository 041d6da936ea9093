"""`streamgroup.metrics(spark, port)`: the metrics of this driver's queries, in the text format of Prometheus.

One endpoint serves all queries and coordinators of the driver. The listener adds up the batches. At each scrape the
coordinators are asked for their status on their control channels, which the driver's user alone can use.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from streamgroup.driver.application import control
from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.monitoring.families import families
from streamgroup.monitoring.family import Family, Kind
from streamgroup.monitoring.query_totals import QueryTotals
from streamgroup.planning.backlog import offsets_behind
from streamgroup.spark.queries import document, driver_context, jvm_pid

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

log = logging.getLogger("streamgroup")

STATUS_TIMEOUT_S = 1.0
"""The most seconds that a scrape waits for one coordinator."""
SCRAPE_S = 5.0
"""The most seconds that a scrape waits for all coordinators. Prometheus gives up after 10 s, by default."""


class QueryCounter(StreamingQueryListener):
    """Adds up the batches of the queries that read from streamgroup."""

    def __init__(self) -> None:
        self._totals: dict[tuple[str, str], QueryTotals] = {}
        """By the query's id and the group: one query may read for two groups."""
        self._lock = threading.Lock()

    def totals(self) -> list[QueryTotals]:
        """Return the totals of each query that runs."""
        with self._lock:
            return list(self._totals.values())

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  (Spark's name)
        """Do nothing: no batch has sunk."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Add a batch. A progress that cannot be read must not fail Spark's listener bus."""
        try:
            self.add(event.progress, time.time())
        except Exception:
            log.warning("cannot read the progress of a query: its metrics lack a batch", exc_info=True)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing: no batch has sunk."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Forget the query, so that no alert waits for its next batch."""
        with self._lock:
            for key in [key for key in self._totals if key[0] == str(event.id)]:
                del self._totals[key]

    def add(self, progress: StreamingQueryProgress, now: float) -> None:
        """Add the batch of `progress` to the totals of each group that it reads for."""
        groups: dict[str, tuple[int, list[int]]] = {}
        for source in progress.sources:
            end = document(source.endOffset)
            if end is not None:
                rows, behind = groups.get(end["group"] or "", (0, []))
                behind = behind + offsets_behind(end, source.latestOffset)
                groups[end["group"] or ""] = rows + source.numInputRows, behind
        query = str(progress.id)
        with self._lock:
            for group, (rows, behind) in groups.items():
                totals = self._totals.setdefault((query, group), QueryTotals(progress.name or query, group))
                totals.add(rows, progress.durationMs, behind, now)


class MetricsServer:
    """The endpoint `http://host:port/metrics` of one driver, in a thread of its own until `close`."""

    def __init__(self, pid: int, counter: QueryCounter, *, port: int, host: str, cluster_name: str) -> None:
        client = _prometheus()
        self._pid = pid
        self._counter = counter
        self._cluster_name = cluster_name
        registry = client.CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            self._server, self._thread = client.start_http_server(port, addr=host, registry=registry)
        except (OSError, OverflowError) as error:
            raise StreamGroupError(
                f"cannot serve metrics at {host}:{port}: {error}. Choose another port: each driver needs its own"
            ) from None
        self.port: int = self._server.server_port
        self.is_open = True
        log.info("metrics of this driver: http://%s:%d/metrics", host, self.port)

    def collect(self) -> Iterator[Any]:
        """Yield the metrics of a scrape, as Prometheus' client takes them."""
        deadline = time.monotonic() + SCRAPE_S
        statuses = control.statuses(self._pid, STATUS_TIMEOUT_S, deadline)
        for family in families(statuses.values(), self._counter.totals(), self._cluster_name):
            yield _as_prometheus(family)

    def close(self) -> None:
        """Stop serving. A second call has no effect."""
        if self.is_open:
            self.is_open = False
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()


def _as_prometheus(family: Family) -> Any:
    core = _prometheus().core
    types = {
        Kind.GAUGE: core.GaugeMetricFamily,
        Kind.COUNTER: core.CounterMetricFamily,
        Kind.SUMMARY: core.SummaryMetricFamily,
    }
    metric = types[family.kind](family.name, family.doc, labels=family.labels)
    for sample in family.samples:
        if family.kind is Kind.SUMMARY:
            metric.add_metric(sample.labels, count_value=sample.count, sum_value=sample.value)
        else:
            metric.add_metric(sample.labels, sample.value)
    return metric


def _prometheus() -> Any:
    try:
        import prometheus_client  # noqa: PLC0415  (of the extra `metrics`)
        import prometheus_client.core  # noqa: PLC0415
    except ImportError:
        raise ConfigError(
            "cannot serve metrics: the package prometheus-client is missing. Install it with: "
            "pip install 'streamgroup[metrics]'"
        ) from None
    return prometheus_client


_serving: list[tuple[SparkContext, MetricsServer]] = []
"""The endpoint of the application in this process; none or one."""


def metrics(
    spark: SparkSession, port: int = 9404, *, host: str = "127.0.0.1", cluster_name: str = "default"
) -> MetricsServer:
    """Serve the metrics of this driver's queries at `http://host:port/metrics`. Return the server, to `close` it.

    Call it before the queries start: batches that sink earlier are not counted. Port 0 takes any free port, which the
    log names. Whoever reaches the port can read names of topics, groups and queries: it is on loopback by default.
    `cluster_name` is the label of that name in the metrics of kafka-lag-exporter.

    Raises ConfigError without the extra `metrics` or through Spark Connect, StreamGroupError if the port cannot be
    used or the driver serves metrics already.
    """
    context = driver_context("metrics")
    for owner, server in list(_serving):
        if owner is context and server.is_open:
            raise StreamGroupError(
                f"this driver serves metrics already, at port {server.port}. Close that server before you open another"
            )
        server.close()  # of an application that has ended
    counter = QueryCounter()
    server = MetricsServer(jvm_pid(context), counter, port=port, host=host, cluster_name=cluster_name)
    spark.streams.addListener(counter)
    _serving[:] = [(context, server)]
    return server
