"""Decides which request about its logs a query sends next: metadata, log ends, or a request that another thread posted.

The caller carries out one step after the other, and passes the result of each to the schedule:

    step = schedule.next_step(now)
    schedule.metadata_read(step, snapshot, now)        # after FetchMetadata
    warning = schedule.listed(listing, now)            # after ListLogs
    schedule.answered(now)                             # after Answer or PublishMetadata
    warning = schedule.failed(error, now)              # in place of any of these
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from streamgroup.coordinator.planning.known_logs import KnownLogs
from streamgroup.coordinator.planning.memo import Memo
from streamgroup.errors import BrokerError, StreamGroupError
from streamgroup.frozen import frozen
from streamgroup.model import ClusterSnapshot, TopicPartition, name_some

if TYPE_CHECKING:
    from streamgroup.kafka.cluster.requests import ListedOffset

    Listed = Mapping[TopicPartition, ListedOffset]

Q = TypeVar("Q")

LISTING_EVERY_S = 0.05
"""Minimum time between two listings of the log ends. Spark polls every 10 ms while there is nothing new. Each call
waits that began after it: an older one would miss records that were written before `processAllAvailable()`."""
REST = 4
"""The pause between two listings, in multiples of the CPU time of the last one. Requests and answers of 10,000
partitions take some 0.15 s, and a query that only waits should not keep a CPU busy."""
REST_MOST_S = 0.5
"""Longest pause. A caller waits for the ends for a second, and the listing must end by then."""
EARLIEST_EVERY_S = 2.0
"""How often log starts are listed. Only retention moves them, and executors notice that for the ranges they read."""
LEADERLESS_EVERY_S = 1.0
"""How often the metadata is refreshed while a partition has no leader, or its leader does not answer."""
RETRY_AFTER_S = 0.5
"""The pause after a step that has failed, and before a leader that did not answer is asked again."""
METADATA_EVERY_S = 5.0
"""Maximum time between two refreshes of the metadata, so that new topics and partitions are read soon. Kafka's default
is for clients that only look for leaders. Spark's own source lists the partitions with every trigger."""
METADATA_REST = 75
"""The pause between two such refreshes, in multiples of the CPU time of reading the last one. For 10,000 partitions
that takes some 0.1 s, and passing it to the member a fifth more: every 5 s that was 2 to 3 % of a CPU."""
_CAUSES = 3
"""Maximum number of causes in a warning. There may be one for each partition."""
UNFOLLOWED_S = 60.0
"""The longest wait while the schedule watches no topics."""


@frozen
class Answer(Generic[Q]):
    """Step: carry out a request that another thread posted."""

    question: Q


@frozen
class FetchMetadata:
    """Step: read the metadata of `topics`, or of all topics if `reads_all`.

    `elsewhere`: read it from another broker than before.
    """

    topics: frozenset[str]
    reads_all: bool
    elsewhere: bool
    doubts: int
    """The number of calls of `refresh_metadata` before this step."""


@frozen
class ListLogs:
    """Step: list the offsets of `asked`: the partitions of `wanted` with leaders that are expected to respond."""

    wanted: frozenset[TopicPartition]
    asked: Collection[TopicPartition]
    epoch: int
    """Responses to requests of another epoch are ignored."""
    started_at: float


@frozen
class PublishMetadata:
    """Step: report new metadata, and the topics that were requested, to the query's `Run`."""

    snapshot: ClusterSnapshot
    topics: frozenset[str]


@frozen
class FailQuery:
    """Step: fail the query, because retrying does not resolve `error`. Further steps follow."""

    error: BrokerError


@frozen
class Wait:
    """Step: wait for `seconds`, or until another thread changes the schedule."""

    seconds: float


@frozen
class EndReading:
    """Step: end the thread that reads the logs. It is the last step."""


Step = Answer[Q] | FetchMetadata | ListLogs | PublishMetadata | FailQuery | Wait | EndReading


@frozen
class Listing:
    """The result of a `ListLogs` step. Partitions whose leader did not respond are absent.

    `watermarks` are listed only if the ends are last stable offsets. `starts` is None if the start offsets were not
    listed.
    """

    step: ListLogs
    ends: Listed
    watermarks: Listed
    starts: Listed | None
    causes: Sequence[str]
    """The errors because of which log ends are absent."""


