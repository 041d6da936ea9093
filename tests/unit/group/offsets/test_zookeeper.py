"""Offsets fetched from and committed to nodes: fenced, in as few transactions as fit, answered by partition."""

from __future__ import annotations

import random

import pytest

from streamgroup.errors import ConfigError, DecodeError, ErrorCode
from streamgroup.group import events as ev
from streamgroup.group.commits import CommitMetadata
from streamgroup.group.offsets.store import FetchOffsets, NoAnswer, OffsetsFetched
from streamgroup.group.offsets.zookeeper import ATTEMPTS_MOST, BYTES_MOST, FIRST_TOKEN, ZooKeeperOffsetStore
from streamgroup.group.registry import events as zk
from streamgroup.group.standalone import StandaloneMember
from streamgroup.group.state_machine import State
from streamgroup.group.timing import MemberConfig
from streamgroup.model import CommittedOffset, TopicPartition
from streamgroup.znodes import Check, Delete, Refusal
from tests.unit.group.registry.groups import OLD, OWN_TOKENS, Cluster, One, of, tps

T0, T1 = tps("t:0-0", "t:0-1")
TEXT = CommitMetadata("5a", "c3", 7, 8, 12).text()


def lone(partitions: int = 2, committed: int | None = None, metadata: str = "") -> tuple[Cluster, One]:
    """A member that holds all of t, and has committed this offset."""
    made = Cluster()
    made.broker(0, t=partitions)
    a = made.member("A")
    made.run(1)
    assert len(a.held) == partitions
    if committed is not None:
        settle(made, a, a.commit(committed, metadata=metadata))
    return made, a


def settle(made: Cluster, member: One, token: int) -> dict[TopicPartition, int]:
    made.run()
    return member.codes(token) or {}


def fetch(made: Cluster, member: One) -> dict[TopicPartition, CommittedOffset]:
    """The verdicts of all commits that the member receives."""
    token = OWN_TOKENS + 10_000 + len(member.answers)
    member.take(member.store.fetch(asked(token), made.now))
    made.run()
    (answer,) = (a for a in member.answers if isinstance(a, OffsetsFetched) and a.token == token)
    return dict(answer.offsets)


def asked(token: int = OWN_TOKENS) -> FetchOffsets:
    return FetchOffsets(token, "g", frozenset(), 5_000)


def commits(member: One) -> list[zk.Transact]:
    return [t for t in of(member.out, zk.Transact) if t.token >= FIRST_TOKEN]


# -- commits ----------------------------------------------------------------------------------------------------------


def test_a_commit_is_one_fenced_transaction_that_a_real_consumer_can_read() -> None:
    made, a = lone()
    assert settle(made, a, a.commit(194, metadata=TEXT)) == {T0: 0, T1: 0}
    (transaction,) = commits(a)
    assert transaction.operations[0] == Check(OLD.consumer(a.id))
    assert transaction.ensured == ("/consumers/g/offsets/t", "/consumers/g/streamgroup/t")
    assert made.zk.get("/consumers/g/offsets/t/0-1") == b"194"
    assert fetch(made, a) == dict.fromkeys((T0, T1), CommittedOffset(194, TEXT))


def test_the_next_commit_needs_no_look() -> None:
    made, a = lone(committed=1)
    before = len(a.out)
    assert settle(made, a, a.commit(2, metadata=TEXT)) == {T0: 0, T1: 0}
    (transaction,) = a.out[before:]
    assert transaction.ensured == ()
    assert fetch(made, a)[T0] == CommittedOffset(2, TEXT)


def test_a_commit_without_the_own_node_writes_nothing_and_is_unknown_member() -> None:
    made, a = lone(committed=5)
    token = a.commit(9)
    made.zk.remove(OLD.consumer(a.id))
    assert settle(made, a, token) == dict.fromkeys((T0, T1), ErrorCode.UNKNOWN_MEMBER_ID)
    assert made.zk.get(OLD.offset(T0)) == b"5"
    assert fetch(made, a)[T0] == CommittedOffset(5)


