"""`streamgroup consume` on real brokers of several releases and on the emulated Kafka 0.7."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from streamgroup.cli.main import main
from streamgroup.testing import KafkaServer
from streamgroup.testing.kafka07 import Compressed, Kafka07Server, Producer07
from streamgroup.testing.zookeeper_mode import zookeeper_client
from tests.conftest import MakeTopic
from tests.old_kafka import librdkafka
from tests.old_kafka import number as number_of
from tests.servers import each_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

COMMAND = (sys.executable, "-c", "from streamgroup.cli.main import main; main()", "consume")
TIMEOUT_S = 60


def consume(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["consume", *arguments])


def printed(*arguments: str) -> str:
    result = consume(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def produce(server: KafkaServer, topic: str, values: range, partitions: int = 1) -> None:
    producer = Producer(librdkafka(server))
    for number in values:
        producer.produce(topic, b"v%d" % number, key=b"k%d" % number, partition=number % partitions)
    assert producer.flush(30) == 0


class Running:
    """A command that prints to a file until it is ended."""

    def __init__(self, output: Path, *arguments: str) -> None:
        self._output = output
        with output.open("wb") as stdout, output.with_suffix(".err").open("wb") as stderr:
            self._process = subprocess.Popen([*COMMAND, *arguments], stdout=stdout, stderr=stderr)

    @property
    def lines(self) -> list[str]:
        return self._output.read_text().split()

    @property
    def notices(self) -> str:
        return self._output.with_suffix(".err").read_text()

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self._process.send_signal(number)
        return self._process.wait(30)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(30)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    running: list[Running] = []

    def start(*arguments: str) -> Running:
        running.append(Running(tmp_path / f"{len(running)}.out", *arguments))
        return running[-1]

    yield start
    for one in running:
        one.kill()


def test_records_are_printed_with_all_that_they_hold(kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka4, 2, config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    where = ("-b", kafka4.bootstrap_servers, "-t", topic)
    now = int(time.time() * 1000)
    in_ns = now * 1_000_000 + 5
    producer = Producer(librdkafka(kafka4))
    producer.produce(
        topic, "zwölf\n".encode(), key=b"a", partition=0, timestamp=now, headers=[("h", b"1"), ("n", None)]
    )
    producer.produce(topic, None, key=None, partition=1, timestamp=in_ns)
    assert producer.flush(30) == 0
    found = [json.loads(line) for line in printed(*where, "-e", "-J").splitlines()]
    assert sorted(found, key=lambda record: int(record["partition"])) == [
        {"topic": topic, "partition": 0, "offset": 0, "tstype": "create", "ts": now, "headers": ["h", "1", "n", None]}
        | {"key": "a", "payload": "zwölf\n"},
        {"topic": topic, "partition": 1, "offset": 0, "tstype": "create", "ts": in_ns, "key": None, "payload": None},
    ]
    text = printed(*where, "-p", "0", "-e", "-f", r"%t:%p:%o %k %s%S %K %T %h\n")
    assert text == f"{topic}:0:0 a zwölf\n7 1 {now} h=1,n=\n"
    assert printed(*where, "-p", "1", "-e", "-Z", "-K", "|") == "NULL|NULL\n"


def test_reading_starts_and_stops_where_o_says(kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka4)
    where = ("-b", kafka4.bootstrap_servers, "-t", topic, "-D", " ")
    now = int(time.time() * 1000)
    producer = Producer(librdkafka(kafka4))
    for number in range(10):
        producer.produce(topic, b"v%d" % number, partition=0, timestamp=now + 1000 * number)
    assert producer.flush(30) == 0
    assert printed(*where, "-o", "7", "-e") == "v7 v8 v9 "
    assert printed(*where, "-o", "-2", "-e") == "v8 v9 "
    assert printed(*where, "-o", "end", "-e") == ""
    assert printed(*where, "-o", f"s@{now + 6500}", "-c", "2") == "v7 v8 "
    assert printed(*where, "-o", f"s@{now + 3000}", "-o", f"e@{now + 6000}") == "v3 v4 v5 "


def test_a_reader_that_closes_its_pipe_ends_the_command_quietly(kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka4)
    produce(kafka4, topic, range(50_000))
    command = [*COMMAND, "-b", kafka4.bootstrap_servers, "-t", topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"v0\n"
        process.stdout.close()
        assert process.wait(TIMEOUT_S) == 0
        assert b"Error" not in process.stderr.read()


def test_new_records_are_printed_at_once_until_a_signal(
    kafka4: KafkaServer, make_topic: MakeTopic, run: Callable[..., Running]
) -> None:
    topic = make_topic(kafka4)
    produce(kafka4, topic, range(3))
    reading = run("-b", kafka4.bootstrap_servers, "-t", topic)
    wait_until(lambda: reading.lines == ["v0", "v1", "v2"], "all records are printed")
    produce(kafka4, topic, range(3, 5))
    wait_until(lambda: reading.lines == ["v0", "v1", "v2", "v3", "v4"], "the new records are printed")
    assert reading.end(signal.SIGINT) == 0
    assert "Traceback" not in reading.notices


def test_a_group_goes_on_where_it_has_printed(kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    """A count ends in the middle of the backlog: exactly what was printed is committed."""
    topic = make_topic(kafka4, 3)
    produce(kafka4, topic, range(20), partitions=3)
    where = ("-b", kafka4.bootstrap_servers, "-t", topic)
    first = printed(*where, "-G", f"g-{topic}", "-o", "beginning", "-c", "7").split()
    second = printed(*where[:2], "-c", "1", "-G", f"g-{topic}", topic).split()
    stored = printed(*where, "-X", f"group.id=g-{topic}", "-o", "stored", "-e").split()
    rest = printed(*where, "-G", f"g-{topic}", "-e").split()
    assert (len(first), len(second), sorted(stored)) == (7, 1, sorted(rest))
    assert sorted(first + second + rest) == sorted(f"v{n}" for n in range(20))
    assert printed(*where, "-G", f"g-{topic}", "-e") == ""


def test_members_hand_partitions_over_and_lose_and_repeat_nothing(
    kafka4: KafkaServer, make_topic: MakeTopic, run: Callable[..., Running]
) -> None:
    topic = make_topic(kafka4, 4)
    member = ("-b", kafka4.bootstrap_servers, "-t", topic, "-G", f"g-{topic}", "-o", "beginning")
    stop = threading.Event()
    sent = []

    def load() -> None:
        while not stop.is_set():
            produce(kafka4, topic, range(len(sent), len(sent) + 50), partitions=4)
            sent.extend(f"v{n}" for n in range(len(sent), len(sent) + 50))
            time.sleep(0.05)

    writing = threading.Thread(target=load)
    writing.start()
    try:
        one = run(*member)
        wait_until(lambda: one.lines, "the first member prints", 30)
        two = run(*member)
        wait_until(lambda: two.lines, "the second member prints", 60)
        before = len(two.lines)
        assert one.end() == 0
        wait_until(lambda: len(two.lines) > before + 200, "the second member prints all partitions", 60)
    finally:
        stop.set()
        writing.join()
    wait_until(lambda: len(one.lines) + len(two.lines) >= len(sent), "all records are printed", 30)
    assert two.end() == 0
    assert sorted(one.lines + two.lines) == sorted(sent)


old_kafka = each_of("kafka08", "kafka11", long=("kafka09", "kafka010"))


def test_old_brokers_are_read_with_and_without_a_group(old_kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(old_kafka, 2)
    produce(old_kafka, topic, range(10), partitions=2)
    where = ("-z", old_kafka.zookeeper_connect, "-t", topic)
    brokers = ("-b", old_kafka.bootstrap_servers, "-t", topic)
    assert printed(*brokers, "-p", "1", "-o", "-2", "-e", "-f", r"%p:%o %k %s\n") == "1:3 k7 v7\n1:4 k9 v9\n"
    assert sorted(printed(*where, "-e").split()) == sorted(f"v{n}" for n in range(10))
    way = where if number_of(old_kafka) < (0, 9) else brokers
    first = printed(*way, "-G", f"g-{topic}", "-o", "beginning", "-c", "4").split()
    rest = printed(*way, "-G", f"g-{topic}", "-o", "beginning", "-e").split()
    assert (len(first), sorted(first + rest)) == (4, sorted(f"v{n}" for n in range(10)))
    assert consume(*where, "-o", "e@1").exit_code == (1 if number_of(old_kafka) < (0, 10) else 0)


def test_kafka_07_is_read_by_the_bytes_of_its_logs() -> None:
    with Kafka07Server(brokers=2, config={"num.partitions": 1, "log.flush.interval": 1}) as kafka:
        with Producer07(zookeeper=kafka.zookeeper_connect) as producer:
            for broker in (0, 1):
                producer.produce("orders", [b"hello", b"world"], broker=broker, partition=0)
            producer.produce("orders", [Compressed("gzip", [b"a", b"b"])], broker=1, partition=0)
        with zookeeper_client(kafka.zookeeper_connect) as client:
            wait_until(
                lambda: (
                    client.exists("/brokers/topics/orders") and len(client.get_children("/brokers/topics/orders")) == 2
                ),
                "both brokers have registered the topic",
            )
        where = ("-z", kafka.zookeeper_connect, "-t", "orders")
        form = ("-f", r"%p:%o %k%s\n")
        assert printed(*where, "-p", "0-0", "-e", *form) == "0-0:0 hello\n0-0:15 world\n"
        assert printed(*where, "-p", "1-0", "-o", "1", "-e", *form) == "1-0:15 world\n1-0:30 a\n1-0:30 b\n"
        assert sorted(printed(*where, "-e").split()) == ["a", "b", "hello", "hello", "world", "world"]
        found = json.loads(printed(*where, "-p", "0-0", "-c", "1", "-J"))
        assert found == {"topic": "orders", "partition": "0-0", "offset": 0, "key": None, "payload": "hello"}
        first = printed(*where, "-G", "g", "-o", "beginning", "-c", "1").split()
        rest = printed(*where, "-G", "g", "-o", "beginning", "-e").split()
        assert (len(first), sorted(first + rest)) == (1, ["a", "b", "hello", "hello", "world", "world"])
        result = consume(*where, "-p", "0", "-e")
        assert result.exit_code == 1
        assert "invalid partition '0' of topic 'orders': expected <broker>-<partition>" in result.stderr
