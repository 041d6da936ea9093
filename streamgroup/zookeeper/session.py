"""A session with ZooKeeper: subtrees read, transactions carried out, and what happens to it told as events.

One thread owns a session: it opens it, calls `look` and `transact`, which block until a deadline, and closes it. What
happens by itself comes from kazoo's threads, by `on_event`, which has to leave it for the owner: no call of ZooKeeper
is ever made from there (it would wait for the very thread that it runs in). Deadlines are seconds on `time.monotonic`.

    session = Session(options)
    session.connect(deadline)                                   # or open(), and wait for SessionStarted
    nodes = session.read([Subtree("/brokers/ids")], deadline)
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, KazooException, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, KeeperState

from streamgroup.errors import ConfigError, TransportError
from streamgroup.options.types import ZooKeeperOptions
from streamgroup.znodes import Operation, Refusal, Subtree, ZNode
from streamgroup.zookeeper.client import OneClient, addresses, client_of
from streamgroup.zookeeper.errors import CredentialsError, RefusedError, SessionOverError, UnansweredError
from streamgroup.zookeeper.reading import DeniedError, Reader, Wait
from streamgroup.zookeeper.watches import Watches
from streamgroup.zookeeper.writing import Refused, Writer

log = logging.getLogger("streamgroup")

T = TypeVar("T")

FIRST_WITH_MULTI = (3, 4)
_VERSION = re.compile(r"Zookeeper version: *(\d+)\.(\d+)")
_ENDS = {
    KeeperState.EXPIRED_SESSION: "the session has expired",
    KeeperState.AUTH_FAILED: "the credentials were not accepted",
}
_GLANCE_S = 0.1
"""How often a wait looks whether the connection is still there."""


# -- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionStarted:
    """A new session. `session_id` is the `owner` of its ephemeral nodes, `timeout_ms` what the server grants."""

    session_id: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Suspended:
    """The connection is lost; the session may live. What is asked now is unanswered."""

    session_id: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """The same session is connected again. A `NodeChanged` follows for each subtree that was watched."""

    session_id: int


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The session has ended, by itself: `open` begins another one. Its id is 0 where it never began.

    It may be heard when the next session is there already: `connect` goes on by itself.
    """

    session_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """Something watched at `path` has changed: told once, until it is read again. Also where that may only be so."""

    path: str


SessionEvent = SessionStarted | Suspended | Resumed | SessionEnded | NodeChanged


def _ignore(event: SessionEvent) -> None:
    """For who only reads."""


# -- the session ------------------------------------------------------------------------------------------------------


