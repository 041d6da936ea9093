"""The registry's thread with a member that a test scripts, over a session that it scripts too."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from queue import SimpleQueue
from types import MappingProxyType
from typing import Any, cast

import pytest

from streamgroup.coordinator.threads import log_watcher as watching
from streamgroup.coordinator.threads import registry_thread
from streamgroup.coordinator.threads.log_watcher import LogWatcher
from streamgroup.coordinator.threads.registry_thread import OffsetsThread, RegistryBackend, RegistryThread
from streamgroup.errors import ConfigError, DecodeError, ErrorCode, StreamGroupError, TlsError, TransportError
from streamgroup.group import events as ev
from streamgroup.group.offsets.both import AskKafka, WithdrawFromKafka
from streamgroup.group.offsets.store import (
    COMMITTED,
    Answer,
    CommitOffsets,
    FetchOffsets,
    NoAnswer,
    OffsetsCommitted,
    OffsetsFetched,
    Verdict,
)
from streamgroup.group.offsets.zookeeper import ZooKeeperOffsetStore
from streamgroup.group.registry import events as zk
from streamgroup.group.registry import work
from streamgroup.group.registry.membership import RegistryMembership
from streamgroup.model import CommittedOffset, Dialect, TopicPartition
from streamgroup.options.types import ZooKeeperOptions
from streamgroup.znodes import Create, Operation, Refusal, Subtree, ZNode
from streamgroup.zookeeper import session as told
from streamgroup.zookeeper.client import RefusedError, UnansweredError
from tests.fakes.cluster import logs_of
from tests.fakes.nodes import NodeTree
from tests.fakes.offsets import OFFSETS_VERSION, commit_answer
from tests.unit.coordinator.shells import SOON, FakeInbox, client
from tests.unit.coordinator.threads.test_assemble import ALONE, GROUP, IN_KAFKA, ONCE, ZOOKEEPER, watched_backend
from tests.waiting import wait_until

OPTIONS = ZooKeeperOptions((("zk", 2181),), connection_timeout_ms=100)
NODE = ZNode(b"", 0, 1, 1, 1)
GRANTED_MS = 4_000


DENIED = RefusedError("/p", Refusal.NO_AUTH, "zk")


class FakeSession:
    """Answers at once, unless a test has it wait; without nodes, as the thread only carries requests and answers."""

    made: list[FakeSession] = []  # noqa: RUF012  (emptied by the fixture)

    def __init__(self, options: ZooKeeperOptions, on_event: Callable[[told.SessionEvent], None]) -> None:
        self.where = "ZooKeeper zk:2181"
        self.tell = on_event
        self.connected = False
        self.refusal: StreamGroupError | None = None
        self.last_failure = ""
        self.session_id = 0
        self.timeout_ms = GRANTED_MS
        self.opened = 0
        self.closed = False
        self.deadlines: list[float] = []
        self.looked: list[tuple[Subtree, ...]] = []
        self.transacted: list[list[tuple[Operation, ...]]] = []
        self.fails: StreamGroupError | None = None
        self.on_connect: Callable[[], None] | None = None
        self.gate = threading.Event()
        self.gate.set()
        FakeSession.made.append(self)

    def open(self) -> None:
        self.opened += 1
        if isinstance(self.fails, ConfigError):
            raise self.fails

    def connect(self, deadline: float | None = None) -> None:
        if self.on_connect is not None:
            self.on_connect()
        if self.fails is not None:
            raise self.fails
        if not self.connected:
            self.begin(99)

    def begin(self, session_id: int) -> None:
        self.session_id, self.connected = session_id, True
        self.tell(told.SessionStarted(session_id, self.timeout_ms))

    def read(self, subtrees: Iterable[Subtree], deadline: float) -> Mapping[str, ZNode]:
        self.looked.append(tuple(subtrees))
        self.deadlines.append(deadline)
        assert self.gate.wait(SOON)
        if self.fails is not None:
            raise self.fails
        return {"/found": NODE}

    def transact_each(self, transactions: Sequence[tuple[Any, Any]], deadline: float) -> list[StreamGroupError | None]:
        self.transacted.append([tuple(operations) for operations, _ in transactions])
        assert self.gate.wait(SOON)
        return [self.fails for _ in transactions]

    def close(self, timeout: float) -> None:
        self.connected, self.closed = False, True


class Running(FakeInbox):
    """A thread that runs, with what a test needs around it."""

    thread: RegistryThread

    def __init__(self, options: ZooKeeperOptions = OPTIONS) -> None:
        super().__init__()
        self.thread = RegistryThread(self, options)

    @property
    def session(self) -> FakeSession:
        return FakeSession.made[-1]

    def opened(self) -> FakeSession:
        """Open a session, which has not begun."""
        self.want(zk.OpenSession())
        self.until(lambda: self.session.opened == 1)
        return self.session

    def in_session(self, session_id: int = 7) -> FakeSession:
        session = self.opened()
        session.begin(session_id)
        self.hears(zk.SessionBegan(session_id, GRANTED_MS))
        self.heard.clear()
        return session

    def reading(self) -> FakeSession:
        """Be in a session that holds back the answer to a read, the request 1."""
        session = self.in_session()
        session.gate.clear()
        self.want(look(1))
        self.until(lambda: bool(session.looked))
        return session


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    FakeSession.made.clear()
    monkeypatch.setattr(registry_thread, "Session", FakeSession)
    made = Running()
    made.thread.start()
    yield made
    for session in FakeSession.made:
        session.gate.set()
    made.thread.stop(SOON)


def look(token: int) -> zk.ReadSubtrees:
    return zk.ReadSubtrees(token, (Subtree("/x"),))


def claim(token: int) -> zk.Transact:
    return zk.Transact(token, (Create(f"/{token}"),))


def test_what_is_asked_is_answered_in_order(running: Running) -> None:
    session = running.in_session()
    running.want(look(1), claim(2), claim(3), look(4))
    found = [zk.SubtreesRead(token, {"/found": NODE}) for token in (1, 4)]
    running.hears(found[0], zk.Transacted(2), zk.Transacted(3), found[1])
    assert session.transacted == [[(Create("/2"),), (Create("/3"),)]], "claims go out together"


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (RefusedError("/p", Refusal.NODE_EXISTS, "zk"), zk.RequestRefused(1, "/p", Refusal.NODE_EXISTS)),
        (DENIED, zk.RequestRefused(1, "/p", Refusal.NO_AUTH, DENIED.advice)),
        (UnansweredError("no answer in time"), zk.Unanswered(1, "no answer in time")),
    ],
)
def test_what_was_not_done_is_reported_with_the_reason(running: Running, error: StreamGroupError, event: Any) -> None:
    running.in_session().fails = error
    running.want(claim(1))
    running.hears(event)


def test_a_failure_that_no_retry_mends_ends_the_query(running: Running) -> None:
    running.opened().refusal = TlsError("the authority is unknown")
    running.session.tell(told.SessionEnded(0, "the authority is unknown"))
    running.until(lambda: bool(running.failures))
    assert running.failures == [running.session.refusal]
    assert running.session.opened == 1, "it does not try again"


def test_what_happens_to_the_session_is_reported(running: Running) -> None:
    session = running.in_session()
    for event in (told.SessionSuspended(7), told.SessionResumed(7), told.NodeChanged("/c")):
        session.tell(event)
    running.hears(zk.Suspended("the connection is lost"), zk.Resumed(), zk.Changed("/c"))


def test_the_lock_is_free_while_zookeeper_is_waited_for(running: Running) -> None:
    session = running.reading()
    with running.changed:
        assert running.heard == []
    session.tell(told.SessionSuspended(7))
    session.gate.set()
    running.hears(zk.SubtreesRead(1, {"/found": NODE}), zk.Suspended("the connection is lost"))


def test_nothing_of_a_session_that_is_over_is_asked_in_the_next(running: Running) -> None:
    session = running.reading()
    session.tell(told.SessionEnded(7, "the session has expired"))
    running.want(claim(2), look(3))
    session.gate.set()
    running.hears(zk.SubtreesRead(1, {"/found": NODE}), zk.Expired("the session has expired"))
    running.until(lambda: session.opened == 2)
    session.begin(8)
    found, expired = zk.SubtreesRead(1, {"/found": NODE}), zk.Expired("the session has expired")
    running.hears(found, expired, zk.SessionBegan(8, GRANTED_MS))
    assert session.transacted == []
    assert len(session.looked) == 1


def test_what_a_session_before_tells_late_is_not_taken_for_the_one_that_the_member_is_in(running: Running) -> None:
    """It was over before its beginning was heard: `connect` goes on to the next one, which the member is told of."""
    session = running.opened()

    def the_next() -> None:
        session.on_connect = None
        session.tell(told.SessionEnded(1, "the session has expired"))
        session.begin(2)

    session.on_connect = the_next
    session.begin(1)
    running.hears(zk.SessionBegan(2, GRANTED_MS))
    session.tell(told.SessionSuspended(1))
    session.tell(told.SessionResumed(1))
    session.tell(told.SessionEnded(1, "late"))
    session.tell(told.NodeChanged("/c"))
    running.hears(zk.SessionBegan(2, GRANTED_MS), zk.Changed("/c"))
    assert session.opened == 1
    session.tell(told.SessionEnded(2, "the session has expired"))
    running.hears(zk.SessionBegan(2, GRANTED_MS), zk.Changed("/c"), zk.Expired("the session has expired"))


def test_a_session_that_is_suspended_as_it_begins_is_reported_when_it_is_resumed(running: Running) -> None:
    session = running.opened()
    session.fails = UnansweredError("the connection is lost")
    session.begin(7)
    session.tell(told.SessionSuspended(7))
    running.until(running.thread._inbox.empty)
    session.fails = None
    session.tell(told.SessionResumed(7))
    running.hears(zk.SessionBegan(7, GRANTED_MS))


def test_an_answer_is_waited_for_no_longer_than_the_session_lasts_that_is_granted(running: Running) -> None:
    session = running.in_session()
    begun = time.monotonic()
    running.want(look(1))
    running.hears(zk.SubtreesRead(1, {"/found": NODE}))
    assert begun < session.deadlines[0] <= time.monotonic() + GRANTED_MS / 1000


def test_what_an_earlier_session_tells_late_is_nobodys(running: Running) -> None:
    first = running.in_session()
    running.want(zk.CloseSession())
    running.until(lambda: first.closed and running.session is not first)
    running.opened()
    first.tell(told.SessionEnded(7, "late"))
    first.tell(told.NodeChanged("/late"))
    running.session.begin(8)
    running.hears(zk.SessionBegan(8, GRANTED_MS))


@pytest.mark.slow
def test_a_question_is_asked_again_until_its_time_is_over(running: Running) -> None:
    asked: list[float] = []

    def question(session: Any, deadline: float) -> str:
        asked.append(deadline)
        if len(asked) < 3:
            raise UnansweredError("the connection is lost")
        return "answered"

    assert running.thread.post(question, SOON).result(SOON) == "answered"
    running.session.fails = UnansweredError("away")
    with pytest.raises(TransportError, match="away"):
        running.thread.post(question, 0.5).result(SOON)
    running.session.fails = None
    with pytest.raises(ZeroDivisionError):
        running.thread.post(lambda session, deadline: 1 / 0, SOON).result(SOON)


@pytest.mark.slow
def test_a_caller_learns_that_zookeeper_gave_no_answer(running: Running) -> None:
    """Though the thread itself still waits for the answer to what was asked before."""
    session = running.reading()
    with pytest.raises(TransportError, match=r"ZooKeeper zk:2181 did not answer within 0\.5 s"):
        running.thread.ask(lambda session, deadline: None, 0.5)
    session.gate.set()
    assert running.thread.ask(lambda session, deadline: "now", SOON) == "now"


def test_a_question_that_is_left_fails_with_the_thread(running: Running) -> None:
    session = running.reading()
    left = running.thread.post(lambda session, deadline: None, SOON)
    running.thread._stopping = True
    session.gate.set()
    with pytest.raises(TransportError, match="stopping"):
        left.result(SOON)
    running.thread.stop(SOON)
    assert session.closed


def test_a_question_that_waits_to_be_asked_again_fails_with_the_thread(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "RETRY_BACKOFF_S", SOON)
    running.session.fails = UnansweredError("away")
    left = running.thread.post(lambda session, deadline: None, 3 * SOON)
    running.until(lambda: bool(running.thread._work.wake_at))
    running.thread.stop(SOON)
    with pytest.raises(TransportError, match="stopping"):
        left.result(0.0)


def test_what_cannot_be_a_registry_ends_the_query(running: Running) -> None:
    running.session.fails = ConfigError("no node /kafka")
    running.want(zk.OpenSession())
    running.until(lambda: bool(running.failures))
    assert "no node /kafka" in str(running.failures[0])


@pytest.mark.slow
def test_a_connection_that_takes_too_long_is_said_once_and_tried_on(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    running.opened()
    for _ in range(3):
        running.wake_at = 0.0
        running.thread.wake()
        threading.Event().wait(0.15)
    assert caplog.text.count("no connection within 0.1 s; still trying") == 1
    running.session.begin(5)
    running.hears(zk.SessionBegan(5, GRANTED_MS))


class Brokers:
    """In place of an `OffsetsThread`."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def take(self, request: object) -> None:
        self.heard.append(request)

    def withdraw(self) -> None:
        self.heard.append("withdrawn")

    def close(self) -> None:
        self.heard.append("closed")


