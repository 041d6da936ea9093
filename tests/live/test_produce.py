"""`streamgroup produce` on real brokers of several releases and on the emulated Kafka 0.7, read back by `consume`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamgroup.cli.main import main
from streamgroup.testing import KafkaServer
from streamgroup.testing.kafka07 import Kafka07Server
from tests.conftest import MakeTopic
from tests.servers import each_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

COMMAND = (sys.executable, "-c", "from streamgroup.cli.main import main; main()")
RECORDS = 2_000
OLD_CODECS = ("none", "gzip", "snappy")


def command(name: str, *arguments: str, stdin: bytes = b"") -> Result:
    result = CliRunner().invoke(main, [name, *arguments], input=stdin)
    assert result.exit_code == 0, result.output
    return result


kafka = each_of("kafka08", "kafka4")


@pytest.fixture(scope="module")
def kafka07() -> Iterator[Kafka07Server]:
    with Kafka07Server(brokers=2, config={"num.partitions": 2, "log.flush.interval": 1}) as server:
        yield server


@pytest.mark.parametrize("codec", [*OLD_CODECS, "lz4", "zstd"])
def test_lines_are_read_back_in_the_partition_of_their_key(
    kafka: KafkaServer, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic(kafka, 3)
    where = ("-b", kafka.bootstrap_servers, "-t", topic)
    lines = [f"key-{n % 20}:value {n}" for n in range(RECORDS)]
    if codec == "zstd" and kafka.zookeeper_connect:
        result = CliRunner().invoke(main, ["produce", *where, "-z", codec], input=b"a\n")
        assert result.exit_code == 1
        assert "its broker is older than Kafka 2.1" in result.stderr
        return
    result = command("produce", *where, "-K", ":", "-z", codec, stdin="\n".join(lines).encode())
    assert f"{RECORDS} records to {topic} in" in result.stderr
    found = command("consume", *where, "-e", "-f", r"%p:%k:%s\n").stdout.splitlines()
    assert sorted(line.partition(":")[2] for line in found) == sorted(lines)
    places = {tuple(line.split(":")[:2]) for line in found}
    assert len({key for _, key in places}) == len(places) == 20, "no key is in two partitions"


def test_what_consume_prints_as_json_can_be_produced_again(kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    one, other = make_topic(kafka4, 2), make_topic(kafka4, 2)
    brokers = ("-b", kafka4.bootstrap_servers)
    command("produce", *brokers, "-t", one, "-p", "1", "-H", "h=1", "-K", ":", "-Z", stdin=b"a:1\nb:\n:c\n")
    printed = command("consume", *brokers, "-t", one, "-e", "-J").stdout
    moved = printed.replace(f'"topic":"{one}"', f'"topic":"{other}"')
    command("produce", *brokers, "-J", stdin=moved.encode())
    assert command("consume", *brokers, "-t", other, "-e", "-J").stdout == moved
    assert [json.loads(line)["key"] for line in moved.splitlines()] == ["a", "b", None]


def test_the_brokers_of_08_are_found_in_zookeeper(kafka08: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka08)
    where = ("--zookeeper", kafka08.zookeeper_connect, "-t", topic)
    command("produce", *where, stdin=b"a\nb\n")
    assert command("consume", *where, "-e").stdout == "a\nb\n"


@pytest.mark.parametrize("verify", [False, True], ids=["unverified", "verified"])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_kafka_07_is_written_and_read_back(kafka07: Kafka07Server, codec: str, verify: bool) -> None:
    topic = f"lines-{codec}-{verify}".lower()
    where = ("--zookeeper", kafka07.zookeeper_connect, "-t", topic)
    lines = [f"value {n}" for n in range(RECORDS)]
    options = ("-X", "verify=true") if verify else ()
    result = command("produce", *where, "-z", codec, *options, stdin="\n".join(lines).encode())
    assert ("acknowledges nothing" in result.stderr) is not verify
    found: list[str] = []

    def is_complete() -> bool:
        found[:] = command("consume", *where, "-e", "-f", r"%p %s\n").stdout.splitlines()
        return len(found) == RECORDS

    wait_until(is_complete, "all is flushed", 30)
    assert sorted(line.partition(" ")[2] for line in found) == sorted(lines)
    # The brokers register the topic with two partitions each while the command writes: a late batch may go to any.
    used = {line.partition(" ")[0] for line in found}
    assert used & {"0-0", "1-0"}, "a new topic goes to partition 0 of each broker"
    assert used <= {"0-0", "0-1", "1-0", "1-1"}


def test_an_interrupted_command_delivers_what_it_has_read(
    kafka4: KafkaServer, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(kafka4)
    where = ("-b", kafka4.bootstrap_servers, "-t", topic)
    with (tmp_path / "notices").open("wb") as notices:
        running = subprocess.Popen([*COMMAND, "produce", *where], stdin=subprocess.PIPE, stderr=notices)
    assert running.stdin is not None
    running.stdin.write(b"a\nb\nunfinished")
    running.stdin.flush()
    wait_until(lambda: command("consume", *where, "-e").stdout == "a\nb\n", "both lines are written", 60)
    running.send_signal(signal.SIGINT)
    assert running.wait(30) == 0
    running.stdin.close()
    assert "2 records to" in (tmp_path / "notices").read_text()
    assert command("consume", *where, "-e").stdout == "a\nb\n"
