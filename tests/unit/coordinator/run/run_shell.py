"""A run as a machine, with a real member and a group coordinator in memory; and single calls of a run."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import pytest

from streamgroup.coordinator.planning.packing import UNIT
from streamgroup.coordinator.run import interface
from streamgroup.coordinator.run.interface import Question, RunConfig
from streamgroup.coordinator.run.machine import Run
from streamgroup.coordinator.run.planner import Planner
from streamgroup.coordinator.run.run_events import RunEvents
from streamgroup.coordinator.run.steps import Steps, StepScheduler
from streamgroup.coordinator.threads.assemble import ledger_of, machine_of, member_of, run_config
from streamgroup.group import events as ev
from streamgroup.group.offsets.table import ClaimRows, CommitRows
from streamgroup.kafka.cluster.requests import ListedOffset
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from streamgroup.kafka.wire.schema import decode, encode
from streamgroup.logformat import partition_number
from streamgroup.model import (
    EARLIEST,
    INITIAL_DOCUMENT,
    ClusterSnapshot,
    Dialect,
    Document,
    FetchRange,
    FetchTask,
    GroupDescription,
    GroupState,
    LogRange,
    PartitionInfo,
    TopicInfo,
    TopicPartition,
)
from streamgroup.options.types import GroupMode, GroupOptions, LimitOptions
from tests.fakes.cluster import NODES
from tests.fakes.group_coordinator import ScriptedCoordinator
from tests.fakes.offset_table import OffsetTableRows
from tests.fakes.offsets import OFFSETS_VERSION
from tests.unit.coordinator.shells import source

A = TypeVar("A")

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))
AWAY = TopicPartition("t", partition_number(1, 0))
"""The first partition of broker 1 in Kafka 0.7."""
MEMBER, OFF = GroupOptions("g"), GroupOptions(mode=GroupMode.OFF)
COMMIT = GroupOptions("g", mode=GroupMode.COMMIT)
MODES = pytest.mark.parametrize("group", [MEMBER, COMMIT, OFF], ids=lambda group: group.mode.value)
Request = Callable[[Run], Any]


def latest_offset(start: Document, limits: LimitOptions, *, once: bool = False) -> Request:
    return lambda run: run.latest_offset(start, limits, once=once)


def partitions(start: Document, end: Document) -> Request:
    return lambda run: run.partitions(start, end)


def completed(document: Document, batch: int | None, query: Mapping[str, Any]) -> Request:
    """The report of a listener."""
    return lambda run: run.report_completed(document, batch, query)


def ranges(run: Run) -> Any:
    return run.completion.ranges()


PLAN = latest_offset(INITIAL_DOCUMENT, LimitOptions())


def snapshot(dialect: Dialect = Dialect.KAFKA, **partitions: int) -> ClusterSnapshot:
    """A cluster with these topics, each with its number of partitions."""
    infos = {name: tuple(PartitionInfo(n, n % 2, 1) for n in range(count)) for name, count in partitions.items()}
    return ClusterSnapshot(NODES, {name: TopicInfo(name, of, "id") for name, of in infos.items()}, dialect=dialect)


def registered(*partitions: TopicPartition, dialect: Dialect = Dialect.KAFKA07) -> ClusterSnapshot:
    """A cluster, of Kafka 0.7 unless told otherwise, whose brokers have registered these partitions of one topic."""
    infos = tuple(PartitionInfo(tp.partition, 0) for tp in partitions)
    (topic,) = {tp.topic for tp in partitions}
    return ClusterSnapshot(NODES, {topic: TopicInfo(topic, infos)}, dialect=dialect)


class KnownLogs:
    """The last answers about logs: each log has the records 0 to 9, and no position looks wrong."""

    def __init__(self) -> None:
        self.snapshot = ClusterSnapshot({}, {})
        self.metadata_at = 0.0
        self.ends: dict[TopicPartition, int] = {P0: 10, P1: 10, P2: 10}

    @property
    def known_since(self) -> tuple[object, object]:
        return object(), self.snapshot

    def known(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogRange]:
        return {tp: LogRange(0, self.ends[tp]) for tp in partitions if tp in self.ends}

    def watermarks(self, logs: Mapping[TopicPartition, LogRange]) -> Mapping[TopicPartition, LogRange]:
        return logs

    def leader_epochs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {}

    def doubt(self, partitions: Collection[TopicPartition], now: float) -> None:
        pass

    def suspects(self, positions: Any) -> dict[TopicPartition, Any]:
        return {}

    def epoch_ends(self, suspects: Any) -> dict[TopicPartition, Any]:
        return {}

    def unsound(self, positions: Any, logs: Any) -> frozenset[TopicPartition]:
        return frozenset()

    def densities(self, partitions: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 10 * UNIT)

    def boundaries(self, logs: Any) -> None:
        return None

    def planned(self, ranges: Any) -> None:
        pass


class Shell:
    """Takes the run's actions. The coordinator answers the member; the test answers questions, or lets `serve` do so.

    `held` are APIs whose requests wait for `release`.
    """

    def __init__(self, group: GroupOptions = MEMBER, *held: type[Any], **options: Any) -> None:
        given = source(group=group, **options)
        self.now = 100.0
        self.packed_offsets: list[int] = []
        """The limit of each question for tasks."""
        self.logs = KnownLogs()
        self.cluster = snapshot(t=2)
        """The metadata that the brokers tell."""
        self.lines: list[str] = []
        self.coordinator = ScriptedCoordinator()
        self.table = OffsetTableRows()
        self.held = set(held)
        self.waiting: list[ev.Send] = []
        self.sent: list[ev.Send] = []
        self.out: list[Any] = []
        """All actions of the last event and of the coordinator's answers that followed from it."""
        self.questions: dict[int, interface.Question] = {}
        self.asked_questions: list[interface.Question] = []
        rng = random.Random(1)
        self.ledger = ledger_of(group, "r1", "lineage")
        machine = machine_of(given, group, rng, lambda tp: False)
        self.member = member_of(given, group, self.ledger, machine, rng=rng)
        events = RunEvents(group.group_id, "r1")
        planner = Planner(
            self.ledger,
            self.logs,
            self.logs,  # type: ignore[arg-type]
            events,
            location=group.offset_location,
            fail_on_data_loss=True,
            documents_positions=group.mode is GroupMode.OFF,
        )
        self.run = Run(run_config(given, group), self.member, self.logs, planner, events)
        self.calls = 0

    @classmethod
    def founding(cls, group: GroupOptions = MEMBER) -> Shell:
        """A run whose member has joined and waits for its starting offsets; Spark's first call waits for that."""
        shell = cls(group)
        shell.connected()
        return shell

    # -- events -------------------------------------------------------------------------------------------------------

    def step(self, event: interface.Event, after: float = 0.0) -> list[Any]:
        self.now += after
        self.out = []
        queue: list[interface.Event] = [event]
        while queue:
            for action in self.run.step(queue.pop(0), self.now):
                self.out.append(action)
                match action:
                    case ev.Send():
                        self.sent.append(action)
                        if action.api in self.held:
                            self.waiting.append(action)
                        else:
                            queue.append(self._answered(action))
                    case ClaimRows() | CommitRows():
                        queue.append(self.table.answer(action))
                    case ev.Note(_, text):
                        self.lines.append(text)
                    case interface.Ask(task, question):
                        self.questions[task] = question
                        self.asked_questions.append(question)
                    case interface.Follow(topics):
                        queue.append(interface.TopicsRead(self.logs.snapshot, topics))
        return self.out

    def _answered(self, send: ev.Send) -> ev.RequestAnswered:
        api = send.api
        version = OFFSETS_VERSION if api in {OffsetFetchRequest, OffsetCommitRequest} else api.VERSIONS[1]
        request = decode(api, encode(send.build(version), version), version)
        answers: list[Any] = []
        self.coordinator.handle(request, version, answers.append)
        (answer,) = answers
        return ev.RequestAnswered(send.token, decode(api.RESPONSE, encode(answer, version), version), version)

    def release(self) -> list[Any]:
        """Answer the requests that were held back, and hold nothing back any more."""
        self.held.clear()
        waiting, self.waiting = self.waiting, []
        out = [action for send in waiting for action in self.step(self._answered(send))]
        self.out = out
        return out

    def call(self, request: Request) -> int:
        """Make a request and return the number of the call."""
        self.calls += 1
        self.step(interface.Called(self.calls, request))
        return self.calls

    def answer(self, task: int, answer: object) -> list[Any]:
        self.questions.pop(task)
        return self.step(interface.QuestionAnswered(task, answer))

    def fail(self, task: int, error: Exception) -> list[Any]:
        self.questions.pop(task)
        return self.step(interface.QuestionFailed(task, error))

    def serve(self) -> list[Any]:
        """Answer all questions until none is left; return what this and the last event led to."""
        out = self.out
        while self.questions:
            task, question = self.questions.popitem()
            out = out + self.step(interface.QuestionAnswered(task, self.found(question)))
        self.out = out
        return out

    def found(self, question: interface.Question) -> object:
        """The answer of brokers that are well."""
        answer: object = None
        match question:
            case interface.Connect() | interface.ReadTopics():
                answer = self.logs.snapshot = self.cluster
            case interface.ListOffsets(wanted):
                answer = {tp: ListedOffset(0 if at == EARLIEST else self.logs.ends[tp]) for tp, at in wanted.items()}
            case interface.ListEnds(positions):
                answer = self.logs.known(positions)
            case interface.SnapshotEnds():
                answer = dict(self.logs.ends)
            case interface.FetchCommitted():
                answer = dict(self.coordinator.offsets)
            case interface.ClaimReplay():
                answer = self.table.replay(question)
            case interface.DescribeGroup():
                answer = GroupDescription("g", GroupState.STABLE)
            case interface.MakeFetchTasks(_, ranges, packed):
                self.packed_offsets.append(packed)
                answer = [FetchTask((FetchRange(range_, None),)) for range_ in ranges]
        return answer

    # -- the test's side ----------------------------------------------------------------------------------------------

    def of(self, kind: type[A]) -> list[A]:
        return [action for action in self.out if isinstance(action, kind)]

    @property
    def replies(self) -> dict[int, Any]:
        """The results of the calls that have ended, in order."""
        replies = self.of(interface.CallReply)
        found = {reply.call: reply.result for reply in replies}
        assert len(found) == len(replies), "a call ends once"
        return found

    def connected(self, request: Request = PLAN) -> int:
        """Make the first call of a run, which connects; return its number."""
        call = self.call(request)
        self.answer(call, self.found(self.questions[call]))
        return call

    def wake(self) -> list[Any]:
        """Let the time pass until the run wants a tick."""
        assert self.run.wake_at is not None
        return self.step(ev.Tick(), max(0.0, self.run.wake_at - self.now))

    def result(self, request: Request) -> Any:
        """Make a request whose questions are answered at once."""
        call = self.call(request)
        self.serve()
        (reply,) = self.of(interface.CallReply)
        assert reply.call == call
        return reply.result

    def batch(self, start: Document = INITIAL_DOCUMENT) -> Document:
        document = self.result(latest_offset(start, LimitOptions()))
        assert self.result(partitions(start, document))
        return document  # type: ignore[no-any-return]

    def asked(self, api: type[Any]) -> int:
        return sum(send.api is api for send in self.sent)

    def task_that_asks(self, kind: type[Any]) -> int:
        (task,) = (task for task, question in self.questions.items() if isinstance(question, kind))
        return task

    @property
    def committed(self) -> dict[int, int]:
        return {tp.partition: committed.offset for tp, committed in self.coordinator.offsets.items()}


