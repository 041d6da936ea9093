"""Many brokers asked at once: scripted brokers on real sockets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from streamgroup.errors import TransportError, UnsupportedVersionError
from streamgroup.kafka.cluster.fanout import BrokerFanout, Pending, Unsent
from streamgroup.kafka.net.poller import Event, ResponseReceived
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest, MetadataRequest, MetadataResponse
from streamgroup.options.types import ClientOptions
from tests.clock import Clock
from tests.fakes.answers import API_VERSIONS, api_versions, metadata
from tests.fakes.broker import CLOSE, SILENCE, FakeBroker, Held
from tests.waiting import TIMEOUT_S, wait_until

Start = Callable[..., FakeBroker]
Options = Callable[..., ClientOptions]
ASKED = MetadataRequest(topics=())
OTHER = MetadataRequest(topics=None)
SOON = Clock().now + 20
"""A deadline that no call reaches while the clock stands still."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fanout(options: Options, clock: Clock) -> Iterator[BrokerFanout]:
    """Waits for real sockets, on a clock that stands still."""
    made = BrokerFanout(options(request_timeout_ms=2_000), clock)
    yield made
    made.close()


@pytest.fixture
def answering(broker: Start) -> Callable[..., FakeBroker]:
    """A broker whose answers to Metadata are these, one after the other, the last for ever."""

    def start(*answers: Any) -> FakeBroker:
        left = list(answers)
        return broker(
            {
                ApiVersionsRequest: lambda *_: API_VERSIONS,
                MetadataRequest: lambda *_: left.pop(0) if len(left) > 1 else left[0],
            }
        )

    return start


def address(of: FakeBroker) -> tuple[str, int]:
    return "127.0.0.1", of.port


def ask(fanout: BrokerFanout, *brokers: FakeBroker, request: MetadataRequest = ASKED, **others: Any) -> list[Any]:
    """The answer of each broker, in their order."""
    return list(fanout.call_each({address(each): request for each in brokers}, SOON, **others).values())


NEWS = [metadata({n: 1}) for n in range(1, 5)]


def said(answers: list[Any]) -> list[int]:
    return [answer.brokers[0].node_id for answer in answers]


def test_all_are_asked_at_once_and_connections_are_kept(fanout: BrokerFanout, broker: Start) -> None:
    all_are_asked = threading.Barrier(3)

    def answer_when_all_are_asked(answer: MetadataResponse) -> MetadataResponse:
        all_are_asked.wait(TIMEOUT_S)
        return answer

    brokers = [
        broker(
            {
                ApiVersionsRequest: lambda *_: API_VERSIONS,
                MetadataRequest: lambda *_, answer=answer: answer_when_all_are_asked(answer),
            }
        )
        for answer in NEWS[:3]
    ]
    assert said(ask(fanout, *brokers)) == [1, 2, 3]
    assert said(ask(fanout, *brokers)) == [1, 2, 3]
    assert [each.connections for each in brokers] == [1, 1, 1]


