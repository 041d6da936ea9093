"""Runs slow work, such as fetching a token, in a separate thread, so that the connections are still served."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from streamgroup.errors import StreamGroupError

T = TypeVar("T")


class WaitTimeout(NamedTuple):
    """The texts of the error if a connection has waited too long for background work: the cause and the next step."""

    cause: str
    next_step: str


class Background(Generic[T]):
    """Runs `work()` in a new thread, and holds its result or error. The thread calls `notify()` at the end."""

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
        """Whether `work` has finished, with a result or an error."""
        return self._done.is_set()

    def wait(self, timeout: float) -> None:
        self._done.wait(timeout)

    def result(self) -> T:
        """Return the result of `work`. Call it only when `done`.

        If `work` has raised an exception, raises it if it is a StreamGroupError, else a StreamGroupError without its
        text.
        """
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
            self._error = StreamGroupError(
                f"cannot authenticate: unexpected {type(error).__name__}. Report this as a bug of streamgroup"
            )
        finally:
            self._done.set()
            if self._notify is not None:
                self._notify()
