"""Resolves host names with a deadline. getaddrinfo has none, so each look-up runs in a separate thread."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from streamgroup.errors import ConfigError

RESOLVE_TIMEOUT_S = 3.0
"""Seconds for which all look-ups of bootstrap servers must fail before a start fails: DNS errors may be transient."""
_RETRY_INTERVAL_S = 1.0


class Address(NamedTuple):
    """One resolved address, in the form of the arguments of `socket.socket` and `connect`."""

    family: socket.AddressFamily
    sockaddr: Any

    def __str__(self) -> str:
        return str(self.sockaddr[0])


class HostLookup:
    """Resolves one host in the background. A numeric address is resolved at once.

    `notify()` is called in the look-up's thread at its end.
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
        return self._done.is_set()

    def wait(self, timeout: float) -> None:
        self._done.wait(timeout)

    def addresses(self) -> list[Address]:
        """Return all addresses, at least one, in the resolver's order. Raises OSError if the look-up failed."""
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
    timeout: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> float:
    """Wait until one of `servers` has an address. Return how many of the `timeout` seconds are left.

    It is called at the start of a query, when a wrong name is a mistake to report. Later an unresolvable name is
    retried, as any failed connection. Look-ups that are still pending after `timeout` are not failures. Raises
    ConfigError, which lists all servers, if all look-ups have failed for `RESOLVE_TIMEOUT_S`.
    """
    began = clock()
    deadline = began + timeout
    while servers:
        failures = _failures(servers, deadline, clock)
        if failures is None:
            break
        if clock() - began >= RESOLVE_TIMEOUT_S:
            raise ConfigError(
                f"cannot resolve any name in kafka.bootstrap.servers: {'; '.join(failures)}. Correct the names, or the "
                "name service (DNS, /etc/hosts) of this machine"
            )
        sleep(_RETRY_INTERVAL_S)
    return max(0.0, deadline - clock())


def _failures(servers: Sequence[tuple[str, int]], deadline: float, clock: Callable[[], float]) -> list[str] | None:
    """Return why each of `servers` has no address; None if one has, or if the deadline comes first."""
    changed = threading.Event()
    left = {f"{host}:{port}": HostLookup(host, port, changed.set) for host, port in servers}
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