def test_a_late_broker_delays_no_other_and_its_response_is_taken_by_the_next_call(
    fanout: BrokerFanout, clock: Clock, answering: Callable[..., FakeBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    slow, quick = answering(Held(NEWS[0], released), NEWS[1]), answering(NEWS[2])
    ask(fanout, quick)
    wait = fanout._poller.wait

    def wait_and_let_time_pass(timeout: float) -> list[Event]:
        """The timeout is over when the quick broker has answered, however long that really takes."""
        events = wait(timeout)
        clock.now += 0.5 * any(isinstance(event, ResponseReceived) for event in events)
        return events

    with monkeypatch.context() as patched:
        patched.setattr(fanout._poller, "wait", wait_and_let_time_pass)
        late, prompt = ask(fanout, slow, quick, timeout=0.5)
    assert isinstance(late, Pending)
    assert f"no response yet from broker 127.0.0.1:{slow.port} to Metadata after 0.5 s" in str(late)
    assert said([prompt]) == [3]
    released.set()
    assert said(ask(fanout, slow, quick)) == [1, 3]
    assert len(slow.asked("Metadata")) == 1  # not again what is on its way
    assert said(ask(fanout, slow)) == [2]  # and an answer counts once


def leave_pending(fanout: BrokerFanout, broker: FakeBroker) -> None:
    """Return when the broker has read a request whose response no call has."""

    def has_read() -> bool:
        (answer,) = ask(fanout, broker, timeout=0.0)
        assert isinstance(answer, Pending)
        return bool(broker.asked("Metadata"))

    wait_until(has_read, "the request", every=0.001)


def test_a_late_response_is_not_taken_for_that_of_another_request(
    fanout: BrokerFanout, answering: Callable[..., FakeBroker]
) -> None:
    released = threading.Event()
    slow = answering(Held(NEWS[0], released), NEWS[1])
    leave_pending(fanout, slow)
    released.set()
    assert said(ask(fanout, slow, request=OTHER)) == [2]
    assert said(ask(fanout, slow)) == [1]


def test_a_late_answer_of_another_era_is_not_taken(fanout: BrokerFanout, answering: Callable[..., FakeBroker]) -> None:
    released = threading.Event()
    slow = answering(Held(NEWS[0], released), NEWS[1], NEWS[2])
    leave_pending(fanout, slow)
    released.set()
    assert said(ask(fanout, slow, epoch=1)) == [2]
    assert said(ask(fanout, slow, epoch=1)) == [3]


def test_a_broker_that_never_answers_is_reset_at_its_deadline_and_called_on_a_new_connection(
    fanout: BrokerFanout, clock: Clock, answering: Callable[..., FakeBroker]
) -> None:
    silent = answering(SILENCE, NEWS[0])
    leave_pending(fanout, silent)
    clock.now += 1.999
    assert isinstance(ask(fanout, silent, timeout=0.0)[0], Pending)
    clock.now += 0.001
    (error,) = ask(fanout, silent)
    assert f"no response from broker 127.0.0.1:{silent.port} to Metadata in time" in str(error)
    assert not isinstance(error, Pending)
    assert said(ask(fanout, silent)) == [1]
    assert silent.connections == 2


def test_connections_that_fail_concern_their_brokers_alone(
    fanout: BrokerFanout, answering: Callable[..., FakeBroker], broker: Start
) -> None:
    closing, fine, gone = answering(CLOSE), answering(NEWS[0]), broker({})
    gone.stop()
    refused, cut, answer = ask(fanout, gone, closing, fine)
    assert isinstance(refused, TransportError)
    assert "refused" in str(refused)
    assert "closed the connection" in str(cut)
    assert said([answer]) == [1]


def test_an_idle_connection_that_has_ended_is_made_again(
    fanout: BrokerFanout, answering: Callable[..., FakeBroker]
) -> None:
    fake = answering(NEWS[0])
    assert said(ask(fanout, fake)) == [1]
    fake.hang_up()
    fake.wait_for(lambda broker: broker.ends == 1)
    assert said(ask(fanout, fake)) == [1]
    assert fake.connections == 2


def test_errors_that_no_reconnect_resolves_are_raised(fanout: BrokerFanout, broker: Start) -> None:
    other = broker({ApiVersionsRequest: lambda *_: api_versions(apiversions=(0, 3))})
    for _ in range(2):
        with pytest.raises(UnsupportedVersionError, match="Metadata"):
            ask(fanout, other)


def test_a_call_without_requests_returns_at_once(fanout: BrokerFanout) -> None:
    assert fanout.call_each({}, SOON) == {}


# -- several requests at one broker -----------------------------------------------------------------------------------


def test_one_broker_may_be_asked_many_things(fanout: BrokerFanout, answering: Callable[..., FakeBroker]) -> None:
    one, two = answering(metadata({})), answering(metadata({}))
    requests = [(address(one), ASKED), (address(one), OTHER), (address(two), ASKED)]
    found = fanout.call_all(requests, SOON)
    assert list(found) == requests
    assert not any(isinstance(answer, Exception) for answer in found.values())
    assert len(one.asked("Metadata")) == 2


def test_the_first_pending_request_is_blamed_for_a_closed_connection(
    fanout: BrokerFanout, answering: Callable[..., FakeBroker]
) -> None:
    """The broker did not read the request behind it, which may be sent again."""
    third = MetadataRequest(topics=(), allow_auto_topic_creation=False)
    one = answering(metadata({}), CLOSE)
    first, blamed, behind = fanout.call_all([(address(one), each) for each in (ASKED, OTHER, third)], SOON).values()
    assert not isinstance(first, Exception), "what was answered before counts"
    assert isinstance(blamed, TransportError)
    assert not isinstance(blamed, Unsent)
    assert isinstance(behind, Unsent)


def test_an_unreachable_broker_fails_all_its_requests_alike(fanout: BrokerFanout) -> None:
    found = fanout.call_all([(("127.0.0.1", 1), ASKED), (("127.0.0.1", 1), OTHER)], SOON)
    assert all(isinstance(each, TransportError) and not isinstance(each, Unsent) for each in found.values())


def test_a_connection_to_a_former_broker_is_closed(fanout: BrokerFanout, answering: Callable[..., FakeBroker]) -> None:
    stays, goes = answering(*NEWS), answering(*NEWS)
    ask(fanout, stays, goes)
    fanout.keep([address(stays)])
    assert list(fanout._links) == [address(stays)]
    assert said(ask(fanout, goes, stays)) == [2, 2], "it is asked anew, should it come back"


def test_a_connection_that_was_idle_for_too_long_is_not_used(
    fanout: BrokerFanout, clock: Clock, answering: Callable[..., FakeBroker], options: Options
) -> None:
    fake = answering(*NEWS)
    assert said(ask(fanout, fake)) == [1]
    clock.now += options().max_idle_s + 1
    found = fanout.call_each({address(fake): ASKED}, clock.now + 20)
    assert said(list(found.values())) == [2]
    assert fake.connections == 2


def test_a_throttled_broker_is_waited_for_and_its_requests_are_not_overdue(
    fanout: BrokerFanout, clock: Clock, answering: Callable[..., FakeBroker]
) -> None:
    fake = answering(replace(NEWS[0], throttle_time_ms=60_000), *NEWS[1:])
    request = {address(fake): ASKED}
    assert said(list(fanout.call_each(request, clock.now + 20).values())) == [1]
    for left in (60.0, 30.0):
        (answer,) = fanout.call_each(request, clock.now + 20, timeout=0.0).values()
        assert isinstance(answer, Pending)
        assert f"The broker throttles this client, for another {left:.1f} s" in str(answer)
        clock.now += 30.0
    assert said(list(fanout.call_each(request, clock.now + 20).values())) == [2]
    assert (fake.connections, len(fake.asked("Metadata"))) == (1, 2)
