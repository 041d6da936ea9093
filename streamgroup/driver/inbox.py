"""The inbox of a run: threads leave events here, and actions go out to whoever carries them out.

The thread that leaves an event takes the run's step itself, under the one lock, so that no call of Spark waits for
another thread to wake up. A call answers its own questions, without the lock: brokers may be slow. While it waits it
also keeps the run's timers, and so does the thread of the group.
"""

from __future__ import annotations

import itertools
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from streamgroup.errors import StreamGroupError
from streamgroup.group import events as ev
from streamgroup.run import interface as io
from streamgroup.run.interface import Question
from streamgroup.run.machine import Run

log = logging.getLogger("streamgroup")

LONGEST_WAIT_S = 5.0
"""A call that waits looks this often whether a timer is due."""


class Shell(Protocol):
    """Carries out what the run asks for."""

    def carry_out(self, action: io.RunAction) -> None:
        """Carry out an action without waiting; the lock is held."""

    def answer(self, question: Question) -> object:
        """Answer a question of a call in its thread, without the lock."""

    def post(self, task: int, question: Question) -> None:
        """Have a question of a background task answered by another thread."""

    def wake(self) -> None:
        """Wake the thread that keeps the timers: one is due sooner than it knows."""


class Inbox:
    """The way into one run. Any thread may use it once `run` is set."""

    run: Run

    def __init__(self, shell: Shell, clock: Callable[[], float] = time.monotonic) -> None:
        self._shell = shell
        self._clock = clock
        self._lock = threading.RLock()
        self._events: deque[io.Event] = deque()
        self._is_stepping = False
        self._is_interrupted = False
        self._numbers = itertools.count()
        self._calls: dict[int, SimpleQueue[io.Reply | io.Raise | io.Ask]] = {}
        self.wake_at: float | None = None
        """The monotonic time when the run wants a `Tick`."""

    def post(self, event: io.Event) -> None:
        """Leave an event; it and what follows from it have been taken when this returns."""
        try:
            with self._lock:
                self._events.append(event)
                if not self._is_stepping:  # else an action has led to this event: it follows after the step
                    self._step()
        finally:
            if self._is_interrupted and threading.current_thread() is threading.main_thread():
                self._is_interrupted = False
                sys.exit(0)

    def _step(self) -> None:
        self._is_stepping = True
        try:
            while self._events:
                for action in self.run.step(self._events.popleft(), self._clock()):
                    self._try(action)
        finally:
            self._is_stepping = False
            before, self.wake_at = self.wake_at, self.run.wake_at
        if self.wake_at is not None and (before is None or self.wake_at < before):
            self._shell.wake()

    def _try(self, action: io.RunAction) -> None:
        """Carry out an action. The thread that happens to do so must not end for an error, and the query must."""
        try:
            self._carry_out(action)
        except Exception as error:
            log.exception("an action of the run has failed")
            self._events.append(io.ThreadFailed(StreamGroupError(f"an action of the run has failed: {error!r}")))

    def interrupt(self) -> None:
        """End the main thread's call, from a signal handler: at once while it waits, else after its step.

        A step that ends in the middle would leave the run with an event half taken. Raises SystemExit.
        """
        if self._lock._is_owned() and self._is_stepping:  # type: ignore[attr-defined]
            self._is_interrupted = True
        else:
            sys.exit(0)

    def tick(self, now: float) -> None:
        """Step the run if a timer is due."""
        wake_at = self.wake_at
        if wake_at is not None and now >= wake_at:
            self.post(ev.Tick())

    def _carry_out(self, action: io.RunAction) -> None:
        match action:
            case io.Ask(call, question) if call < 0:
                self._shell.post(call, question)
            case io.Reply(call) | io.Raise(call) | io.Ask(call):
                if (mail := self._calls.get(call)) is not None:
                    mail.put(action)
            case ev.Note(level, text):
                log.log(level, "%s", text)
            case _:
                self._shell.carry_out(action)

    def call(self, request: io.Request) -> Any:
        """Make a request and wait for its result in this thread. Raises the run's error."""
        number = next(self._numbers)
        mail = self._calls[number] = SimpleQueue()
        is_over = False
        try:
            self.post(io.Called(number, request))
            while True:
                match self._wait(mail):
                    case io.Ask(_, question):
                        self._answer(number, question)
                    case io.Raise(_, error):
                        is_over = True
                        raise error
                    case io.Reply(_, result):
                        is_over = True
                        return result
        finally:
            del self._calls[number]
            if not is_over:  # a signal has ended the wait
                self.post(io.CallAbandoned(number))

    def _answer(self, number: int, question: Question) -> None:
        try:
            found = self._shell.answer(question)
        except Exception as error:  # the call decides what an error means
            self.post(io.QuestionFailed(number, error))
        else:
            self.post(io.QuestionAnswered(number, found))

    def _wait(self, mail: SimpleQueue[io.Reply | io.Raise | io.Ask]) -> io.Reply | io.Raise | io.Ask:
        while True:
            now, wake_at = self._clock(), self.wake_at
            due = now + LONGEST_WAIT_S if wake_at is None else min(wake_at, now + LONGEST_WAIT_S)
            try:
                return mail.get(timeout=max(0.0, due - now))
            except Empty:
                self.tick(due)
