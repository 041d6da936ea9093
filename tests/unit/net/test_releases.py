from __future__ import annotations

import itertools

import pytest

from streamgroup.errors import UnsupportedVersionError
from streamgroup.net.releases import RELEASES, REMEMBERED_S, ReleaseMemory
from streamgroup.wire.messages.coordinator import FindCoordinatorRequest
from streamgroup.wire.messages.group import JoinGroupRequest
from streamgroup.wire.messages.log import FetchRequest, ListOffsetsRequest
from streamgroup.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from streamgroup.wire.messages.produce import ProduceRequest

BY_NAME = {release.name: release for release in RELEASES}


_APIS = {
    "produce": ProduceRequest,
    "fetch": FetchRequest,
    "commit": OffsetCommitRequest,
    "fetch_offsets": OffsetFetchRequest,
    "coordinator": FindCoordinatorRequest,
    "join": JoinGroupRequest,
}


@pytest.mark.parametrize(
    ("name", "newest"),
    [
        ("0.8.0", {"produce": 0, "fetch": 0}),
        ("0.8.1", {"produce": 0, "fetch": 0, "commit": 0, "fetch_offsets": 0}),
        ("0.8.2", {"produce": 0, "fetch": 0, "commit": 1, "fetch_offsets": 1, "coordinator": 0}),
        ("0.9", {"produce": 1, "fetch": 1, "commit": 2, "fetch_offsets": 1, "coordinator": 0, "join": 0}),
    ],
)
def test_each_release_has_its_api_versions(name: str, newest: dict[str, int]) -> None:
    versions = BY_NAME[name].versions("b:1")
    assert versions.highest(ListOffsetsRequest) == 0
    for word, api in _APIS.items():
        if word in newest:
            assert versions.highest(api) == newest[word]
        else:
            with pytest.raises(UnsupportedVersionError, match=rf"broker b:1 \(Kafka {name}\) does not have it"):
                versions.highest(api)


def test_each_probe_is_known_to_its_release_and_to_none_before_it() -> None:
    for newer, older in itertools.pairwise(RELEASES):
        assert newer.probe in newer.newest
        assert newer.probe not in older.newest
        assert newer.newest.keys() > older.newest.keys()


def test_a_remembered_release_expires() -> None:
    now = 0.0
    memory = ReleaseMemory(lambda: now)
    memory.remember("b:1", BY_NAME["0.9"])
    now = REMEMBERED_S - 1
    assert memory.recall("b:1") is BY_NAME["0.9"]
    assert memory.recall("b:2") is None
    now = REMEMBERED_S
    assert memory.recall("b:1") is None


def test_a_process_learns_the_releases_of_another_but_keeps_its_own() -> None:
    driver, task = ReleaseMemory(lambda: 0.0), ReleaseMemory(lambda: 0.0)
    driver.remember("b:1", BY_NAME["0.9"])
    driver.remember("b:2", BY_NAME["0.8.2"])
    task.remember("b:2", BY_NAME["0.9"])
    told = driver.known_releases(["b:2", "b:1", "b:3", "b:1"])
    assert told == (("b:1", "0.9"), ("b:2", "0.8.2"))
    task.learn((*told, ("b:3", "of the future")))
    assert [task.recall(peer) for peer in ("b:1", "b:2", "b:3")] == [BY_NAME["0.9"], BY_NAME["0.9"], None]


def test_a_forgotten_release_is_not_recalled() -> None:
    memory = ReleaseMemory(lambda: 0.0)
    memory.remember("b:1", BY_NAME["0.8.0"])
    memory.forget("b:1")
    memory.forget("b:1")
    assert memory.recall("b:1") is None


def test_brokers_that_come_under_new_addresses_for_ever_are_not_remembered_for_ever() -> None:
    now = 0.0
    memory = ReleaseMemory(lambda: now)
    for number in range(100):
        memory.remember(f"b-{number}:1", BY_NAME["0.9"])
        now += REMEMBERED_S / 4
    assert len(memory._known) <= 4
