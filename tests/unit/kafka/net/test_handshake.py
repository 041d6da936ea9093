from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from streamgroup.errors import DecodeError, TransportError, UnsupportedVersionError
from streamgroup.kafka.net.connection import Connection
from streamgroup.kafka.net.handshake import RELEASE_MEMORY, RELEASES, REMEMBERED_S, ReleaseMemory
from streamgroup.kafka.net.poller import ConnectionReady, Poller, ResponseReceived
from streamgroup.kafka.net.protocol import Protocol
from streamgroup.kafka.wire.messages.admin import ListGroupsRequest, ListGroupsResponse
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest, MetadataRequest
from streamgroup.kafka.wire.messages.group import FindCoordinatorRequest, JoinGroupRequest
from streamgroup.kafka.wire.messages.log import FetchRequest, ListOffsetsRequest
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from streamgroup.kafka.wire.messages.produce import ProduceRequest
from tests.clock import Clock
from tests.fakes.answers import API_VERSIONS, METADATA
from tests.fakes.broker import CLOSE, SILENCE, FakeBroker, Held, InVersion, Raw
from tests.fakes.old_broker import old_broker
from tests.unit.kafka.net.conftest import Options, Start, collect, script
from tests.waiting import soon

NEWEST_FIRST = [release.name for release in RELEASES]


def connected(port: int, options: Options) -> Connection:
    connection = Connection("127.0.0.1", port, options())
    connection.connect(soon())
    return connection


def current(broker: Start, handshake: Callable[[Any, int], Any]) -> FakeBroker:
    """A broker of today, which answers ApiVersions so."""
    answers: dict[Any, Any] = {ListGroupsRequest: ListGroupsResponse(), MetadataRequest: METADATA}
    return broker({ApiVersionsRequest: handshake, **{api: script(answer) for api, answer in answers.items()}})


def metadata_of(connection: Connection) -> Any:
    return connection.call(MetadataRequest(topics=()), soon())


@pytest.mark.parametrize("name", NEWEST_FIRST)
def test_an_old_broker_is_recognised_by_the_newest_probe_that_it_answers(
    name: str, broker: Start, options: Options
) -> None:
    fake = old_broker(broker, name)
    connection = connected(fake.port, options)
    assert connection.versions.release == name
    assert metadata_of(connection).brokers == METADATA.brokers
    # ApiVersions, the probes up to the one that is answered, and the connection that is used.
    assert fake.connections == 1 + (NEWEST_FIRST.index(name) + 1) + 1


@pytest.mark.parametrize("name", NEWEST_FIRST)
def test_a_broker_that_was_recognised_is_not_asked_again(name: str, broker: Start, options: Options) -> None:
    fake = old_broker(broker, name)
    metadata_of(connected(fake.port, options))
    before, asked = fake.connections, len(fake.requests)
    for _ in range(3):
        metadata_of(connected(fake.port, options))
    assert fake.connections == before + 3
    assert [name for name, _, _ in fake.requests[asked:]] == ["Metadata"] * 3


def test_queued_requests_are_sent_once_on_the_last_connection_of_the_handshake(broker: Start, options: Options) -> None:
    fake = old_broker(broker, "0.8.2")
    poller = Poller(options())
    handle = poller.connect("127.0.0.1", fake.port)
    asked = [poller.send(handle, MetadataRequest(topics=())) for _ in range(2)]
    events: list[Any] = list(collect(poller, 3))
    poller.close()
    assert [type(event) for event in events] == [ConnectionReady, ResponseReceived, ResponseReceived]
    assert [event.correlation_id for event in events[1:]] == asked
    assert len(fake.asked("Metadata")) == 2


def test_a_broker_that_died_during_the_handshake_is_not_taken_for_an_old_one(broker: Start, options: Options) -> None:
    answers = [CLOSE]
    fake = current(broker, lambda *_: answers.pop() if answers else API_VERSIONS)
    connection = connected(fake.port, options)
    assert connection.versions.release == ""
    assert metadata_of(connection) == METADATA
    assert fake.connections == 2


def test_a_broker_that_goes_away_during_the_handshake_is_not_remembered(broker: Start, options: Options) -> None:
    fake: FakeBroker

    def die(request: Any, version: int) -> Any:
        fake.stop()
        return CLOSE

    fake = broker({ApiVersionsRequest: die})
    with pytest.raises(TransportError, match="Connection refused"):
        connected(fake.port, options)
    assert RELEASE_MEMORY.recall(f"127.0.0.1:{fake.port}") is None


def test_a_broker_that_closes_every_connection_is_an_error_and_not_remembered(broker: Start, options: Options) -> None:
    fake = broker({})
    for _ in range(2):
        with pytest.raises(TransportError) as caught:
            connected(fake.port, options)
    for part in ("ApiVersions v3, ListGroups v0", "Metadata v0", "Kafka 0.7", "zookeeper.connect", "TLS"):
        assert part in str(caught.value)
    assert fake.connections == 2 * (1 + len(RELEASES))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgroup.kafka.net.link.PROBE_AFTER_S", 0.1)


