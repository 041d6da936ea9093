"""The process that a coordinator lives in: its log, its signals, its parent, its control channel.

Spark ends a query's Python process by SIGTERM, twice, without calling anything (R29); a JVM that was killed shows as
the end of the conversation with it, or as another parent.
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
from types import FrameType

from streamgroup.driver.application.control import ControlServer, directory, is_listened
from streamgroup.driver.application.parent import StoppedWatch
from streamgroup.driver.coordinator import Coordinator
from streamgroup.options.types import SourceOptions

log = logging.getLogger("streamgroup")

PARENT_EVERY_S = 0.2


def start_coordinator(options: SourceOptions) -> Coordinator:
    """Make the coordinator of this process's query and prepare the process for its end."""
    _log_to_stderr()
    coordinator = Coordinator(options, home=directory(os.getppid()))
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, functools.partial(_exit, coordinator))
        # Ctrl-C reaches every process of the terminal's group: what becomes of the query is the driver's to say.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = ControlServer(coordinator, os.getppid())
    channel.start()
    coordinator.proof.announced = functools.partial(is_listened, os.getppid())
    atexit.register(channel.close)
    atexit.register(coordinator.stop)  # where a signal came between the runner's decision to stop and the call of it
    threading.Thread(
        target=_watch_parent, args=(coordinator, channel, os.getppid()), name="streamgroup-parent", daemon=True
    ).start()
    return coordinator


def _exit(coordinator: Coordinator, _signum: int, _frame: FrameType | None) -> None:
    """Unwind, so that Spark's runner calls `stop`.

    The second SIGTERM must not interrupt the leaving; nor the first, where the end of the conversation has begun it.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not coordinator.stopping:
        sys.exit(0)


def _watch_parent(coordinator: Coordinator, channel: ControlServer, parent: int) -> None:
    """Leave when the JVM is gone, even while the main thread is busy; until then look at its silence (R27)."""
    is_stopped, can_look = StoppedWatch(parent), True
    while os.getppid() == parent:
        try:
            if can_look:
                coordinator.silence.look(jvm_is_stopped=is_stopped())
        except Exception:  # the parent is to be watched all the same: without it nobody ends this process
            can_look = False
            log.exception("looking at the silence of Spark has failed; a hung driver is not noticed any more (R27)")
        time.sleep(PARENT_EVERY_S)
    log.warning("the driver's JVM (pid %d) is gone: leaving the group", parent)
    try:
        coordinator.stop(last_word=False)
    except Exception:
        log.exception("leaving has failed: the session expires instead")
    finally:
        channel.close()
        os._exit(1)


def _log_to_stderr() -> None:
    """Spark copies this process's stderr to the driver's: say there what happens, unless logging is set up."""
    if log.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s streamgroup: %(message)s", "%y/%m/%d %H:%M:%S"))
    log.addHandler(handler)
    log.setLevel(os.environ.get("STREAMGROUP_LOG_LEVEL", "INFO").upper())
    log.propagate = False
