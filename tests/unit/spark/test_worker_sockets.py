"""A task that unpickles a reader or writer acknowledges at once what the JVM sends it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_streamgroup import DefaultSource
from streamgroup.spark import worker_sockets
from streamgroup.spark.source import row_schema
from streamgroup.spark.worker_sockets import acknowledge_at_once

READ = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
WRITE = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}
ROWS = StructType([StructField("value", BinaryType())])

pytestmark = pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux has TCP_QUICKACK")


@pytest.fixture
def worker_end() -> Iterator[socket.socket]:
    """The end of a connection that has answered, as a worker has, so the kernel delays its acknowledgements."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as worker:
        jvm, _ = server.accept()
        with jvm:
            for _ in range(20):
                jvm.sendall(b"command")
                worker.recv(100)
                worker.sendall(b"answer")
                jvm.recv(100)
            assert not _is_prompt(worker)
            yield worker


def _is_prompt(end: socket.socket) -> bool:
    return bool(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))


def test_connections_of_the_process_acknowledge_at_once(worker_end: socket.socket) -> None:
    one, other = socket.socketpair()  # of the file system: it has no acknowledgements
    with one, other:
        acknowledge_at_once()
        one.sendall(b"still open")
        assert other.recv(100) == b"still open"
    assert _is_prompt(worker_end)


@pytest.mark.parametrize("kind", ["batch read", "stream read", "batch write", "stream write"])
def test_each_reader_and_writer_asks_for_it_when_a_task_unpickles_it(worker_end: socket.socket, kind: str) -> None:
    made = {
        "batch read": lambda: DefaultSource(dict(READ)).reader(row_schema(False, False)),
        "stream read": lambda: DefaultSource({**READ, "kafka.group.id": "g"}).streamReader(row_schema(False, False)),
        "batch write": lambda: DefaultSource(dict(WRITE)).writer(ROWS, overwrite=False),
        "stream write": lambda: DefaultSource(dict(WRITE)).streamWriter(ROWS, overwrite=False),
    }[kind]()
    pickled = cloudpickle.dumps(made)
    assert not _is_prompt(worker_end)
    assert vars(cloudpickle.loads(pickled)).keys() == vars(made).keys()
    assert _is_prompt(worker_end)


def test_a_system_without_the_option_or_without_proc_is_left_alone(
    worker_end: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(worker_sockets, "_QUICKACK", None)
        acknowledge_at_once()
    with monkeypatch.context() as patched:
        patched.setattr(worker_sockets, "_DESCRIPTORS", worker_sockets._DESCRIPTORS / "none")
        acknowledge_at_once()
    assert not _is_prompt(worker_end)