class LogReadSchedule(Generic[Q]):
    """Schedules the requests of one query about its logs. `Q` is the type of a request that another thread posts.

    All times are `time.monotonic()` values that the caller passes. The caller lets only one thread at a time use the
    schedule.
    """

    def __init__(self, metadata_max_age_s: float, *, partitions_ttl_s: float = 0.0, has_pattern: bool) -> None:
        self.logs = KnownLogs(metadata_max_age_s)
        self.error: StreamGroupError | None = None
        """The error of the last step, if it has failed."""
        self.is_stopping = False
        self.listed_at = 0.0
        """When the newest complete listing began; 0 if the next one is due at once."""
        self._metadata_max_age_s = metadata_max_age_s
        self._partitions_ttl_s = partitions_ttl_s
        """`partition.metadata.cache.ttl.ms`: the time between two refreshes if it is set, and 0 if it is not."""
        self._metadata_cpu_s = 0.0
        self._has_pattern = has_pattern
        self._questions: deque[Q] = deque()
        self._unpublished: PublishMetadata | None = None
        self._topics: frozenset[str] | None = None
        self._metadata_at: float | None = None
        self._doubts = 0
        """Counts calls of `refresh_metadata`. A snapshot that was requested before such a call does not satisfy it."""
        self._distrusts = False
        """Whether the next refresh requests the metadata from another broker."""
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._asked_for: Collection[TopicPartition] = ()
        """The collection from which `_partitions` was last made."""
        self._asked_at = 0.0
        self._starts_at = 0.0
        self._listing_cpu_s = 0.0
        self._led: Memo[list[TopicPartition]] = Memo()
        self._missing: frozenset[TopicPartition] = frozenset()
        """Partitions whose leaders did not respond to the last listing. They are listed again at `_ask_missing_at`."""
        self._ask_missing_at = 0.0
        self._reported_missing: frozenset[TopicPartition] = frozenset()
        self._retry_at = 0.0
        self._final: BrokerError | None = None
        """An error that retrying does not resolve, until a FailQuery step has reported it."""
        self.retries = 0
        """The number of refreshes that failed, and of listings that failed or lack a partition: all are repeated."""

    @property
    def metadata_at(self) -> float:
        """Time of the last metadata refresh; 0 before the first refresh, and while the next one is due at once."""
        return self._metadata_at or 0.0

    # --- requests -------------------------------------------------------------------------------------------

    def ask(self, question: Q) -> None:
        """Queue a request of another thread; it is carried out before any other step, after earlier requests."""
        self._questions.append(question)

    def follow(self, topics: Collection[str]) -> None:
        """Watch the metadata of `topics`, and refresh it now."""
        self._topics = frozenset(topics)
        self._metadata_at = None

    def refresh_metadata(self) -> None:
        """Refresh the metadata soon: a broker's response has shown that it is out of date."""
        self._metadata_at = None
        self._doubts += 1

    def want_ends(self, partitions: Collection[TopicPartition], now: float) -> None:
        """Schedule a listing of `partitions` that begins after `now`."""
        if partitions is not self._asked_for:
            if not self._partitions.issuperset(partitions):
                self.listed_at = 0.0
            self._partitions, self._asked_for = frozenset(partitions), partitions
        self._asked_at = now

    def doubt(self, partitions: Collection[TopicPartition], now: float) -> None:
        """Drop the log data known at `now` of `partitions`, which may be stale; list them and refresh the metadata."""
        self.logs.void(partitions, now)
        self._starts_at = 0.0
        self.listed_at = 0.0
        self._distrusts = True
        self.refresh_metadata()

    def stop(self) -> list[Q]:
        """End the schedule. Return the posted requests that were not carried out."""
        self.is_stopping = True
        left = list(self._questions)
        self._questions.clear()
        return left

    # --- the next step ---------------------------------------------------------------------------------------------

    def next_step(self, now: float) -> Step[Q]:
        """Return the next step. Call it again after that step is carried out."""
        if self._unpublished is not None:
            news, self._unpublished = self._unpublished, None
            return news
        if self.is_stopping:
            return EndReading()
        if now < self._retry_at and not self._questions:
            return Wait(self._retry_at - now)
        self._retry_at = 0.0
        if self._final is not None:
            final, self._final = self._final, None
            return FailQuery(final)
        return Answer(self._questions.popleft()) if self._questions else self._next_look(now)

    def _next_look(self, now: float) -> FetchMetadata | ListLogs | Wait:
        """Return the request that is due, or how long the known log data is recent enough."""
        until_refresh, until_listing = self._until_refresh(now), self._until_listing(now)
        if until_refresh <= 0:
            return self._fetch_metadata()
        if until_listing <= 0:
            return ListLogs(self._partitions, self._asked_now(now), self.logs.epoch, now)
        return Wait(min(until_refresh, until_listing))

    def _until_refresh(self, now: float) -> float:
        if not self._follows():
            return UNFOLLOWED_S
        if self._metadata_at is None:
            return 0.0
        every_s = self._partitions_ttl_s or max(METADATA_EVERY_S, METADATA_REST * self._metadata_cpu_s)
        every_s = min(self._metadata_max_age_s, every_s)
        return self._metadata_at + every_s - now

    def _follows(self) -> bool:
        """Return whether the schedule watches metadata: of topics, or of topics that a pattern may match later."""
        return bool(self._topics) or (self._topics is not None and self._has_pattern)

    def _until_listing(self, now: float) -> float:
        """Return the seconds until the next listing; infinite if no caller waits for one."""
        if self._asked_at <= self.listed_at:
            return math.inf
        return self.listed_at + max(LISTING_EVERY_S, min(REST_MOST_S, REST * self._listing_cpu_s)) - now

    def _fetch_metadata(self) -> FetchMetadata:
        distrusts, self._distrusts = self._distrusts, False
        return FetchMetadata(self._topics or frozenset(), self._has_pattern, distrusts, self._doubts)

    def _asked_now(self, now: float) -> list[TopicPartition]:
        """Return the partitions that have a leader, except those whose leader has just failed to respond."""
        wanted, snapshot = self._partitions, self.logs.snapshot
        led = self._led.get(lambda: sorted(tp for tp in wanted if snapshot.leader(tp) is not None), wanted, snapshot)
        return led if now >= self._ask_missing_at else [tp for tp in led if tp not in self._missing]

    def lists_starts(self, step: ListLogs, ends: Listed) -> bool:
        """Return whether `step`, for which the log ends are listed, also lists the start offsets."""
        return step.started_at - self._starts_at > EARLIEST_EVERY_S or not self.logs.has_ranges(ends.keys())

    # --- results of steps ---------------------------------------------------------------------------------------------

    def metadata_read(self, step: FetchMetadata, snapshot: ClusterSnapshot, now: float) -> None:
        """Store the metadata that `step` requested. `PublishMetadata` is the next step."""
        self.error = None
        topics = step.topics | snapshot.topics.keys() if step.reads_all else step.topics
        self.logs.take_snapshot(snapshot, self._partitions, now)
        if (step.topics, step.doubts) == (self._topics, self._doubts):
            self._metadata_at = now
        self._unpublished = PublishMetadata(snapshot, topics)

    def metadata_took(self, cpu_s: float) -> None:
        """Set the pause before the next refresh from the CPU seconds of the last one."""
        self._metadata_cpu_s = cpu_s

    def listed(self, listing: Listing, now: float) -> str | None:
        """Store a listing. Return a warning, once, if leaders did not respond."""
        self.error = None
        step, starts = listing.step, listing.starts
        void = self.logs.take_listing(listing.ends, listing.watermarks, starts or {}, sent_at=step.started_at)
        if not self.logs.any_valid(void, now):  # if one is, the next listing is due at once
            self._starts_at = self._starts_at if starts is None else step.started_at
            self.listed_at = step.started_at
        return self._miss(step.wanted - listing.ends.keys(), listing.causes, asked=step.asked, now=now)

    def listing_took(self, cpu_s: float) -> None:
        """Set the pause before the next listing from the CPU seconds of the last one."""
        self._listing_cpu_s = cpu_s

    def _miss(
        self,
        missing: frozenset[TopicPartition],
        causes: Sequence[str],
        *,
        asked: Collection[TopicPartition],
        now: float,
    ) -> str | None:
        """Refresh the metadata if leaders do not respond, because they may have moved. Return the warning, once."""
        warning = None
        if causes and not missing <= self._reported_missing:
            why = "; ".join(causes[:_CAUSES]) + (f"; and {len(causes) - _CAUSES} more" if len(causes) > _CAUSES else "")
            warning = f"cannot list the offsets of {name_some(missing)}: {why}. Other partitions are not affected"
            self._reported_missing |= missing
        self._reported_missing &= missing
        self._missing = missing
        self.retries += bool(missing)
        if not missing.isdisjoint(asked):
            self._ask_missing_at = now + RETRY_AFTER_S
        if missing and now - self.metadata_at > LEADERLESS_EVERY_S:
            self.refresh_metadata()
        return warning

    def answered(self, now: float) -> None:
        """Record at `now` that a posted request was carried out, or that new metadata was published."""
        self.error = None

    def failed(self, error: StreamGroupError, now: float) -> str | None:
        """Handle the error of a step. Return a warning if the error differs from the last one.

        The metadata is read again after RETRY_AFTER_S, or after the next posted request. If retrying does not resolve
        the error, the next step fails the query instead.
        """
        is_known = self.error is not None and str(self.error) == str(error)
        self.error = error
        self._metadata_at = None
        self._retry_at = now + RETRY_AFTER_S
        if isinstance(error, BrokerError) and not error.retriable:
            self._final = error
        else:
            self.retries += 1
        return None if is_known else f"{error}; trying again"
