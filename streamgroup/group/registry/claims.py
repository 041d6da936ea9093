"""What a registered member does about its share: gives up, claims, looks again, holds. `entry.py` comes before.

owned, but another's by now -> wait for the batch, release      mine, and without an owner -> claim it
written since the last look -> look at the owners               owned is not what is held  -> Assigned
"""

from __future__ import annotations

from collections.abc import Iterable

from streamgroup.group import events as ev
from streamgroup.group.events import INFO, WARNING
from streamgroup.group.registry import formats as f
from streamgroup.group.registry.asking import OPERATIONS_MOST, Ask, Asked, Due
from streamgroup.group.registry.entry import Entry
from streamgroup.group.registry.events import Looked
from streamgroup.group.registry.view import View, owner_subtrees
from streamgroup.group.table import State
from streamgroup.group.timing import gave_up_waiting, left_unsettled, rejoin_due, rejoin_timeout_s
from streamgroup.model import TopicPartition
from streamgroup.znodes import Create, Delete, Operation

FOREIGN_TIMEOUT_S = 5.0
"""R33: a consumer of another make tries 4 times in 8 s to claim its partitions, and then owns nothing."""
PARTIAL_AFTER_S = 1.0
"""A member goes on without what others have yet to release after this: mostly they do so at once, and one assignment
of all is better than two. Founders of a group share a generation by it (R7)."""


