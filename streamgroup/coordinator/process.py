"""Sets up a coordinator process: logging, signals, process group, control channel, and a thread that watches the
driver.

Spark ends a query's Python process with SIGTERM, twice, and calls no method before (R29). If the JVM is killed, its
socket closes, and `EndedWatch` detects it. A query may continue after its SparkContext has stopped; `ContextWatch`
detects this.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from types import FrameType

from streamgroup.coordinator.control.channel import ControlServer, cores_announced, directory, is_listened
from streamgroup.coordinator.control.parent import ContextWatch, EndedWatch, StoppedWatch, find_jvm
from streamgroup.coordinator.coordinator import Coordinator
from streamgroup.coordinator.log_output import log_to_stderr
from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.options.types import WEIGHT_OF_CORES, SourceOptions

log = logging.getLogger("streamgroup")

PARENT_EVERY_S = 0.2
_DRIVER_ENDED = 1
"""The exit status of a coordinator process whose driver has ended."""
RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
"""The main module of the process that Spark starts for a streaming source."""


def start_coordinator(options: SourceOptions) -> Coordinator:
    """Create the coordinator of this process's query; start its control channel and the thread that watches the driver.

    In the main thread it also installs the signal handlers. Raises ConfigError if the member's weight is `auto` and no
    listener has reported the application's cores.
    """
    log_to_stderr()
    _leave_process_group()
    jvm = _find_jvm()
    options = _with_weight(options, cores_announced(jvm))
    coordinator = Coordinator(options, home=directory(jvm))
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, functools.partial(_exit, coordinator))
        # Only the driver decides to end the query: SIGINT must not end its coordinator.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = ControlServer(coordinator, jvm)
    channel.start()
    coordinator.listen(functools.partial(is_listened, jvm))
    atexit.register(channel.close)
    atexit.register(
        coordinator.stop
    )  # in case a signal arrives after the runner decides to stop and before it calls `stop`
    threading.Thread(
        target=_watch_driver, args=(coordinator, channel, jvm), name="streamgroup-parent", daemon=True
    ).start()
    return coordinator


def _with_weight(options: SourceOptions, cores: int | None) -> SourceOptions:
    group = options.group
    if group is None or group.weight != WEIGHT_OF_CORES:
        return options
    if cores is None:
        raise ConfigError(
            f"group {group.group_id!r}: group.member.weight=auto needs the number of the application's cores, which a "
            "listener reports. Call streamgroup.listen(spark) before the query starts, or set a number. Through Spark "
            "Connect only a number is possible"
        )
    log.info("group %s: group.member.weight=auto is %d, the number of the executors' cores", group.group_id, cores)
    return replace(options, group=replace(group, weight=cores))


def _leave_process_group() -> None:
    """Leave the driver's process group, if Spark has started this process for the source.

    Ctrl-C in a terminal, `timeout` and `kill -TERM -PGID` signal every process of the driver's group. The driver then
    drains the query, for which it needs its coordinator. The session stays the driver's, so that the end of the
    session ends the coordinator as well.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None or spec.name != RUNNER:  # started by the user, who decides about its process group
        return
    # A JVM that dies leaves the new group without a parent in its session. A coordinator that is stopped at that moment
    # gets SIGHUP from the kernel, which would end it before it leaves its consumer group.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        os.setpgid(0, 0)
    except PermissionError:  # a wrapper has made it a session leader, which leads its own process group
        log.debug("setpgid refused: the coordinator process leads a session and its own process group")


def _find_jvm() -> int:
    """Return the pid of the driver's JVM, by which drains and listeners find this process."""
    parent, jvm = os.getppid(), find_jvm()
    if jvm is None:
        log.warning(
            "no ancestor of the coordinator process (pid %d) is a JVM: streamgroup.drain and streamgroup.listen cannot "
            "find it. If PYSPARK_PYTHON is a wrapper script, start Python in it with `exec`",
            os.getpid(),
        )
    elif jvm != parent:
        log.warning(
            "the parent of the coordinator process is process %d, not the driver's JVM (%d): Spark's SIGTERM reaches "
            "only that process, so a stopped query leaves its group when Spark's last call has ended. If "
            "PYSPARK_PYTHON is a wrapper script, start Python in it with `exec`",
            parent,
            jvm,
        )
    return jvm or parent


def _exit(coordinator: Coordinator, _signum: int, _frame: FrameType | None) -> None:
    """Handle SIGTERM: raise SystemExit in the main thread, so that Spark's runner calls `stop`.

    The second SIGTERM must not interrupt `stop`. Neither must the first one, if the JVM's closed socket has started
    `stop`.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not coordinator.stopping:
        coordinator.interrupt()


def _watch_driver(coordinator: Coordinator, channel: ControlServer, jvm: int) -> None:
    """Check until the JVM ends whether Spark still calls the source (R27); then leave the group and end this process.

    If the SparkContext stops earlier, leave the group then. The process then ends with the JVM or with the query.
    """
    has_ended, is_stopped, has_context_stopped = EndedWatch(jvm), StoppedWatch(jvm), ContextWatch()
    can_look, has_left = True, False
    while not has_ended():
        now = time.monotonic()
        if not has_left and has_context_stopped(now):
            has_left = True
            _end_query(coordinator, channel)
        try:
            if can_look and not has_left:
                coordinator.look_at_silence(jvm_is_stopped=is_stopped(now))
        except Exception:  # go on watching: after the JVM's end only this thread ends the process
            can_look = False
            log.exception(
                "cannot check any more whether Spark still calls the source: a hung driver will not be detected"
            )
        time.sleep(PARENT_EVERY_S)
    if not has_left:
        log.warning("the driver's JVM (pid %d) has ended: leaving the group", jvm)
    try:
        coordinator.stop(last_word=False)
    except Exception:
        log.exception("cannot leave the group: the member stays until its session expires")
    finally:
        channel.close()
        for handler in log.handlers:
            handler.flush()
        os._exit(_DRIVER_ENDED)


def _end_query(coordinator: Coordinator, channel: ControlServer) -> None:
    """Leave the group because the SparkContext has stopped.

    Spark's next call then ends the query, and with the query this process.
    """
    log.warning("the query's SparkContext has stopped: leaving the group")
    try:
        coordinator.end_query(
            StreamGroupError(
                "the SparkContext of this query has stopped, so the query has left its group and ends. Start it again "
                "in a new session"
            )
        )
    except Exception:
        log.exception("cannot leave the group: the member stays until its session expires")
    finally:
        channel.close()