class Session:
    """See the module. `on_event` is called from other threads: it must not block, nor call this session."""

    def __init__(self, options: ZooKeeperOptions, on_event: Callable[[SessionEvent], None] = _ignore) -> None:
        self._options = options
        self._on_event = on_event
        self.where = f"ZooKeeper {addresses(options)}{options.chroot}"
        """As messages name it."""
        self._life: _Life | None = None
        self._chroot_seen = False

    # --- beginning and end -------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Begin to connect, without an end of trying: `SessionStarted` follows. Does nothing while there is a session.

        Raises ConfigError where the password cannot be had.
        """
        if self._life is None or self._life.over:
            self._discard()
            self._life = _Life(client_of(self._options), self._on_event, self._options.session_timeout_ms)
            self._life.begin()

    def connect(self, deadline: float | None = None) -> None:
        """Be connected until `deadline` (`zookeeper.connection.timeout.ms` from now), in a new session where need be.

        Raises TransportError where no server can be reached, ConfigError where the chroot does not exist.
        """
        if deadline is None:
            deadline = time.monotonic() + self._options.connection_timeout_ms / 1000
        self.open()
        while not self._now.connected.wait(max(0.0, min(_GLANCE_S, deadline - time.monotonic()))):
            if self.refused:
                raise CredentialsError(self._not_accepted())
            if time.monotonic() >= deadline:
                raise TransportError(
                    f"{self.where}: no connection: is it running, and is zookeeper.connect what this machine reaches "
                    "it by?"
                )
            self.open()
        self._see_chroot(deadline)

    def close(self, timeout: float = 1.0) -> None:
        """End the session in order: its ephemeral nodes go at once. Returns after `timeout` seconds at the latest."""
        closing = self._discard()
        if closing is not None:
            closing.join(timeout)

    def _discard(self) -> threading.Thread | None:
        life, self._life = self._life, None
        return None if life is None else life.end()

    def _see_chroot(self, deadline: float) -> None:
        if self._chroot_seen or not self._options.chroot:
            return
        if not self.read([Subtree("/", depth=0, watch=False)], deadline):
            raise ConfigError(
                f"ZooKeeper {addresses(self._options)} has no node {self._options.chroot}: mend the path at the end of "
                "zookeeper.connect: it is the one that the brokers have there, and none where they have none"
            )
        self._chroot_seen = True

    # --- what is known -----------------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """Whether there is a session, and a connection for it."""
        return self._life is not None and self._life.connected.is_set()

    @property
    def session_id(self) -> int:
        """Of the session; 0 before the first."""
        return 0 if self._life is None else self._life.session_id

    @property
    def timeout_ms(self) -> int:
        """After how long without a sign of life the server ends the session; what is asked for, before it began."""
        return self._options.session_timeout_ms if self._life is None else self._life.timeout_ms

    @property
    def refused(self) -> bool:
        """Whether the last session ended because its credentials were not accepted."""
        return self._life is not None and self._life.refused

    # --- operations --------------------------------------------------------------------------------------------------

    def read(self, subtrees: Iterable[Subtree], deadline: float) -> Mapping[str, ZNode]:
        """Read; the nodes by their path, without those that do not exist.

        Raises UnansweredError, SessionOverError, and RefusedError for what may not be read.
        """
        try:
            with self._told(deadline) as wait:
                return Reader(self._now.client, self._now.watches, wait).read(subtrees)
        except DeniedError as error:
            raise RefusedError(error.path, Refusal.NO_AUTH, self.where) from None

    def transact(self, operations: Sequence[Operation], ensured: Iterable[str], deadline: float) -> None:
        """Make the nodes `ensured`, then carry out all of `operations` or none.

        Raises RefusedError for the first that cannot be. UnansweredError and SessionOverError say nothing about
        whether it was carried out. A ZooKeeper before 3.4 carries them out one after the other (see `writing`).
        """
        (error,) = self.transact_each([(operations, ensured)], deadline)
        if error is not None:
            raise error

    def transact_each(
        self, transactions: Sequence[tuple[Sequence[Operation], Iterable[str]]], deadline: float
    ) -> list[RefusedError | UnansweredError | CredentialsError | None]:
        """Return several transactions, in order and each for itself, without waiting for one before the next is sent.

        For each None, or what `transact` would raise.
        """
        asked = [(operations, list(ensured)) for operations, ensured in transactions]
        answers: list[RefusedError | UnansweredError | CredentialsError | None] = []
        try:
            with self._told(deadline) as wait:
                for refused in self._transact_each(Writer(self._now.client, self._options, wait), asked):
                    answers.append(None if refused is None else RefusedError(*refused, self.where))
        except (UnansweredError, CredentialsError) as error:
            answers += [error] * (len(asked) - len(answers))
        return answers

    def _transact_each(
        self, writer: Writer, asked: Sequence[tuple[Sequence[Operation], list[str]]]
    ) -> Iterator[Refused | None]:
        missing = writer.ensure(path for _, ensured in asked for path in ensured)
        refused = [next((missing[path] for path in ensured if path in missing), None) for _, ensured in asked]
        wanted = [operations if stop is None else () for (operations, _), stop in zip(asked, refused, strict=True)]
        if not any(wanted) or not self._now.has_multi():
            for operations, stop in zip(wanted, refused, strict=True):
                yield stop or writer.one_after_the_other(operations)
            return
        begun = [writer.begin(operations) if operations else None for operations in wanted]
        for operations, answer, stop in zip(wanted, begun, refused, strict=True):
            yield stop if answer is None else writer.end(operations, answer)

    def _not_accepted(self) -> str:
        return f"{self.where}: zookeeper.username and zookeeper.password are not accepted"

    @property
    def _now(self) -> _Life:
        if self._life is None:
            raise SessionOverError(f"{self.where}: the session is closed")
        return self._life

    @contextlib.contextmanager
    def _told(self, deadline: float) -> Any:
        """kazoo's errors as ours; what is not connected is not asked."""
        life = self._now
        if life.over:
            raise SessionOverError(f"{self.where}: the session has expired")
        if not life.client.connected:
            raise UnansweredError(f"{self.where}: the connection is lost")
        try:
            yield _waits(life.client, deadline)
        except AuthFailedError:
            raise CredentialsError(self._not_accepted()) from None
        except SessionExpiredError:
            raise SessionOverError(f"{self.where}: the session has expired") from None
        except KazooTimeoutError:
            raise UnansweredError(f"{self.where}: no answer in time") from None
        except KazooException as error:
            raise UnansweredError(f"{self.where}: {type(error).__name__} {error}".rstrip()) from None


