"""The group as a member has last seen it, compared with the group as it should be."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from streamgroup.counting import counted
from streamgroup.group.registry import formats as f
from streamgroup.group.registry.formats import GroupPaths
from streamgroup.group.registry.registration import Registration
from streamgroup.group.registry.view import Consumer, OwnerNode, View
from streamgroup.model import TopicPartition

_NOTHING: frozenset[TopicPartition] = frozenset()


class Seen:
    """The consumers and owners that were read, and whether they are still as they were.

    `wanted` are the partitions that fall to this member, `mine` those that it owns.
    """

    def __init__(self, registration: Registration) -> None:
        self._registration = registration
        self.view: View | None = None
        self.view_stale = False
        """Whether a watch has fired since the last look at the group was asked for."""
        self.shares: Mapping[TopicPartition, str] = {}
        """The thread to which each partition falls."""
        self.owners: Mapping[TopicPartition, OwnerNode] = {}
        self.owners_stale = False
        self.unconfirmed = False
        """Whether something was written since the owners were read."""
        self.kept = _NOTHING
        """The partitions held that this member has owned without a break."""

    def forget(self) -> None:
        """Forget everything but the partitions kept: the registration is gone."""
        self.view = None
        self.shares, self.owners = {}, {}
        self.unconfirmed = self.view_stale = self.owners_stale = False

    def look_began(self) -> None:
        """Note that the group is being read: watches that fire from now on make it stale again."""
        self.view_stale = self.owners_stale = self.unconfirmed = False

    def confirm_began(self) -> None:
        """Note that the owners are being read."""
        self.owners_stale = self.unconfirmed = False

    def see(self, view: View) -> None:
        """Take over a whole view."""
        self.view, self.shares = view, view.shares()
        self.see_owners(view.owners)

    def see_owners(self, owners: Mapping[TopicPartition, OwnerNode]) -> None:
        """Take over the owners."""
        self.owners = owners
        self.kept &= self.mine

    def released(self, partitions: frozenset[TopicPartition]) -> None:
        """Take partitions that are being released for partitions without an owner until the next look.

        Another member may claim them at once, and makes a node with the same path and version. A member that leaves
        before its next look must not delete that node (R31).
        """
        self.owners = {tp: owner for tp, owner in self.owners.items() if tp not in partitions}
        self.kept -= partitions
        self.unconfirmed |= bool(partitions)

    # -- wanted and seen ----------------------------------------------------------------------------------------------

    @property
    def mine(self) -> frozenset[TopicPartition]:
        """The partitions that this member owns."""
        return frozenset(tp for tp, owner in self.owners.items() if self._registration.is_mine(owner))

    @property
    def wanted(self) -> frozenset[TopicPartition]:
        """The partitions that fall to this member."""
        me = self._registration.consumer_id
        return frozenset(tp for tp, thread in self.shares.items() if f.consumer_of(thread) == me)

    def surplus(self, wanted: frozenset[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions that this session owns and that are not wanted, sorted."""
        of_session = self._registration.is_of_session
        return [tp for tp, owner in sorted(self.owners.items()) if of_session(owner) and tp not in wanted]

    def is_free(self, tp: TopicPartition) -> bool:
        """Return whether nobody owns a partition but this session, perhaps as a consumer that it was before."""
        owner = self.owners.get(tp)
        return owner is None or self._registration.is_of_session(owner)

    def leftovers(self) -> list[Consumer]:
        """Return the earlier consumers of this session, sorted by id.

        As long as the session lives, nobody would claim the partitions that fall to them.
        """
        consumers = () if self.view is None else self.view.consumers.values()
        me = self._registration
        earlier = (c for c in consumers if c.session_id == me.session and c.consumer_id != me.consumer_id)
        return sorted(earlier, key=lambda consumer: consumer.consumer_id)

    def owned_topics(self) -> set[str]:
        """Return the topics in which this session owns a partition."""
        return {tp.topic for tp, owner in self.owners.items() if self._registration.is_of_session(owner)}

    def unclaimed(self, consumers: Collection[str]) -> tuple[list[str], bool]:
        """Return which of these consumers have not claimed a partition that falls to them, one name for each.

        Beside it: whether another consumer has yet to release a partition that falls to one of them.
        """
        theirs = [tp for tp, thread in self.shares.items() if f.consumer_of(thread) in consumers]
        unclaimed = [f.consumer_of(self.shares[tp]) for tp in theirs if tp not in self.owners]
        unreleased = any(tp in self.owners and self.owners[tp].thread != self.shares[tp] for tp in theirs)
        return unclaimed, unreleased

    # -- for the log --------------------------------------------------------------------------------------------------

    def waited_for(self, view: View, missing: frozenset[TopicPartition]) -> str | None:
        """Return which registered consumers still own the `missing` partitions, in words; None where there are none."""
        owned = {self.owners[tp].consumer_id for tp in missing if tp in self.owners}
        keepers = sorted(owned & view.consumers.keys())
        if not keepers:
            return None
        more = f" and {counted(len(keepers) - 1, 'other')}" if len(keepers) > 1 else ""
        text = f"still owned by {keepers[0]}{more}: {counted(len(missing), 'partition')} of this member"
        return f"{text}: claimed as soon as they are released"

    def lingering(self, view: View, missing: frozenset[TopicPartition], paths: GroupPaths) -> Iterator[str]:
        """Yield for each missing partition which unregistered consumer still owns it, in words."""
        for tp in sorted(missing):
            owner = self.owners.get(tp)
            if owner is not None and owner.consumer_id not in view.consumers:
                who = (
                    f"{owner.thread!r}, which is not registered (any more)"
                    if owner.thread
                    else "an owner node without a name"
                )
                yield (
                    f"{tp} falls to this member and is still owned by {who}: waiting until {paths.owner(tp)} "
                    f"goes with its session {owner.session_id:#x}"
                )

    def next_generation(self, view: View, held: frozenset[TopicPartition], current: int) -> int:
        """Return the generation of the view: a zxid, far beyond an int32, the same for all who have seen the same.

        A second assignment from one view has the zxid of its newest claim. Each generation is above the one before.
        """
        if view.generation > current:
            return view.generation
        return max(current + 1, *(self.owners[tp].czxid for tp in held), 0)


NOTED_MOST = 1000
"""Texts name nodes and sessions, of which new ones come for ever. When so many are remembered, all are forgotten, and
each that still holds is logged once more."""


class LoggedTexts:
    """Remembers texts, so that none is logged twice."""

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        self._texts: set[str] = set()

    def __len__(self) -> int:
        return len(self._texts)

    def is_new(self, text: str) -> bool:
        """Return whether this text was not logged yet, and remember it."""
        if text in self._texts:
            return False
        if len(self._texts) >= NOTED_MOST:
            self._texts.clear()
        self._texts.add(text)
        return True
