"""What a member knows of itself and of the group, and how it gets to know: it registers, and looks.

Nothing here goes by what has just been heard: `_go_on` compares what is known with what should be, and does the next
thing; so a lost answer, a missed watch or a change in the middle of a change all end in the same place.

    known: not registered        -> register          known: no view, or an old one  -> look at the group
    registered as something else -> register anew     an earlier id of the session   -> delete it
                                                      registered, and looked         -> `Claims`
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping

from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.group import events as ev
from streamgroup.group.events import INFO, WARNING
from streamgroup.group.registry import formats as f
from streamgroup.group.registry.asking import Ask, Asked, Asking, Due
from streamgroup.group.registry.events import Looked, RegistryAction
from streamgroup.group.registry.formats import GroupPaths, Incarnation
from streamgroup.group.registry.view import Consumer, Owner, View, owner_subtrees, owners_in, subtrees, view_of
from streamgroup.group.table import State
from streamgroup.group.timing import BatchClock, MemberConfig, Random
from streamgroup.model import TopicPartition
from streamgroup.znodes import Check, Create, Delete, Refusal, Set, Subtree

POKE_AFTER_S = 10.0
"""R33: a consumer of another make that has not claimed its partitions by then has given up."""
NOTED_MOST = 1000
"""So many texts are remembered, so that none is said twice. They name nodes and sessions, of which new ones come for
ever; then all texts are forgotten, and what still holds is said once more."""
POKE_MOST_S = 160.0
"""Every poke makes all consumers stop and claim anew: where it does not help it comes more and more rarely."""

_NOTHING: frozenset[TopicPartition] = frozenset()
_OTHERS = frozenset({""})
"""In place of a registered subscription that is not the one wanted; no topic is called so."""

Action = ev.Action | RegistryAction


class Entry(ABC):
    """See the module. What it holds is kept here, too, since losing it is decided by looks."""

    def __init__(
        self, config: MemberConfig, random: Random, paths: GroupPaths, new_incarnation: Callable[[], Incarnation]
    ) -> None:
        self._config = config
        self._random = random
        self._paths = paths
        self._new_incarnation = new_incarnation
        self._state = State.UNJOINED
        self._asking = Asking()
        self._batch = BatchClock()
        self._now = 0.0
        self._out: list[Action] = []
        self._attempts = 0
        self._noted: set[str] = set()
        # Who this is.
        self._topics: frozenset[str] = frozenset()
        self._identity = b""
        self._session: int | None = None
        self._session_ms = config.session_timeout_ms
        """As granted, and no more than was asked for."""
        self._connected = False
        self._me = Incarnation("", 0)
        self._registered: frozenset[str] | None = None
        """The subscription that is registered; None while that, or whether anything is, is not known."""
        self._told: bytes | None = None
        """The identity that is registered."""
        self._registering: tuple[frozenset[str], bytes] = (frozenset(), b"")
        """What the transaction that is out registers."""
        # What was seen.
        self._view: View | None = None
        self._view_stale = False
        """Something has changed since the last look at the group was asked for."""
        self._shares: dict[TopicPartition, str] = {}
        self._owners: Mapping[TopicPartition, Owner] = {}
        self._owners_stale = False
        self._unconfirmed = False
        """Something was written since the owners were looked at."""
        self._claimed_topics: set[str] = set()
        """Of this session: where owner nodes of ours may be. Each assignment forgets the topics where none can be any
        more."""
        # What is held.
        self._held = _NOTHING
        self._kept = _NOTHING
        """What of `_held` has been owned without a break."""
        self._withheld = 0
        self._assigned = False
        """Whether what is held was told, and nothing since that it is lost."""
        self._generation = -1
        self._lease_at: float | None = None
        self._proven = False
        """Whether the own node was seen since the connection was (re-)made."""
        self._wanted: str | None = None
        self._told_at = 0.0
        self._waited = False
        self._settles = self._settling = False
        """`_settling`: where partitions start that were gained is being found and committed."""
        self._pokes = 0

    # -- the next thing -----------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Do what is to be done next, unless an answer or a backoff is waited for."""
        if self._state not in {State.JOINING, State.STABLE} or not self._connected:
            return
        if self._asking.busy or self._asking.at(Due.RETRY) is not None:
            return
        if self._registered is None and (self._view is not None or not self._me.consumer_id):
            self._register()
        elif self._view is None or self._view_stale:
            self._look()
        elif self._registered != self._topics:
            self._renew()
        elif self._told != self._identity:
            self._identify()
        elif leftovers := self._leftovers(self._view):
            self._sweep(leftovers)
        else:
            self._settle(self._view)

    @abstractmethod
    def _settle(self, view: View) -> None:
        """Registered, and the group is known: what is to be done about the own share."""

    # -- registering --------------------------------------------------------------------------------------------------

    def _register(self) -> None:
        if not self._me.consumer_id:
            self._me = self._new_incarnation()
        name = self._me.consumer_id
        operations = (
            Create(self._paths.consumer(name), self._registration(), ephemeral=True),
            Create(self._paths.member(name), self._identity, ephemeral=True),
        )
        self._registering = self._topics, self._identity
        ensured = (self._paths.ids, self._paths.members)
        self._out.append(self._asking.transact(Ask.REGISTER, operations, self._now, ensured=ensured))

    def _registration(self) -> bytes:
        return f.registration(self._paths.dialect, self._topics, self._me.timestamp_ms)

    def _renew(self) -> None:
        """The own node anew, in one step: nobody sees the group without it, and all who watch it look again."""
        path = self._paths.consumer(self._me.consumer_id)
        operations = (Delete(path), Create(path, self._registration(), ephemeral=True))
        self._registering = self._topics, self._identity
        self._out.append(self._asking.transact(Ask.RENEW, operations, self._now))

    def _identify(self) -> None:
        path = self._paths.member(self._me.consumer_id)
        operations = (self._fence, Set(path, self._identity))
        self._registering = self._topics, self._identity
        self._out.append(self._asking.transact(Ask.IDENTIFY, operations, self._now))

    def _leftovers(self, view: View) -> list[Consumer]:
        """What this session is registered as besides: as long as it lives nobody would claim what falls to them."""
        earlier = (c for c in view.consumers.values() if c.session_id == self._session)
        return sorted((c for c in earlier if c.consumer_id != self._me.consumer_id), key=lambda c: c.consumer_id)

    def _sweep(self, leftovers: Iterable[Consumer]) -> None:
        for consumer in leftovers:
            name = consumer.consumer_id
            nodes = [Delete(self._paths.consumer(name))]
            if consumer.is_ours:
                nodes.append(Delete(self._paths.member(name)))
            self._note(INFO, f"{name} is what this session was registered as before: deleting it")
            self._out.append(self._asking.transact(Ask.SWEEP, (self._fence, *nodes), self._now))

    @property
    def _fence(self) -> Check:
        """R31."""
        return Check(self._paths.consumer(self._me.consumer_id))

    # -- looking ------------------------------------------------------------------------------------------------------

    def _owned_topics(self) -> frozenset[str]:
        return self._topics | self._claimed_topics

    def _look(self) -> None:
        self._view_stale = self._owners_stale = self._unconfirmed = False
        wanted = (*subtrees(self._paths, self._topics), *owner_subtrees(self._paths, self._owned_topics()))
        self._out.append(self._asking.look(Ask.LOOK, wanted, self._now))

    def _confirm(self) -> None:
        self._owners_stale = self._unconfirmed = False
        wanted = (self._own_node(), *owner_subtrees(self._paths, self._owned_topics()))
        self._out.append(self._asking.look(Ask.CONFIRM, wanted, self._now))

    def _own_node(self) -> Subtree:
        return Subtree(self._paths.consumer(self._me.consumer_id), depth=0, watch=False)

    def _looked(self, event: Looked, asked: Asked) -> None:
        view = view_of(self._paths, event.nodes)
        for note in view.notes:
            self._note_once(WARNING, note)
        if not self._see_own_node(event):
            self._view = view
            return
        if self._view is None or self._view.consumers.keys() != view.consumers.keys():
            self._pokes = 0
        self._view, self._shares = view, view.shares()
        self._see_owners(view.owners)
        if view.foreign:
            self._set_poke()
        else:
            self._asking.clear(Due.POKE)

    def _owners_seen(self, event: Looked, asked: Asked) -> None:
        if self._see_own_node(event):
            self._see_owners(owners_in(self._paths, event.nodes))

    def _see_owners(self, owners: Mapping[TopicPartition, Owner]) -> None:
        self._owners = owners
        self._kept &= frozenset(tp for tp, owner in owners.items() if self._is_mine(owner))

    def _is_of_session(self, owner: Owner) -> bool:
        """Made by this session, perhaps as a consumer that it was before."""
        return owner.session_id == self._session

    def _is_mine(self, owner: Owner) -> bool:
        return self._is_of_session(owner) and owner.consumer_id == self._me.consumer_id

    def _see_own_node(self, event: Looked) -> bool:
        """Whether this session is registered, as far as the answer tells. No lease: a server that is cut off from the
        others answers, too, and what it knows may be old."""
        node = event.nodes.get(self._paths.consumer(self._me.consumer_id))
        if node is not None and node.owner == self._session:
            if self._registered is None:  # a registration without an answer: it, or the one before, was carried out
                self._registered = self._topics if node.data == self._registration() else _OTHERS
            self._attempts, self._proven = 0, True
            return True
        if node is not None:
            self._note(WARNING, f"another session is registered as {self._me.consumer_id}: going on under another id")
        if self._registered is not None or node is not None:
            self._gone("its registration is no longer there")
        return False

    def _prove(self, asked: Asked) -> None:
        """A transaction that creates or checks the own node was carried out, so most servers agree: a lease (R9)."""
        self._attempts = 0
        self._lease_at = max(asked.sent_at, self._lease_at or asked.sent_at)

    @abstractmethod
    def _gone(self, reason: str) -> None:
        """Registered no more, though the session lives: all is lost; register again, as another consumer."""

    def _set_poke(self) -> None:
        self._asking.set(Due.POKE, self._now + min(POKE_AFTER_S * 2**self._pokes, POKE_MOST_S))

    # -- what all use -------------------------------------------------------------------------------------------------

    def _refused_for(self, path: str, refusal: Refusal, doing: Ask) -> None:
        """A transaction was refused by `path`, for no reason that its `doing` knows: look, then try again."""
        if refusal is Refusal.NO_AUTH:
            self._fail(ConfigError(_NO_AUTH.format(group=self._config.group_id, what=doing.value, path=path)))
        elif refusal is Refusal.NO_NODE and path == self._paths.consumer(self._me.consumer_id):
            self._gone("its registration is no longer there")
        else:
            self._look_later(f"could not {doing.value}: {path}: {refusal.value}")

    def _look_later(self, reason: str) -> None:
        """Look at everything after a backoff. Logged at the attempts 1, 2, 4, 8, ..."""
        self._view_stale = True
        self._attempts += 1
        self._asking.set(Due.RETRY, self._now + self._config.backoff_s(self._attempts, self._random))
        if self._attempts & (self._attempts - 1) == 0:
            self._note(INFO, f"{self._state.value}: {reason}; trying again (attempt {self._attempts})")

    def _fail(self, error: StreamGroupError) -> None:
        self._asking.reset()
        self._wanted, self._lease_at = None, None
        self._state = State.FATAL
        self._out.append(ev.Fail(error))

    def _note(self, level: int, text: str) -> None:
        self._out.append(ev.Note(level, f"group {self._config.group_id}: {text}"))

    def _note_once(self, level: int, text: str) -> None:
        if text not in self._noted:
            if len(self._noted) >= NOTED_MOST:
                self._noted.clear()
            self._noted.add(text)
            self._note(level, text)


_NO_AUTH = (
    "group {group}: could not {what}: the access control list of {path} forbids it. Give the user that made it "
    "(zookeeper.username, zookeeper.password), or have that node opened to this user"
)
