"""Runs slow work, such as fetching a token, in another thread than the one that serves the connections."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from streamgroup.errors import StreamGroupError

T = TypeVar("T")


class WaitTimeout(NamedTuple):
    """The error of a connection that has waited too long for its work: the cause, and the next step."""

    cause: str
    next_step: str


class Background(Generic[T]):
    """The result of `work`, which runs in a thread. The thread calls `notify` at the end."""

    def __init__(self, work: Callable[[], T], timeout: WaitTimeout, notify: Callable[[], None] | None = None) -> None:
        self.timeout = timeout
        self._work = work
        self._notify = notify
        self._result: T
        self._error: Exception | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, name="streamgroup-background", daemon=True).start()

    @property
    def done(self) -> bool:
        """True if there is a result, or an error."""
        return self._done.is_set()

    def wait(self, timeout: float) -> None:
        self._done.wait(timeout)

    def result(self) -> T:
        """Return what `work` has returned, once `done`. Raises a StreamGroupError if `work` has raised anything."""
        if self._error is not None:
            raise self._error
        return self._result

    def _run(self) -> None:
        try:
            self._result = self._work()
        except StreamGroupError as error:
            self._error = error
        except Exception as error:
            # Its text is left out: the work handles secrets.
            self._error = StreamGroupError(f"cannot authenticate: unexpected {type(error).__name__}. Report it")
        finally:
            self._done.set()
            if self._notify is not None:
                self._notify()