@pytest.fixture
def probed(impatient: None, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when the client has waited long enough for the first answer."""
    happened, wait_no_longer = threading.Event(), Protocol.on_handshake_timeout

    def probe(protocol: Protocol) -> None:
        wait_no_longer(protocol)
        happened.set()

    monkeypatch.setattr(Protocol, "on_handshake_timeout", probe)
    return happened


@pytest.mark.usefixtures("impatient")
def test_a_broker_of_0_9_0_is_silent_where_others_hang_up(broker: Start, options: Options) -> None:
    fake = old_broker(broker, "0.9")
    fake._by_key |= {ApiVersionsRequest.API_KEY: ApiVersionsRequest}
    fake.handlers |= {ApiVersionsRequest: lambda *_: SILENCE}
    assert connected(fake.port, options).versions.release == "0.9"
    assert [name for name, _, _ in fake.requests] == ["ApiVersions", "ListGroups"]
    assert fake.connections == 1
    metadata_of(connected(fake.port, options))
    assert [name for name, _, _ in fake.requests[2:]] == ["Metadata"]


def test_a_broker_that_is_slow_is_not_taken_for_an_old_one(
    broker: Start, options: Options, probed: threading.Event
) -> None:
    """It answers in order: ApiVersions late, and the probe behind it."""
    fake = current(broker, lambda *_: Held(API_VERSIONS, probed))
    connection = connected(fake.port, options)
    assert connection.versions.release == ""
    assert metadata_of(connection) == METADATA
    assert [name for name, _, _ in fake.requests] == ["ApiVersions", "ListGroups", "Metadata"]


def test_a_slow_broker_that_does_not_know_the_newest_handshake_is_asked_in_the_oldest(
    broker: Start, options: Options, probed: threading.Event
) -> None:
    fake = current(
        broker,
        lambda _, version: (
            Held(InVersion(replace(API_VERSIONS, error_code=35), 0), probed) if version else API_VERSIONS
        ),
    )
    connection = connected(fake.port, options)
    assert connection.versions.release == ""
    assert metadata_of(connection) == METADATA


@pytest.mark.usefixtures("impatient")
def test_a_broker_without_any_response_times_out_and_is_not_remembered(broker: Start, options: Options) -> None:
    clock = Clock()
    fake = broker({ApiVersionsRequest: clock.before(0.1, SILENCE), ListGroupsRequest: clock.before(0.4, SILENCE)})
    with pytest.raises(TransportError, match=r"within 0\.5 s .*pending: ApiVersions v3 .*ListGroups v0 .*Kafka 0\.7"):
        Connection("127.0.0.1", fake.port, options(connection_setup_timeout_ms=500), clock).connect(clock.now + 20)
    assert fake.connections == 1
    assert RELEASE_MEMORY.recall(f"127.0.0.1:{fake.port}") is None


def test_an_answer_to_a_probe_that_makes_no_sense_is_an_error(broker: Start, options: Options) -> None:
    fake = broker({ListGroupsRequest: lambda *_: Raw(struct.pack(">ii", 6, 1) + b"\0\0")})
    with pytest.raises(DecodeError, match=r"invalid response to ListGroups v0.*Kafka 0\.7"):
        connected(fake.port, options)
    assert RELEASE_MEMORY.recall(f"127.0.0.1:{fake.port}") is None


def test_an_upgraded_broker_is_probed_again_after_the_first_failed_connection(broker: Start, options: Options) -> None:
    fake = old_broker(broker, "0.9")
    connected(fake.port, options).close()
    fake._by_key |= {ApiVersionsRequest.API_KEY: ApiVersionsRequest}
    fake.handlers |= {
        ApiVersionsRequest: lambda *_: API_VERSIONS,
        MetadataRequest: lambda _, version: METADATA if version else CLOSE,  # v0 is gone, as in Kafka 4
    }
    with pytest.raises(TransportError, match="pending: Metadata v0"):
        metadata_of(connected(fake.port, options))
    connection = connected(fake.port, options)
    assert connection.versions.release == ""
    assert metadata_of(connection) == METADATA


def test_a_connection_that_is_closed_on_this_side_proves_nothing(broker: Start, options: Options) -> None:
    fake = old_broker(broker, "0.9")
    connected(fake.port, options).close()
    connected(fake.port, options).abort()
    assert RELEASE_MEMORY.recall(f"127.0.0.1:{fake.port}") is not None


BY_NAME = {release.name: release for release in RELEASES}


APIS = {
    api.NAME: api
    for api in (
        ProduceRequest,
        FetchRequest,
        OffsetCommitRequest,
        OffsetFetchRequest,
        FindCoordinatorRequest,
        JoinGroupRequest,
    )
}


@pytest.mark.parametrize(
    ("name", "newest"),
    [
        ("0.8.0", {"Produce": 0, "Fetch": 0}),
        ("0.8.1", {"Produce": 0, "Fetch": 0, "OffsetCommit": 0, "OffsetFetch": 0}),
        ("0.8.2", {"Produce": 0, "Fetch": 0, "OffsetCommit": 1, "OffsetFetch": 1, "FindCoordinator": 0}),
        ("0.9", {"Produce": 1, "Fetch": 1, "OffsetCommit": 2, "OffsetFetch": 1, "FindCoordinator": 0, "JoinGroup": 0}),
    ],
)
def test_each_release_has_its_api_versions(name: str, newest: dict[str, int]) -> None:
    versions = BY_NAME[name].versions("b:1")
    assert versions.highest(ListOffsetsRequest) == 0
    for word, api in APIS.items():
        if word in newest:
            assert versions.highest(api) == newest[word]
        else:
            with pytest.raises(UnsupportedVersionError, match=rf"broker b:1 \(Kafka {name}\) does not have it"):
                versions.highest(api)


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


def test_brokers_that_come_under_new_addresses_for_ever_are_not_remembered_for_ever() -> None:
    now = 0.0
    memory = ReleaseMemory(lambda: now)
    for number in range(100):
        memory.remember(f"b-{number}:1", BY_NAME["0.9"])
        now += REMEMBERED_S / 4
    assert len(memory._known) <= 4
