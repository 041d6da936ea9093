"""The Kafka cluster that runs in the background of a user's machine, for `streamgroup kafka up`, `down` and `status`.

A state file records its processes. A recorded process is ours only if its command line names the configuration file
that this package wrote for it and, on Linux, if its start time matches: its pid may have been reused.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from streamgroup.errors import StreamGroupError
from streamgroup.frozen import frozen
from streamgroup.testing.directories import (
    file_lock,
    make_own,
    require_own,
    require_unmovable,
    state_directory,
    write_private,
)
from streamgroup.testing.kafka import KafkaServer

_LOCK_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 30.0
_PS_TIMEOUT_S = 10.0
_POLL_S = 0.1

_STATE, _NUM_THREADS = 0, 17
"""The index among the fields of `/proc/<pid>/stat` after the program name (proc(5))."""


@frozen
class BackgroundNode:
    """One process. `began` is its start time in kernel ticks, None on systems that do not expose it."""

    name: str
    pid: int
    properties: str
    began: int | None

    @property
    def alive(self) -> bool:
        """True if this process runs, and not another with its pid."""
        return self.properties in command_line(self.pid) and start_ticks(self.pid) == self.began


@dataclass(frozen=True, slots=True, repr=False)
class BackgroundClient:
    """A client of a secured cluster, with its password: the mechanism, and the options of Spark's sources."""

    mechanism: str
    options: Mapping[str, str]
    properties: str
    """The path of the file for `--command-config` of Java's tools."""
    jvm_flags: tuple[str, ...] = ()
    """Additional flags for Java's tools."""


@frozen
class BackgroundKafka:
    """A cluster in the background. `keep` is set if the user gave the data directory."""

    version: str
    bootstrap_servers: str
    data_dir: str
    keep: bool
    nodes: tuple[BackgroundNode, ...]
    """The processes: its own ZooKeeper, if any, then the brokers."""
    zookeeper_connect: str = ""
    """Empty in KRaft mode."""
    clients: tuple[BackgroundClient, ...] = ()
    """One for each mechanism; empty without security."""

    @property
    def running(self) -> bool:
        """True if any of its processes runs."""
        return any(node.alive for node in self.nodes)

    def as_json(self) -> dict[str, Any]:
        """Return the values for the state file and `--json`."""
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
    mechanisms: Sequence[str] = (),
) -> tuple[BackgroundKafka, bool]:
    """Start a cluster that outlives this process. Return it, and whether it was running before.

    With `mechanisms` it has TLS and SASL. Raises StreamGroupError if a cluster of another version, size or security
    runs, ServerStartError with the end of the log.
    """
    with _state_locked():
        known = load()
        if known is not None and known.running:
            size = sum(node.name.startswith("broker-") for node in known.nodes)
            if (known.version, size) != (version, brokers):
                raise StreamGroupError(
                    f"cannot start Kafka {version}: Kafka {known.version} with {size} brokers runs at "
                    f"{known.bootstrap_servers}. Stop it first: streamgroup kafka down"
                )
            has = [client.mechanism for client in known.clients]
            if has != list(mechanisms):
                raise StreamGroupError(
                    f"cannot start Kafka with {_security(mechanisms)}: Kafka with {_security(has)} runs at "
                    f"{known.bootstrap_servers}. Stop it first: streamgroup kafka down"
                )
            return known, True
        if known is not None:
            _forget(known)
        directory = data_dir or state_directory() / "kafka-data"
        if data_dir is None:
            shutil.rmtree(directory, ignore_errors=True)  # left by a failed start, whose log was shown
        server = KafkaServer(
            version,
            brokers,
            config,
            port=port,
            data_dir=directory,
            detached=True,
            zookeeper=zookeeper,
            zookeeper_port=zookeeper_port,
            security="SASL_SSL" if mechanisms else None,
            mechanisms=mechanisms,
        ).start()
        started = BackgroundKafka(
            version,
            server.bootstrap_servers,
            str(directory),
            data_dir is not None,
            tuple(_nodes_of(server)),
            server.zookeeper_connect,
            tuple(_client_of(server, mechanism) for mechanism in mechanisms),
        )
        write_private(_state_file(), json.dumps(started.as_json(), indent=1) + "\n")
        return started, False


