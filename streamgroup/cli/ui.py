"""`streamgroup ui`: a live page of the cluster and its groups."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import click

from streamgroup.cli._click import Duration, SectionedCommand, option, timeout_option
from streamgroup.cli._cluster import ClusterAddress, client_options, cluster_options
from streamgroup.cli._group_stores import GroupStore, opened_stores
from streamgroup.cli._group_tables import consumer_groups
from streamgroup.coordinator.control import channel
from streamgroup.coordinator.control.drains import recorded_failures
from streamgroup.errors import ConfigError, StreamGroupError, TransportError, UnsupportedVersionError
from streamgroup.model import EARLIEST, LATEST, ClusterSnapshot, GroupState, TopicPartition
from streamgroup.monitoring.page.history.batches import GroupReading, Reading
from streamgroup.options.secrets import Secret
from streamgroup.options.types import ClientOptions, Isolation
from streamgroup.text import counted

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9405
DEFAULT_INTERVAL_S = 5
DEFAULT_TIMEOUT_MS = 10_000
_PAGE = "The page"


@click.command(
    cls=SectionedCommand,
    short_help="Serve a live page of the cluster and its groups.",
    examples={
        "streamgroup ui -b localhost:9092": "a page on this machine",
        "streamgroup ui -b broker-1:9092 --host 0.0.0.0 --token env:STREAMGROUP_UI_TOKEN": "a page for other machines, "
        "which need the token",
    },
)
@option(
    _PAGE,
    "--host",
    default=DEFAULT_HOST,
    show_default=True,
    metavar="HOST",
    help="Address to listen at. Another one than loopback requires --token.",
)
@option(
    _PAGE,
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    metavar="PORT",
    help="Port to listen at; 0 is any free port.",
)
@option(
    _PAGE,
    "--token",
    metavar="TOKEN",
    help="Secret that browsers and programs must send. Other users of this machine can see it, unless it is "
    "env:NAME or file:PATH.",
)
@option(
    _PAGE,
    "--name",
    "names",
    multiple=True,
    metavar="HOST",
    help="Host name by which browsers may address the page; repeatable. Addresses, localhost and the name of this "
    "machine need none.",
)
@option(
    _PAGE,
    "--interval",
    type=Duration("s", 0.5, 3600),
    default=DEFAULT_INTERVAL_S,
    show_default=True,
    metavar="SECONDS",
    help="Time between two readings of the cluster.",
)
@option(
    "Groups", "--group", "groups", multiple=True, metavar="GROUP", help="Group to show; repeatable.  [default: all]"
)
@cluster_options
@timeout_option(DEFAULT_TIMEOUT_MS, "How long one reading of the cluster may take.")
def ui(
    *,
    where: ClusterAddress,
    host: str,
    port: int,
    token: str | None,
    names: tuple[str, ...],
    interval: float,
    groups: tuple[str, ...],
    timeout: int,
) -> None:
    """Serve a page that shows the cluster, its groups, their lag and who holds which partition, live.

    The page changes nothing. It has a history from the start of this command on, in memory. Members on this machine,
    of this user, also show their batches and events. Ctrl-C ends the command.
    """
    serve_page(where, host=host, port=port, token=token, names=names, groups=groups, interval=interval, timeout=timeout)


def serve_page(
    where: ClusterAddress,
    *,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    token: str | None = None,
    names: Sequence[str] = (),
    groups: Sequence[str] = (),
    interval: float = DEFAULT_INTERVAL_S,
    timeout: int = DEFAULT_TIMEOUT_MS,
) -> None:
    """Serve the page of the cluster until Ctrl-C, and print its address. Raises ConfigError without the extra `ui`."""
    try:
        from streamgroup.monitoring.page.access import Access  # noqa: PLC0415  (of the extra `ui`)
        from streamgroup.monitoring.page.server import serve  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            f"cannot serve the page: the package {error.name} is missing. Install it with: "
            "pip install 'streamgroup[ui]'"
        ) from None

    secret = None if token is None else Secret(token).reveal("--token")
    access = Access(host, secret, frozenset({*names, socket.gethostname(), socket.getfqdn()}))
    options = client_options(where, "streamgroup-ui", timeout)
    serve(
        PageDataReader(options, groups, timeout).opened,
        access,
        port=port,
        interval=interval,
        on_start=lambda url: click.echo(f"{url}  (Ctrl-C ends the page)"),
    )


MOST_GROUPS = 1_000
"""Groups that a reading describes. Further ones are left out, with a note."""
_COORDINATORS_EVERY = 12
"""Readings after which the group coordinators are looked up again: a broker may have failed."""
_LISTING_S = 2.0
"""How long a reading waits for a broker's list of groups."""
_GROUP_S, _GROUP_SHARE = 1.5, 0.25
"""The longest wait for one group, in seconds and as a share of the remaining time.

Other groups need time if it does not answer.
"""
_TRIES = 2
"""How many groups of one group coordinator a reading tries if they do not answer. A single group may have moved."""
_MOST_NAMED = 5
"""How many groups that were not read a note names."""
_READ, _UNTRIED = -1, 0
"""The result of the last reading of a group. A failed group has the number of that reading instead."""


