"""Believe a loss only after it has been seen for a while (R8): what brokers answer may be stale for a moment.

- A broker that has just started, or that lags behind the controller, does not know every topic.
- Before Kafka 2.2 a new leader answers with a high watermark below what consumers have read, until its followers have
  fetched from it (KIP-207): up to `replica.fetch.wait.max.ms`, 500 ms by default.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamgroup.logformat import KAFKA_LOG, LogFormat
from streamgroup.model import LogRange, Position, TopicInfo, TopicPartition
from streamgroup.planning import loss

BELIEVED_AFTER_S = 3.0
"""Seconds for which the brokers' answers must show a loss before the data-loss policy is applied to it."""
LOOK_EVERY_S = 0.5
"""Seconds between two looks at the metadata and the logs of suspected partitions."""


class Suspicions:
    """The partitions whose positions do not fit what the brokers answer, each with the time since when.

    All times are monotonic seconds, given by the caller.
    """

    def __init__(self) -> None:
        self._since: dict[TopicPartition, float] = {}
        self._look_at = 0.0
        self._looked_at: float | None = None

    def __bool__(self) -> bool:
        """Return whether any partition is suspected."""
        return bool(self._since)

    def judge(
        self,
        positions: Mapping[TopicPartition, Position],
        logs: Mapping[TopicPartition, LogRange],
        topics: Mapping[str, TopicInfo],
        *,
        now: float,
        metadata_at: float,
        epoch_ends: Mapping[TopicPartition, int],
        log_format: LogFormat = KAFKA_LOG,
    ) -> dict[TopicPartition, loss.Verdict]:
        """Return the verdict on each position, as `loss.judge` does; `metadata_at` is when `topics` was read.

        A verdict stays `Recheck` until metadata that was read `BELIEVED_AFTER_S` after the first one still shows the
        loss. A suspected partition whose log has no answer stays suspected.
        """
        verdicts = loss.judge(positions, logs, topics, refreshed=False, epoch_ends=epoch_ends, log_format=log_format)
        suspected = {tp for tp, verdict in verdicts.items() if isinstance(verdict, loss.Recheck)}
        unanswered = set(self._since.keys() & verdicts.keys() - logs.keys())
        if not suspected.issubset(self._since):
            self._look_at = now
        self._since = {tp: self._since.get(tp, now) for tp in suspected | unanswered}
        seen_again = {tp: positions[tp] for tp in suspected if metadata_at >= self._since[tp] + BELIEVED_AFTER_S}
        return verdicts | loss.judge(seen_again, logs, topics, refreshed=True, epoch_ends=epoch_ends)

    def due(self, now: float, metadata_at: float) -> frozenset[TopicPartition]:
        """Return the partitions whose metadata and logs are to be asked for again now; none where it is too early.

        While the metadata of the last look is still on its way (`metadata_at` is when the newest was read) no other is
        asked for: a look that takes longer than `LOOK_EVERY_S` would else never end.
        """
        on_its_way = self._looked_at is not None and metadata_at < self._looked_at
        if not self._since or now < self._look_at or on_its_way:
            return frozenset()
        self._looked_at, self._look_at = now, now + LOOK_EVERY_S
        return frozenset(self._since)
