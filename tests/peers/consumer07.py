"""An imitation of Kafka 0.7.2's own consumer (ZookeeperConsumerConnector): the peer of those that share its group.

A second implementation on purpose: nothing of `streamgroup.group`, only ZooKeeper, threads and the original's rules.
On every change stop the fetchers, commit, give up the own owner nodes, compute, read offsets, create owner nodes; where
one of these still stands give up again and wait, four times, then fail and own nothing.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
import queue
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent

from tests.peers.fetcher07 import Chunk, FetcherRunnable, Held, end_of_log, positions_after

_PATTERN = re.compile(r"([*!])(\d+)\1(.*)", re.DOTALL)
_POLL_S = 0.1
_RETRIED_S = 30.0
_JOIN_S = 30.0


@dataclass(frozen=True)
class Config:
    """Kafka 0.7's names and defaults, times in ms. Either `topics` (streams by topic) or a `pattern` (`*2*j-.*`)."""

    zk_connect: str
    groupid: str
    topics: Mapping[str, int] = field(default_factory=dict)
    pattern: str = ""
    consumerid: str = ""
    autooffset_reset: str = "smallest"
    autocommit_enable: bool = True
    autocommit_interval_ms: float = 10_000
    rebalance_retries_max: int = 4
    rebalance_backoff_ms: float = 2_000
    fetch_size: int = 1 << 20
    backoff_increment_ms: float = 1_000
    zk_sessiontimeout_ms: float = 6_000


class RebalanceFailed(Exception):
    """ConsumerRebalanceFailedException."""


Report = Callable[[dict[str, Any]], None]