@dataclass(slots=True)
class KnownGroups:
    """The results of earlier readings of the groups of one place. They outlive the connection."""

    results: dict[str, int] = field(default_factory=dict)
    """The groups that existed in the last reading, as far as known, with the result of their reading."""
    dead: set[str] = field(default_factory=set)
    """Chosen groups that did not exist when they were last read."""
    coordinators: dict[str, str] = field(default_factory=dict)
    readings: int = 0


@dataclass(slots=True)
class _Silence:
    """Groups of one group coordinator that were not read: `tried` of them failed, the first with `error`."""

    error: TransportError
    tried: int = 0
    names: list[str] = field(default_factory=list)


class GroupsReader:
    """Reads the groups of one store. `only`: these groups, or all if it is empty.

    A group is read until it no longer exists, even if the brokers do not list it: brokers before 0.10.1 list no group
    without members.
    """

    def __init__(self, store: GroupStore, only: Collection[str] = (), known: KnownGroups | None = None) -> None:
        self._store = store
        self._only = frozenset(only)
        self._known = known or KnownGroups()
        self._silent: dict[str, _Silence] = {}
        """By group coordinator; an empty name if it is not found."""
        self.notes: list[str] = []
        """Errors of the newest reading."""
        self.unread: set[str] = set()
        """The groups that exist, as far as known, and could not be read."""

    def read(self, deadline: float) -> list[GroupReading]:
        """Return the groups that could be read. Groups that the last reading could not read come last.

        Raises TransportError if the store is whole and does not answer, and UnsupportedVersionError if the brokers
        keep no groups.
        """
        known = self._known
        if known.readings % _COORDINATORS_EVERY == 0:
            known.coordinators.clear()
        known.readings += 1
        self.notes, self._silent = [], {}
        results: dict[str, int] = {}
        found: dict[str, GroupReading] = {}
        for name in self._in_order(self._names(deadline)):
            try:
                results[name] = self._read(name, deadline, found)
            except UnsupportedVersionError:
                raise
            except TransportError as error:
                if self._store.is_whole:
                    raise
                silence = self._silent.setdefault(known.coordinators.pop(name, ""), _Silence(error))
                silence.tried += 1
                silence.names.append(name)
                results[name] = known.readings
            except StreamGroupError as error:
                self.notes.append(str(error))
                if name in known.results:
                    results[name] = known.readings
        self.notes += [f"{_named(silence.names)} not read: {silence.error}" for silence in self._silent.values()]
        known.results = {name: result for name, result in results.items() if result != _READ or name in found}
        self.unread = known.results.keys() - found.keys() - known.dead
        return list(found.values())

    def _read(self, name: str, deadline: float, found: dict[str, GroupReading]) -> int:
        """Read one group into `found` if it exists, or skip it if its group coordinator does not answer.

        Return the result.
        """
        coordinators, dead = self._known.coordinators, self._known.dead
        until = _soon(deadline)
        if name not in coordinators and not self._is_silent(""):
            coordinators[name] = self._store.coordinator(name, until)
        where = coordinators.get(name, "")
        if self._is_silent(where):
            self._silent[where].names.append(name)
            return max(_UNTRIED, self._known.results.get(name, _UNTRIED))
        description = self._store.describe([name], until)[name]
        if description.state == GroupState.DEAD:
            dead |= self._only & {name}
            return _READ
        dead.discard(name)
        committed = {tp: commit.offset for tp, commit in self._store.committed(name, until).items()}
        found[name] = GroupReading(description, committed, where)
        return _READ

    def _is_silent(self, coordinator: str) -> bool:
        return coordinator in self._silent and self._silent[coordinator].tried >= _TRIES

    def _in_order(self, names: Collection[str]) -> list[str]:
        """Return the groups that were read, then those not tried, then those that failed, the oldest failure first.

        So the many groups of a silent group coordinator are tried in turn.
        """
        return sorted(names, key=lambda name: self._known.results.get(name, _READ))

    def _names(self, deadline: float) -> list[str]:
        """Return the groups to read. Known groups come first, because the page keeps their history."""
        listed: Mapping[str, object] = {}
        try:
            groups = self._store.list_groups_once(min(deadline, time.monotonic() + _LISTING_S))
            listed = dict.fromkeys(group.group_id for group in consumer_groups(groups.values()))
        except UnsupportedVersionError:
            raise
        except StreamGroupError as error:
            if self._store.is_whole:
                raise
            self.notes.append(f"there may be further groups: {error}")
        if self._only:
            return sorted(self._only)
        names = list(dict.fromkeys([*sorted(self._known.results), *listed]))
        if len(names) > MOST_GROUPS:
            self.notes.append(f"{len(names)} groups exist: the page has the first {MOST_GROUPS}. Choose with --group")
        return names[:MOST_GROUPS]


