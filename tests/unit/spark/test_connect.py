"""`drain` and `listen` for clients of Spark Connect, whose server plans its reads in this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from streamgroup.errors import ConfigError, TransportError
from streamgroup.spark import connect
from streamgroup.spark import drain as drains
from streamgroup.spark.connect import NAME, REQUEST, ConnectChannel, ControlDataSource
from streamgroup.spark.drain import DrainResult, drain
from streamgroup.spark.listener import listen
from tests.unit.coordinator.channels import JVM, FakeCoordinator, document, home, serve
from tests.unit.coordinator.shells import until
from tests.unit.spark.test_listener import progress

__all__ = ["home", "serve"]

pytestmark = pytest.mark.usefixtures("home")
Serve = Callable[..., FakeCoordinator]


class Session:
    """A client's session. Its server plans and runs a read at `collect`, as Spark does."""

    def __init__(self) -> None:
        self.session_id = str(id(self))
        self.requests: list[dict[str, Any]] = []
        self.refusal: Exception | None = None
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.listeners: list[Any] = []
        self.streams = SimpleNamespace(addListener=self.listeners.append)
        self.dataSource = SimpleNamespace(register=self._register)
        self.read = SimpleNamespace(format=self._format)
        self._registered: dict[str, Any] = {}

    def _register(self, source: Any) -> None:
        if self.refusal is not None:
            raise self.refusal
        self._registered[source.name()] = source

    def _format(self, name: str) -> Any:
        source = self._registered[name]

        def collect(text: str) -> list[Any]:
            if self.refusal is not None:
                raise self.refusal
            self.requests.append(json.loads(text))
            assert self.may_answer.wait(10)
            reader = source({REQUEST: text}).reader(StructType())
            rows = [row for partition in reader.partitions() for row in reader.read(partition)]
            return [SimpleNamespace(answer=answer) for (answer,) in rows]

        def option(key: str, text: str) -> Any:
            assert key == REQUEST
            return SimpleNamespace(load=lambda: SimpleNamespace(collect=lambda: collect(text)))

        return SimpleNamespace(option=option)


Session.__module__ = "pyspark.sql.connect.session"


class ClientQuery:
    """A StreamingQuery of a client, which does not show what is planned."""

    def __init__(self, session: Session, *documents: dict[str, Any]) -> None:
        self._session = session
        self.id, self.name, self.isActive = "q-1", "orders", True
        sources = [{"startOffset": None, "endOffset": document} for document in documents]
        self.recentProgress = [{"batchId": 4, "sources": sources}] if documents else []

    @property
    def lastProgress(self) -> Any:  # noqa: N802  (Spark's name)
        return self.recentProgress[-1] if self.recentProgress else None

    def stop(self) -> None:
        self.isActive = False


ClientQuery.__module__ = "pyspark.sql.connect.streaming.query"


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "find_jvm", lambda: JVM)
    monkeypatch.setattr(drains, "FIRST_DOCUMENT_S", 0.1)


def event(batch: int, *documents: dict[str, Any], operators: tuple[str, ...] = ()) -> Any:
    return progress(*documents, batch=batch, operators=operators)


def run_drain(query: ClientQuery, timeout: float = 5.0) -> DrainResult:
    return drain(query, timeout)  # type: ignore[arg-type]


def test_a_drain_drains_on_the_server_and_stops_the_query(serve: Serve) -> None:
    ours, other = serve("r1", "l1"), serve("r2", "l2")
    query = ClientQuery(Session(), document("r1", "l1"))
    assert run_drain(query) == DrainResult(True, ("group of r1",))
    assert (len(ours.drains), other.drains, query.isActive) == (1, [], False)


def test_a_drain_that_waits_reports_the_batch_that_sinks_meanwhile(serve: Serve) -> None:
    ours = serve("r1", "l1")
    ours.while_draining = lambda: until(lambda: bool(ours.told), "told")
    assert run_drain(ClientQuery(Session(), document("r1", "l1"))).drained
    assert ours.told == [(document("r1", "l1"), 4)]


def test_a_drain_of_a_query_without_a_coordinator_is_refused(serve: Serve) -> None:
    serve("r2", "l2")
    with pytest.raises(ConfigError, match="none of its sources is a streamgroup member"):
        run_drain(ClientQuery(Session()))


def test_a_server_without_the_package_is_named_with_the_next_step() -> None:
    session = Session()
    session.refusal = PySparkException(
        "Traceback:\n  ...\nModuleNotFoundError: No module named 'streamgroup'\nJVM stack"
    )
    with pytest.raises(TransportError, match=r"No module named 'streamgroup'\. Install streamgroup .* on the server"):
        listen(session)  # type: ignore[arg-type]


