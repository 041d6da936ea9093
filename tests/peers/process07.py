"""The imitated 0.7 consumer as a process: what it is started with, and what it has printed.

`python -m tests.peers.process07 '{"zk_connect": "...", "groupid": "g", "topics": {"events": 2}}'` prints a line of JSON
for each message, with the offset after it, and for each event. SIGTERM ends it in good order.
"""

from __future__ import annotations

import dataclasses
import json
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from streamgroup.testing.processes import ServerProcess
from tests.peers.consumer07 import Config, Consumer07, RebalanceFailed

_POLL_S = 0.2
_ROOT = Path(__file__).parents[2]


class Consumed(NamedTuple):
    """One message that the process was handed. `offset` is the one that it would commit after it."""

    topic: str
    partition: str
    value: bytes
    offset: int
    stream: str


class Consumer07Process:
    """An imitated consumer as a process that may be killed and paused.

    with Consumer07Process(tmp_path / "c1.log", Config(kafka.zookeeper_connect, "g", {"events": 1})) as peer:
        wait_until(lambda: len(peer.messages()) == 10, "the messages")
    """

    def __init__(self, log: Path, config: Config) -> None:
        given = json.dumps(dataclasses.asdict(config))
        self.process = ServerProcess(
            f"0.7 consumer {config.consumerid or log.stem}",
            [sys.executable, "-m", __name__, given],
            log,
            lambda: any(event["event"] == "rebalanced" for event in self.events()),
            environment={"PYTHONPATH": str(_ROOT)},
        )

    @property
    def consumer(self) -> str:
        """Its id, as in `/consumers/<group>/ids`."""
        return next(str(event["consumer"]) for event in self.events() if event["event"] == "registered")

    @property
    def owned(self) -> list[str]:
        """`topic:broker-partition` of what it held after its last rebalance; nothing where that failed."""
        rebalances = [event for event in self.events() if event["event"] in ("rebalanced", "rebalance failed")]
        return list(rebalances[-1].get("owned", []))

    def events(self) -> list[dict[str, Any]]:
        """All but the messages, in their order."""
        return [line for line in self._lines() if "event" in line]

    def messages(self) -> list[Consumed]:
        """All messages of all starts, in their order."""
        rows = (line["message"] for line in self._lines() if "message" in line)
        return [Consumed(t, p, value.encode("latin-1"), offset, stream) for t, p, value, offset, stream in rows]

    def kill(self) -> None:
        """SIGKILL: its nodes stay until its session has expired."""
        self.process.kill()

    def pause(self) -> None:
        """SIGSTOP."""
        self.process.pause()

    def resume(self) -> None:
        """SIGCONT."""
        self.process.resume()

    def stop(self) -> None:
        """SIGTERM: commits and leaves."""
        self.process.stop()

    def start(self) -> Self:
        """Start it and wait for its first rebalance. Raises ServerStartError."""
        self.process.start()
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
        if error is not None:
            print(f"{self.process.name}: {self.events()}")

    def _lines(self) -> list[dict[str, Any]]:
        if not self.process.log.exists():
            return []
        # The last line may be half there; others than ours are of Python itself.
        whole = self.process.log.read_text().rpartition("\n")[0].splitlines()
        return [json.loads(line) for line in whole if line.startswith("{")]


def main(given: Mapping[str, Any]) -> int:
    """Consume until a SIGTERM, or until a stream or the first rebalance fails."""
    lock = threading.Lock()

    def show(line: dict[str, Any]) -> None:
        with lock:
            print(json.dumps(line), flush=True)

    def show_message(topic: str, partition: str, payload: bytes, offset: int, stream: str) -> None:
        show({"message": [topic, partition, payload.decode("latin-1"), offset, stream]})

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    consumer = Consumer07(Config(**given), show_message, show)
    try:
        consumer.start()
    except RebalanceFailed as error:
        show({"event": "rebalance failed", "error": str(error)})
        return 1
    while not stop.wait(_POLL_S) and consumer.failed is None:
        pass
    consumer.shutdown()
    show({"event": "stopped"})
    return 0 if consumer.failed is None else 1


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