def _soon(deadline: float) -> float:
    """Return the time by which one group must have been read."""
    now = time.monotonic()
    return now + min(_GROUP_S, (deadline - now) * _GROUP_SHARE)


def _named(names: list[str]) -> str:
    more = ", ..." if len(names) > _MOST_NAMED else ""
    return f"{counted(len(names), 'group')} ({', '.join(sorted(names)[:_MOST_NAMED])}{more})"


MOST_PARTITIONS = 20_000
"""Partitions whose log starts and ends a reading lists. Those of groups come first."""
_LOGS_S, _LOGS = 3.0, 0.4
"""The time reserved for the logs, in seconds and as a share of all. The log ends get two thirds of it."""
_STATUSES_S, _STATUSES = 1.5, 0.2
"""The time reserved for the coordinator processes of this machine."""
_STATUS_S = 1.0
"""How long a reading waits for one of them."""


class PageDataReader:
    """Connects for the readings of a page. `names`: these groups only. A reading takes `timeout_ms` at most."""

    def __init__(self, options: ClientOptions, names: Sequence[str], timeout_ms: int) -> None:
        self._options = options
        self._names = names
        self._timeout_s = timeout_ms / 1000
        self._known: dict[type, KnownGroups] = {}

    @contextmanager
    def opened(self) -> Iterator[Callable[[], Reading]]:
        """Connect, and yield a function that reads the cluster once."""
        with opened_stores(self._options) as stores:
            reader = ClusterReader(stores, self._names, self._known)
            yield lambda: reader.read(time.time(), time.monotonic() + self._timeout_s)


