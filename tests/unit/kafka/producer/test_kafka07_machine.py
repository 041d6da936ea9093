"""The producer of Kafka 0.7 against emulated brokers without sockets, whose connections break at will."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroup.errors import DecodeError, DeliveryTimeoutError, ProduceError
from streamgroup.kafka.producer import kafka07_parts as parts
from streamgroup.kafka.producer.kafka07 import Kafka07Config
from streamgroup.kafka.producer.kafka07_machine import Kafka07Producer
from streamgroup.kafka.producer.kafka07_parts import Answered07, Delivered07, MessageSet, Tick07, read_back
from streamgroup.kafka.wire import kafka07 as wire
from streamgroup.kafka.wire.kafka07 import OffsetsRequest07, ProduceRequest07, decode_response, message07, message_set07
from streamgroup.logformat import broker_partition
from streamgroup.model import Broker as Address
from streamgroup.model import ClusterSnapshot, Dialect, PartitionInfo, TopicInfo, TopicPartition
from tests.fakes.broker07 import tp
from tests.unit.testing.kafka07.brokers import Broker

TOPIC = "events"


def a_set(*payloads: bytes, where: TopicPartition | None = None, movable: bool = False) -> MessageSet:
    return MessageSet(where or tp(0, 0), message_set07(payloads), len(payloads), movable)


class MachineWithBrokers:
    """The machine, and brokers with the topic `events` of three partitions each, all flushed at once.

    Requests to a broker wait in `requests` until `serve` handles them.
    """

    def __init__(self, directory: Path, brokers: int = 2, flush: int = 1, **config: Any) -> None:
        self.brokers = {n: Broker(directory / str(n), log_flush_interval=flush) for n in range(brokers)}
        infos = [PartitionInfo(tp(broker, p).partition, broker) for broker in self.brokers for p in range(3)]
        self.snapshot = ClusterSnapshot(
            {n: Address(n, "127.0.0.1", 9092 + n) for n in self.brokers},
            {TOPIC: TopicInfo(TOPIC, tuple(infos))},
            dialect=Dialect.KAFKA07,
        )
        self.producer = Kafka07Producer(Kafka07Config(**config), self.snapshot, random.Random(1))
        self.now = 100.0
        self.requests: dict[int, list[parts.Send07]] = {n: [] for n in self.brokers}
        self.delivered: list[Delivered07] = []
        self.failed: list[parts.Failed07] = []
        self.refreshes = 0
        self.wake_at: float | None = None

    def step(self, event: Any) -> None:
        self.wake_at = None
        for action in self.producer.step(event, self.now):
            match action:
                case parts.Send07():
                    self.requests[action.node].append(action)
                case parts.Drop07(node):
                    self.requests[node].clear()
                case Delivered07():
                    self.delivered.append(action)
                case parts.Failed07():
                    self.failed.append(action)
                case parts.Refresh07():
                    self.refreshes += 1
                case parts.WakeAt07(at):
                    self.wake_at = at

    def append(self, *sets: MessageSet) -> None:
        self.step(parts.Append07(sets))

    def handle(self, node: int) -> bool:
        """The broker handles the oldest request, and answers. Return False where it hangs up."""
        send = self.requests[node].pop(0)
        for request in send.requests:
            reply = self.brokers[node].ask(request)
            if reply.close:
                self.lose(node)
                return False
        self.step(Answered07(send.token, decode_response(send.requests[-1], reply.data[4:])))
        return True

    def lose(self, node: int, arrived: int = 0, unsent: bool = False) -> None:
        """The connection breaks. The broker has got the first `arrived` requests, and their answers are lost."""
        tokens = frozenset(send.token for send in self.requests[node]) if unsent else frozenset[int]()
        for send in self.requests[node][:arrived]:
            for request in send.requests:
                if self.brokers[node].ask(request).close:
                    break
        self.requests[node].clear()
        self.step(parts.ConnectionLost07(node, "the cable is cut", tokens))

    def serve(self, seconds: float = 0.0) -> None:
        """Handle all requests, and let the time pass."""
        until = self.now + seconds
        while True:
            while any(self.requests.values()):
                for node in self.brokers:
                    while self.requests[node] and self.handle(node):
                        pass
            if self.wake_at is None or self.wake_at > until:
                self.now = until
                return
            self.now = max(self.now, self.wake_at)
            self.step(Tick07())

    def log(self, where: TopicPartition) -> bytes:
        broker, partition = broker_partition(where.partition)
        if self.brokers[broker].logs.find(where.topic, partition) is None:
            return b""
        return bytes(self.brokers[broker].fetch(0, 1 << 24, where.topic, partition).records)

    @property
    def errors(self) -> list[str]:
        return [str(each.error) for each in self.failed]


@pytest.fixture
def world(tmp_path: Path) -> MachineWithBrokers:
    return MachineWithBrokers(tmp_path)


@pytest.fixture
def verifying(tmp_path: Path) -> MachineWithBrokers:
    return MachineWithBrokers(tmp_path, verify=True)


# -- sending -----------------------------------------------------------------------------------------------------------


def test_one_set_is_a_produce_with_a_request_behind_it_that_is_answered(world: MachineWithBrokers) -> None:
    ours = a_set(b"a", b"b", where=tp(0, 2))
    world.append(ours)
    (send,) = world.requests[0]
    assert send.requests == (ProduceRequest07(TOPIC, 2, ours.messages), OffsetsRequest07(TOPIC, 2, -1, 1))
    assert not world.delivered
    world.serve()
    assert world.delivered == [Delivered07(ours, None)]
    assert world.log(tp(0, 2)) == ours.messages
    assert world.producer.idle


def test_sets_of_one_broker_are_a_multiproduce_in_their_order(world: MachineWithBrokers) -> None:
    sets = [a_set(b"%d" % i, where=tp(i % 2, i % 3)) for i in range(12)]
    world.append(*sets)
    first = [each for each in sets if broker_partition(each.partition.partition)[0] == 0]
    request = world.requests[0][0].requests[0]
    assert isinstance(request, wire.MultiProduceRequest07)
    assert [part.messages for part in request.produces] == [each.messages for each in first]
    world.serve()
    assert len(world.delivered) == 12
    for p in range(3):
        theirs = [each.messages for each in first if each.partition == tp(0, p)]
        assert world.log(tp(0, p)) == b"".join(theirs)


def test_a_request_is_no_larger_than_its_maximum(tmp_path: Path) -> None:
    world = MachineWithBrokers(tmp_path, max_request_size=100, max_in_flight=2)
    sets = [a_set(b"x" * 20) for _ in range(10)]  # of 30 bytes
    world.append(*sets)
    assert [len(send.requests[0].produces) for send in world.requests[0]] == [3, 3]
    world.serve()
    assert world.log(tp(0, 0)) == b"".join(each.messages for each in sets)


def test_bytes_that_are_not_resolved_are_counted(world: MachineWithBrokers) -> None:
    world.append(a_set(b"a"), a_set(b"b"))
    assert world.producer.buffered == 22
    world.serve()
    assert world.producer.buffered == 0


def test_an_empty_set_is_refused(world: MachineWithBrokers) -> None:
    with pytest.raises(ValueError, match="an empty message set for events 0-0"):
        world.append(a_set())


# -- without verify ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrived", [0, 1])
def test_a_connection_that_is_lost_before_the_answer_fails_what_was_sent_and_says_so(
    world: MachineWithBrokers, arrived: int
) -> None:
    ours = a_set(b"a")
    world.append(ours)
    world.lose(0, arrived)
    assert world.errors == [
        "could not write 1 record (11 bytes) to events 0-0: the connection was lost after they were sent: the cable is "
        "cut. Kafka 0.7 acknowledges nothing. The broker may have the records: writing them again may duplicate them. "
        "With verify=true the log is read back, and only what is missing is sent again"
    ]
    assert world.failed[0].error.maybe_written
    assert world.refreshes == 1
    assert world.producer.idle


def test_what_never_left_is_sent_on_a_new_connection_in_its_order(tmp_path: Path) -> None:
    world = MachineWithBrokers(tmp_path, max_request_size=1, max_in_flight=3)
    sets = [a_set(b"%d" % i) for i in range(5)]
    world.append(*sets)
    world.lose(0, unsent=True)
    assert not world.requests[0]
    world.serve(1)
    assert world.log(tp(0, 0)) == b"".join(each.messages for each in sets)
    assert len(world.delivered) == 5


def test_a_request_without_an_answer_is_given_up_with_its_connection(world: MachineWithBrokers) -> None:
    world.append(a_set(b"a"))
    world.now += 30
    world.step(Tick07())
    assert "no answer within request.timeout.ms=30000" in world.errors[0]
    assert not world.requests[0]


def test_a_set_whose_time_is_over_is_not_sent_again(tmp_path: Path) -> None:
    world = MachineWithBrokers(tmp_path, delivery_timeout_ms=5_000)
    late, other = a_set(b"late"), a_set(b"other")
    world.append(late)
    world.now += 3
    world.append(other)
    world.now += 3
    world.step(Tick07())
    assert [each.messages for each in world.failed] == [late]
    world.lose(0, unsent=True)
    world.serve(1)
    assert world.log(tp(0, 0)) == other.messages


def test_a_late_answer_is_ignored(world: MachineWithBrokers) -> None:
    world.append(a_set(b"a"))
    (send,) = world.requests[0]
    world.lose(0)
    world.step(Answered07(send.token, decode_response(send.requests[-1], b"\0\0\0\0\0\1" + bytes(8))))
    assert (len(world.failed), len(world.delivered)) == (1, 0)


# -- brokers that cannot be reached ------------------------------------------------------------------------------------


def test_records_without_a_key_go_to_another_broker_and_keyed_ones_wait_and_fail(world: MachineWithBrokers) -> None:
    free, keyed = a_set(b"free", movable=True), a_set(b"keyed")
    world.append(free, keyed)
    while world.now < 100 + 120 and not world.failed:
        if world.requests[0]:
            world.lose(0, unsent=True)
        while world.requests[1]:
            world.handle(1)
        world.now = min(world.wake_at or world.now, 220)
        world.step(Tick07())
    assert [each.messages for each in world.delivered] == [free]
    assert broker_partition(free.partition.partition)[0] == 1
    assert [type(each.error) for each in world.failed] == [DeliveryTimeoutError]
    assert world.errors[0] == (
        "could not write 1 record (15 bytes) to events 0-0: not delivered within delivery.timeout.ms=120000: broker "
        "127.0.0.1:9092 (id 0) cannot be reached: the cable is cut. Records with a key, or with a partition, cannot go "
        "to another broker. Start the broker, or raise kafka.delivery.timeout.ms"
    )
    assert not world.failed[0].error.maybe_written


def test_a_broker_that_comes_back_in_time_gets_what_waited(world: MachineWithBrokers) -> None:
    ours = a_set(b"keyed")
    world.append(ours)
    for _ in range(5):
        world.lose(0, unsent=True)
        world.now = world.wake_at or world.now
        world.step(Tick07())
    world.serve()
    assert world.log(tp(0, 0)) == ours.messages
    assert not world.failed


def test_a_broker_whose_connection_ended_gets_records_without_a_key_again(world: MachineWithBrokers) -> None:
    world.append(a_set(b"a"))
    world.serve()
    world.lose(0)
    world.append(a_set(b"b", movable=True))
    world.serve()
    assert broker_partition(world.delivered[-1].messages.partition.partition)[0] == 1
    world.now += 2
    world.append(a_set(b"c", movable=True))
    world.serve()
    assert world.log(tp(0, 0)) == message_set07([b"a", b"c"])


def test_new_brokers_and_topics_are_used_as_soon_as_they_are_known(world: MachineWithBrokers) -> None:
    world.step(parts.SnapshotRead07(ClusterSnapshot({}, {}, dialect=Dialect.KAFKA07)))
    world.append(a_set(b"a", movable=True))
    world.serve(1)
    assert not world.delivered
    world.step(parts.SnapshotRead07(world.snapshot))
    world.serve()
    assert len(world.delivered) == 1


def test_a_broker_that_is_not_registered_is_named_when_the_time_is_over(world: MachineWithBrokers) -> None:
    world.step(parts.SnapshotRead07(ClusterSnapshot({}, {}, dialect=Dialect.KAFKA07)))
    world.append(a_set(b"a"))
    world.serve(121)
    assert "broker 0 is not registered in ZooKeeper" in world.errors[0]


def test_what_is_abandoned_fails_and_the_producer_stays_usable(world: MachineWithBrokers) -> None:
    world.append(a_set(b"a"))
    world.step(parts.Abandon07("the task has failed"))
    assert "given up: the task has failed" in world.errors[0]
    world.serve()
    world.append(a_set(b"b"))
    world.serve()
    assert [each.messages.messages for each in world.delivered] == [message_set07([b"b"])]


# -- verify ------------------------------------------------------------------------------------------------------------


def test_the_end_of_the_log_is_read_before_anything_is_written(verifying: MachineWithBrokers) -> None:
    verifying.append(a_set(b"a"), a_set(b"b", where=tp(1, 1)))
    for node, partition in ((0, 0), (1, 1)):
        assert [send.requests for send in verifying.requests[node]] == [(OffsetsRequest07(TOPIC, partition, -1, 1),)]


def test_a_set_is_delivered_when_it_is_found_behind_what_was_there_before(verifying: MachineWithBrokers) -> None:
    verifying.brokers[0].produce(message_set07([b"before"]), TOPIC)
    ours = a_set(b"a")
    verifying.append(ours)
    verifying.serve()
    assert verifying.delivered == [Delivered07(ours, 16)]
    assert verifying.producer.idle


def test_sets_are_found_among_those_of_other_producers(verifying: MachineWithBrokers) -> None:
    sets = [a_set(b"%d" % i, b"x" * i) for i in range(20)]
    verifying.append(a_set(b"first"))
    verifying.handle(0)
    for each in sets:
        verifying.brokers[0].produce(message_set07([b"other", b"x"]), TOPIC)
        verifying.append(each)
        verifying.serve()
    assert [each.messages for each in verifying.delivered[1:]] == sets
    log = verifying.log(tp(0, 0))
    assert all(log[p : p + m.size] == m.messages for m, p in ((d.messages, d.position) for d in verifying.delivered))


def test_a_set_is_waited_for_until_the_broker_has_flushed(tmp_path: Path) -> None:
    world = MachineWithBrokers(tmp_path, flush=3, verify=True)
    world.append(a_set(b"a"), a_set(b"b"))
    world.serve(5)
    assert not world.delivered
    world.brokers[0].produce(message_set07([b"the third"]), TOPIC)
    world.serve(1)
    assert len(world.delivered) == 2


def test_a_set_that_the_broker_has_dropped_without_a_sign_is_an_error_with_both_ends(tmp_path: Path) -> None:
    world = MachineWithBrokers(tmp_path, verify=True)
    world.brokers[0] = Broker(tmp_path / "0", max_message_size=50)
    world.append(a_set(b"small"), a_set(b"x" * 51))
    world.serve(20)
    assert [each.position for each in world.delivered] == [0]
    assert world.errors == [
        "could not write 1 record (61 bytes) to events 0-0: the log has been read from position 15 to its end 15, "
        "and does not contain them after 1 attempt. A broker drops messages above its max.message.size without an "
        "error: lower kafka.max.request.size to that. Or it flushes too rarely: see log.default.flush.interval.ms"
    ]


@pytest.mark.parametrize("arrived", range(4))
def test_after_a_lost_connection_only_what_is_missing_is_sent_again(tmp_path: Path, arrived: int) -> None:
    world = MachineWithBrokers(tmp_path, verify=True, max_request_size=1, max_in_flight=3)
    sets = [a_set(b"%d" % i) for i in range(6)]
    world.append(*sets)
    world.handle(0)  # the end of the log; the first three sets are on their way
    assert len(world.requests[0]) == 3
    world.lose(0, arrived)
    world.serve(30)
    assert world.log(tp(0, 0)) == b"".join(each.messages for each in sets)
    assert [each.messages for each in world.delivered] == sets
    assert not world.failed


def test_nothing_is_sent_to_a_partition_in_doubt_and_others_go_on(verifying: MachineWithBrokers) -> None:
    verifying.append(a_set(b"a"), a_set(b"a", where=tp(1, 0)))
    verifying.handle(0)
    verifying.handle(1)
    verifying.lose(0)
    verifying.append(a_set(b"b"), a_set(b"b", where=tp(1, 0)))
    verifying.serve(5)
    assert {each.messages.partition for each in verifying.delivered} == {tp(1, 0)}
    assert verifying.log(tp(0, 0)) == b""
    verifying.serve(20)
    assert verifying.log(tp(0, 0)) == message_set07([b"a", b"b"])


def test_num_retries_bounds_how_often_a_set_is_sent_again(tmp_path: Path) -> None:
    world = MachineWithBrokers(tmp_path, verify=True, retries=1)
    world.append(a_set(b"a"))
    for _ in range(2):
        while not any(isinstance(send.requests[0], ProduceRequest07) for send in world.requests[0]):
            if world.requests[0]:
                world.handle(0)
            else:
                world.now = world.wake_at or world.now
                world.step(Tick07())
        world.lose(0)
    world.serve(30)
    assert "does not contain them after 2 attempts" in world.errors[0]


def test_a_partition_at_which_the_broker_hangs_up_fails_and_the_others_do_not(verifying: MachineWithBrokers) -> None:
    bad, good = a_set(b"bad", where=tp(0, 7)), a_set(b"good")
    verifying.append(good, bad)
    verifying.serve(60)
    assert [each.messages for each in verifying.delivered] == [good]
    assert [each.messages for each in verifying.failed] == [bad]
    assert "the broker closes the connection at every request for this partition" in verifying.errors[0]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"\0\1", "the log no longer has position 0, which it had before"),
        (b"\0\0" + bytes(8), "the log is damaged: position 0: the bytes there declare a message of 0 bytes"),
    ],
    ids=["a log that has lost its end", "a damaged log"],
)
def test_a_log_that_cannot_be_read_back_is_an_error(verifying: MachineWithBrokers, answer: bytes, says: str) -> None:
    verifying.append(a_set(b"a"))
    verifying.handle(0)
    verifying.handle(0)
    (send,) = verifying.requests[0]
    assert isinstance(send.requests[0], wire.FetchRequest07)
    verifying.step(Answered07(send.token, decode_response(send.requests[0], answer)))
    assert says in verifying.errors[0]


def test_a_set_larger_than_what_is_read_at_once_is_found(tmp_path: Path) -> None:
    world = MachineWithBrokers(tmp_path, verify=True, fetch_size=50)
    sets = [a_set(b"x" * size) for size in (500, 10, 300)]
    world.append(*sets)
    world.serve()
    assert [each.messages for each in world.delivered] == sets


def test_a_message_that_begins_as_a_dropped_set_does_at_the_end_of_the_log_is_read_over(tmp_path: Path) -> None:
    world = MachineWithBrokers(tmp_path, verify=True)
    world.brokers[0] = Broker(tmp_path / "0", max_message_size=50)
    world.append(a_set(b"a", b"x" * 51))
    world.serve()
    world.brokers[0].produce(message_set07([b"a"]), TOPIC)
    world.serve(15)
    assert "does not contain them after 1 attempt" in world.errors[0]


def test_after_each_lost_connection_the_wait_for_a_flush_begins_again(verifying: MachineWithBrokers) -> None:
    verifying.append(a_set(b"a"))
    verifying.handle(0)
    verifying.lose(0)
    verifying.serve(8)
    verifying.lose(0)
    verifying.serve(8)
    assert verifying.log(tp(0, 0)) == b""
    verifying.serve(8)
    assert verifying.log(tp(0, 0)) == message_set07([b"a"])


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(st.data())
def test_whatever_breaks_with_verify_every_set_is_in_its_log_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    world = MachineWithBrokers(
        tmp_path_factory.mktemp("world"), verify=True, max_request_size=40, max_in_flight=3, fetch_size=50
    )
    sets: list[MessageSet] = []
    for step in range(data.draw(st.integers(1, 25))):
        act = data.draw(st.sampled_from(["append", "append", "handle", "handle", "lose", "time", "other"]))
        node = data.draw(st.integers(0, 1))
        if act == "append":
            sets.append(a_set(b"%d" % step, b"y", where=tp(node, data.draw(st.integers(0, 1)))))
            world.append(sets[-1])
        elif act == "handle" and world.requests[node]:
            world.handle(node)
        elif act == "lose":
            world.lose(node, data.draw(st.integers(0, len(world.requests[node]))))
        elif act == "time":
            world.now += data.draw(st.sampled_from([0.1, 1.0, 3.0]))
            world.step(Tick07())
        elif act == "other":
            world.brokers[node].produce(message_set07([b"other"]), TOPIC)
    world.serve(100)
    assert not world.failed
    assert {id(each.messages) for each in world.delivered} == set(map(id, sets))
    for where in {each.partition for each in sets}:
        theirs = b"".join(each.messages for each in sets if each.partition == where)
        assert world.log(where).replace(message_set07([b"other"]), b"") == theirs


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(st.data())
def test_whatever_breaks_without_verify_no_set_is_lost_silently_or_written_twice(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    world = MachineWithBrokers(tmp_path_factory.mktemp("world"), max_request_size=40, max_in_flight=3)
    sets: list[MessageSet] = []
    for step in range(data.draw(st.integers(1, 25))):
        act = data.draw(st.sampled_from(["append", "append", "handle", "lose", "unsent", "time"]))
        node = data.draw(st.integers(0, 1))
        if act == "append":
            sets.append(a_set(b"%d" % step, b"y", where=tp(node, 0), movable=data.draw(st.booleans())))
            world.append(sets[-1])
        elif act == "handle" and world.requests[node]:
            world.handle(node)
        elif act in {"lose", "unsent"}:
            arrived = data.draw(st.integers(0, len(world.requests[node]))) if act == "lose" else 0
            world.lose(node, arrived, unsent=act == "unsent")
        elif act == "time":
            world.now += 1.0
            world.step(Tick07())
    world.serve(60)
    assert len(world.delivered) + len(world.failed) == len(sets)
    logs = b"".join(world.log(tp(node, partition)) for node in range(2) for partition in range(3))
    for delivered in world.delivered:
        assert logs.count(delivered.messages.messages) == 1
    for failed in world.failed:
        assert isinstance(failed.error, ProduceError)
        assert failed.error.maybe_written
        assert logs.count(failed.messages.messages) <= 1


# -- errors -----------------------------------------------------------------------------------------------------------


def test_a_log_that_cannot_be_read_back_names_the_position_and_leaves_the_records_in_doubt() -> None:
    error = parts.unreadable(a_set(b"a"), 480)
    assert str(error) == (
        "could not write 1 record (11 bytes) to events 0-0: cannot verify them: the broker refuses to send its log "
        "from position 480 on. The broker may have the records: writing them again may duplicate them"
    )
    assert error.maybe_written


def test_a_set_whose_broker_closes_the_connection_may_be_written_once_it_was_sent() -> None:
    ours = a_set(b"a")
    assert not parts.refused(ours).maybe_written
    ours.attempts = 1
    assert parts.refused(ours).maybe_written


# -- the search in a log ----------------------------------------------------------------------------------------------


def sets(*payloads: list[bytes]) -> list[MessageSet]:
    return [MessageSet(tp(0, 0), message_set07(each), len(each)) for each in payloads]


def test_a_message_that_is_longer_than_what_was_read_is_stepped_over() -> None:
    large = message07(b"x" * 1000)
    assert read_back(large[:100], 0, sets([b"a"])).position == len(large)


@pytest.mark.parametrize("length", [0, -1, 4])
def test_bytes_that_are_no_messages_are_an_error(length: int) -> None:
    with pytest.raises(DecodeError, match=f"position 19: the bytes there declare a message of {length} bytes"):
        read_back(message07(b"", magic=0) + length.to_bytes(4, "big", signed=True) + bytes(20), 10, sets([b"a"]))


@given(
    st.lists(st.tuples(st.booleans(), st.lists(st.sampled_from([b"", b"a", b"b", b"ab"]), min_size=1, max_size=3))),
    st.integers(20, 200),
)
def test_a_log_that_is_read_in_pieces_has_every_set_in_its_order(
    content: list[tuple[bool, list[bytes]]], piece: int
) -> None:
    ours = sets(*(payloads for is_ours, payloads in content if is_ours))
    log = b"".join(message_set07(payloads) for _, payloads in content)
    expected, position, wanted, found = list(ours), 0, 0, []
    while position < len(log):
        data = log[position : position + max(piece, wanted)]
        step = read_back(data, position, expected)
        assert step.position > position or step.wanted > wanted
        position, wanted = step.position, step.wanted
        found += [each for each, _ in step.found]
        expected = [each for each in ours if each not in found]
    # The same bytes may come from both producers. Then the first of them count.
    assert len(found) == len(ours)