class Consumer07:
    """The consumer. `on_message(topic, partition, payload, offset after it, stream)`: by one thread at a time."""

    def __init__(
        self,
        config: Config,
        on_message: Callable[[str, str, bytes, int, str], None],
        report: Report = lambda event: None,
    ) -> None:
        self.config = config
        host, millis = socket.gethostname(), int(time.time() * 1000)
        unique = config.consumerid or f"{host}-{millis}-{uuid.uuid4().hex[:8]}"
        self.consumer = f"{config.groupid}_{unique}"
        self.failed: Exception | None = None
        self._on_message = on_message
        self._report = report
        self._root = f"/consumers/{config.groupid}"
        # As ZkClient does: a call whose connection is lost is repeated on the next one.
        self._client = KazooClient(
            config.zk_connect,
            timeout=config.zk_sessiontimeout_ms / 1000,
            command_retry={"max_tries": -1, "max_delay": 1, "deadline": _RETRIED_S},
        )
        self._events: queue.Queue[str] = queue.Queue()
        self._lost = False
        self._stopping = threading.Event()
        self._offsets_lock = threading.RLock()
        self._held: list[Held] = []
        self._fetchers: list[FetcherRunnable] = []
        self._streams: dict[str, queue.Queue[Chunk | Exception]] = {}
        self._threads = [threading.Thread(target=self._rebalance_loop, name="rebalance", daemon=True)]
        if config.autocommit_enable:
            self._threads.append(threading.Thread(target=self._commit_loop, name="autocommit", daemon=True))

    def start(self) -> None:
        """Register and rebalance for the first time. Raises RebalanceFailed as the original does."""
        self._client.add_listener(self._heard)
        self._client.start()
        self._register()
        self._rebalance()
        for thread in self._threads:
            thread.start()

    def shutdown(self) -> None:
        """Stop in good order: the offsets are committed, then the session ends and with it the nodes."""
        self._stopping.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(_JOIN_S)
        self._stop_fetchers()
        if self.config.autocommit_enable:
            self.commit()
        self._client.stop()
        self._client.close()

    @property
    def owned(self) -> list[tuple[str, str]]:
        """(topic, partition) held now."""
        return [(held.topic, held.name) for held in self._held]

    def commit(self) -> None:
        """Write the offsets of all partitions held, unchanged ones too."""
        with self._offsets_lock:
            offsets = [(held, held.consumed) for held in self._held]
        for held, offset in offsets:
            self._write_offset(held, offset)

    # Registration and what is told of changes

    def _register(self) -> None:
        counts = self.config.pattern or "{ " + ",".join(f'"{t}": {n}' for t, n in self.config.topics.items()) + " }"
        path = f"{self._root}/ids/{self.consumer}"
        try:
            self._create(path, counts)
        except NodeExistsError:
            if self._client.retry(self._client.get, path)[0] != counts.encode():
                raise
        self._report({"event": "registered", "consumer": self.consumer})

    def _heard(self, state: str) -> None:
        if state == KazooState.LOST:
            self._lost = True
        elif state == KazooState.CONNECTED and self._lost:
            self._lost = False
            self._events.put("session")

    def _changed(self, event: WatchedEvent) -> None:
        # kazoo tells watches of the end of a session, too; that is heard as a state.
        if event.type != EventType.NONE:
            self._events.put("change")

    def _watch(self) -> None:
        """As ZkClient does: watches are set again before what they watch is looked at."""
        topics = ["/brokers/topics"] if self.config.pattern else []
        for path in [f"{self._root}/ids", *topics, *(f"/brokers/topics/{topic}" for topic in self._my_counts())]:
            if self._client.retry(self._client.exists, path, self._changed):
                with contextlib.suppress(NoNodeError):
                    self._client.retry(self._client.get_children, path, self._changed)

    def _rebalance_loop(self) -> None:
        while not self._stopping.is_set():
            try:
                event = self._events.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            try:
                if event == "session":
                    self._report({"event": "new session"})
                    self._stop_fetchers()
                    self._held = []  # its owner nodes went with the old session
                    self._register()
                self._rebalance()
            except RebalanceFailed as error:
                self._report({"event": "rebalance failed", "error": str(error)})
            except KazooException as error:
                self._report({"event": "zookeeper failed", "error": f"{type(error).__name__}: {error}"})
                self._events.put(event)
                self._stopping.wait(self.config.rebalance_backoff_ms / 1000)
            except Exception as error:  # a peer without this thread would stand still
                self.failed = error
                self._report({"event": "rebalance thread failed", "error": f"{type(error).__name__}: {error}"})
                return

    # The rebalance

    def _rebalance(self) -> None:
        for attempt in range(self.config.rebalance_retries_max):
            if self._stopping.is_set():
                return
            try:
                if self._try_to_rebalance():
                    owned = sorted(f"{topic}:{name}" for topic, name in self.owned)
                    self._report({"event": "rebalanced", "owned": owned, "attempt": attempt})
                    return
            except (NoNodeError, KeyError, ValueError, OSError) as error:
                # Something went while it was looked at: another rebalance will follow, or the next attempt sees it.
                self._report({"event": "rebalance disturbed", "error": f"{type(error).__name__}: {error}"})
            self._stop_fetchers()
            self._stopping.wait(self.config.rebalance_backoff_ms / 1000)
        retries = self.config.rebalance_retries_max
        raise RebalanceFailed(f"{self.consumer} can't rebalance after {retries} retries")

    def _try_to_rebalance(self) -> bool:
        self._watch()
        mine = self._my_counts()
        brokers = self._brokers()
        threads = self._threads_by_topic()
        partitions = {topic: self._partitions(topic) for topic in mine}
        self._stop_fetchers()
        self.commit()
        self._release(self._held)
        self._held = []
        decided: list[Held] = []
        for topic, count in mine.items():
            for thread in (f"{self.consumer}-{n}" for n in range(count)):
                for name in share(partitions[topic], threads[topic], thread):
                    decided.append(self._start_of(topic, name, thread, brokers))
        if not self._claim(decided):
            return False
        self._held = decided
        self._start_fetchers(brokers, decided)
        return True

    def _claim(self, decided: list[Held]) -> bool:
        """Create the owner nodes, all or none."""
        done: list[Held] = []
        for held in decided:
            path = f"{self._root}/owners/{held.topic}/{held.name}"
            try:
                self._create(path, held.thread)
            except NodeExistsError:
                with contextlib.suppress(NoNodeError):
                    if self._client.retry(self._client.get, path)[0] == held.thread.encode():
                        done.append(held)
                        continue
                self._report({"event": "waits for an owner", "partition": f"{held.topic}:{held.name}"})
                self._release(done)
                return False
            done.append(held)
        return True

    def _release(self, held: list[Held]) -> None:
        for each in held:
            with contextlib.suppress(NoNodeError):
                self._client.retry(self._client.delete, f"{self._root}/owners/{each.topic}/{each.name}")

    def _start_of(self, topic: str, name: str, thread: str, brokers: dict[int, tuple[str, int]]) -> Held:
        broker, _, partition = name.partition("-")
        try:
            text = self._client.retry(self._client.get, f"{self._root}/offsets/{topic}/{name}")[0]
            offset = int(text)
        except NoNodeError:
            offset = end_of_log(brokers[int(broker)], (topic, int(partition)), self.config.autooffset_reset)
        return Held(topic, int(broker), int(partition), thread, offset, offset)

    # What ZooKeeper tells

    def _my_counts(self) -> dict[str, int]:
        return self._counts_of(self.config.pattern) if self.config.pattern else dict(self.config.topics)

    def _counts_of(self, registered: str) -> dict[str, int]:
        """Streams by topic, as a consumer has registered them: `*n*regex`, `!n!regex` or JSON."""
        found = _PATTERN.fullmatch(registered)
        if found is None:
            return {topic: int(count) for topic, count in json.loads(registered).items()}
        wanted = found[1] == "*"
        pattern = re.compile(found[3].replace(",", "|").strip())
        topics = self._children("/brokers/topics")
        return {topic: int(found[2]) for topic in topics if (pattern.fullmatch(topic) is not None) is wanted}

    def _threads_by_topic(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for consumer in self._client.retry(self._client.get_children, f"{self._root}/ids"):
            text = self._client.retry(self._client.get, f"{self._root}/ids/{consumer}")[0].decode()
            for topic, count in self._counts_of(text).items():
                found.setdefault(topic, []).extend(f"{consumer}-{n}" for n in range(count))
        return {topic: sorted(threads) for topic, threads in found.items()}

    def _partitions(self, topic: str) -> list[str]:
        found = []
        for broker in self._children(f"/brokers/topics/{topic}"):
            count = int(self._client.retry(self._client.get, f"/brokers/topics/{topic}/{broker}")[0])
            found += [f"{broker}-{partition}" for partition in range(count)]
        return sorted(found)

    def _brokers(self) -> dict[int, tuple[str, int]]:
        found = {}
        for broker in self._children("/brokers/ids"):
            _, host, port = self._client.retry(self._client.get, f"/brokers/ids/{broker}")[0].decode().split(":")
            found[int(broker)] = (host, int(port))
        return found

    def _children(self, path: str) -> list[str]:
        try:
            return sorted(self._client.retry(self._client.get_children, path))
        except NoNodeError:
            return []

    def _create(self, path: str, data: str, *, ephemeral: bool = True) -> None:
        try:
            self._client.retry(self._client.create, path, data.encode(), ephemeral=ephemeral)
        except NoNodeError:
            self._client.retry(self._client.ensure_path, posixpath.dirname(path))
            self._client.retry(self._client.create, path, data.encode(), ephemeral=ephemeral)

    def _write_offset(self, held: Held, offset: int) -> None:
        path = f"{self._root}/offsets/{held.topic}/{held.name}"
        try:
            self._client.retry(self._client.set, path, str(offset).encode())
        except NoNodeError:
            with contextlib.suppress(NodeExistsError):
                self._create(path, str(offset), ephemeral=False)

    # Fetchers and streams

    def _start_fetchers(self, brokers: dict[int, tuple[str, int]], decided: list[Held]) -> None:
        for thread in {held.thread for held in decided}:
            if thread not in self._streams:
                self._streams[thread] = queue.Queue(maxsize=100)
                threading.Thread(target=self._stream, args=(thread,), name=thread, daemon=True).start()
        for broker in {held.broker for held in decided}:

            def reset(held: Held, address: tuple[str, int] = brokers[broker]) -> int:
                offset = end_of_log(address, (held.topic, held.partition), self.config.autooffset_reset)
                self._write_offset(held, offset)
                self._report({"event": "reset", "partition": f"{held.topic}:{held.name}", "offset": offset})
                return offset

            fetcher = FetcherRunnable(
                brokers[broker],
                [held for held in decided if held.broker == broker],
                self._streams,
                fetch_size=self.config.fetch_size,
                backoff_s=self.config.backoff_increment_ms / 1000,
                reset=reset,
            )
            self._fetchers.append(fetcher)
            fetcher.start()

    def _stop_fetchers(self) -> None:
        """Stop them, and let nothing of what they have fetched be handed out any more."""
        with self._offsets_lock:
            for held in self._held:
                held.valid = False
        for stream in self._streams.values():
            with contextlib.suppress(queue.Empty):
                while True:
                    stream.get_nowait()
        for fetcher in self._fetchers:
            fetcher.stop()
        self._fetchers = []

    def _stream(self, thread: str) -> None:
        """One KafkaStream: the application's thread."""
        while not self._stopping.is_set():
            try:
                chunk = self._streams[thread].get(timeout=_POLL_S)
            except queue.Empty:
                continue
            try:
                if isinstance(chunk, Exception):
                    raise chunk
                self._hand_out(chunk, thread)
            except Exception as error:
                self.failed = error
                self._report({"event": "stream failed", "stream": thread, "error": f"{type(error).__name__}: {error}"})
                return

    def _hand_out(self, chunk: Chunk, thread: str) -> None:
        held = chunk.held
        with self._offsets_lock:
            if held.valid:
                held.consumed = chunk.start  # behind messages with nothing in them
        for payload, offset in positions_after(chunk.records, chunk.start):
            with self._offsets_lock:
                if not held.valid:
                    return
                # Like the iterator's next(): consumed as soon as it is handed out.
                held.consumed = offset
                self._on_message(held.topic, held.name, payload, offset, thread)

    def _commit_loop(self) -> None:
        while not self._stopping.wait(self.config.autocommit_interval_ms / 1000):
            with contextlib.suppress(KazooException):
                self.commit()


def share(partitions: list[str], threads: list[str], thread: str) -> list[str]:
    """The chunk of one consumer thread: both lists sorted as strings, the first ones take one more."""
    each, extra = divmod(len(partitions), len(threads))
    at = threads.index(thread)
    start = each * at + min(at, extra)
    return partitions[start : start + each + (1 if at < extra else 0)]