class ClusterReader:
    """Reads the cluster, and the groups of each store. The first store provides brokers, topics and logs.

    `known` has the results of readings over earlier connections, by the type of the store.
    """

    def __init__(
        self, stores: Sequence[GroupStore], names: Sequence[str] = (), known: dict[type, KnownGroups] | None = None
    ) -> None:
        self._stores = stores
        found = {} if known is None else known
        self._readers = [GroupsReader(each, names, found.setdefault(type(each), KnownGroups())) for each in stores]
        self._notes: list[str] = []

    def read(self, at: float, deadline: float) -> Reading:
        """Return one reading. Raises StreamGroupError if the cluster cannot be reached.

        The result lacks a group or a log that cannot be read, and a note says why.
        """
        self._notes = []
        for store in self._stores:
            del store.notes[:]
        snapshot = self._stores[0].snapshot(deadline)
        # Each part has its own time. The ends follow the commits, since a lag needs both.
        left = deadline - time.monotonic()
        logs_until = deadline - min(_STATUSES_S, left * _STATUSES)
        groups, unread = self._groups(logs_until - min(_LOGS_S, left * _LOGS))
        starts, ends, stable = self._logs(snapshot, groups, logs_until)
        statuses = [
            status for pid in channel.drivers() for status in channel.statuses(pid, _STATUS_S, deadline).values()
        ]
        notes = self._notes + [note for reader in self._readers for note in reader.notes]
        notes += [note for store in self._stores for note in store.notes]
        return Reading(
            at,
            snapshot,
            groups,
            starts,
            ends,
            tuple(statuses),
            tuple(dict.fromkeys(notes)),
            tuple(recorded_failures()),
            unread,
            stable,
        )

    def _groups(self, deadline: float) -> tuple[tuple[GroupReading, ...], frozenset[str]]:
        """Return the groups of all stores, and those that were not read.

        Of two with one name the one with members counts, or else the first. One without members does not count while
        that of another store is not read: it may be what a migration has left.
        """
        found: dict[str, GroupReading] = {}
        for reader in self._readers:
            try:
                groups = reader.read(deadline)
            except UnsupportedVersionError:
                if len(self._readers) == 1:
                    raise
                continue  # brokers before 0.9 store no groups
            for group in groups:
                known = found.get(group.name)
                if known is None or (group.description.members and not known.description.members):
                    found[group.name] = group
        missed = {name for reader in self._readers for name in reader.unread}
        unread = frozenset(name for name in missed if name not in found or not found[name].description.members)
        return tuple(group for group in found.values() if group.name not in unread), unread

    def _logs(
        self, snapshot: ClusterSnapshot, groups: Sequence[GroupReading], deadline: float
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return the starts, the ends and the last stable offsets of the logs that have a leader."""
        of_groups = [tp for group in groups for tp in group.partitions()]
        others = [
            TopicPartition(topic.name, info.partition)
            for topic in snapshot.topics.values()
            if not topic.internal
            for info in topic.partitions
        ]
        wanted = [tp for tp in dict.fromkeys([*of_groups, *others]) if snapshot.leader(tp) is not None]
        if len(wanted) > MOST_PARTITIONS:
            self._notes.append(f"{len(wanted)} partitions exist: the page has the offsets of {MOST_PARTITIONS}")
            wanted = wanted[:MOST_PARTITIONS]
        begun = time.monotonic()
        left = min(_LOGS_S, deadline - begun)
        ends = self._offsets_at(LATEST, wanted, begun + left * 2 / 3)
        starts = self._offsets_at(EARLIEST, wanted, begun + left * 5 / 6)
        # After the ends: a transaction that has ended in between does not seem to hold up its partition.
        stable = self._offsets_at(LATEST, ends, begun + left, Isolation.READ_COMMITTED) if ends else {}
        return starts, ends, stable

    def _offsets_at(
        self,
        at: int,
        wanted: Collection[TopicPartition],
        deadline: float,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, int]:
        """Return the offsets of the logs whose leaders answer in time; empty if the user may not describe a log."""
        try:
            return self._stores[0].offsets_once(dict.fromkeys(wanted, at), deadline, isolation)
        except StreamGroupError as error:
            self._notes.append(f"cannot read the offsets of the logs: {error}")
            return {}
