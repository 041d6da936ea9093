"""The coordinator of one query's run: Spark's calls, served from what the group's thread and the watcher know.

Spark's thread calls `latest_offset`, `partitions` and `stop`; the group's thread carries out the member's actions; the
watcher asks the brokers. One condition, `_state`, guards the member and is notified after every change.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from streamgroup.driver.application.claims import Claim
from streamgroup.driver.application.silence import SilenceWatch, spark_calls
from streamgroup.driver.batch import tasks_of
from streamgroup.driver.beginning import Beginning
from streamgroup.driver.leaving import Leaving
from streamgroup.driver.logs.memo import Memo
from streamgroup.driver.logs.subscription import is_subscribed
from streamgroup.driver.logs.watcher import LogWatcher
from streamgroup.driver.membership.modes import ledger_of
from streamgroup.driver.membership.seats import seat_of
from streamgroup.driver.membership.twins import Twins
from streamgroup.driver.patience import FIRST_PATIENCE_S, Patience
from streamgroup.driver.planner import Logs, Planner
from streamgroup.driver.proof import Proof
from streamgroup.driver.resolver import Resolver
from streamgroup.driver.starts import log_ends
from streamgroup.driver.trouble import Troubles
from streamgroup.driver.unregistered import Unregistered
from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.group import events as ev
from streamgroup.group.member import MemberAction, MetadataStale, Resolve
from streamgroup.group.positions import is_of_a_query
from streamgroup.model import (
    ClusterSnapshot,
    CommittedOffset,
    Document,
    FetchTask,
    OffsetRange,
    TopicPartition,
)
from streamgroup.options.types import GroupOptions, LimitOptions, Mode, SourceOptions
from streamgroup.planning.batch import replay_ranges, whole_batch
from streamgroup.planning.document import DocumentReader, to_value

log = logging.getLogger("streamgroup")


class Coordinator:
    """One member of one group, for one run of one query. Nothing connects before the first call that needs it.

    `home` is the private directory of the driver's JVM, where members of one application meet (R28).
    """

    def __init__(self, options: SourceOptions, rng: random.Random | None = None, home: Path | None = None) -> None:
        assert options.group is not None, "options of a batch read"
        self._options = options
        self._group: GroupOptions = options.group
        self._state = threading.Condition(threading.RLock())
        self._patience_s = options.client.default_api_timeout_ms / 1000
        self._failure: StreamGroupError | None = None
        self._answer: tuple[Document, list[FetchTask]] | None = None
        self._documents = DocumentReader()
        self._reported: Memo[dict[str, dict[str, int]]] = Memo()
        self.stopping = False
        """`stop` has been called: by a thread that is not to be interrupted."""
        self.run = _new_id()
        self._ledger = ledger = ledger_of(self._group, self.run, _new_id())
        self._watcher = LogWatcher(options, self._metadata_refreshed, self._fail)
        self._seat = seat_of(
            options,
            self._group,
            ledger,
            rng=rng or random.Random(),
            state=self._state,
            watcher=self._watcher,
            is_missed=self._is_missed,
            on_action=self._act,
        )
        self._member, self._thread = self._seat.member, self._seat.thread
        self._troubles = troubles = Troubles(
            ledger.group,
            self.run,
            lambda level, line: log.log(level, "%s", line),
            log_format=lambda: self._watcher.snapshot.log_format,
        )
        self._planner = Planner(
            ledger,
            self._watcher,
            troubles,
            kept=self._group.kept,
            fail_on_data_loss=options.fail_on_data_loss,
            documents_positions=self._group.mode is Mode.OFF,
            is_subscribed=lambda tp: is_subscribed(options.subscription, tp),
        )
        self._unregistered = Unregistered(options, self._seat, lambda: self._watcher.snapshot, self._patience_s)
        self._resolver = Resolver(
            options,
            self._group.kept,
            self._watcher,
            troubles,
            on_found=self._found,
            on_failed=self._not_found,
            is_new=lambda tp: tp not in self._beginning.there,
        )
        self._claim = None if home is None else Claim(home, ledger.group, self._group.member, self.run)
        session_s = self._group.session_timeout_ms / 1000
        self._twins = Twins(
            ledger.group, session_s, self._state, self._seat.described, identify=self._identify, on_failed=self._fail
        )
        self.proof = Proof(self._state, self._member, self._thread, self._skipped)
        self._member.is_listened = lambda: self.proof.is_listened
        self._leaving = Leaving(
            self._state,
            self._member,
            self._thread,
            self._watcher,
            lambda: self._failure is not None,
            is_listened=lambda: self.proof.is_listened,
        )
        self._beginning = Beginning(
            options,
            self._state,
            self._seat,
            watcher=self._watcher,
            leaving=self._leaving,
            twins=self._twins,
            claim=self._claim,
        )
        self._waiting = Patience(
            self._group,
            self._state,
            self._member,
            self._beginning,
            is_clear=self._twins.clear,
            is_over=lambda: self._failure is not None or self._leaving.wanted,
            patience_s=self._patience_s,
        )
        alone = not self._group.is_member  # nobody waits for who is alone, and leaving would help nobody
        self.silence = SilenceWatch(
            self._group, is_listened=lambda: alone or self.proof.is_listened, pause=lambda: not alone and self._pause()
        )

    # --- Spark's calls -----------------------------------------------------------------------------------------------

    @spark_calls
    def prepare_available_now(self) -> None:
        """R11: snapshot the ends of all subscribed partitions."""
        self._beginning.open()
        subscription, isolation = self._options.subscription, self._options.fetch.isolation
        self._planner.targets = self._watcher.ask(
            lambda cluster, deadline: log_ends(cluster, deadline, subscription, isolation), self._patience_s
        )

    @spark_calls
    def latest_offset(self, start: Mapping[str, Any], *, limits: LimitOptions, once: bool = False) -> dict[str, Any]:
        """Prove `start` sunk, commit it, and plan the next batch: its document, or `start` where nothing is new."""
        document = self._documents.read(start)
        self._beginning.open()
        self._beginning.look_again(document)
        with self._state:
            self._raise_failure()
            again = self._planner.again(document)
            if again is not None:
                return to_value(again)
            self._prove(document)
            self._join(document)
            self._leaving.raise_if_ended(FIRST_PATIENCE_S)
        began = time.monotonic()
        while (planned := self._plan(document, limits, once=once)) is None:
            with self._state:
                ends = self._planner.targets is not None
                if self._leaving.wanted or not self._waiting.looks_again(began, once=once, ends=ends):
                    return self._wait_on(dict(start), document)
        return dict(start) if planned is document else to_value(planned)

    def _plan(self, previous: Document, limits: LimitOptions, *, once: bool) -> Document | None:
        """The next batch's document, or `previous` where there is nothing new; None where that cannot be told yet."""
        with self._state:
            may_plan = self._waiting.until_plannable(once=once, ends=self._planner.targets is not None)
            self._raise_failure()
            if not may_plan:
                return None
            generation, positions = self._ledger.generation, self._ledger.positions()
        logs = self._watcher.ends(positions, FIRST_PATIENCE_S)
        self._planner.ask(positions, logs, limits, FIRST_PATIENCE_S)
        self._unregistered.begin(previous, self._planner.targets, once=once)
        with self._state:
            self._raise_failure()
            if self._leaving.wanted or self._ledger.generation != generation:
                return None
            planned = self._next(previous, logs, limits, once=once)
        if planned is previous:
            self._unregistered.end(previous, self._planner.targets)
        return planned

    def _next(self, previous: Document, logs: Logs, limits: LimitOptions, *, once: bool) -> Document | None:
        """`_plan` with what the brokers have told. The lock is held."""
        now = time.monotonic()
        if not self._member.may_plan(now):
            return None
        known, moved = self._planner.judge(logs)
        if moved:
            self._thread.carry_out(self._member.moved(moved, now))
            return None
        if once and (unjudged := self._unjudged()):
            self._waiting.check_unanswered(unjudged, "Trigger.Once")
            return None
        planned = self._planner.next(previous, known, limits, now=now, once=once)
        if planned is not None:
            self._waiting.answered()
            self._thread.carry_out(self._member.planned(planned, now))
            return planned
        if self._planner.targets is None:
            return previous
        return previous if self._is_read(logs) else None

    def _is_read(self, logs: Logs) -> bool:
        """Return whether AvailableNow may end (R11): every position held is judged sound and has reached its target.

        A position that looks lost has reached its target, too, if the log was cut before the snapshot: to end before
        it is judged would pass over the loss in silence.
        """
        judged = self._ledger.positions()
        if not self._waiting.until_complete() or self._ledger.positions() is not judged:
            return False  # partitions have come or gone meanwhile
        if left := self._unjudged() | self._planner.unread(logs):
            self._waiting.check_unanswered(left, "Trigger.AvailableNow")
        return not left

    def _unjudged(self) -> frozenset[TopicPartition]:
        """Return the partitions that the brokers' answers do not yet allow to judge, of a trigger that ends.

        These are partitions held, and those of the run's beginning that the metadata lacks. Not among them are
        partitions of Kafka 0.7 whose broker is away: `Unregistered` decides about those.
        """
        unjudged = self._planner.unjudged - self._unregistered.left_out(self._planner.unjudged)
        return unjudged | self._planner.absent(self._beginning.there)

    @spark_calls
    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[FetchTask]:
        """The tasks of the batch that `end` describes. The answer is kept: Spark may ask again (R12)."""
        first = self._documents.read(start)
        last = whole_batch(first, self._documents.read(end))
        if first == last:
            return []
        self._beginning.open()
        self._beginning.look_again(first)
        with self._state:
            self._raise_failure()
            if self._answer is not None and self._answer[0] == last:
                return self._answer[1]
            planned_here = self._ledger.is_planned_here(last)
        # A replay's filter: fetched when its partitions are asked, and waited for.
        seen = {} if planned_here else self._seat.committed(self._patience_s)
        with self._state:
            now = time.monotonic()
            ranges, actions = (
                self._member.handed_out(last, now) if planned_here else self._replay(first, last, seen, now)
            )
            self._thread.carry_out(actions)
            self._join(first)
            self._unregistered.wait_for_brokers(ranges, self._state, lambda: self._failure is not None)
            self._raise_failure()
            logs = self._watcher.known([r.partition for r in ranges])
            tasks = tasks_of(ranges, self._watcher.snapshot, self._options, last.positions, logs)
            self._answer = (last, tasks)
            return tasks

    @spark_calls
    def report_latest(self) -> dict[str, dict[str, int]] | None:
        """The ends of the logs held, in the shape of Spark's own connector; None before anything is known."""
        with self._state:
            held = self._ledger.partitions()
        return self._reported.get(lambda: self._ends_of(held), held, *self._watcher.known_since) or None

    def _ends_of(self, held: Collection[TopicPartition]) -> dict[str, dict[str, int]]:
        ends: dict[str, dict[str, int]] = {}
        for tp, known in sorted(self._watcher.known(held).items()):
            ends.setdefault(tp.topic, {})[str(tp.partition)] = known.latest
        return ends

    def stop(self, *, last_word: bool = True) -> None:
        """R29: commit every held position, leave the group (static members stay), within a second."""
        self.stopping = True
        self._leaving.stop(last_word=last_word)
        with self._state:
            self._troubles.left(self._ledger.in_flight, self._leaving.uncommitted, "stopped")
        if self._claim is not None:
            self._claim.release()

    def _pause(self) -> bool:
        """R27: leave until Spark calls again; whether there was anything to leave."""
        with self._state:
            paused = self._leaving.pause()
            if paused:
                self._troubles.left(self._ledger.in_flight, self._leaving.uncommitted, "left while Spark was silent")
            return paused

    # --- the control channel's requests ------------------------------------------------------------------------------

    def sunk(self, document: Mapping[str, Any], batch: int | None, query: Mapping[str, Any]) -> dict[str, Any]:
        """The listener has said that the batch of `document` has sunk (R15)."""
        return self.proof.sunk(document, batch, query)

    def ranges(self) -> dict[str, Any]:
        """What the batch in flight covers."""
        return self.proof.ranges()

    def end(self) -> dict[str, Any]:
        """Every coordinator of the query is drained: Spark's next call ends it."""
        self._leaving.end()
        return {}

    def drain(self, timeout: float, *, ends: bool = False) -> dict[str, Any]:
        """R30: plan no more, wait until the last batch is proven sunk, commit, leave; `ends`: see `Leaving.drain`.

        Returns `{"drained": bool, ...}`: False where `timeout` seconds passed before; then one batch may be repeated.
        """
        drained = self._leaving.drain(timeout, ends=ends)
        with self._state:
            if not drained:
                self._troubles.left(self._ledger.in_flight, self._leaving.uncommitted, "the drain's time was over")
            return {
                "drained": drained,
                "group": self._group.group_id,
                "run": self.run,
                "in_flight": not self._ledger.idle,
            }

    def status(self) -> dict[str, Any]:
        """What this member is doing, for the control channel."""
        with self._state:
            return {
                "group": self._group.group_id,
                "mode": self._group.mode.value,
                "name": self._group.member or self._group.instance_id or "",
                "run": self.run,
                "lineage": self._ledger.lineage,
                "member": self._ledger.member_id,
                "generation": self._ledger.generation,
                "state": self._member.membership.state.name.lower(),
                "draining": self._leaving.draining,
                "stopped": self._leaving.stopped,
                "idle": self._ledger.idle,
                "query": self.proof.query,
                "positions": {str(tp): p.offset for tp, p in self._ledger.positions().items()},
                "trouble": self._troubles.status(),
            }

    # --- planning ----------------------------------------------------------------------------------------------------

    def _join(self, checkpoint: Document) -> None:
        """Join on the first call, with the checkpoint known; what of it is not there any more is lost (R8)."""
        self._planner.miss(self._beginning.gone(checkpoint))
        self._beginning.join()

    def _is_missed(self, tp: TopicPartition) -> bool:
        """Whether a partition that is not there any more is held until its loss is told."""
        return tp in self._ledger.positions() and tp not in self._planner.deleted

    def _prove(self, document: Document) -> None:
        try:
            self._thread.carry_out(self._member.mark_sunk(document, time.monotonic()))
        except ConfigError:  # R17
            self._troubles.skipped(document)
            raise

    def _wait_on(self, start: dict[str, Any], previous: Document) -> dict[str, Any]:
        """Nothing can be planned yet: `start`, byte for byte (R2); AvailableNow would end with it (R10)."""
        if self._planner.targets is None or self._leaving.wanted:
            return start
        document = self._planner.empty(previous)
        self._member.planned_empty(document)
        return to_value(document)

    def _replay(
        self, start: Document, end: Document, seen: Mapping[TopicPartition, CommittedOffset], now: float
    ) -> tuple[tuple[OffsetRange, ...], list[MemberAction]]:
        """R13: every range of a document that another process planned, but what the group has committed since.

        Alone, a commit of a query leaves nothing out: it is another's, with another sink, or of before the batch.
        """
        alone = not self._group.is_member
        counts = {tp: commit for tp, commit in seen.items() if not (alone and is_of_a_query(commit))}
        ranges = tuple(replay_ranges(end, counts))
        self._troubles.replaying(end, ranges)
        return ranges, self._member.replayed(start, end, ranges, seen, now)

    # --- the other threads -------------------------------------------------------------------------------------------

    def _act(self, action: MemberAction) -> None:
        """An action that is not the group thread's own; called with the lock held."""
        self._troubles.hear(action, self._ledger.in_flight)
        self._twins.hear(action)
        match action:
            case ev.NeedTopics(topics):
                self._beginning.follow(topics)
            case Resolve():
                self._resolver.resolve(action)
            case MetadataStale():
                self._watcher.refresh_metadata()
            case ev.Fail(error):
                self._fail(error)
        self._state.notify_all()

    def _identify(self, identity: bytes) -> None:
        self._thread.carry_out(self._member.step(ev.Identified(identity), time.monotonic()))

    def _metadata_refreshed(self, snapshot: ClusterSnapshot, asked: frozenset[str]) -> None:
        self._beginning.see(snapshot, asked)

    def _found(self, generation: int, offsets: Mapping[TopicPartition, int]) -> None:
        with self._state:
            self._thread.carry_out(self._member.resolved(generation, offsets, time.monotonic()))
            self._state.notify_all()

    def _not_found(self, generation: int, error: StreamGroupError) -> None:
        with self._state:
            if generation == self._ledger.generation and not self._leaving.stopped:
                self._fail(error)

    def _fail(self, error: StreamGroupError) -> None:
        """The query cannot go on; its next call says why."""
        with self._state:
            self._failure = self._failure or error
            self._state.notify_all()

    def _skipped(self, document: Document, error: StreamGroupError) -> None:
        """R17, as the listener found it out."""
        self._troubles.skipped(document)
        self._fail(error)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


def _new_id() -> str:
    """An id for a lineage or a run: short enough for a commit's metadata, unique enough for ever."""
    return uuid.uuid4().hex[:16]
