"""One Kafka in the background of a user's machine: what `streamgroup kafka up`, `down` and `status` share.

What runs is kept in a state file. A process is ours only if its command line names the configuration file that we
wrote for it, and on Linux if it also began when ours did: a number alone may long be another's.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from streamgroup.errors import StreamGroupError
from streamgroup.testing.directories import file_lock, state_directory
from streamgroup.testing.kafka import KafkaServer

_LOCK_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 30.0
_PS_TIMEOUT_S = 10.0
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class BackgroundNode:
    """One process. `began` is its start time in the kernel's ticks; None where the system does not tell."""

    name: str
    pid: int
    properties: str
    began: int | None

    @property
    def alive(self) -> bool:
        """Whether this very process runs."""
        return self.properties in command_line(self.pid) and start_ticks(self.pid) == self.began


@dataclass(frozen=True, slots=True)
class BackgroundKafka:
    """A cluster in the background. `keep` is set where the data directory is the user's own."""

    version: str
    bootstrap_servers: str
    data_dir: str
    keep: bool
    nodes: tuple[BackgroundNode, ...]
    """Its ZooKeeper, where it has one of its own, and then the brokers."""
    zookeeper_connect: str = ""
    """Empty where brokers are not registered in ZooKeeper."""

    @property
    def running(self) -> bool:
        """Whether any of its processes does."""
        return any(node.alive for node in self.nodes)

    def as_json(self) -> dict[str, Any]:
        """For the state file and `--json`."""
        return {**asdict(self), "nodes": [asdict(node) for node in self.nodes]}


def up(
    version: str,
    brokers: int,
    config: Mapping[str, str],
    port: int | None,
    data_dir: Path | None,
    *,
    zookeeper: str | None = None,
    zookeeper_port: int | None = None,
) -> tuple[BackgroundKafka, bool]:
    """Start a cluster that outlives this process; the second value tells whether one of that kind ran already.

    Raises StreamGroupError where one of another version or size runs, ServerStartError with the end of the log.
    """
    with _state_locked():
        known = load()
        if known is not None and known.running:
            size = sum(node.name.startswith("broker-") for node in known.nodes)
            if (known.version, size) != (version, brokers):
                raise StreamGroupError(
                    f"Kafka {known.version} with {size} brokers runs already at {known.bootstrap_servers}; "
                    "end it first: streamgroup kafka down"
                )
            return known, True
        if known is not None:
            _forget(known)
        directory = data_dir or state_directory() / "kafka-data"
        if data_dir is None:
            shutil.rmtree(directory, ignore_errors=True)  # left by a start that failed; its log was shown
        server = KafkaServer(
            version,
            brokers,
            config,
            port=port,
            data_dir=directory,
            detached=True,
            zookeeper=zookeeper,
            zookeeper_port=zookeeper_port,
        ).start()
        started = BackgroundKafka(
            version,
            server.bootstrap_servers,
            str(directory),
            data_dir is not None,
            tuple(_nodes_of(server)),
            server.zookeeper_connect,
        )
        _state_file().write_text(json.dumps(started.as_json(), indent=1) + "\n")
        return started, False


def down() -> BackgroundKafka | None:
    """End the cluster in the background and remove its data, unless they lie in a directory of the user's.

    Returns what was known of it; None where nothing was.
    """
    with _state_locked():
        known = load()
        if known is not None:
            for node in reversed(known.nodes):
                _end(node)
            _forget(known)
        return known


def load() -> BackgroundKafka | None:
    """What the state file says; None where there is none."""
    try:
        values = json.loads(_state_file().read_text())
    except FileNotFoundError:
        return None
    nodes = tuple(BackgroundNode(**node) for node in values.pop("nodes"))
    return BackgroundKafka(**values, nodes=nodes)


def command_line(pid: int) -> str:
    """Return the command line of a process; empty where it does not exist or has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        if Path("/proc/self").exists():
            return ""
    shown = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)],
        capture_output=True,
        text=True,
        timeout=_PS_TIMEOUT_S,
        check=False,
    )
    return shown.stdout


def start_ticks(pid: int) -> int | None:
    """When a process began, in the kernel's ticks since boot; None off Linux or where it does not exist."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name in parentheses may hold anything; field 22 is the 20th after it (proc(5)).
    return int(stat.rpartition(")")[2].split()[19])


def _nodes_of(server: KafkaServer) -> Iterator[BackgroundNode]:
    """Return all processes, each after those that it needs."""
    processes = [(node.name, node.pid, node.properties) for node in server.nodes]
    if server.zookeeper is not None:
        processes.insert(0, ("zookeeper", server.zookeeper.pid, server.zookeeper.configuration))
    for name, pid, file in processes:
        if pid is not None:
            yield BackgroundNode(name, pid, str(file), start_ticks(pid))


def _end(node: BackgroundNode) -> None:
    """SIGTERM, then SIGKILL. Paused processes hear a SIGTERM only once they go on."""
    for signals in ((signal.SIGCONT, signal.SIGTERM), (signal.SIGKILL,)):
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        for number in signals:
            if node.alive:
                os.kill(node.pid, number)
        while node.alive:
            if time.monotonic() >= deadline:
                break
            time.sleep(_POLL_S)
    if node.alive:
        raise StreamGroupError(f"{node.name} (pid {node.pid}) does not end, not even by SIGKILL")


def _forget(known: BackgroundKafka) -> None:
    if not known.keep:
        shutil.rmtree(known.data_dir, ignore_errors=True)
    _state_file().unlink(missing_ok=True)


def _state_file() -> Path:
    return state_directory() / "kafka.json"


@contextmanager
def _state_locked() -> Iterator[None]:
    with file_lock(state_directory() / "kafka.lock", _LOCK_TIMEOUT_S):
        yield
