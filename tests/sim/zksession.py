"""A session of a process with the simulated ZooKeeper: subtrees read, transactions carried out, events told.

Mirrors `zookeeper/session.py`: one session a client, requests are refused while it is not connected, deadlines, and a
subtree read level by level, all nodes of a level in one go. The watches are the real ones. Where the session changes,
this file changes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kazoo.protocol.states import EventType, KeeperState, WatchedEvent

from streamgroup.group.registry import events as rv
from streamgroup.znodes import Subtree, ZNode
from streamgroup.zookeeper.session import Aspect, Watches
from tests.fakes.zookeeper import Refused, Session
from tests.sim.clock import Steps, Until
from tests.sim.network import Network
from tests.sim.zkclient import Client, Loss, Serve, Wire
from tests.sim.zookeeper import SimZooKeeper

if TYPE_CHECKING:
    from tests.sim.process import Process


class Unanswered(Exception):
    """The connection is lost, or the time is over: what was asked may be carried out or not."""


class SimSession:
    """See the module. `tell` is called from kazoo's threads, with the session's id. Deadlines are simulated times."""

    def __init__(
        self,
        process: Process,
        network: Network,
        zookeeper: SimZooKeeper,
        tell: Callable[[int, rv.RegistryEvent], None],
    ) -> None:
        self._process = process
        self._network = network
        self._clock = network.clock
        self._zookeeper = zookeeper
        self._tell = tell
        self.client: Client | None = None
        """Of the newest session."""
        self.over = False
        self._told_of = 0
        """The newest session that was told of."""
        self._watches = Watches(lambda path: None)

    # -- beginning and end --------------------------------------------------------------------------------------------

    def open(self) -> None:
        """`Session.open`: does nothing while there is a session."""
        if self.client is not None and not self.over:
            return
        process = self._process
        self.over = False
        self._watches = Watches(lambda path: self._tell(self._told_of, rv.Changed(path)))
        self.client = Client(
            self._zookeeper,
            self._network,
            process,
            process.settings.session_s,
            hear=process.hear,
            told=self._hear,
            fired=self._fired,
        )
        self.client.open()

    def connect(self, deadline: float) -> Steps:
        """`Session.connect`; raises Unanswered."""
        self.open()
        while not self.connected:
            yield Until(lambda: self.connected or self.over, deadline - self._clock.now)
            if not self.connected and self._clock.now >= deadline:
                raise Unanswered("no connection")
            self.open()

    def close(self, seconds: float) -> Steps:
        """End the session in order."""
        client, self.client = self.client, None
        closed: list[bool] = []
        if client is not None:
            client.close(lambda: closed.append(True))
            yield Until(lambda: bool(closed), seconds)

    def die(self) -> None:
        """The process is gone."""
        if self.client is not None:
            self.client.die()

    @property
    def connected(self) -> bool:
        return self.client is not None and self.client.is_connected

    @property
    def session_id(self) -> int:
        session = self.client.session if self.client is not None else None
        return 0 if session is None else session.session_id

    # -- kazoo's threads ----------------------------------------------------------------------------------------------

    def _hear(self, event: rv.RegistryEvent) -> None:
        """`_Life._hear`."""
        self._clock.note(self._process.name, f"zookeeper: {event}")
        self.over = isinstance(event, rv.Expired)
        if isinstance(event, rv.SessionBegan):
            self._told_of = event.session_id
        self._tell(self._told_of, event)
        match event:
            case rv.SessionBegan() | rv.Resumed():
                self._watches.connected()
            case rv.Suspended():
                self._watches.disconnected()

    def _fired(self, path: str, of_children: bool) -> None:
        kind = EventType.CHILD if of_children else EventType.CHANGED
        self._watches.fired(WatchedEvent(kind, KeeperState.CONNECTED, path))

    # -- operations ---------------------------------------------------------------------------------------------------

    def read(self, subtrees: Sequence[Subtree], deadline: float) -> Steps:
        """The nodes by their path; raises Unanswered."""
        nodes: dict[str, ZNode] = {}
        wanted = list(subtrees)
        while wanted:
            yield from self._levels(wanted, nodes, deadline)
            wanted = yield from self._come_to_be([s for s in wanted if s.watch and s.path not in nodes], deadline)
        return nodes

    def transact_each(self, transactions: Sequence[rv.Transact], deadline: float) -> Steps:
        """In order and each for itself, sent together: for each None, why it was refused, or Unanswered."""
        outcomes: list[Refused | Unanswered | None] = []
        try:
            ensured = dict.fromkeys(path for each in transactions for path in each.ensured)
            if ensured:
                yield from self._answer(self._ask(*(partial(self._ensure, path) for path in ensured)), deadline)
            asked = [self._ask(partial(self._carry_out, each)) for each in transactions]
            for answers in asked:
                outcomes += yield from self._answer(answers, deadline)
        except Unanswered as reason:
            outcomes += [reason] * (len(transactions) - len(outcomes))
        return outcomes

    def _ask(self, *serves: Serve) -> list[Any]:
        """Send all in one go; what comes back holds the answer when it has come."""
        answers: list[Any] = []
        if self.client is None:
            answers.append(Loss("the session is closed"))
        else:
            self.client.request(lambda session, wire: [serve(session, wire) for serve in serves], answers.append)
        return answers

    def _answer(self, answers: list[Any], deadline: float) -> Steps:
        yield Until(lambda: bool(answers), deadline - self._clock.now)
        if not answers:
            raise Unanswered("no answer in time")
        if isinstance(answers[0], Loss):
            raise Unanswered(answers[0].reason)
        return answers[0]

    def _carry_out(self, transaction: rv.Transact, session: Session, wire: Wire) -> Refused | None:
        return self._zookeeper.transact(session, transaction.operations)

    def _ensure(self, path: str, session: Session, wire: Wire) -> None:
        self._zookeeper.ensure(session, path)

    # -- reading ------------------------------------------------------------------------------------------------------

    def _levels(self, subtrees: Sequence[Subtree], nodes: dict[str, ZNode], deadline: float) -> Steps:
        """All nodes of a level are asked for, and here also answered, in one go."""
        level = [(subtree.path, subtree, subtree.depth) for subtree in subtrees]
        while level:
            for path, subtree, remaining in level:
                if subtree.watch:
                    self._arm(path, subtree, with_children=remaining > 0)
            serves = [partial(self._node, path, subtree.watch, left > 0) for path, subtree, left in level]
            found = yield from self._answer(self._ask(*serves), deadline)
            below = []
            for (path, subtree, remaining), node in zip(level, found, strict=True):
                if node is not None:
                    known = nodes.get(path)
                    nodes[path] = node if node.children or known is None else replace(node, children=known.children)
                    below += [(f"{path}/{child}", subtree, remaining - 1) for child in node.children]
            level = below

    def _come_to_be(self, absent: Sequence[Subtree], deadline: float) -> Steps:
        """Those that are there by now; the coming to be of the others is watched."""
        for subtree in absent:
            self._watches.arm(subtree.path, Aspect.DATA, subtree.path)
        serves = [partial(self._exists, subtree.path) for subtree in absent]
        there = (yield from self._answer(self._ask(*serves), deadline)) if serves else []
        return [subtree for subtree, exists in zip(absent, there, strict=True) if exists]

    def _exists(self, path: str, session: Session, wire: Wire) -> bool:
        return self._zookeeper.data(path, wire) is not None

    def _arm(self, path: str, subtree: Subtree, *, with_children: bool) -> None:
        self._watches.arm(path, Aspect.DATA, subtree.path)
        if with_children:
            self._watches.arm(path, Aspect.CHILDREN, subtree.path)

    def _node(self, path: str, watch: bool, with_children: bool, session: Session, wire: Wire) -> ZNode | None:
        """`getData` and `getChildren`; where there is no such node, nothing is watched."""
        zookeeper, watcher = self._zookeeper, wire if watch else None
        if not zookeeper.exists(path):
            return None
        if watcher is not None:
            watcher.watches.add((path, False))
        return zookeeper.children(path, watcher) if with_children else zookeeper.data(path)
