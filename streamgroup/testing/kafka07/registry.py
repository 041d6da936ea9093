"""The registration of a 0.7 broker in ZooKeeper: itself and its partitions of every topic, as ephemeral nodes.

    /brokers/ids/<id>              <host>-<start in ms>:<host>:<port>
    /brokers/topics/<topic>/<id>   the number of partitions

A thread registers a topic shortly after its first PRODUCE, and everything again after a session has expired. Parents
have null data, as those of the real broker's client.
"""

from __future__ import annotations

import contextlib
import posixpath
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry

from streamgroup.errors import ConfigError, StreamGroupError, TransportError
from streamgroup.testing.kafka07.config import BrokerConfig

IDS = "/brokers/ids"
TOPICS = "/brokers/topics"

_STOP_TIMEOUT_S = 10.0


class AlreadyRegistered(StreamGroupError):
    """Another broker has this id, or this broker's last session has not expired yet."""


class _Task:
    """The tasks of the thread besides names of topics."""

    NEW_SESSION = object()
    STOP = object()


class Registry:
    """One broker's session with ZooKeeper. `topics` returns its topics; `port` is the port to register."""

    def __init__(
        self, config: BrokerConfig, port: int, topics: Callable[[], list[str]], report: Callable[[str], None]
    ) -> None:
        self._config: Final = config
        self._port: Final = port
        self._topics: Final = topics
        self._report: Final = report
        self._tasks: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="kafka07-registry", daemon=True)
        self._lost = False
        self._stopping = threading.Event()
        self._client = KazooClient(
            hosts=config.zookeeper,
            timeout=config.session_timeout_ms / 1000,
            connection_retry=KazooRetry(max_tries=-1, max_delay=0.5),
        )

    def start(self) -> None:
        """Connect, and register the broker and its topics.

        Raises AlreadyRegistered, and TransportError if ZooKeeper does not answer in time.
        """
        self._client.add_listener(self._on_state)
        try:
            self._client.start(self._config.connection_timeout_ms / 1000)
            self._register_all()
        except KazooTimeoutError as error:
            self._close()
            where, limit = self._config.zookeeper, self._config.connection_timeout_ms
            raise TransportError(
                f"cannot connect to ZooKeeper at {where} within {limit:.0f} ms. Check that it runs"
            ) from error
        except KazooException as error:
            self._close()
            raise TransportError(
                f"cannot use ZooKeeper at {self._config.zookeeper}: {type(error).__name__}: {error}"
            ) from error
        except BaseException:
            self._close()
            raise
        self._thread.start()

    def announce(self, topic: str) -> None:
        """Register `topic` in the background."""
        self._tasks.put(topic)

    def stop(self) -> None:
        """Close the session, which deletes all nodes at once."""
        self._stopping.set()
        if self._thread.is_alive():
            self._tasks.put(_Task.STOP)
            self._thread.join(_STOP_TIMEOUT_S)
        self._close()

    def _close(self) -> None:
        self._client.stop()
        self._client.close()

    def _on_state(self, state: str) -> None:
        # kazoo calls this from its own thread, which must not wait for ZooKeeper.
        if state == KazooState.LOST:
            self._lost = True
        elif state == KazooState.CONNECTED and self._lost:
            self._lost = False
            self._tasks.put(_Task.NEW_SESSION)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not _Task.STOP:
            try:
                if task is _Task.NEW_SESSION:
                    self._report(
                        f"re-registering broker {self._config.broker_id} in ZooKeeper: its session had expired"
                    )
                    self._register_all()
                else:
                    self._register_topic(str(task))
            except (KazooException, AlreadyRegistered) as error:
                # A later session registers everything again.
                self._report(f"not registered: {type(error).__name__}: {error}")

    def _register_all(self) -> None:
        config = self._config
        path = f"{IDS}/{config.broker_id}"
        creator = f"{config.host}-{int(time.time() * 1000)}"
        try:
            self._create(path, f"{creator}:{config.host}:{self._port}")
        except NodeExistsError:
            found = self._retried(self._client.exists, path)
            # The node is this session's if the answer to an earlier attempt was lost.
            if found is None or found.ephemeralOwner != self._client.client_id[0]:
                raise AlreadyRegistered(
                    f"A broker is already registered on the path {path}. Either its brokerid is in use, or this broker "
                    "was restarted before its last session expired: wait for the session timeout, then start it again"
                ) from None
        for topic in self._topics():
            self._register_topic(topic)

    def _register_topic(self, topic: str) -> None:
        path, count = f"{TOPICS}/{topic}/{self._config.broker_id}", str(self._config.partitions_of(topic))
        try:
            self._create(path, count)
        except NodeExistsError:
            # Of the session before, perhaps; with the same data that is fine by the real broker.
            with contextlib.suppress(NoNodeError):
                found, _ = self._retried(self._client.get, path)
                if found != count.encode():
                    raise
        self._report(f"registered {path}: {count}")

    def _create(self, path: str, data: str) -> None:
        """Create an ephemeral node, and its parents if missing. Raises NodeExistsError."""
        try:
            self._retried(self._client.create, path, data.encode(), ephemeral=True)
        except NoNodeError:
            self._make(posixpath.dirname(path))
            self._retried(self._client.create, path, data.encode(), ephemeral=True)

    def _make(self, path: str) -> None:
        """Create a persistent node without data, and its parents."""
        if path == "/":
            raise ConfigError(
                f"invalid zk.connect: the chroot {self._client.chroot} does not exist in ZooKeeper. Create it first"
            )
        try:
            self._retried(self._client.create, path, None)
        except NodeExistsError:
            pass
        except NoNodeError:
            self._make(posixpath.dirname(path))
            with contextlib.suppress(NodeExistsError):
                self._retried(self._client.create, path, None)

    def _retried(self, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Call until there is a connection or `stop` is called, however long that takes, as the real broker does."""
        return KazooRetry(max_tries=-1, max_delay=0.5, interrupt=self._stopping.is_set)(call, *args, **named)
