"""A standalone cluster of Spark: a master and its workers, each a process of its own on the loopback interface."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark

from streamgroup.testing.java import java_executable
from streamgroup.testing.ports import LOOPBACK, free_ports
from streamgroup.testing.processes import ServerProcess, on_free_ports
from tests.waiting import wait_until

SPARK_HOME = Path(pyspark.__file__).parent
DEPLOY = "org.apache.spark.deploy"
EXECUTOR_MEMORY = "512m"
WORKER_MEMORY = "640m"
"""Room for one executor."""
BACKEND = b"CoarseGrainedExecutorBackend"
_JAVA_FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class StandaloneCluster:
    """A master and `workers` workers, each with one core: an application has an executor on each of them."""

    def __init__(self, home: Path, workers: int = 2) -> None:
        self._home = home
        port, self._web_port, *web_ports = free_ports(2 + workers)
        self.url = f"spark://{LOOPBACK}:{port}"
        ports = ["--port", str(port), "--webui-port", str(self._web_port)]
        self._master = self._process("master", ["master.Master", "--host", LOOPBACK, *ports], self._is_up)
        self.workers = [self._worker(number, web_port) for number, web_port in enumerate(web_ports, 1)]

    def _worker(self, number: int, web_port: int) -> ServerProcess:
        """Make a worker with an address of its own: Spark runs no copy of a task on the host of the first attempt."""
        name, host = f"worker-{number}", f"127.0.0.{number}"
        directory = self._home / name
        room = ["--cores", "1", "--memory", WORKER_MEMORY, "--work-dir", str(directory), "--webui-port", str(web_port)]
        address = f"http://{host}:{web_port}"
        return self._process(
            name,
            ["worker.Worker", "--host", host, *room, self.url],
            lambda: any(w["webuiaddress"] == address and w["state"] == "ALIVE" for w in self._state()["workers"]),
            host,
        )

    def _process(self, name: str, argv: list[str], ready: Callable[[], bool], host: str = LOOPBACK) -> ServerProcess:
        environment = {
            "JAVA_HOME": str(java_executable().resolve().parents[1]),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": host,
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _JAVA_FLAGS,
            "PYTHONPATH": "",
        }
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"{DEPLOY}.{argv[0]}", *argv[1:]]
        return ServerProcess(name, command, self._home / f"{name}.log", ready, environment=environment)

    def start(self) -> None:
        """Start the master, then the workers; return when all have registered."""
        self._master.start()
        for worker in self.workers:
            worker.launch()
        for worker in self.workers:
            worker.await_ready()

    def stop(self) -> None:
        """Kill all processes. A worker's executors are in its process group."""
        for process in [*self.workers, self._master]:
            process.kill()

    def _is_up(self) -> bool:
        return self._state().get("status") == "ALIVE"

    def _state(self) -> dict[str, Any]:
        """Return what the master's web UI says of its workers and applications.

        A master that starts answers with its HTML page until it has the JSON one.
        """
        url = f"http://{LOOPBACK}:{self._web_port}/json/"
        with suppress(OSError, ValueError), urllib.request.urlopen(url, timeout=5) as page:
            state: dict[str, Any] = json.load(page)
            return state
        return {"workers": []}

    def executors(self, worker: ServerProcess) -> list[int]:
        """Return the pids of the executors of a worker."""
        assert worker.pid is not None
        return [pid for pid in _children(worker.pid) if BACKEND in _command(pid)]

    def wait_for_a_task(self, worker: ServerProcess, timeout: float = 60.0) -> None:
        """Wait until an executor of the worker runs a task, as its log says."""

        def runs_one() -> bool:
            logs = [_log(pid) for pid in self.executors(worker)]
            return any(log.count(": Running task ") > log.count(": Finished task ") for log in logs)

        wait_until(runs_one, f"{worker.name} runs a task", timeout)

    def kill_executors(self, worker: ServerProcess) -> None:
        """Kill the executors of a worker (SIGKILL). The worker starts others."""
        for pid in self.executors(worker):
            os.kill(pid, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    found = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(child) for child in thread.read_text().split()]
    return found


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _log(pid: int) -> str:
    """Return what an executor has logged. It runs in a directory of its own."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cwd/stderr").read_text()
    return ""


@contextmanager
def standalone_cluster(home: Path) -> Iterator[StandaloneCluster]:
    """Run a cluster in `home`; nothing of it outlives the block."""
    with ExitStack() as stack:
        started: list[StandaloneCluster] = []

        def start() -> None:
            cluster = StandaloneCluster(home)
            stack.callback(cluster.stop)
            cluster.start()
            started.append(cluster)

        on_free_ports(start, fixed=False)
        yield started[0]


class EventLog:
    """The event log of one application: its jobs, tasks and executors."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings with which an application writes it."""
        return {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self._directory.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the events of this name so far, such as `TaskEnd`."""
        found = []
        for file in self._directory.iterdir():
            for line in file.read_text().splitlines():
                with suppress(ValueError):  # its last line may be half written
                    found.append(json.loads(line))
        return [event for event in found if event["Event"] == f"SparkListener{name}"]

    def lost_tasks(self) -> int:
        """Return how many tasks ended because their executor was lost."""
        reasons = [event["Task End Reason"]["Reason"] for event in self.events("TaskEnd")]
        return reasons.count("ExecutorLostFailure")

    def speculative_tasks(self) -> int:
        """Return how many copies of slow tasks Spark has started."""
        return sum(event["Task Info"]["Speculative"] for event in self.events("TaskStart"))
