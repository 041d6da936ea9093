"""Turns SIGTERM and SIGINT into a request to stop, also if they reach spark-submit's JVM instead of Python.

`spark-submit` becomes the JVM, and Python is its child. systemd, Docker and Kubernetes signal the JVM, which by default
shuts down at once and aborts the batch in flight. So the JVM gets a handler that forwards the signal to this process.
Signals that arrive together count once, because a terminal's Ctrl-C reaches both processes.
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
"""Seconds within which signals count as one. A keystroke reaches the JVM and Python within milliseconds; a user takes
longer to send a second one."""


class StopAtOnce(BaseException):
    """Raised by the second signal: the user does not want to wait. It is a BaseException, so that no handler of
    Exception swallows it."""


class StopRequest:
    """A request to stop, which the first signal sets. A second one after TOGETHER_S raises StopAtOnce."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first: float | None = None
        self.name = ""

    def __bool__(self) -> bool:
        return self._first is not None

    def receive(self, number: int, frame: FrameType | None = None) -> None:
        now = self._clock()
        if self._first is None:
            self._first, self.name = now, signal.Signals(number).name
        elif now - self._first > TOGETHER_S:
            raise StopAtOnce

    def install(self) -> None:
        """Handle the signals of this process. Python allows it in the main thread only."""
        for number in SIGNALS:
            signal.signal(number, self.receive)


class _ForwardingHandler:
    """A handler of Java (`sun.misc.SignalHandler`) that forwards a signal of the JVM to this process."""

    def handle(self, received: Any) -> None:
        """Forward the signal. The JVM calls this in its own thread."""
        number = signal.Signals[f"SIG{received.getName()}"]
        # The JVM does not shut down: the query needs it until the last batch has reached the sink.
        if threading.main_thread().is_alive():
            os.kill(os.getpid(), number)

    class Java:
        """The Java interface, in the form that py4j expects."""

        implements = ("sun.misc.SignalHandler",)


def catch_in_jvm(spark: SparkSession) -> bool:
    """Forward the signals of Spark's JVM to this process. Return False if the JVM runs with -Xrs, which forbids it."""
    gateway: Any = spark.sparkContext._gateway
    try:
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        java_signal = gateway.jvm.sun.misc.Signal
        handler = _ForwardingHandler()
        for number in SIGNALS:
            java_signal.handle(java_signal(number.name.removeprefix("SIG")), handler)
    except Py4JError as error:
        log.warning(
            "cannot handle signals in Spark's JVM: %s. A signal to the JVM stops the job at once; send SIGTERM to "
            "process %d",
            error,
            os.getpid(),
        )
        return False
    return True
