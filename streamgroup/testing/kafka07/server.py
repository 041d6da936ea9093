"""An emulated broker: its sockets (an acceptor thread, a thread per connection, threads for flushes and retention), and
`serve`, which adds its registration."""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
from collections.abc import Callable
from typing import Final, Self

from streamgroup.errors import ConfigError
from streamgroup.testing.kafka07.config import BrokerConfig
from streamgroup.testing.kafka07.handler import Reply, RequestHandler
from streamgroup.testing.kafka07.log import Logs
from streamgroup.testing.kafka07.registry import Registry
from streamgroup.testing.ports import LOOPBACK

_LENGTH = 4
_BACKLOG = 64
_FIRST_CLEANUP_S = 60.0
_STOP_TIMEOUT_S = 10.0

Report = Callable[[str], None]


def _silent(line: str) -> None:
    """Discard the lines of the log."""


class BrokerServer:
    """One broker without ZooKeeper, as threads of this process: its logs, and its port on 127.0.0.1.

        with BrokerServer(BrokerConfig(broker_id=0, log_dir=directory, port=0)) as broker:
            socket.create_connection((LOOPBACK, broker.port))

    It answers no request before `open()`: the real broker listens before it is registered, and answers after.
    """

    def __init__(self, config: BrokerConfig, report: Report = _silent) -> None:
        """Raises DamagedLog for damaged logs, OSError if the port is taken."""
        self.logs: Final = Logs(config)
        self._config: Final = config
        self._report: Final = report
        self._handler: Final = RequestHandler(self.logs)
        self._opened = threading.Event()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server((LOOPBACK, config.port), backlog=_BACKLOG)
        self.port: Final[int] = self._listener.getsockname()[1]

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def connections(self) -> int:
        """The number of open connections, of which every request that has arrived is handled when they end."""
        with self._lock:
            return len(self._connections)

    def start(self) -> Self:
        """Accept connections, whose requests wait for `open()`."""
        if self._threads:
            raise ConfigError(f"cannot start the broker at {self.address}: it runs already")
        first_cleanup_s = min(_FIRST_CLEANUP_S, self._config.cleanup_interval_ms / 1000)
        flush_s, cleanup_s = self._config.flush_scheduler_ms / 1000, self._config.cleanup_interval_ms / 1000
        self._begin(self._accept, "kafka07-acceptor")
        self._begin(lambda: self._repeat(self.logs.flush_due, flush_s, flush_s), "kafka07-flusher")
        self._begin(lambda: self._repeat(self._clean_up, first_cleanup_s, cleanup_s), "kafka07-cleaner")
        return self

    def open(self) -> None:
        """Start answering requests."""
        self._opened.set()

    def stop(self) -> None:
        """Close all connections, then the logs with a clean shutdown. A second call does nothing."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._opened.set()
        with self._lock:
            sockets, threads = [self._listener, *self._connections], list(self._threads)
        for each in sockets:
            # Unlike close, this wakes the thread that waits on the socket, which then closes it.
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(_STOP_TIMEOUT_S)
        self._listener.close()
        self.logs.close()

    def __enter__(self) -> Self:
        self.start().open()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _begin(self, run: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=run, name=name, daemon=True)
        with self._lock:
            self._threads = [other for other in self._threads if other.is_alive()] + [thread]
            thread.start()

    def _repeat(self, act: Callable[[], object], first_s: float, then_s: float) -> None:
        wait_s = first_s
        while not self._stopping.wait(wait_s):
            act()
            wait_s = then_s

    def _clean_up(self) -> None:
        removed = self.logs.clean_up()
        if removed:
            self._report(f"retention removed {removed} segments")

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._connections.add(connection)
            self._begin(functools.partial(self._serve, connection), "kafka07-connection")

    def _serve(self, connection: socket.socket) -> None:
        """Handle requests one by one: the next is read when the response has been sent."""
        try:
            peer = "{}:{}".format(*connection.getpeername())
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._opened.wait()
            while not self._stopping.is_set():
                reply = self._next_reply(connection)
                connection.sendall(reply.data)
                if reply.close:
                    self._report(f"closing the connection of {peer}: {reply.why}")
                    return
        except (OSError, EOFError):
            pass  # the client is gone
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _next_reply(self, connection: socket.socket) -> Reply:
        size = int.from_bytes(_exactly(connection, _LENGTH), "big", signed=True)
        if not 0 < size <= self._config.max_request_bytes:
            return Reply(close=True, why=f"a request of {size} bytes, the limit is {self._config.max_request_bytes}")
        frame = _exactly(connection, size)
        try:
            return self._handler.handle(frame)
        except OSError as error:
            # The real broker halts.
            return Reply(close=True, why=f"the disk has failed: {error}")


def _exactly(connection: socket.socket, count: int) -> memoryview:
    """Receive exactly `count` bytes. Raises EOFError if the stream ends before."""
    data = memoryview(bytearray(count))
    filled = 0
    while filled < count:
        received = connection.recv_into(data[filled:])
        if not received:
            raise EOFError
        filled += received
    return data.toreadonly()


STARTED = "Kafka server started"
"""The log line of a broker that is registered and serves."""


def serve(config: BrokerConfig, stop: threading.Event, report: Callable[[str], None]) -> None:
    """Run a broker until `stop` is set. `report` receives the lines of its log, from any thread.

    Raises OSError if its port is taken, DamagedLog, AlreadyRegistered, and TransportError without ZooKeeper.
    """
    server = BrokerServer(config, report)
    try:
        server.start()
        registry = _registered(config, server, report) if config.use_zookeeper else None
        server.open()
        report(f"{STARTED}: broker {config.broker_id} at {server.address}, logs in {config.log_dir}")
        stop.wait()
        report("shutting down")
    except BaseException:
        server.stop()
        raise
    # As in the real broker, the port closes before the nodes are deleted.
    server.stop()
    if registry is not None:
        registry.stop()


def _registered(config: BrokerConfig, server: BrokerServer, report: Callable[[str], None]) -> Registry:
    registry = Registry(config, config.advertised_port or server.port, lambda: server.logs.topics, report)
    server.logs.on_new_topic = registry.announce
    registry.start()
    return registry
