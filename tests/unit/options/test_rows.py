"""One row of an option table: in which reads and writes an option takes effect, and why it does not in another."""

from __future__ import annotations

from dataclasses import MISSING

import pytest

from streamgroup.options.kinds import BOOLEAN, POSITIVE, TEXT
from streamgroup.options.rows import SCOPE_OF_MODE, Effect, Option, Scope, default_of
from streamgroup.options.types import GroupMode, Isolation

READS = (Scope.BATCH, Scope.MEMBER, Scope.COMMIT, Scope.OFF)


@pytest.mark.parametrize(
    ("scope", "used_in"),
    [
        (Scope.NONE, ()),
        (Scope.BATCH, (Scope.BATCH,)),
        (Scope.GROUP, (Scope.MEMBER, Scope.COMMIT)),
        (Scope.STREAM, (Scope.MEMBER, Scope.COMMIT, Scope.OFF)),
        (Scope.ALL, READS),
        (Scope.WRITE, (Scope.WRITE,)),
    ],
)
def test_an_option_takes_effect_in_its_scope_and_nowhere_else(scope: Scope, used_in: tuple[Scope, ...]) -> None:
    row = Option("x", scope=scope, elsewhere=Effect.REFUSED)
    for each in (*READS, Scope.WRITE):
        assert row.effect(each) is (Effect.USED if each in used_in else Effect.REFUSED)


def test_an_option_of_one_mode_takes_effect_in_a_stream_whose_mode_is_not_known_yet() -> None:
    assert Option("x", scope=Scope.COMMIT).effect(Scope.STREAM) is Effect.USED
    assert Option("x", scope=Scope.BATCH).effect(Scope.STREAM) is Effect.IGNORED


def test_each_mode_of_a_group_has_the_scope_of_its_name_within_the_streams() -> None:
    assert {mode.name: scope.name for mode, scope in SCOPE_OF_MODE.items()} == {
        mode.name: mode.name for mode in GroupMode
    }
    assert all(scope in Scope.STREAM for scope in SCOPE_OF_MODE.values())


@pytest.mark.parametrize(
    ("scope", "reason"),
    [
        (Scope.BATCH, "a batch read never joins a group and commits nothing"),
        (Scope.COMMIT, "with group.mode=commit the query is not a member of its group"),
        (Scope.OFF, "with group.mode=off the query has no group"),
        (Scope.MEMBER, ""),
    ],
)
def test_the_scope_gives_the_reason_of_an_ignored_option_that_has_none(scope: Scope, reason: str) -> None:
    assert Option("x", scope=Scope.NONE).reason(scope) == reason
    assert Option("x", scope=Scope.NONE, why="its own").reason(scope) == "its own"


def test_an_option_has_another_kind_of_value_in_a_batch_read_where_the_row_has_one() -> None:
    row = Option("x", kind=POSITIVE, batch_kind=BOOLEAN)
    assert row.kind_in(Scope.BATCH) is BOOLEAN
    assert {row.kind_in(scope) for scope in (Scope.MEMBER, Scope.COMMIT, Scope.OFF, Scope.WRITE)} == {POSITIVE}
    assert Option("x").kind_in(Scope.BATCH) is TEXT


@pytest.mark.parametrize(
    ("target", "default"),
    [
        ("fetch.min_bytes", 1),
        ("fetch.isolation", Isolation.READ_UNCOMMITTED),
        ("group.instance_id", None),
        ("zookeeper.chroot", ""),
        ("producer.acks", -1),
        ("client.bootstrap_servers", MISSING),
        ("", MISSING),
    ],
)
def test_the_default_of_an_option_is_that_of_its_field(target: str, default: object) -> None:
    assert default_of(Option("x", target=target)) == default