def _waits(client: KazooClient, deadline: float) -> Wait:
    def wait(result: Any) -> Any:
        """What is asked while the connection breaks may be left lying until the next one: it is not waited for."""
        while not result.wait(max(0.0, min(_GLANCE_S, deadline - time.monotonic()))):
            if not client.connected or time.monotonic() >= deadline:
                break
        return result.get_nowait()

    return wait


class _Life:
    """One session, from its first connection to its expiry or end. What kazoo's threads tell comes here."""

    def __init__(self, client: OneClient, on_event: Callable[[SessionEvent], None], asked_ms: int) -> None:
        self.client = client
        self._asked_ms = asked_ms
        self.connected = threading.Event()
        self.over = False
        self.refused = False
        """The credentials were not accepted."""
        self.session_id = 0
        self._ends = threading.Lock()
        self._ending: threading.Thread | None = None
        self._on_event = on_event
        self._multi: bool | None = None
        self.watches = Watches(lambda path: self._tell(NodeChanged(path)))

    @property
    def timeout_ms(self) -> int:
        """What the server grants; before it has said so, what it is asked for."""
        return self.client.granted_ms or self._asked_ms

    def begin(self) -> None:
        """Start kazoo's threads."""
        self.client.add_listener(self._hear)
        self.client.start_async()

    def end(self) -> threading.Thread:
        """Close the session, in a thread of its own: a server that does not answer holds kazoo up for long."""
        with (
            self._ends
        ):  # kazoo's thread and the owner may come at once, and who comes second waits for a thread that runs
            if self._ending is None:
                self._ending = threading.Thread(target=self._close, name="streamgroup-zookeeper-end", daemon=True)
                self.connected.clear()
                self._ending.start()
            return self._ending

    def _close(self) -> None:
        try:
            self.client.stop()
            self.client.close()
        except Exception as error:  # it ends by its timeout then
            log.debug("closing a session with ZooKeeper: %r", error)

    def has_multi(self) -> bool:
        """Return whether the server knows transactions: before 3.4 it does not, and would not even say so."""
        if self._multi is None:
            try:
                version = _VERSION.match(self.client.command(b"srvr"))
            except (KazooException, OSError, AttributeError):  # gone in this moment: the next operation finds out
                return True
            self._multi = version is None or (int(version[1]), int(version[2])) >= FIRST_WITH_MULTI
            if not self._multi:
                log.warning(
                    "this ZooKeeper is older than 3.4 and has no transactions: commits of a member that has lost its "
                    "place are refused only as far as reading before writing can tell"
                )
        return self._multi

    def _hear(self, state: str) -> None:
        """kazoo's state listener: called in the thread that serves the connection."""
        if state == KazooState.CONNECTED:
            first = not self.session_id
            if first:
                self.session_id = self.client.client_id[0]
            self._tell(SessionStarted(self.session_id, self.timeout_ms) if first else Resumed(self.session_id))
            self.connected.set()
            self.watches.connected()
        elif state == KazooState.SUSPENDED:
            self.connected.clear()
            self._tell(Suspended(self.session_id))
            self.watches.disconnected()
        else:
            self.client.handler.over = self.over = True
            self.refused = self.client.client_state == KeeperState.AUTH_FAILED
            self.connected.clear()
            reason = _ENDS.get(self.client.client_state, "its connection has failed for good")
            self._tell(SessionEnded(self.session_id, reason))
            self.end()  # else kazoo would go on trying

    def _tell(self, event: SessionEvent) -> None:
        if self._ending is None:
            self._on_event(event)
