"""`@frozen` makes what `@dataclass(frozen=True, slots=True)` would, but for the check of assignments at run time."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, field, replace

import pytest

from streamgroup.frozen import frozen


@frozen
class Place:
    topic: str
    offset: int = 0
    secret: str = field(default="", repr=False)
    seen: list[int] = field(default_factory=list, compare=False)


@frozen
class Named(Place):
    name: str = "n"


@frozen
class Empty:
    pass


@frozen
class Quiet:
    text: str

    def __repr__(self) -> str:
        return "quiet"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quiet) and self.text.lower() == other.text.lower()

    def __hash__(self) -> int:
        return 3


@dataclass(frozen=True, slots=True)
class Standard:
    topic: str
    offset: int = 0


def test_values_are_equal_if_their_classes_and_compared_fields_are() -> None:
    assert Place("t", 1, seen=[1]) == Place("t", 1, seen=[2])
    assert hash(Place("t", 1, seen=[1])) == hash(Place("t", 1, seen=[2]))
    assert Place("t", 1) != Place("t", 2)
    assert Place("t", 1) != Place("t", 1, "other")
    assert Place("t") != Named("t")
    assert Named("t", name="a") != Named("t", name="b")
    assert Place("t") != ("t", 0, "")
    assert Empty() == Empty() != Place("t")
    assert len({Empty(), Empty(), Place("t"), Place("t"), Named("t")}) == 3


def test_they_are_shown_as_dataclasses_show_them_without_the_fields_that_are_hidden() -> None:
    assert repr(Place("t", 1, "s")) == "Place(topic='t', offset=1, seen=[])"
    assert repr(Named("t")) == "Named(topic='t', offset=0, seen=[], name='n')"
    assert repr(Empty()) == "Empty()"
    assert repr(Standard("t", 1)) == "Standard(topic='t', offset=1)"


def test_a_class_keeps_the_methods_of_its_own() -> None:
    assert repr(Quiet("a")) == "quiet"
    assert Quiet("a") == Quiet("A")
    assert hash(Quiet("a")) == 3


def test_they_are_copied_replaced_matched_and_pickled() -> None:
    place = Place("t", 1, "s", [3])
    assert replace(place, offset=2) == Place("t", 2, "s")
    for other in (copy.copy(place), copy.deepcopy(place), pickle.loads(pickle.dumps(place))):
        assert (other, other.seen) == (place, [3])
    match place:
        case Place(topic, offset):
            assert (topic, offset) == ("t", 1)


def test_they_have_slots() -> None:
    with pytest.raises(AttributeError):
        Place("t").other = 1  # type: ignore[attr-defined]
    assert not hasattr(Place("t"), "__dict__")