class Claims(Entry):
    """See the module."""

    def _settle(self, view: View) -> None:
        mine = frozenset(tp for tp, owner in self._owners.items() if self._is_mine(owner))
        target = frozenset(tp for tp, thread in self._shares.items() if f.consumer_of(thread) == self._me.consumer_id)
        if self._state is State.STABLE and not self._held <= mine & target:
            if not self._may_give_up(view, f"{len(self._held - (mine & target))} partitions fall to others"):
                return
        elif self._wanted is not None:  # what called the assignment in question has gone by
            self._wanted = None
            self._asking.clear(Due.REJOIN)
        surplus = [tp for tp, owner in sorted(self._owners.items()) if self._is_of_session(owner) and tp not in target]
        claims = [tp for tp in sorted(target - mine) if self._is_free(tp)]
        if self._unconfirmed:
            self._confirm()
        elif surplus or claims:
            self._release(surplus)
            self._claim(claims)
        elif self._owners_stale and target - mine:
            self._confirm()
        else:
            self._hold(view, mine & target, target - mine)

    def _is_free(self, tp: TopicPartition) -> bool:
        owner = self._owners.get(tp)
        return owner is None or self._is_of_session(owner)

    # -- giving up and claiming ---------------------------------------------------------------------------------------

    def _may_give_up(self, view: View, reason: str) -> bool:
        """Give up at the boundary of a batch (R21), with the starts of what was gained committed (R6): their next owner
        could not tell startingOffsets. At the latest after 5 s where a consumer of another make waits (R33)."""
        if not self._batch.in_flight and not self._settling:
            self._rejoin(reason)
            return True
        if self._wanted is None:
            self._wanted, self._told_at = reason, self._now
            awaited = "the batch in flight is done" if self._batch.in_flight else "starting positions are committed"
            self._note(INFO, f"{reason}: giving up when {awaited}")
        self._set_release_due(view)
        return False

    def _set_release_due(self, view: View) -> None:
        wait, most = self._config.rebalance_wait_ms / 1000, self._config.max_poll_interval_ms / 1000
        batch = self._batch
        is_told = batch.listened or self._settling
        due = rejoin_due(self._told_at, batch.asked_at, batch.longest_s, wait, most, listened=is_told)
        if view.foreign:
            due = min(due, self._told_at + FOREIGN_TIMEOUT_S)
        self._asking.set(Due.REJOIN, due)

    def _waited_enough(self) -> None:
        """The batch in flight, or the commit of starts, is waited for no longer."""
        if self._batch.in_flight:
            self._out.append(ev.GaveUp(self._why_given_up()))
        else:
            self._note(WARNING, left_unsettled(self._generation, self._now - self._told_at))
        self._rejoin(self._wanted or "the group rebalances")

    def _why_given_up(self) -> str:
        flying_s, waited_s = self._batch.flying_s(self._now), self._now - self._told_at
        most = self._config.max_poll_interval_ms
        foreign = self._view.foreign if self._view is not None else ()
        if foreign and waited_s < rejoin_timeout_s(most / 1000):
            return _FOREIGN.format(flying=flying_s, waited=waited_s, who=foreign[0])
        return gave_up_waiting(flying_s, waited_s, most, self._config.rebalance_wait_ms)

    def _rejoin(self, reason: str) -> None:
        """What is held is planned and committed no more until it is assigned anew."""
        self._out.append(ev.Joining(reason, abandoned=self._batch.in_flight))
        self._state, self._wanted, self._waited, self._settling = State.JOINING, None, False, False
        self._asking.clear(Due.REJOIN, Due.PARTIAL)

    def _release(self, partitions: Iterable[TopicPartition]) -> None:
        """Another may claim them at once, and what it makes has the same path and the same version: until the next look
        they count as owned no more, so that who leaves before it does not delete what is another's by then (R31)."""
        released = frozenset(partitions)
        owned = [Delete(self._paths.owner(tp), self._owners[tp].version) for tp in sorted(released)]
        for some in in_transactions(owned):
            self._out.append(self._asking.transact(Ask.RELEASE, (self._fence, *some), self._now))
        self._owners = {tp: owner for tp, owner in self._owners.items() if tp not in released}
        self._kept -= released
        self._unconfirmed |= bool(owned)

    def _claim(self, partitions: Iterable[TopicPartition]) -> None:
        """A transaction each: what another was quicker to claim must not keep the rest from us."""
        for tp in partitions:
            path, earlier = self._paths.owner(tp), self._owners.get(tp)
            claim = Create(path, f.owner_data(f"{self._me.consumer_id}-0"), ephemeral=True)
            # An owner node of this session's earlier registration is replaced.
            operations = (self._fence, *(() if earlier is None else (Delete(path, earlier.version),)), claim)
            ensured = (self._paths.owners(tp.topic),)
            self._out.append(self._asking.transact(Ask.CLAIM, operations, self._now, ensured=ensured, claimed=tp))
            self._claimed_topics.add(tp.topic)
            self._unconfirmed = True

    def _hold(self, view: View, held: frozenset[TopicPartition], missing: frozenset[TopicPartition]) -> None:
        """What is owned is what is held from now on; `missing` fall to this member and are others' still."""
        self._say_what_lingers(view, missing)
        if self._state is State.STABLE and (held, len(missing)) == (self._held, self._withheld):
            return
        if self._state is State.JOINING and missing and not self._waited:
            if self._asking.at(Due.PARTIAL) is None:
                self._asking.set(Due.PARTIAL, self._now + PARTIAL_AFTER_S)
            return
        if missing:
            self._say_who_is_waited_for(view, missing)
        kept, self._held, self._kept = self._kept & held, held, held
        self._settling = self._settles and (self._settling or kept != held)
        self._withheld, self._assigned = len(missing), True
        self._generation = self._next_generation(view, held)
        self._state, self._waited = State.STABLE, True
        # Nothing is under way, and the owners are known: where none is of this session, no node of ours can be.
        self._claimed_topics &= self._topics | {tp.topic for tp, o in self._owners.items() if self._is_of_session(o)}
        self._asking.clear(Due.PARTIAL)
        self._out.append(
            ev.Assigned(
                self._generation,
                self._me.consumer_id,
                tuple(sorted(held)),
                kept,
                "range",
                leader=False,
                members=len(view.consumers),
                total=view.total,
                withheld=len(missing),
                keeper="ZooKeeper",
            )
        )

    def _next_generation(self, view: View, held: frozenset[TopicPartition]) -> int:
        """That of the view, which all share who saw the same. A second assignment from one view has the zxid of its
        newest claim; each is above the one before."""
        if view.generation > self._generation:
            return view.generation
        return max(self._generation + 1, *(self._owners[tp].czxid for tp in held), 0)

    def _say_who_is_waited_for(self, view: View, missing: frozenset[TopicPartition]) -> None:
        keepers = sorted({self._owners[tp].consumer_id for tp in missing if tp in self._owners} & view.consumers.keys())
        if keepers:
            more = f" and {len(keepers) - 1} others" if len(keepers) > 1 else ""
            text = f"{len(missing)} partitions that fall to this member are still owned by {keepers[0]}{more}"
            self._note(INFO, f"{text}: claimed as soon as they are released")

    def _say_what_lingers(self, view: View, missing: frozenset[TopicPartition]) -> None:
        for tp in sorted(missing):
            owner = self._owners.get(tp)
            if owner is not None and owner.consumer_id not in view.consumers:
                who = f"{owner.thread!r}, which is not registered (any more)" if owner.thread else "nobody who is named"
                self._note_once(
                    WARNING,
                    f"{tp} falls to this member and is still owned by {who}: waiting until {self._paths.owner(tp)} "
                    f"goes with its session {owner.session_id:#x}",
                )

    # -- consumers of another make (R33) ------------------------------------------------------------------------------

    def _poke_due(self) -> None:
        view = self._view
        if self._state is not State.STABLE or view is None or self._asking.busy or not self._connected:
            self._set_poke()
        elif view.foreign and view.ours[:1] == (self._me.consumer_id,):
            wanted = (self._own_node(), *owner_subtrees(self._paths, self._owned_topics(), watch=False))
            self._out.append(self._asking.look(Ask.NEIGHBOURS, wanted, self._now))

    def _neighbours_seen(self, event: Looked, asked: Asked) -> None:
        self._owners_seen(event, asked)
        view = self._view
        if view is None or self._view_stale or not self._proven:
            return
        theirs = [tp for tp, thread in self._shares.items() if f.consumer_of(thread) in view.foreign]
        missing = [tp for tp in theirs if tp not in self._owners]
        if missing:
            self._pokes += 1
            who = f.consumer_of(self._shares[missing[0]])
            text = f"{who} has not claimed its partitions: registering anew, so that all consumers claim again (R33)"
            self._note(INFO, text)
            self._renew()
        elif any(self._owners[tp].thread != self._shares[tp] for tp in theirs):  # it has yet to be released
            self._set_poke()


def in_transactions(operations: list[Delete]) -> Iterable[list[Operation]]:
    """As many as one transaction takes at a time."""
    for start in range(0, len(operations), OPERATIONS_MOST):
        yield [*operations[start : start + OPERATIONS_MOST]]


_FOREIGN = (
    "the batch in flight, planned {flying:.0f} s ago, is not proven sunk, and {who}, a consumer of another make, waits "
    "for its partitions: it would give up after 8 s and own nothing, so they are released after {waited:.0f} s. Other "
    "members may read that batch again: up to one batch may be repeated (R33). Lower maxOffsetsPerTrigger to make "
    "batches shorter than 5 s, for as long as such consumers are in the group"
)