def test_brokers_are_asked_in_a_thread_of_their_own_and_their_answer_reaches_the_member(running: Running) -> None:
    brokers = Brokers()
    running.thread.offsets = brokers  # type: ignore[assignment]
    fetch = FetchOffsets(3, "g", frozenset(), 1_000)
    running.want(AskKafka(fetch), WithdrawFromKafka())
    running.until(lambda: brokers.heard == [fetch, "withdrawn"])
    running.thread.answered(NoAnswer(3, "the broker is away"))
    running.hears(NoAnswer(3, "the broker is away"))
    running.thread.stop(SOON)
    assert brokers.heard[-1] == "closed"


def test_a_defect_ends_the_query_instead_of_the_thread_alone(running: Running) -> None:
    running.script = lambda event: 1 / 0  # type: ignore[assignment, return-value]
    running.thread.answered(NoAnswer(3, "x"))
    running.until(lambda: bool(running.failures))
    assert "the registry's thread has failed: ZeroDivisionError" in str(running.failures[0])


P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
Make = Callable[..., RegistryBackend]


class NodesSession(FakeSession):
    """Reads these nodes."""

    nodes: Mapping[str, str]
    """Set by each test."""

    def read(self, subtrees: Iterable[Subtree], deadline: float) -> dict[str, ZNode]:
        asked = list(subtrees)
        super().read(asked, deadline)
        return NodeTree.of(self.nodes).read(asked)


