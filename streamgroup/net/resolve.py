"""Names to addresses, without a wait that nothing can end: getaddrinfo knows no deadline, so it runs in a thread."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from streamgroup.errors import ConfigError

UNRESOLVED_S = 3.0
"""For so long none of the bootstrap servers' names may have an address before a start fails: DNS has hiccups."""
_LOOK_UP_AGAIN_S = 1.0


class Address(NamedTuple):
    """What `socket.socket` and `connect` need of one address."""

    family: socket.AddressFamily
    sockaddr: Any

    def __str__(self) -> str:
        return str(self.sockaddr[0])


class Resolution:
    """The addresses of one host, looked up in the background; a numeric host is done at once.

    `notify` is called from the look-up's thread when it is done. A look-up that nobody waits for ends by itself.
    """

    __slots__ = ("_addresses", "_done", "_error", "_host", "_notify", "_port")

    def __init__(self, host: str, port: int, notify: Callable[[], None] | None = None) -> None:
        self._host, self._port, self._notify = host, port, notify
        self._addresses: list[Address] = []
        self._error: OSError | None = None
        self._done = threading.Event()
        try:
            self._addresses = _look_up(host, port, socket.AI_NUMERICHOST)
            self._done.set()
        except (OSError, UnicodeError):
            threading.Thread(target=self._run, name=f"resolve {host}", daemon=True).start()

    @property
    def done(self) -> bool:
        """Whether `addresses` has an answer."""
        return self._done.is_set()

    def wait(self, timeout: float) -> None:
        """Wait until done, at most `timeout` seconds."""
        self._done.wait(timeout)

    def addresses(self) -> list[Address]:
        """All addresses in the resolver's order of preference; at least one. Raises OSError where it found none."""
        if self._error is not None:
            raise self._error
        return self._addresses

    def _run(self) -> None:
        try:
            self._addresses = _look_up(self._host, self._port)
        except (OSError, UnicodeError) as error:  # a label beyond 63 characters is a UnicodeError
            self._error = error if isinstance(error, OSError) else OSError(str(error))
        finally:
            self._done.set()
            if self._notify is not None:
                self._notify()


def require_resolvable(
    servers: Sequence[tuple[str, int]],
    deadline: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return as soon as one of `servers` has an address.

    Meant for the start, where a wrong name is a mistake to report. In a running query a name without an address is a
    failed connection like any other, and tried again. A look-up that is still under way at `deadline` (seconds on
    `clock`) proves nothing. Raises ConfigError, which names all servers, where every look-up has failed for
    `UNRESOLVED_S`.
    """
    began = clock()
    while servers:
        failures = _failures(servers, deadline, clock)
        if failures is None:
            return
        if clock() - began >= UNRESOLVED_S:
            raise ConfigError(
                f"cannot resolve any name in kafka.bootstrap.servers: {'; '.join(failures)}. Correct the names, or the "
                "name service (DNS, /etc/hosts) of this machine"
            )
        sleep(_LOOK_UP_AGAIN_S)


def _failures(servers: Sequence[tuple[str, int]], deadline: float, clock: Callable[[], float]) -> list[str] | None:
    """Why each of `servers` has no address; None where one has, or where the deadline comes first."""
    changed = threading.Event()
    left = {f"{host}:{port}": Resolution(host, port, changed.set) for host, port in servers}
    failures: list[str] = []
    while True:
        changed.clear()
        for server in [server for server, resolution in left.items() if resolution.done]:
            try:
                left.pop(server).addresses()
            except OSError as error:
                failures.append(f"{server}: {error}")
            else:
                return None
        if not left:
            return failures
        remaining = deadline - clock()
        if remaining <= 0:
            return None
        changed.wait(remaining)


def _look_up(host: str, port: int, flags: int = 0) -> list[Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [Address(family, sockaddr) for family, _, _, _, sockaddr in found]