Answer = Callable[[Question], object]


def config(group: GroupOptions | None = None, **options: Any) -> RunConfig:
    """The options of a run of group g, or as `group` and `options` say."""
    given = source(group=group, **options)
    assert given.group is not None
    return run_config(given, given.group)


class _Heard:
    """The results of one task."""

    def __init__(self) -> None:
        self.question: Any = None
        self.result: Any = None
        self.error: Exception | None = None
        self.ended = False

    def asks(self, task: int, question: Question) -> None:
        self.question = question

    def is_over(self, task: int, result: Any, now: float) -> None:
        self.ended, self.result = True, result

    def has_failed(self, task: int, error: Exception, now: float) -> None:
        self.ended, self.error = True, error


class Call:
    """A call by itself. It begins at `now`, and `at` lets it go on as far as it can at a later time.

    `answer` returns the answer to each of its questions, or raises the error that comes in place of it. Without
    `answer` the test answers `question` itself. The method that lets the call go on raises the error that ends it.
    """

    def __init__(self, steps: Steps[Any], now: float = 0.0, *, answer: Answer | None = None) -> None:
        self._heard = _Heard()
        self._scheduler = StepScheduler(self._heard)
        self._answer = answer
        self._now = now
        self._scheduler.begin(0, steps, now)
        self._go_on()

    @property
    def question(self) -> Any:
        """The question that has no answer yet."""
        return self._heard.question

    @property
    def is_over(self) -> bool:
        return self._heard.ended

    @property
    def result(self) -> Any:
        return self._heard.result

    @property
    def wake_at(self) -> float | None:
        """When its wait is over."""
        return self._scheduler.wake_at

    def at(self, now: float) -> Call:
        """Let the call go on at `now`: where its condition holds, or its time has passed."""
        self._now = now
        self._scheduler.advance(now)
        return self._go_on()

    def to_the_end(self) -> Call:
        """Let the time of each of its waits pass."""
        while not self.is_over:
            assert self.wake_at is not None
            self.at(self.wake_at)
        return self

    def answered(self, answer: object) -> Call:
        """Answer its question."""
        assert self._heard.question is not None, "nothing is asked"
        self._heard.question = None
        self._scheduler.answer(0, answer, self._now)
        return self._go_on()

    def failed(self, error: Exception) -> Call:
        """Raise `error` in place of the answer to its question."""
        assert self._heard.question is not None, "nothing is asked"
        self._heard.question = None
        self._scheduler.fail(0, error, self._now)
        return self._go_on()

    def abandoned(self) -> None:
        """End the call wherever it is."""
        self._scheduler.abandon(0)

    def _go_on(self) -> Call:
        outcome, answer = self._heard, self._answer
        while outcome.question is not None and answer is not None:
            question, outcome.question = outcome.question, None
            try:
                found = answer(question)
            except Exception as error:
                self._scheduler.fail(0, error, self._now)
            else:
                self._scheduler.answer(0, found, self._now)
        error, outcome.error = outcome.error, None
        if error is not None:
            raise error
        return self
