"""A session with ZooKeeper: reads subtrees, runs transactions, and reports its own state as events.

One thread owns a session. It opens it, calls `read` and `transact`, which block until a deadline, and closes it.
kazoo's threads report events to `on_event`, which must pass them to the owner. It must never call ZooKeeper: the call
would wait for its own thread. Deadlines are seconds on `time.monotonic`.

`Session` is what other modules use. `_ClientSession` is one session from connection to end, `Writer` and
`SubtreeReader` are its operations, and `Watches` are its watches.

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
from dataclasses import replace
from enum import Enum
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    ZookeeperError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent

from streamgroup.errors import AuthError, ConfigError, StreamGroupError, TransportError
from streamgroup.frozen import frozen
from streamgroup.options.types import ZooKeeperOptions
from streamgroup.znodes import ANY_VERSION, Check, Create, Delete, Operation, Refusal, Set, Subtree, ZNode
from streamgroup.zookeeper.client import (
    CredentialsError,
    RefusedError,
    SessionOverError,
    SingleSessionClient,
    UnansweredError,
    acl_of,
    addresses,
    client_of,
)

log = logging.getLogger("streamgroup")

T = TypeVar("T")

FIRST_WITH_MULTI = (3, 4)
_VERSION = re.compile(r"Zookeeper version: *(\d+)\.(\d+)")
_ENDS = {
    KeeperState.EXPIRED_SESSION: "the session has expired",
    KeeperState.AUTH_FAILED: "the credentials were not accepted",
}
_POLL_S = 0.1
"""Seconds between two checks of the connection during a wait."""


# -- events -----------------------------------------------------------------------------------------------------------


@frozen
class SessionStarted:
    """Event: a new session has started.

    `session_id` is the `owner` of its ephemeral nodes, `timeout_ms` the session timeout that the server granted.
    """

    session_id: int
    timeout_ms: int


@frozen
class SessionSuspended:
    """Event: the connection is lost, but the session may still be alive.

    Operations raise UnansweredError until it resumes.
    """

    session_id: int


@frozen
class SessionResumed:
    """Event: the same session is connected again. A `NodeChanged` follows for each watched subtree."""

    session_id: int


@frozen
class SessionEnded:
    """Event: the session has expired or failed. `open` starts another one. The id is 0 if it never started.

    The event may arrive after the next session has started, since `connect` opens one automatically.
    """

    session_id: int
    reason: str


@frozen
class NodeChanged:
    """Event: a watched node at `path` has changed, or may have changed. Sent once until the node is read again."""

    path: str


SessionEvent = SessionStarted | SessionSuspended | SessionResumed | SessionEnded | NodeChanged


def _ignore(event: SessionEvent) -> None:
    """Ignore all events, for sessions that only read."""


# -- the session ------------------------------------------------------------------------------------------------------


class Session:
    """A session with ZooKeeper, and the next one after it has ended. One thread uses it.

    Other threads call `on_event(event)`, which must neither block nor call this session.
    """

    def __init__(self, options: ZooKeeperOptions, on_event: Callable[[SessionEvent], None] = _ignore) -> None:
        self._options = options
        self._on_event = on_event
        self.where = f"ZooKeeper {addresses(options)}{options.chroot}"
        """The name of this ZooKeeper in messages."""
        self._current: _ClientSession | None = None
        self._chroot_exists = False

    # --- connecting and closing --------------------------------------------------------------------------------------

    def open(self) -> None:
        """Start connecting, and retry without end until `SessionStarted`. Does nothing while there is a session.

        Raises ConfigError if the password or a certificate cannot be read.
        """
        if self._current is None or self._current.over:
            self._discard()
            self._current = _ClientSession(client_of(self._options), self._on_event, self._options.session_timeout_ms)
            self._current.begin()

    def connect(self, deadline: float | None = None) -> None:
        """Wait until the session is connected, until `deadline` (`zookeeper.connection.timeout.ms` from now).

        Opens a new session if the last one has ended. If the deadline is later than `zookeeper.connection.timeout.ms`,
        logs a warning after that time. Raises TransportError if no server can be reached, ConfigError if the chroot
        does not exist, TlsError and CredentialsError if retrying will not help.
        """
        timeout_s = self._options.connection_timeout_ms / 1000
        warn_at: float | None = time.monotonic() + timeout_s
        if deadline is None:
            deadline = time.monotonic() + timeout_s
        self.open()
        while not self._client_session.connected.wait(max(0.0, min(_POLL_S, deadline - time.monotonic()))):
            if (refusal := self.refusal) is not None:
                raise refusal
            if time.monotonic() >= deadline:
                raise TransportError(
                    f"cannot connect to {self.where}: no server answered in time{self.last_failure}. Check that it "
                    "runs and that this machine can reach the addresses of zookeeper.connect"
                )
            if warn_at is not None and time.monotonic() >= warn_at:
                warn_at = None
                tried = f"no connection within {timeout_s:g} s{self.last_failure}"
                log.warning("%s: %s; trying for %.0f s more", self.where, tried, deadline - time.monotonic())
            self.open()
        self._check_chroot(deadline)

    def close(self, timeout: float = 1.0) -> None:
        """Close the session, which deletes its ephemeral nodes at once. Returns after at most `timeout` seconds."""
        closing = self._discard()
        if closing is not None:
            closing.join(timeout)

    def _discard(self) -> threading.Thread | None:
        life, self._current = self._current, None
        return None if life is None else life.end()

    def _check_chroot(self, deadline: float) -> None:
        if self._chroot_exists or not self._options.chroot:
            return
        if not self.read([Subtree("/", depth=0, watch=False)], deadline):
            raise ConfigError(
                f"invalid chroot {self._options.chroot} of ZooKeeper {addresses(self._options)}: it does not exist. "
                "Set the path at the end of zookeeper.connect to the one that the brokers have, if any"
            )
        self._chroot_exists = True

    # --- state -------------------------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        return self._current is not None and self._current.connected.is_set()

    @property
    def session_id(self) -> int:
        """The id of the session; 0 before the first."""
        return 0 if self._current is None else self._current.session_id

    @property
    def timeout_ms(self) -> int:
        """The session timeout that the server granted; the requested one before the session starts."""
        return self._options.session_timeout_ms if self._current is None else self._current.timeout_ms

    @property
    def refusal(self) -> StreamGroupError | None:
        """The error of the last session for which retrying will not help (credentials, TLS handshake); else None."""
        if self._current is None or not self._current.refused:
            return None
        return self._current.client.handler.refusal or CredentialsError(self._credentials_rejected())

    @property
    def last_failure(self) -> str:
        """Why the last attempt to connect failed, in parentheses; "" if it did not fail."""
        failure = "" if self._current is None else self._current.client.handler.last_failure
        return f" ({failure})" if failure else ""

    # --- operations --------------------------------------------------------------------------------------------------

    def read(self, subtrees: Iterable[Subtree], deadline: float) -> Mapping[str, ZNode]:
        """Read subtrees, and return the existing nodes by path.

        Raises UnansweredError, SessionOverError, and RefusedError for a node that may not be read.
        """
        try:
            with self._translated_errors(deadline) as wait:
                return SubtreeReader(self._client_session.client, self._client_session.watches, wait).read(subtrees)
        except DeniedError as error:
            raise RefusedError(error.path, Refusal.NO_AUTH, self.where) from None

    def transact(self, operations: Sequence[Operation], ensured: Iterable[str], deadline: float) -> None:
        """Create the nodes `ensured` if missing, then apply all `operations` or none.

        Raises RefusedError for the first refused operation. After UnansweredError and SessionOverError the transaction
        may or may not have taken effect. A ZooKeeper before 3.4 applies the operations one by one (see `writing`).
        """
        (error,) = self.transact_each([(operations, ensured)], deadline)
        if error is not None:
            raise error

    def transact_each(
        self, transactions: Sequence[tuple[Sequence[Operation], Iterable[str]]], deadline: float
    ) -> list[RefusedError | UnansweredError | AuthError | None]:
        """Run several transactions, pipelined in order; each succeeds or fails alone.

        Returns for each None, or the error that `transact` would raise.
        """
        asked = [(operations, list(ensured)) for operations, ensured in transactions]
        answers: list[RefusedError | UnansweredError | AuthError | None] = []
        try:
            with self._translated_errors(deadline) as wait:
                results = self._transact_each(Writer(self._client_session.client, self._options, wait), asked)
                for (operations, _), refused in zip(asked, results, strict=True):
                    answers.append(None if refused is None else self._refused(refused, operations))
        except (UnansweredError, AuthError) as error:
            answers += [error] * (len(asked) - len(answers))
        return answers

    def _transact_each(
        self, writer: Writer, asked: Sequence[tuple[Sequence[Operation], list[str]]]
    ) -> Iterator[RefusedOperation | None]:
        missing = writer.ensure(path for _, ensured in asked for path in ensured)
        refused = [next((missing[path] for path in ensured if path in missing), None) for _, ensured in asked]
        wanted = [operations if stop is None else () for (operations, _), stop in zip(asked, refused, strict=True)]
        if not any(wanted) or not self._client_session.has_multi():
            for operations, stop in zip(wanted, refused, strict=True):
                yield stop or writer.apply_one_by_one(operations)
            return
        begun = [writer.begin(operations) if operations else None for operations in wanted]
        for operations, answer, stop in zip(wanted, begun, refused, strict=True):
            yield stop if answer is None else writer.end(operations, answer)

    def _refused(self, refused: RefusedOperation, operations: Sequence[Operation]) -> RefusedError:
        path, refusal = refused
        # A node that no operation names is one that `ensure` was to create.
        is_named = any(operation.path == path for operation in operations)
        return RefusedError(path, refusal, self.where, operations if is_named else [Create(path)])

    def _credentials_rejected(self) -> str:
        return f"{self.where} rejected the credentials. Check zookeeper.username and zookeeper.password"

    @property
    def _client_session(self) -> _ClientSession:
        if self._current is None:
            raise SessionOverError(f"the session with {self.where} is closed")
        return self._current

    @contextlib.contextmanager
    def _translated_errors(self, deadline: float) -> Any:
        """Translate kazoo's exceptions into those of `errors`. Raises at once if the session is not connected."""
        life = self._client_session
        if life.over:
            raise self.refusal or SessionOverError(f"the session with {self.where} has expired")
        if not life.client.connected:
            raise UnansweredError(f"the connection to {self.where} is lost")
        try:
            yield _wait_until(life.client, deadline)
        except AuthFailedError:
            raise self.refusal or CredentialsError(self._credentials_rejected()) from None
        except SessionExpiredError:
            raise SessionOverError(f"the session with {self.where} has expired") from None
        except KazooTimeoutError:
            raise UnansweredError(f"no response from {self.where} in time") from None
        except KazooException as error:
            raise UnansweredError(
                f"operation failed in {self.where}: {type(error).__name__} {error}".rstrip()
            ) from None


