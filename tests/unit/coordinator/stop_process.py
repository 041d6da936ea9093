"""A coordinator in a process as Spark's runner makes it, over a group in memory: a program that the tests end.

    python -m tests.unit.coordinator.stop_process RUN_DIRECTORY [SIGNAL]

It plans and proves a batch, has a second one in flight, says `ready`, and reads its standard input, as the runner does,
until that ends. At a line it makes Spark's next call, and says which error that has raised. When its member leaves it
says what is committed. SIGNAL reaches it in the midst of its last commit.
At SIGUSR1 it logs more than a pipe holds, under the coordinator's lock; from then on it says when it sends a heartbeat.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
from typing import Any

from streamgroup.coordinator import process
from streamgroup.coordinator.planning.document import to_value
from streamgroup.coordinator.threads import group_thread, log_watcher
from streamgroup.errors import StreamGroupError
from streamgroup.kafka.wire.messages.group import HeartbeatRequest, LeaveGroupRequest
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest
from streamgroup.model import INITIAL_DOCUMENT, TopicPartition
from streamgroup.options.types import GroupOptions, LimitOptions
from tests.fakes.cluster import logs_of
from tests.fakes.group_coordinator import ScriptedCoordinator
from tests.unit.coordinator.shells import GroupPoller, source


class Telling(ScriptedCoordinator):
    """Says when the member leaves, and what is committed then."""

    signal: int | None = None
    tells_heartbeats = False

    def handle(self, request: Any, version: int, reply: Any) -> None:
        if isinstance(request, OffsetCommitRequest) and self.signal is not None:
            os.kill(os.getpid(), self.signal)
            self.signal = None
        if isinstance(request, HeartbeatRequest) and self.tells_heartbeats:
            os.write(1, b"heartbeat\n")
        if isinstance(request, LeaveGroupRequest):
            committed = sorted((tp.partition, offset.offset) for tp, offset in self.offsets.items())
            os.write(1, f"left {committed}\n".encode())
        super().handle(request, version, reply)


def main() -> None:
    random.seed(1)
    tempfile.tempdir = sys.argv[1]
    process.RUNNER = "tests.unit.coordinator.stop_process"
    group, logs = Telling(), logs_of([10, 10])
    group_thread.Poller = lambda options: GroupPoller(group, set())  # type: ignore[assignment, misc]
    log_watcher.open_cluster = logs.of  # type: ignore[assignment]
    coordinator = process.start_coordinator(source(group=GroupOptions("g", heartbeat_interval_ms=50)))

    def log_much(*_: object) -> None:
        with coordinator._inbox._lock:
            for number in range(3000):
                process.log.error("%s line %d", "." * 200, number)
        group.tells_heartbeats = True
        os.write(1, b"has logged\n")

    signal.signal(signal.SIGUSR1, log_much)
    start = to_value(INITIAL_DOCUMENT)
    for end in (20, 30):
        planned = start
        while planned == start:
            planned = coordinator.latest_offset(start, limits=LimitOptions())
        coordinator.partitions(start, planned)
        start = planned
        logs.ends = {TopicPartition("t", 0): end, TopicPartition("t", 1): end}
    try:
        group.signal = int(sys.argv[2]) if len(sys.argv) > 2 else None
        os.write(1, b"ready\n")
        if not sys.stdin.buffer.readline():
            raise EOFError
        try:
            coordinator.latest_offset(planned, limits=LimitOptions())
        except StreamGroupError as error:
            os.write(1, f"raised {error}\n".encode())
    finally:
        coordinator.stop()
        os.write(1, b"stopped\n")
        process.log.error("the last words")


if __name__ == "__main__":
    main()