def test_a_session_is_listened_to_once() -> None:
    one, two = Session(), Session()
    first = listen(one)  # type: ignore[arg-type]
    assert listen(one) is first  # type: ignore[arg-type]
    assert listen(two) is not first  # type: ignore[arg-type]
    assert one.listeners == [first]


def test_a_listener_reports_sunk_batches_to_the_servers_coordinators(serve: Serve) -> None:
    ours, session = serve("r1", "l1"), Session()
    listener = listen(session)  # type: ignore[arg-type]
    listener.onQueryStarted(SimpleNamespace())  # type: ignore[arg-type]
    listener.onQueryProgress(event(7, document("r1", "l1")))
    until(lambda: bool(ours.told), "told")
    assert ours.told == [(document("r1", "l1"), 7)]
    figures = {"batch": 7, "began": "2026-01-01T00:00:00.000Z", "rows": 50, "durations_ms": {"addBatch": 40}}
    assert ours.query == {"id": "q-1", "name": "orders", "batch": figures}


def test_batches_that_a_later_one_has_overtaken_are_not_reported(serve: Serve) -> None:
    """Each report is a job of Spark: a client with short batches must not pile them up."""
    ours, session = serve("r1", "l1"), Session()
    listener = listen(session)  # type: ignore[arg-type]
    session.may_answer.clear()
    listener.onQueryProgress(event(0, document("r1", "l1", 1)))
    until(lambda: bool(session.requests), "the first report is under way")
    channel = listener._channel
    assert isinstance(channel, ConnectChannel)
    for batch in (1, 2, 3):
        listener.onQueryProgress(event(batch, document("r1", "l1", batch + 1)))
        until(lambda batch=batch: channel._newest["q-1"] == batch, "the report waits")
    session.may_answer.set()
    until(lambda: len(ours.told) == 2, "told")
    assert [batch for _, batch in ours.told] == [0, 3]


@pytest.mark.parametrize("error", [PySparkException("it is gone"), ValueError("it is gone, as a closed session is")])
def test_a_failed_report_is_logged_once_and_never_raised(
    serve: Serve, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    session = Session()
    channel = ConnectChannel(session)  # type: ignore[arg-type]
    session.refusal = error
    for batch in range(3):
        channel.notify([document("r1", "l1")], batch, {"id": "q-1", "name": ""})
    assert caplog.text.count("it is gone") == 1
    assert "committed only at the next trigger" in caplog.text


def test_a_stateful_query_with_a_member_is_warned_of(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    serve("r1", "l1")
    listen(Session()).onQueryProgress(event(7, document("r1", "l1"), operators=("dedupe",)))  # type: ignore[arg-type]
    until(lambda: "query orders keeps state (dedupe)" in caplog.text, "warned")


UNKNOWN = "unknown request to the coordinators: "


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "invalid request"),
        ("[]", "expected a JSON object"),
        ("{}", UNKNOWN),
        ('{"request": "end"}', f"{UNKNOWN}'end'"),
        ('{"request": "drain", "runs": "r1", "timeout": 1}', f"{UNKNOWN}'drain'"),
        ('{"request": "drain", "runs": ["r1"], "timeout": "5"}', f"{UNKNOWN}'drain'"),
        ('{"request": "sunk", "documents": [], "batch": "7", "query": {}}', f"{UNKNOWN}'sunk'"),
        ('{"request": "sunk", "documents": [], "batch": 7}', f"{UNKNOWN}'sunk'"),
        ('{"request": "groups", "documents": {}}', f"{UNKNOWN}'groups'"),
    ],
)
def test_other_reads_of_the_source_are_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        ControlDataSource({REQUEST: text} if text else {}).reader(StructType()).partitions()
    assert UNKNOWN not in said or "Read with format('streamgroup')" in str(refused.value)


def test_outside_of_a_driver_a_request_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "find_jvm", lambda: None)
    with pytest.raises(ConfigError, match="cannot find the driver's JVM"):
        ControlDataSource({REQUEST: '{"request": "statuses"}'}).reader(StructType()).partitions()


def test_a_read_has_one_row_and_the_source_a_name_of_its_own(serve: Serve) -> None:
    serve("r1", "l1")
    source = ControlDataSource({REQUEST: '{"request": "statuses"}'})
    assert (source.name(), source.schema()) == (NAME, "answer STRING")
    reader = source.reader(StructType())
    (partition,) = reader.partitions()
    ((answer,),) = reader.read(partition)
    assert json.loads(answer)["r1"]["group"] == "group of r1"