def _wait_until(client: KazooClient, deadline: float) -> Wait:
    def wait(result: Any) -> Any:
        """Wait while the client is connected: kazoo may keep an operation of a lost connection for the next one."""
        while not result.wait(max(0.0, min(_POLL_S, deadline - time.monotonic()))):
            if not client.connected or time.monotonic() >= deadline:
                break
        return result.get_nowait()

    return wait


class _ClientSession:
    """One ZooKeeper session, from its first connection to its end. kazoo's threads report its state to it."""

    def __init__(self, client: SingleSessionClient, on_event: Callable[[SessionEvent], None], asked_ms: int) -> None:
        self.client = client
        self._asked_ms = asked_ms
        self.connected = threading.Event()
        self.over = False
        self.refused = False
        """Whether the session failed and retrying will not help: credentials or the TLS handshake."""
        self.session_id = 0
        self._end_lock = threading.Lock()
        self._closing: threading.Thread | None = None
        self._on_event = on_event
        self._multi: bool | None = None
        self.watches = Watches(lambda path: self._notify(NodeChanged(path)))

    @property
    def timeout_ms(self) -> int:
        """The session timeout that the server granted; the requested one before that."""
        return self.client.granted_ms or self._asked_ms

    def begin(self) -> None:
        self.client.add_listener(self._on_kazoo_state)
        self.client.handler.on_refused = self._on_refused
        self.client.start_async()

    def end(self) -> threading.Thread:
        """Close the session in a separate thread, since kazoo waits long for a server that does not answer."""
        with self._end_lock:  # kazoo's thread and the owner may call this concurrently
            if self._closing is None:
                self._closing = threading.Thread(target=self._close, name="streamgroup-zookeeper-end", daemon=True)
                self.connected.clear()
                self._closing.start()
            return self._closing

    def _close(self) -> None:
        try:
            self.client.stop()
            self.client.close()
        except Exception as error:  # the session then ends by its timeout
            log.debug("cannot close a session with ZooKeeper: %r", error)

    def has_multi(self) -> bool:
        """Return whether the server supports multi. ZooKeeper before 3.4 does not, and never answers one.

        TLS came later, in 3.5.
        """
        if self.client.handler.tls is not None:
            return True
        if self._multi is None:
            try:
                version = _VERSION.match(self.client.command(b"srvr"))
            except (KazooException, OSError, AttributeError):  # the connection was lost: the next operation fails
                return True
            self._multi = version is None or (int(version[1]), int(version[2])) >= FIRST_WITH_MULTI
            if not self._multi:
                log.warning(
                    "ZooKeeper before 3.4 has no transactions: a member checks that its session is alive by a read "
                    "before each commit. Upgrade ZooKeeper to 3.4 or later to check it within the commit"
                )
        return self._multi

    def _on_kazoo_state(self, state: str) -> None:
        """Handle a change of kazoo's state, in the thread that serves the connection."""
        if state == KazooState.CONNECTED:
            first = not self.session_id
            if first:
                self.session_id = self.client.client_id[0]
            self.connected.set()  # before the event, whose receiver may check whether the session is connected
            self._notify(SessionStarted(self.session_id, self.timeout_ms) if first else SessionResumed(self.session_id))
            self.watches.connected()
        elif state == KazooState.SUSPENDED:
            self.connected.clear()
            self._notify(SessionSuspended(self.session_id))
            self.watches.disconnected()
        elif not self.over:
            self.refused = self.client.client_state == KeeperState.AUTH_FAILED
            self._over(_ENDS.get(self.client.client_state, "its connection has failed permanently"))

    def _on_refused(self) -> None:
        """Handle a failure for which retrying will not help, in the thread that serves the connection."""
        self.refused = True
        self._over(str(self.client.handler.refusal))

    def _over(self, reason: str) -> None:
        self.client.handler.is_over = self.over = True
        self.connected.clear()
        self._notify(SessionEnded(self.session_id, reason))
        self.end()  # stops kazoo's attempts to reconnect

    def _notify(self, event: SessionEvent) -> None:
        if self._closing is None:
            self._on_event(event)


