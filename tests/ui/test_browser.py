"""The page in a real Chromium. Without one on the PATH these tests fail."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, Producer

from streamgroup.cli._cluster import ClusterAddress
from streamgroup.model import GroupDescription, MemberDescription
from streamgroup.monitoring.page.access import Access
from streamgroup.monitoring.page.history.batches import GroupReading
from streamgroup.monitoring.page.server import Board
from streamgroup.testing import KafkaServer
from streamgroup.testing.kafka07 import Kafka07Server, Producer07
from tests.browser import Browser
from tests.conftest import MakeTopic
from tests.fault.harness import Stream
from tests.old_kafka import librdkafka
from tests.peers.consumer07 import Config, Consumer07
from tests.ui import world
from tests.ui.served import served, shown
from tests.unit.monitoring.page.readings import group, partitions, reading, status
from tests.waiting import repeatedly, wait_until

pytestmark = pytest.mark.long

P = partitions(4)
ROWS = "[...document.querySelectorAll('tbody tr')].map(row => row.innerText)"


@pytest.fixture(scope="module")
def started() -> Iterator[Browser]:
    with Browser() as browser:
        browser.show(1366, 850)
        yield browser


@pytest.fixture
def page(started: Browser) -> Iterator[Browser]:
    started.show(1366, 850)
    yield started
    assert started.console == []


def filled(simulated: world.SimulatedCluster) -> Board:
    board = Board()
    for one in simulated.readings():
        board.add(one)
    return board


@pytest.mark.live
def test_the_page_follows_a_rebalance_of_a_real_group(
    page: Browser, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka4, 4)
    name = f"g-{topic}"
    settings = {**librdkafka(kafka4), "group.id": name, "session.timeout.ms": 6000, "auto.offset.reset": "earliest"}
    with ExitStack() as stack:
        producer = Producer(librdkafka(kafka4))
        for number in range(40):
            producer.produce(topic, b"value", partition=number % 4)
        assert producer.flush(30) == 0
        first = stack.enter_context(closing(Consumer({**settings, "client.id": "first"})))
        first.subscribe([topic])
        stack.enter_context(repeatedly(lambda: first.poll(0.05), 0.05))
        stack.enter_context(shown(page, ClusterAddress(kafka4.bootstrap_servers), name))
        held = "[...document.querySelectorAll('.tall tbody tr')].map(row => row.lastChild.innerText.split(' ')[0])"
        page.wait_for(f"{held}.join() === 'first,first,first,first'", 40)
        second = stack.enter_context(closing(Consumer({**settings, "client.id": "second"})))
        second.subscribe([topic])
        stack.enter_context(repeatedly(lambda: second.poll(0.05), 0.05))
        page.wait_for(f"{held}.sort().join() === 'first,first,second,second'", 40)
        events = page.evaluate("document.querySelector('.events').innerText")
        assert "second joined" in events
        assert "rebalance" in events


@pytest.mark.live
def test_the_page_follows_a_rebalance_of_a_group_in_zookeeper(page: Browser) -> None:
    """A member of streamgroup and a consumer of 0.7: who holds what, names and units."""
    name, topic = "drain", "events"
    with ExitStack() as stack:
        kafka = stack.enter_context(Kafka07Server(brokers=2, config={"num.partitions": 2}))
        with Producer07(zookeeper=kafka.zookeeper_connect) as producer:
            for broker, partition in itertools.product((0, 1), (0, 1)):
                producer.produce(topic, [b"value"] * 10, broker=broker, partition=partition)
        query = Stream(
            "ours",
            {
                "zookeeper.connect": kafka.zookeeper_connect,
                "kafka.group.id": name,
                "subscribe": topic,
                "startingOffsets": "earliest",
            },
        )
        stack.enter_context(query)
        stack.enter_context(shown(page, ClusterAddress(None, kafka.zookeeper_connect), name))
        rows = "[...document.querySelectorAll('.tall tbody tr')].map(row => [...row.cells].map(cell => cell.innerText))"
        page.wait_for(f"{rows}.filter(row => !row[row.length - 1].includes('old07')).length === 4", 40)
        config = Config(kafka.zookeeper_connect, name, topics={topic: 1}, consumerid="old07", rebalance_backoff_ms=300)
        old = Consumer07(config, lambda *_: None)
        old.start()
        stack.callback(old.shutdown)
        page.wait_for(f"{rows}.filter(row => row[row.length - 1].includes('old07')).length === 2", 40)
        events = page.evaluate("document.querySelector('.events').innerText")
        assert "drain_old07 joined" in events
        assert "rebalance" in events
        legends = page.evaluate("[...document.querySelectorAll('.u-label')].map(label => label.innerText)")
        assert "events-1-1" in legends
        assert "bytes" in page.evaluate("document.querySelector('.tiles').innerText")


def test_a_group_that_does_not_exist_yet_is_shown_when_it_does(started: Browser) -> None:
    board = Board()
    board.add(reading(time.time(), group("other")))
    with served(board, interval=0.5) as url:
        started.show(1366, 850)
        started.open(f"{url}/#/group/etl")
        started.wait_for("document.querySelector('.empty')?.innerText.includes('No group etl')")
        board.add(reading(time.time(), group(committed=dict.fromkeys(P, 1)), ends=dict.fromkeys(P, 5)))
        started.wait_for("document.querySelectorAll('.tall tbody tr').length === 4")


@pytest.mark.parametrize("kind", ["owners", "heat"])
def test_lanes_of_no_partition_are_drawn_without_an_error(page: Browser, kind: str) -> None:
    """A group of ZooKeeper has readings, and no partition before its first owner."""
    data = {"partitions": [], "times": [1, 2], "heat": [], "spans": [], "marks": [], "mostLag": 0}
    with served(filled(world.one(time.time()))) as url:
        page.open(f"{url}/#/cluster")
        page.evaluate(
            f"import('/assets/lanes.js').then(({{ Lanes }}) => {{ const lanes = new Lanes('{kind}', 'none'); "
            f"document.body.append(lanes.node); lanes.update({json.dumps(data)}); window.drawn = true; }})"
        )
        page.wait_for("window.drawn === true")
        page.open("about:blank")  # a server that ends is an error in the console of an open page


def test_a_pause_is_marked_and_its_end_too(started: Browser) -> None:
    board = Board()

    def read(paused: list[str]) -> None:
        east = status("a", name="east", positions=dict.fromkeys(map(str, P), 1), paused=paused)
        board.add(reading(time.time(), group(committed=dict.fromkeys(P, 1)), statuses=[east]))

    read(["orders-1"])
    with served(board, interval=0.5) as url:
        started.show(1366, 850)
        started.open(f"{url}/#/group/etl")
        marked = "[...document.querySelectorAll('.tall tbody .badge.warn')].map(one => one.closest('tr').innerText)"
        started.wait_for(f"{marked}.length === 1 && {marked}[0].includes('orders-1')")
        assert "1 partition of east paused" in started.evaluate("document.querySelector('.bar').innerText")
        read([])
        started.wait_for(f"{marked}.length === 0 && !document.querySelector('.bar').innerText.includes('paused')")


def test_a_partition_that_an_open_transaction_holds_up_is_marked_until_it_ends(started: Browser) -> None:
    board, now = Board(), time.time()

    def read(at: float, stable: int) -> None:
        one, ends = group(committed=dict.fromkeys(P, 1)), dict.fromkeys(P, 50)
        board.add(reading(at, one, ends=ends, stable={P[1]: stable}))

    read(now - 100, 20)
    read(now, 20)
    with served(board, interval=0.5) as url:
        started.show(1366, 850)
        marks = (
            "[...document.querySelectorAll('tbody .badge.warn')].map(one => [one.closest('tr').innerText, one.title])"
        )
        for view in ("group/etl", "topic/orders"):
            started.open(f"{url}/#/{view}")
            started.wait_for(f"{marks}.length === 1 && {marks}[0][0].includes('held up since ')")
            ((_, title),) = started.evaluate(marks)
            command = "streamgroup topics --open-transactions --topic orders"
            assert (
                title == f"Consumers of read_committed wait at offset 20, for an open transaction. {command} shows it"
            )
        read(now + 1, 50)
        started.wait_for(f"{marks}.length === 0")


def test_a_batch_in_flight_shows_its_age_and_stands_out_when_it_is_stuck(started: Browser) -> None:
    board = Board()

    def read(age: float) -> None:
        members = [status("a", idle=False, in_flight_s=age), status("b", run="r2", idle=True, in_flight_s=None)]
        held = {"a": P[:2], "b": P[2:3], "c": P[3:]}
        board.add(reading(time.time(), group(held=held, committed=dict.fromkeys(P, 1)), statuses=members))

    read(312.0)
    with served(board, interval=0.5) as url:
        for path, others in (("group/etl", ["none", "\N{EN DASH}"]), ("cluster", ["none"])):
            started.show(1366, 850)
            started.open(f"{url}/#/{path}")
            column = (
                "[...document.querySelectorAll('th')].find(one => one.innerText.toLowerCase() === 'batch in flight')"
            )
            ages = f"[...{column}.closest('table').tBodies[0].rows].map(row => row.cells[{column}.cellIndex].innerText)"
            read(312.0)
            started.wait_for(f"!!{column} && {ages}.join() === {json.dumps(','.join(['5 min 12 s', *others]))}")
            assert started.evaluate("document.querySelectorAll('tbody .badge.bad').length") == 0
            read(2400.0)
            started.wait_for("document.querySelector('tbody .badge.bad')?.innerText === '40 min 0 s'")


def test_the_phases_of_a_batch_add_up_to_its_duration(page: Browser) -> None:
    """The five longest have their names. The rest is what they leave of the whole."""
    phases = {f"phase{letter}": 10 * length for length, letter in enumerate("ABCDEFG", 1)}
    board = Board()
    for number in (1, 2):
        began = datetime.fromtimestamp(time.time() - 20 + number, UTC).isoformat(timespec="milliseconds")
        durations = {**phases, "triggerExecution": 300}
        batch = {"batch": number, "began": began, "rows": 10, "durations_ms": durations}
        held = {"a": P}
        one = group(held=held, committed=dict.fromkeys(P, 1))
        board.add(reading(time.time() - 10 + number, one, statuses=[status("a", batches=[batch])]))
    with served(board) as url:
        page.open(f"{url}/#/group/etl")
        card = "[...document.querySelectorAll('section, .card')].find(one => one.innerText.startsWith('Batches of'))"
        legend = f"({card}?.querySelector('.u-legend')?.innerText ?? '').replace(/\\s+/g, ' ')"
        page.wait_for(f"{legend}.includes('the rest')")
        shown = page.evaluate(legend)
        assert re.findall(r"(phase \w|the rest)\W*(\d+) ms", shown) == [
            ("phase g", "70"),
            ("phase f", "60"),
            ("phase e", "50"),
            ("phase d", "40"),
            ("phase c", "30"),
            ("the rest", "50"),
        ]


def test_names_from_the_brokers_are_text(page: Browser) -> None:
    evil = "<img src=x onerror=\"document.title='owned'\">'\"&/../%2F"
    member = MemberDescription(f"{evil}-id", evil, evil, assigned=tuple(P))
    bad = GroupReading(GroupDescription(evil, "Stable", "consumer", evil, (member,)), dict.fromkeys(P, 1), evil)
    board = Board()
    for at in (0.0, 5.0):
        board.add(reading(time.time() - 10 + at, bad, ends=dict.fromkeys(P, 5), notes=[evil]))
    with served(board) as url:
        for path in ("#/groups", "#/cluster", "#/topics"):
            page.open(f"{url}/{path}")
            page.wait_for("document.querySelector('tbody tr')")
            assert page.evaluate("document.querySelectorAll('main img').length") == 0
        page.open(f"{url}/#/groups")
        page.wait_for("document.querySelector('td.name a')")
        page.evaluate("document.querySelector('td.name a').click()")
        page.wait_for("document.querySelector('h1')?.innerText !== 'Groups'")
        page.wait_for("document.querySelector('h1')")
        assert page.evaluate("document.querySelector('h1').innerText") == evil
        assert page.evaluate("document.querySelectorAll('main img').length") == 0
        assert page.evaluate("document.title") == f"Group {evil} · streamgroup"


def test_500_partitions_are_drawn_without_a_stutter(page: Browser) -> None:
    board = Board()
    simulated = world.wide(time.time())
    readings = list(simulated.readings())
    for one in readings[:-5]:
        board.add(one)
    with served(board, interval=0.5) as url:
        page.open(f"{url}/#/group/clicks-etl")
        page.wait_for("document.querySelectorAll('.tall tbody tr').length === 500")
        page.evaluate(
            "window.longest = 0; new PerformanceObserver(list => list.getEntries().forEach(entry => "
            "{ window.longest = Math.max(window.longest, entry.duration); })).observe({entryTypes: ['longtask']})"
        )
        for one in readings[-5:]:
            board.add(one)
            shown = "document.querySelector('.tall tbody tr td:nth-child(4)').innerText.replaceAll(',', '')"
            end = one.log_ends[sorted(one.log_ends)[0]]
            page.wait_for(f"{shown} === '{end}'")
        page.evaluate("document.querySelector('h2 button').click()")
        lags = page.evaluate(
            "[...document.querySelectorAll('.tall tbody tr td:nth-child(5)')]"
            ".map(cell => Number(cell.innerText.replaceAll(',', '')))"
        )
        assert lags == sorted(lags, reverse=True)
        assert page.evaluate("window.longest") < 200  # milliseconds, beside a server on the same cores


def test_the_keys_lead_through_the_views(page: Browser) -> None:
    with served(filled(world.fifty(time.time()))) as url:
        page.open(f"{url}/")
        page.wait_for(f"{ROWS}.length === 50")
        page.press("/")
        for letter in "payments-etl":
            page.press(letter)
        page.wait_for(f"{ROWS}.length === 1")
        page.press("Escape")
        page.press("j")
        page.press("Enter")
        page.wait_for("document.querySelector('h1')?.innerText === 'payments-etl'")
        page.press("Escape")
        page.wait_for("location.hash === '#/groups'")
        page.press("2")
        page.wait_for("document.querySelector('h1')?.innerText === 'Topics' && document.querySelector('tbody tr')")
        page.press("3")
        page.wait_for("document.querySelector('h1')?.innerText === 'Cluster'")
        page.press("?")
        page.wait_for("document.getElementById('help').open")


@pytest.mark.parametrize(("width", "height"), [(400, 800), (768, 1024), (1366, 850), (3840, 2160)])
@pytest.mark.parametrize("path", ["groups", "group/orders-ingest", "topics", "topic/orders", "cluster"])
def test_no_view_is_wider_than_the_screen(started: Browser, width: int, height: int, path: str) -> None:
    with served(filled(world.one(time.time()))) as url:
        started.show(width, height)
        started.open(f"{url}/#/{path}")
        started.wait_for("document.querySelector('tbody tr')")
        assert started.evaluate("document.documentElement.scrollWidth") <= width


def test_the_theme_is_that_of_the_system_until_one_is_chosen(page: Browser) -> None:
    shown = "getComputedStyle(document.body).backgroundColor"
    with served(filled(world.one(time.time()))) as url:
        page.show(1366, 850, dark=True)
        page.open(f"{url}/")
        dark = page.evaluate(shown)
        page.show(1366, 850, dark=False)
        light = page.evaluate(shown)
        assert dark != light
        page.show(1366, 850, dark=True)
        page.press("d")  # as the system, then light
        page.wait_for(f"{shown} === {json.dumps(light)}")
        page.open(f"{url}/")
        assert page.evaluate(shown) == light


def test_the_token_opens_the_page_and_the_browser_remembers_it(page: Browser) -> None:
    board = filled(world.one(time.time()))
    with served(board, Access("127.0.0.1", "0123456789abcdef")) as url:
        page.open(f"{url}/")
        page.wait_for("location.pathname === '/login'")
        page.evaluate("document.getElementById('token').value = 'wrong'; document.forms[0].submit()")
        page.wait_for("location.search === '?wrong' && document.getElementById('wrong')?.hidden === false")
        page.evaluate("document.getElementById('token').value = '0123456789abcdef'; document.forms[0].submit()")
        page.wait_for("location.pathname === '/' && document.querySelector('tbody tr')")
        page.open(f"{url}/#/cluster")
        page.wait_for("document.querySelector('tbody tr')")
        assert page.evaluate("document.cookie") == ""


def test_a_server_that_ends_and_a_cluster_that_fails_are_said(started: Browser) -> None:
    board = Board()
    board.add(reading(time.time(), group(committed=dict.fromkeys(P, 1)), ends=dict.fromkeys(P, 5)))
    said = "document.getElementById('banner').innerText"
    with served(board, interval=0.5) as url:
        started.show(1366, 850)
        started.open(f"{url}/")
        started.wait_for("document.getElementById('banner').hidden && document.querySelector('tbody tr')")
        board.fail(time.time(), "no broker answers")
        started.wait_for(f"{said}.includes('no broker answers')")
        board.add(reading(time.time(), group()))
        started.wait_for("document.getElementById('banner').hidden")
    wait_until(lambda: "does not answer" in started.evaluate(said), "the page says that the server is gone")
    started.console.clear()