def down() -> BackgroundKafka | None:
    """Stop the cluster and remove its data, unless the user gave the data directory.

    Returns the recorded cluster, or None if there is none.
    """
    with _state_locked():
        known = load()
        if known is not None:
            for node in reversed(known.nodes):
                _end(node)
            _forget(known)
        return known


def load() -> BackgroundKafka | None:
    """Return the recorded cluster, or None without a state file.

    Raises ConfigError if another user may write the file: it names processes to stop and directories to remove.
    """
    try:
        require_unmovable(state_directory())
        for path in (state_directory(), _state_file()):
            require_own(path, state_directory(), "the record of what `streamgroup kafka down` stops and removes")
        values = json.loads(_state_file().read_text())
    except FileNotFoundError:
        return None
    nodes = tuple(BackgroundNode(**node) for node in values.pop("nodes"))
    clients = tuple(
        BackgroundClient(**{**client, "jvm_flags": tuple(client["jvm_flags"])}) for client in values.pop("clients", ())
    )
    return BackgroundKafka(**values, nodes=nodes, clients=clients)


def command_line(pid: int) -> str:
    """Return the command line of a process, empty if it does not exist or has ended."""
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
    """Return the start time of a process in kernel ticks since boot; None off Linux or if it does not exist."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name in parentheses may hold anything; field 22 is the 20th after it (proc(5)).
    return int(stat.rpartition(")")[2].split()[19])


def has_ended(pid: int) -> bool:
    """Return whether a process has closed all its files. It has no command line any more before it closes them.

    The threads of a process share its files, and its first thread may end before the others. Off Linux, return whether
    the process has no command line.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return not command_line(pid)
    fields = stat.rpartition(")")[2].split()
    return fields[_STATE] in "ZX" and int(fields[_NUM_THREADS]) <= 1


def _nodes_of(server: KafkaServer) -> Iterator[BackgroundNode]:
    """Yield all processes, each after those that it needs."""
    processes = [(node.name, node.pid, node.properties) for node in server.nodes]
    if server.zookeeper is not None:
        processes.insert(0, ("zookeeper", server.zookeeper.pid, server.zookeeper.configuration))
    token_server = server.token_server
    if token_server is not None:
        processes.insert(0, ("token-server", token_server.pid, server.security.files.token_server))
    for name, pid, file in processes:
        if pid is not None:
            yield BackgroundNode(name, pid, str(file), start_ticks(pid))


def _client_of(server: KafkaServer, mechanism: str) -> BackgroundClient:
    client = server.security.client(mechanism=mechanism)
    file = server.security.client_properties(mechanism=mechanism)
    return BackgroundClient(mechanism, client.options, str(file), client.jvm_flags)


def _security(mechanisms: Sequence[str]) -> str:
    return f"SASL_SSL and {', '.join(mechanisms)}" if mechanisms else "no security"


def _end(node: BackgroundNode) -> None:
    """Send SIGTERM, then SIGKILL. A paused process receives SIGTERM only after SIGCONT."""
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
        raise StreamGroupError(f"cannot stop {node.name}: process {node.pid} survives SIGKILL")
    # Its ports are free only when it has closed its sockets. A process that shows a command line is another one.
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while _is_closing(node) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _is_closing(node: BackgroundNode) -> bool:
    return start_ticks(node.pid) == node.began and not command_line(node.pid) and not has_ended(node.pid)


def _forget(known: BackgroundKafka) -> None:
    if not known.keep:
        shutil.rmtree(known.data_dir, ignore_errors=True)
    _state_file().unlink(missing_ok=True)


def _state_file() -> Path:
    return state_directory() / "kafka.json"


@contextmanager
def _state_locked() -> Iterator[None]:
    make_own(state_directory(), 0o700)
    with file_lock(state_directory() / "kafka.lock", _LOCK_TIMEOUT_S):
        yield