_REFUSALS: dict[type[ZookeeperError], Refusal] = {
    NoNodeError: Refusal.NO_NODE,
    NodeExistsError: Refusal.NODE_EXISTS,
    BadVersionError: Refusal.BAD_VERSION,
    NotEmptyError: Refusal.NOT_EMPTY,
    NoAuthError: Refusal.NO_AUTH,
    InvalidACLError: Refusal.INVALID_ACL,
}
_NOT_THE_CAUSE = (RolledBackError, RuntimeInconsistency)
"""The results of the other operations of a failed multi."""


RefusedOperation = tuple[str, Refusal]
"""The path of the refused operation, and the reason."""


class Writer:
    """The write operations of one session.

    A refused operation is returned as a value. A missing response raises an error.
    """

    def __init__(self, client: KazooClient, options: ZooKeeperOptions, wait: Wait) -> None:
        self._client = client
        self._options = options
        self._wait = wait

    def ensure(self, paths: Iterable[str]) -> dict[str, RefusedOperation]:
        """Create missing persistent nodes and their parents. Return what ZooKeeper refused, by the path given."""
        asked = [(path, self._client.exists_async(path)) for path in dict.fromkeys(paths)]
        refused = {}
        for path in [path for path, answer in asked if self._wait(answer) is None]:
            for step in _ancestors(path):
                refusal = self._ensure(step)
                if refusal is not None:
                    refused[path] = step, refusal
                    break
        return refused

    def _ensure(self, path: str) -> Refusal | None:
        try:
            self._wait(self._client.create_async(path, b"", acl_of(self._options, path)))
        except NodeExistsError:
            return None
        except (NoNodeError, NoAuthError, InvalidACLError) as error:
            # The node may exist: ZooKeeper checks the ACL of the parent before it looks for the node.
            return None if self._wait(self._client.exists_async(path)) is not None else _REFUSALS[type(error)]
        return None

    def begin(self, operations: Sequence[Operation]) -> Any:
        """Send a multi request. `end` waits for the response. ZooKeeper applies several requests in order."""
        transaction = self._client.transaction()
        for operation in operations:
            match operation:
                case Check(path, version):
                    transaction.check(path, version)
                case Create(path, data, ephemeral):
                    transaction.create(path, data, acl_of(self._options, path), ephemeral)
                case Set(path, data, version):
                    transaction.set_data(path, data, version)
                case Delete(path, version):
                    transaction.delete(path, version)
        return transaction.commit_async()

    def end(self, operations: Sequence[Operation], begun: Any) -> RefusedOperation | None:
        """Wait for the response of a multi, and return the refusal, if any."""
        results = self._wait(begun)
        for operation, result in zip(operations, results, strict=True):
            if isinstance(result, Exception) and not isinstance(result, _NOT_THE_CAUSE):
                return operation.path, _refusal(result)
        return None

    def apply_one_by_one(self, operations: Sequence[Operation]) -> RefusedOperation | None:
        """Check all operations, then apply them one by one, for a ZooKeeper without multi."""
        refused = self._check_all(operations)
        if refused is not None:
            return refused
        for operation in operations:
            try:
                self._apply(operation)
            except tuple(_REFUSALS) as error:
                return operation.path, _refusal(error)
        return None

    def _check_all(self, operations: Sequence[Operation]) -> RefusedOperation | None:
        asked = [(o.path, self._client.exists_async(o.path)) for o in operations]
        versions: dict[str, int | None] = {}
        for path, answer in asked:
            stat = self._wait(answer)
            versions[path] = None if stat is None else stat.version
        for operation in operations:
            refusal = _refusal_of(operation, versions)
            if refusal is not None:
                return operation.path, refusal
        return None

    def _apply(self, operation: Operation) -> None:
        match operation:
            case Create(path, data, ephemeral):
                self._wait(self._client.create_async(path, data, acl_of(self._options, path), ephemeral))
            case Set(path, data, version):
                self._wait(self._client.set_async(path, data, version))
            case Delete(path, version):
                self._wait(self._client.delete_async(path, version))