def test_what_a_real_consumer_has_committed_since_is_without_our_metadata() -> None:
    made, a = lone(committed=5, metadata=TEXT)
    made.zk.put(OLD.offset(T0), "5")
    made.zk.put(OLD.offset(T1), "3")
    assert fetch(made, a) == {T0: CommittedOffset(5), T1: CommittedOffset(3)}


@pytest.mark.parametrize("meanwhile", ["written", "deleted", "made"])
def test_a_node_that_was_written_meanwhile_is_read_again_and_written_over(meanwhile: str) -> None:
    made, a = lone()
    if meanwhile != "made":
        settle(made, a, a.commit(5, metadata=TEXT))
    token = a.commit(7, metadata=TEXT)
    if meanwhile == "made":
        a.turn()  # it has looked, and found nothing
        a.turn()
    if meanwhile == "deleted":
        made.zk.remove(OLD.offset(T0))
    else:
        made.zk.put(OLD.offset(T0), "3")
    assert settle(made, a, token) == {T0: 0, T1: 0}
    assert fetch(made, a) == dict.fromkeys((T0, T1), CommittedOffset(7, TEXT))
    assert a.notes().count("another client wrote") == 1


@pytest.mark.parametrize("owner", ["another", "nobody", "garbage"])
def test_a_partition_that_another_owns_by_now_is_left_to_it(owner: str) -> None:
    """A real consumer that wakes in a new session deletes what has the name of an owner node of its own, and claims."""
    made, a = lone(committed=5, metadata=TEXT)
    me, token = a.id, a.commit(7, metadata=TEXT)
    made.zk.remove(OLD.owner(T0))
    if owner != "nobody":
        made.zk.put(OLD.owner(T0), "g_other-0" if owner == "another" else "?")
    made.zk.put(OLD.offset(T0), "9")
    codes = settle(made, a, token)
    assert codes == dict.fromkeys((T0, T1), ErrorCode.UNKNOWN_MEMBER_ID)
    assert made.zk.get(OLD.offset(T0)) == b"9"
    assert (made.zk.get(OLD.offset(T1)), a.id) == (b"5", me), "all of it or nothing"


def test_a_node_that_is_written_all_the_time_is_a_commit_to_be_made_again() -> None:
    made, a = lone(committed=5)
    token = a.commit(7)
    for _ in range(100):
        made.zk.put(OLD.offset(T0), "3")
        a.turn()
    assert a.codes(token) == dict.fromkeys((T0, T1), ErrorCode.REQUEST_TIMED_OUT)
    assert len(commits(a)) == 1 + ATTEMPTS_MOST


@pytest.mark.parametrize("carried_out", [False, True])
def test_a_commit_without_an_answer_is_made_again_by_who_made_it(carried_out: bool) -> None:
    made, a = lone(committed=5, metadata=TEXT)
    token = a.commit(7, metadata=TEXT)
    a.client.disconnect(int(carried_out))
    made.run(1)
    assert a.codes(token) == dict.fromkeys((T0, T1), ErrorCode.REQUEST_TIMED_OUT)
    a.client.connect()
    assert settle(made, a, a.commit(7, metadata=TEXT)) == {T0: 0, T1: 0}
    assert fetch(made, a)[T0] == CommittedOffset(7, TEXT)


@pytest.mark.slow
def test_a_commit_that_is_too_large_for_one_transaction_is_answered_part_by_part() -> None:
    made, a = lone(partitions=900)
    text = "x" * 2000
    token = a.commit(1, metadata=text)
    made.run(0.5)
    assert set((a.codes(token) or {}).values()) == {ErrorCode.NONE}
    assert len(commits(a)) > 3
    for transaction in commits(a):
        size = sum(len(op.path) + len(getattr(op, "data", b"")) for op in transaction.operations)
        assert size < BYTES_MOST
        assert transaction.operations[0] == Check(OLD.consumer(a.id))
    token = a.commit(2, metadata=text)
    a.turn()  # the first part
    a.turn()
    made.zk.remove(OLD.consumer(a.id))
    made.run(0.5)
    codes = a.codes(token) or {}
    done = [tp for tp, code in codes.items() if code == ErrorCode.NONE]
    assert 0 < len(done) < 900
    assert {tp for tp in codes if made.zk.get(OLD.offset(tp)) == b"2"} == set(done)
    assert {codes[tp] for tp in codes.keys() - set(done)} == {ErrorCode.UNKNOWN_MEMBER_ID}


