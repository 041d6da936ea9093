"""SIGTERM and SIGINT as a request to stop, also where they reach spark-submit's JVM instead of Python.

`spark-submit` becomes the JVM, and Python is its child: what systemd, Docker or Kubernetes signal is the JVM, which
would shut down at once and take the batch in flight with it. So the JVM gets a handler too, one that hands the signal
on to this process. Signals that arrive together (a terminal's Ctrl-C reaches both) count once.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from py4j.protocol import Py4JError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

log = logging.getLogger("streamgroup.jobs")

SIGNALS = (signal.SIGTERM, signal.SIGINT)
TOGETHER_S = 1.0
"""One keystroke reaches the JVM and Python within milliseconds; a second wish to stop takes a person longer."""


class StopAtOnce(BaseException):
    """The second signal: whoever asks twice does not want to wait. Not an Exception: no handler may swallow it."""


class StopRequest:
    """Set by the first signal; a second one, later than TOGETHER_S, raises StopAtOnce in the main thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first: float | None = None
        self.name = ""

    def __bool__(self) -> bool:
        return self._first is not None

    def receive(self, number: int, frame: FrameType | None = None) -> None:
        """A signal handler for Python."""
        now = self._clock()
        if self._first is None:
            self._first, self.name = now, signal.Signals(number).name
        elif now - self._first > TOGETHER_S:
            raise StopAtOnce

    def install(self) -> None:
        """Handle this process's signals. In the main thread only, as Python has it."""
        for number in SIGNALS:
            signal.signal(number, self.receive)


class _HandedOn:
    """Java's `sun.misc.SignalHandler`: gives the JVM's signal to this process, whose handler does the rest."""

    def handle(self, received: Any) -> None:
        """Called by the JVM in a thread of its own."""
        number = signal.Signals[f"SIG{received.getName()}"]
        # Spark's JVM goes on: it is wanted until the last batch has sunk.
        if threading.main_thread().is_alive():
            os.kill(os.getpid(), number)

    class Java:
        """What py4j wants to know."""

        implements = ("sun.misc.SignalHandler",)


def catch_in_jvm(spark: SparkSession) -> bool:
    """Hand signals of Spark's JVM on to this process; False where the JVM lets nobody (it was started with -Xrs)."""
    gateway: Any = spark.sparkContext._gateway
    try:
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        java_signal = gateway.jvm.sun.misc.Signal
        handler = _HandedOn()
        for number in SIGNALS:
            java_signal.handle(java_signal(number.name.removeprefix("SIG")), handler)
    except Py4JError as error:
        log.warning(
            "signals to Spark's JVM will stop the job at once: send SIGTERM to %d instead: %s", os.getpid(), error
        )
        return False
    return True