class InKafka:
    """The commits that the brokers keep, and the requests for them."""

    def __init__(self) -> None:
        self.commits: dict[TopicPartition, CommittedOffset] = {}
        self.asked: list[tuple[str, bool | None]] = []

    def committed(
        self, cluster: object, group: str, until: float, in_zookeeper: bool | None
    ) -> dict[TopicPartition, CommittedOffset]:
        self.asked.append((group, in_zookeeper))
        return self.commits


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> InKafka:
    made = InKafka()
    monkeypatch.setattr(registry_thread, "committed", made.committed)
    return made


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Make a backend with running threads, of a ZooKeeper with these nodes."""
    logs = logs_of([10])
    monkeypatch.setattr(watching, "open_cluster", logs.of)
    monkeypatch.setattr(registry_thread, "open_cluster", logs.of)
    monkeypatch.setattr(registry_thread, "Session", NodesSession)
    FakeSession.made.clear()
    running: list[tuple[RegistryBackend, LogWatcher]] = []

    def start(
        nodes: Mapping[str, str], given: Mapping[str, str] = MappingProxyType({}), dialect: Dialect = Dialect.KAFKA
    ) -> RegistryBackend:
        monkeypatch.setattr(NodesSession, "nodes", nodes, raising=False)
        taken, watcher = watched_backend({**ZOOKEEPER, **GROUP, **given})
        assert isinstance(taken, RegistryBackend)
        watcher.start()
        running.append((taken, watcher))
        taken.opened(dialect)
        return taken

    yield start
    for taken, watcher in running:
        taken.thread.stop(SOON)
        watcher.stop(SOON)


def test_a_member_calls_the_nodes_as_its_cluster_does() -> None:
    taken, _ = watched_backend(ZOOKEEPER | GROUP)
    assert isinstance(taken, RegistryBackend)
    taken.opened(Dialect.KAFKA07)
    assert isinstance(taken.member.store, ZooKeeperOffsetStore)
    commit = CommitOffsets(1, "g", "m", 1, {TopicPartition("t", 10_002): CommittedOffset(5)}, 1_000)
    (read,) = taken.member.store.commit(commit, 0.0).actions
    assert read.subtrees[0].path == "/consumers/g/offsets/t/1-2"
    membership = taken.member.membership
    assert isinstance(membership, RegistryMembership)
    membership.step(ev.Start(("t",)), 0.0)
    (register,) = (each for each in membership.step(zk.SessionBegan(1, 6_000), 0.0) if isinstance(each, zk.Transact))
    assert b'{ "t": 1 }' in [each.data for each in register.operations if isinstance(each, Create)]


def test_brokers_of_0_7_keep_no_offsets() -> None:
    said = r"cannot use kafka\.offsets\.storage=kafka: brokers of Kafka 0\.7 do not store offsets"
    with pytest.raises(ConfigError, match=said):
        watched_backend(ZOOKEEPER | GROUP | IN_KAFKA)[0].opened(Dialect.KAFKA07)


@pytest.mark.parametrize(("dialect", "name", "number"), [(Dialect.KAFKA, "2", 2), (Dialect.KAFKA07, "1-2", 10_002)])
def test_commits_are_read_in_the_nodes_as_the_cluster_names_its_partitions(
    dialect: Dialect, name: str, number: int, make: Make, kafka: InKafka
) -> None:
    nodes = {f"/consumers/g/offsets/t/{name}": "7", "/consumers/another/offsets/t/0": "9"}
    found = make(nodes, dialect=dialect).committed(SOON)
    assert found == {TopicPartition("t", number): CommittedOffset(7)}
    assert kafka.asked == []


def test_a_group_without_nodes_has_no_commits_and_no_members(make: Make) -> None:
    taken = make({})
    assert taken.committed(SOON) == {}
    assert taken.described(SOON).result(SOON).members == ()


def test_a_node_that_does_not_hold_an_offset_is_an_error_only_if_its_partition_is_wanted(make: Make) -> None:
    taken = make({"/consumers/g/offsets/t/0": "7", "/consumers/g/offsets/t/1": "nine"})
    assert taken.committed(SOON, lambda tp: tp == P0) == {P0: CommittedOffset(7)}
    with pytest.raises(DecodeError, match=r"/consumers/g/offsets/t/1"):
        taken.committed(SOON)


@pytest.mark.parametrize(
    ("given", "found"), [(IN_KAFKA, {P0: 7, P1: 6}), (IN_KAFKA | ONCE, {P0: 5, P1: 6})], ids=["both", "Kafka only"]
)
def test_of_a_group_that_commits_to_both_the_larger_offset_counts_and_kafka_alone_without_dual_commits(
    given: dict[str, str], found: dict[TopicPartition, int], make: Make, kafka: InKafka
) -> None:
    kafka.commits = {P0: CommittedOffset(5), P1: CommittedOffset(6)}
    taken = make({"/consumers/g/offsets/t/0": "7", "/consumers/g/offsets/t/1": "4"}, given)
    assert {tp: commit.offset for tp, commit in taken.committed(SOON).items()} == found
    assert kafka.asked == [("g", False)]


def test_members_are_the_consumers_with_what_our_own_tell_of_themselves(make: Make) -> None:
    one, two = "g_h1-1700000000000-aaaaaaaa", "g_h2-1700000000000-bbbbbbbb"
    nodes = {
        f"/consumers/g/ids/{one}": "{}",
        f"/consumers/g/ids/{two}": "{}",
        f"/consumers/g/streamgroup-members/{one}": "lineage",
    }
    members = make(nodes).described(SOON).result(SOON).members
    found = [(each.member_id, each.host, each.user_data) for each in members]
    assert found == [(one, "h1", b"lineage"), (two, "h2", b"")]


def test_a_query_that_is_not_a_member_keeps_its_place_outside_of_the_group_when_the_brokers_are_known(
    make: Make,
) -> None:
    """It commits in a session of its own, but registers no consumer."""
    taken = make({"/consumers/g/offsets/t/0": "7"}, ALONE)
    assert not isinstance(taken.member.membership, RegistryMembership)
    assert taken.committed(SOON) == {P0: CommittedOffset(7)}


COMMIT = CommitOffsets(6, "g", "g_host-1-aa", 1 << 40, {P0: CommittedOffset(9, "m")}, 1000)


class OneCode:
    """A cluster that answers every commit with one code: which one a group gives to whom is not the thread's concern.

    `gate` holds its answers up. With the code -1 it is away.
    """

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.requests: list[Any] = []
        self.gate, self.closed = threading.Event(), threading.Event()
        self.gate.set()

    def deadline(self, timeout_ms: int) -> float:
        return time.monotonic() + timeout_ms / 1000

    def coordinator(self, group: str, deadline: float) -> int:
        return 1

    def call_versioned(self, kind: Any, make: Any, *_: Any, **__: Any) -> tuple[int, Any]:
        assert self.gate.wait(SOON)
        if self.code < 0:
            raise TransportError("the broker is away")
        self.requests.append(make(OFFSETS_VERSION))
        return OFFSETS_VERSION, commit_answer(self.requests[-1], lambda _: self.code)

    def close(self) -> None:
        self.closed.set()


def commit(cluster: OneCode) -> Any:
    with closing(OffsetsThread(client(), "g", print, print)) as offsets:
        return offsets._commit(cast("Any", cluster), COMMIT, 0.0, 0)


def test_a_commit_is_of_no_member_and_keeps_its_offsets() -> None:
    cluster = OneCode(0)
    answer = commit(cluster)
    assert (answer.token, answer.verdicts[P0].verdict) == (6, Verdict.COMMITTED)
    (request,) = cluster.requests
    assert (request.member_id, request.generation_id_or_member_epoch, request.group_instance_id) == ("", -1, None)
    ((row,),) = (topic.partitions for topic in request.topics)
    assert (row.committed_offset, row.committed_metadata) == (9, "m")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, "the group has members in Kafka"),
        (ErrorCode.GROUP_ID_NOT_FOUND, "the broker has a group of another kind"),
    ],
)
def test_a_group_in_kafka_that_takes_no_commits_ends_the_query(code: int, told: str) -> None:
    assert commit(OneCode(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)).verdicts[P0].verdict is Verdict.TOO_LARGE
    with pytest.raises(StreamGroupError, match=told):
        commit(OneCode(code))


# -- the thread --------------------------------------------------------------------------------------------------------


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> OneCode:
    made = OneCode()
    monkeypatch.setattr(registry_thread, "open_cluster", lambda options: made)
    monkeypatch.setattr(registry_thread, "kafka_of", lambda cluster, deadline: cluster)
    return made


@contextmanager
def offsets_thread() -> Iterator[tuple[OffsetsThread, SimpleQueue[Answer]]]:
    answers: SimpleQueue[Answer] = SimpleQueue()
    with closing(OffsetsThread(client(), "g", answers.put, print)) as offsets:
        offsets.start()
        yield offsets, answers


def test_requests_are_answered_in_order_and_a_broker_that_is_away_gives_no_answer(
    brokers: OneCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {P0: CommittedOffset(3)}
    monkeypatch.setattr(registry_thread, "committed", lambda *_, in_zookeeper: found)
    with offsets_thread() as (offsets, answers):
        offsets.take(FetchOffsets(5, "g", frozenset(), 1000))
        offsets.take(COMMIT)
        assert answers.get(timeout=SOON) == OffsetsFetched(5, found)
        assert answers.get(timeout=SOON) == OffsetsCommitted(6, {P0: COMMITTED})
        brokers.code = -1
        offsets.take(COMMIT)
        assert answers.get(timeout=SOON) == NoAnswer(6, "the broker is away")
    assert brokers.closed.wait(SOON)


def test_what_was_withdrawn_is_never_asked(brokers: OneCode) -> None:
    brokers.gate.clear()
    with offsets_thread() as (offsets, answers):
        offsets.take(COMMIT)
        offsets.take(replace(COMMIT, token=7))
        wait_until(lambda: offsets._queue.qsize() <= 1, "the first request is not taken")
        offsets.withdraw()
        offsets.take(replace(COMMIT, token=8))
        brokers.gate.set()
        tokens = [answers.get(timeout=SOON).token]
        while tokens[-1] != 8:
            tokens.append(answers.get(timeout=SOON).token)
    assert 7 not in tokens


def test_a_commit_that_is_withdrawn_while_its_coordinator_is_looked_for_is_not_sent(brokers: OneCode) -> None:
    looks, found = threading.Event(), threading.Event()

    def coordinator(group: str, deadline: float) -> int:
        looks.set()
        assert found.wait(SOON)
        return 1

    brokers.coordinator = coordinator  # type: ignore[method-assign]
    with offsets_thread() as (offsets, answers):
        offsets.take(COMMIT)
        assert looks.wait(SOON)
        offsets.withdraw()
        offsets.take(replace(COMMIT, token=7))
        found.set()
        assert answers.get(timeout=SOON).token == 7
    assert len(brokers.requests) == 1


def test_an_error_that_no_attempt_mends_ends_the_query(brokers: OneCode) -> None:
    failures: SimpleQueue[StreamGroupError] = SimpleQueue()
    brokers.code = int(ErrorCode.UNKNOWN_MEMBER_ID)
    with closing(OffsetsThread(client(), "g", print, failures.put)) as offsets:
        offsets.start()
        offsets.take(COMMIT)
        assert "has members in Kafka" in str(failures.get(timeout=SOON))