def test_a_topic_that_no_node_can_be_called_after_has_no_offsets() -> None:
    made, a = lone()
    bad = TopicPartition("../ids", 0)
    assert settle(made, a, a.commit(5, T0, bad)) == {T0: 0, bad: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


# -- commits and what happens meanwhile -------------------------------------------------------------------------------


def test_nothing_is_written_for_a_commit_once_partitions_are_released() -> None:
    """The fence is the session's: it would let a commit pass for what another owns by now (C3)."""
    made, a = lone()
    token = a.commit(5)  # it looks first
    a.want(ev.Joining("the group rebalances", abandoned=True))
    assert a.codes(token) == dict.fromkeys((T0, T1), ErrorCode.REBALANCE_IN_PROGRESS)
    made.run(1)
    assert made.zk.get(OLD.offset(T0)) is None


def test_a_commit_that_was_sent_before_the_release_is_not_tried_again_after_it() -> None:
    made, a = lone(committed=5)
    token = a.commit(7)
    made.zk.put(OLD.offset(T0), "3")
    a.want(ev.Joining("the group rebalances", abandoned=True))
    assert settle(made, a, token) == dict.fromkeys((T0, T1), ErrorCode.REBALANCE_IN_PROGRESS)
    assert made.zk.get(OLD.offset(T0)) == b"3"


def test_a_later_commit_is_never_overtaken_by_an_earlier_one() -> None:
    made, a = lone(committed=5)
    first = a.commit(6)
    made.zk.put(OLD.offset(T0), "3")
    second = a.commit(7)
    settle(made, a, second)
    assert (made.zk.get(OLD.offset(T0)), made.zk.get(OLD.offset(T1))) == (b"7", b"7")
    assert a.codes(first) == dict.fromkeys((T0, T1), ErrorCode.REBALANCE_IN_PROGRESS)


def test_the_last_commit_before_leaving_needs_one_round_trip() -> None:
    made, a = lone(committed=5)
    a.commit(9)
    a.step(ev.Stop())
    made.run(1)
    assert a.machine.state is State.LEFT
    assert made.zk.get(OLD.offset(T0)) == b"9"


def test_a_request_that_nobody_answers_fails_in_time() -> None:
    now, store = 100.0, ZooKeeperOffsetStore(OLD)
    outcome = store.fetch(asked(), now)
    assert [type(action) for action in outcome.actions] == [zk.ReadSubtrees]
    assert store.wake_at == now + 5
    assert store.hear(ev.Tick(), now + 4.9).answers == ()
    (failed,) = store.hear(ev.Tick(), now + 5).answers
    assert failed == NoAnswer(OWN_TOKENS, "no response from ZooKeeper within the timeout")
    assert store.wake_at is None
    late = zk.SubtreesRead(outcome.actions[0].token, {})
    assert store.takes(late)
    assert store.hear(late, now + 6).answers == ()


def test_a_commit_of_several_transactions_stops_after_the_one_that_is_out() -> None:
    made, a = lone(partitions=600)
    token = a.commit(1, metadata="x" * 2000)
    made.run(0.5)
    token = a.commit(2, metadata="x" * 2000)
    a.want(ev.Joining("the group rebalances", abandoned=True))
    made.run(0.5)
    codes = a.codes(token) or {}
    done = {tp for tp, code in codes.items() if code == ErrorCode.NONE}
    assert 0 < len(done) < 600
    assert {tp for tp in codes if made.zk.get(OLD.offset(tp)) == b"2"} == done
    assert {codes[tp] for tp in codes.keys() - done} == {ErrorCode.REBALANCE_IN_PROGRESS}


def test_a_fetch_without_an_answer_has_failed() -> None:
    made, a = lone()
    a.take(a.store.fetch(asked(), made.now))
    a.client.disconnect(1)
    made.run()
    assert a.answers == [NoAnswer(OWN_TOKENS, "the connection was lost")]


def test_an_expired_session_fails_what_is_out() -> None:
    made, a = lone()
    token = a.commit(5)
    a.client.expire()
    made.run(0.5)
    assert a.codes(token) == dict.fromkeys((T0, T1), ErrorCode.REQUEST_TIMED_OUT)


# -- fetches ----------------------------------------------------------------------------------------------------------


def test_a_partition_without_a_commit_is_reported_as_such() -> None:
    made, a = lone()
    settle(made, a, a.commit(5, T0))
    assert fetch(made, a) == {T0: CommittedOffset(5)}


def test_garbage_in_an_offset_node_ends_the_query_rather_than_being_read_past() -> None:
    made, a = lone()
    made.zk.put(OLD.offset(T1), "many")
    a.take(a.store.fetch(asked(), made.now))
    made.run()
    failure = a.last(ev.Fail).error
    assert isinstance(failure, DecodeError)
    assert "/consumers/g/offsets/t/0-1" in str(failure)
    assert "write the right offset" in str(failure)


def test_nodes_that_may_not_be_written_end_the_query_with_advice() -> None:
    _, a = lone(committed=5)
    a.commit(7)
    request = a.client.requests.popleft()
    a.hear(zk.RequestRefused(request.token, OLD.offset(T0), Refusal.NO_AUTH, "Set zookeeper.username"))
    failure = a.last(ev.Fail).error
    assert isinstance(failure, ConfigError)
    assert "/consumers/g/offsets/t/0-0" in str(failure)
    assert "zookeeper.username" in str(failure)


# -- a query that is not a member -------------------------------------------------------------------------------------


class Alone(One):
    """A query that commits without joining: `StandaloneMember` in the place of the machine."""

    def __init__(self, made: Cluster) -> None:
        super().__init__(made, "S", ("t",))
        self.machine = StandaloneMember(MemberConfig("g"), random.Random(1), assigned=(T0, T1))  # type: ignore[assignment]
        made.members.append(self)

    @property
    def id(self) -> str:
        return ""

    def hear(self, event: object) -> None:
        """Only the store's answers count here."""
        self.take(self.store.hear(event, self.cluster.now))


def test_a_query_that_is_no_member_commits_while_there_are_none() -> None:
    made = Cluster()
    s = Alone(made)
    s.client.carry_out(zk.OpenSession())
    assert settle(made, s, s.commit(5, T0, T1)) == {T0: 0, T1: 0}
    assert settle(made, s, s.commit(6, T0, T1)) == {T0: 0, T1: 0}
    assert made.zk.get(OLD.offset(T1)) == b"6"
    member = made.zk.open()
    made.zk.put(OLD.consumer("x"), "{}", member)
    assert settle(made, s, s.commit(7, T0, T1)) == dict.fromkeys((T0, T1), ErrorCode.UNKNOWN_MEMBER_ID)
    assert made.zk.get(OLD.offset(T1)) == b"6"
    made.zk.end(member)
    assert settle(made, s, s.commit(8, T0, T1)) == {T0: 0, T1: 0}


def test_offset_nodes_that_are_gone_are_forgotten_with_the_next_fetch() -> None:
    """Topics come and go for as long as a session lasts."""
    made, a = lone()
    gone = [TopicPartition(f"day-{n}", 0) for n in range(20)]
    settle(made, a, a.commit(1, T0, *gone))
    for tp in gone:
        for path in (OLD.offset(tp), OLD.metadata_of(tp)):
            assert made.zk.transact(a.client.session, [Delete(path)]) is None
    fetch(made, a)
    assert a.store._known.keys() == {T0}
    assert settle(made, a, a.commit(2)) == {T0: 0, T1: 0}