def _refusal_of(operation: Operation, versions: dict[str, int | None]) -> Refusal | None:
    """Return the refusal that a multi would return for these `versions`, and apply the operation to them."""
    path, found = operation.path, versions[operation.path]
    if isinstance(operation, Create):
        versions[path] = 0
        return None if found is None else Refusal.NODE_EXISTS
    if found is None:
        return Refusal.NO_NODE
    if operation.version not in (ANY_VERSION, found):
        return Refusal.BAD_VERSION
    if isinstance(operation, Set):
        versions[path] = found + 1
    elif isinstance(operation, Delete):
        versions[path] = None
    return None


def _refusal(error: Any) -> Refusal:
    """Return the refusal for `error`. Raises `error` if it does not concern the node."""
    refusal = _REFUSALS.get(type(error))
    if refusal is None:
        raise error
    return refusal


def _ancestors(path: str) -> Iterator[str]:
    """Yield `/a`, `/a/b` and `/a/b/c` for `/a/b/c`."""
    steps = path.strip("/").split("/")
    return ("/" + "/".join(steps[: n + 1]) for n in range(len(steps)))


Wait = Callable[[Any], Any]
"""Waits for an asynchronous result of kazoo, and returns its value or raises its exception."""


class DeniedError(Exception):
    """The user may not read the node `path`."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


@frozen
class _NodeToRead:
    """A node to read as part of `subtree`, with `remaining` levels below it."""

    path: str
    subtree: Subtree
    remaining: int


class SubtreeReader:
    """The read operations of one session. `wait` limits every wait by the deadline of the read."""

    def __init__(self, client: KazooClient, watches: Watches, wait: Wait) -> None:
        self._client = client
        self._watches = watches
        self._wait = wait

    def read(self, subtrees: Iterable[Subtree]) -> dict[str, ZNode]:
        """Return all existing nodes by path. Raises DeniedError.

        The read takes one round trip per level of the deepest subtree, however many subtrees there are.
        """
        nodes: dict[str, ZNode] = {}
        wanted = list(subtrees)
        while wanted:
            self._read_levels(wanted, nodes)
            wanted = self._watch_absent([s for s in wanted if s.watch and s.path not in nodes])
        return nodes

    def _read_levels(self, subtrees: list[Subtree], nodes: dict[str, ZNode]) -> None:
        level = [_NodeToRead(subtree.path, subtree, subtree.depth) for subtree in subtrees]
        while level:
            below = []
            for target, node in self._read_level(level):
                known = nodes.get(target.path)
                nodes[target.path] = node if node.children or known is None else replace(node, children=known.children)
                below += [
                    _NodeToRead(join(target.path, c), target.subtree, target.remaining - 1) for c in node.children
                ]
            level = below

    def _read_level(self, level: list[_NodeToRead]) -> Iterator[tuple[_NodeToRead, ZNode]]:
        """Yield the nodes of one level. A node that is recreated between its two responses is read again."""
        while level:
            asked = [
                (target, *self._request(target.path, target.subtree, with_children=target.remaining > 0))
                for target in level
            ]
            level = []
            for target, data, children in asked:
                try:
                    node = _node(self._wait(data), None if children is None else self._wait(children))
                except NoNodeError:
                    continue
                except NoAuthError:
                    raise DeniedError(target.path) from None
                if node is None:
                    level.append(target)
                else:
                    yield target, node

    def _request(self, path: str, subtree: Subtree, *, with_children: bool) -> tuple[Any, Any]:
        watch = self._watches.fired if subtree.watch else None
        if watch is not None:
            self._watches.arm(path, Aspect.DATA, subtree.path)
            if with_children:
                self._watches.arm(path, Aspect.CHILDREN, subtree.path)
        data = self._client.get_async(path, watch)
        return data, self._client.get_children_async(path, watch, include_data=True) if with_children else None

    def _watch_absent(self, absent: list[Subtree]) -> list[Subtree]:
        """Watch the creation of `absent` subtrees, and return those that exist by now."""
        asked = []
        for subtree in absent:
            self._watches.arm(subtree.path, Aspect.DATA, subtree.path)
            asked.append(self._client.exists_async(subtree.path, self._watches.fired))
        return [subtree for subtree, answer in zip(absent, asked, strict=True) if self._wait(answer) is not None]


def join(path: str, child: str) -> str:
    return f"{path.rstrip('/')}/{child}"


def _node(data: Any, children: Any) -> ZNode | None:
    """Return the node of a getData and a getChildren response; None if it was recreated between the two.

    The names of children and `pzxid` are from one response: a group identifies the assignment that it computes from the
    names by `pzxid`.
    """
    content, stat = data
    names, listed = ([], stat) if children is None else children
    if listed.czxid != stat.czxid:
        return None
    return ZNode(
        data=content,
        version=stat.version,
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        pzxid=listed.pzxid,
        owner=stat.ephemeralOwner,
        children=tuple(sorted(names)),
    )


class Aspect(Enum):
    """What a watch on a node reports: its data and existence, or its children."""

    DATA = "its data, and whether it exists"
    CHILDREN = "its children"


_FIRES = {
    EventType.CREATED: (Aspect.DATA,),
    EventType.CHANGED: (Aspect.DATA,),
    EventType.CHILD: (Aspect.CHILDREN,),
    EventType.DELETED: (Aspect.DATA, Aspect.CHILDREN),
}


class Watches:
    """The watches of one session. The owner's thread sets them, and kazoo's threads report changes.

    `notify(path)` may be called from any thread.
    """

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._notify = notify
        self._lock = threading.Lock()
        self._armed: dict[tuple[str, Aspect], str] = {}
        """The root of the subtree that was read, by path and aspect. Bounded by the existing nodes that the session has
        read, since the deletion of a node fires its watches."""
        self._lost: set[str] = set()

    def arm(self, path: str, aspect: Aspect, root: str) -> None:
        """Record a watch before reading `path` in the subtree of `root`, which sets it."""
        with self._lock:
            self._armed[path, aspect] = root

    def fired(self, event: WatchedEvent) -> None:
        """Handle kazoo's watch event. `connected` reports watches lost with the connection (NONE events)."""
        with self._lock:
            armed = [self._armed.pop((event.path, aspect), None) for aspect in _FIRES.get(event.type, ())]
        if any(root is not None for root in armed):
            self._notify(event.path)

    def disconnected(self) -> None:
        """Mark all watches as lost with the connection: kazoo does not set them again."""
        with self._lock:
            self._lost.update(self._armed.values())
            self._armed.clear()

    def connected(self) -> None:
        """Report the roots of all lost watches as changed, now that the session can read them again."""
        with self._lock:
            lost, self._lost = self._lost, set()
        for root in sorted(lost):
            self._notify(root)
