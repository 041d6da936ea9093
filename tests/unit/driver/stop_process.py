"""A coordinator in a process as Spark's runner makes it, over a group in memory: a program that the tests end.

    python stop_process.py RUN_DIRECTORY [SIGNAL]

It plans and proves a batch, has a second one in flight, says `ready`, and reads its standard input, as the runner does,
until that ends. When its member leaves it says what is committed. SIGNAL reaches it in the midst of its last commit.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from typing import Any

from streamgroup.driver import process
from streamgroup.driver.logs import watcher
from streamgroup.driver.membership import group_thread
from streamgroup.model import INITIAL_DOCUMENT, TopicPartition
from streamgroup.planning.document import to_value
from streamgroup.wire.messages.group import LeaveGroupRequest
from streamgroup.wire.messages.offsets import OffsetCommitRequest
from tests.unit.driver.fake_group import OffsetCoordinator
from tests.unit.driver.shells import GroupPoller, logs_of, source


class Telling(OffsetCoordinator):
    """Says when the member leaves, and what is committed then."""

    signal: int | None = None

    def handle(self, request: Any, version: int, reply: Any) -> None:
        if isinstance(request, OffsetCommitRequest) and self.signal is not None:
            os.kill(os.getpid(), self.signal)
            self.signal = None
        if isinstance(request, LeaveGroupRequest):
            committed = sorted((tp.partition, offset.offset) for tp, offset in self.offsets.items())
            os.write(1, f"left {committed}\n".encode())
        super().handle(request, version, reply)


def main() -> None:
    random.seed(1)
    tempfile.tempdir = sys.argv[1]
    group, logs = Telling(), logs_of([10, 10])
    group_thread.Poller = lambda options: GroupPoller(group, set())  # type: ignore[assignment, misc]
    watcher.open_cluster = logs.of  # type: ignore[assignment]
    coordinator = process.start_coordinator(source())
    start = to_value(INITIAL_DOCUMENT)
    for end in (20, 30):
        planned = start
        while planned == start:
            planned = coordinator.latest_offset(start, max_rows=None)
        coordinator.partitions(start, planned)
        start = planned
        logs.ends = {TopicPartition("t", 0): end, TopicPartition("t", 1): end}
    try:
        group.signal = int(sys.argv[2]) if len(sys.argv) > 2 else None
        os.write(1, b"ready\n")
        if not sys.stdin.buffer.read(4):
            raise EOFError
    finally:
        coordinator.stop()
        os.write(1, b"stopped\n")


if __name__ == "__main__":
    main()
