"""The control source carries a Spark Connect client's request to the coordinators of the server's driver."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.types import StructType

from streamgroup.errors import ConfigError
from streamgroup.spark import control_source
from streamgroup.spark.control_source import NAME, REQUEST, ControlDataSource, carry_out
from tests.unit.driver.channels import JVM, FakeCoordinator, document, home, serve

__all__ = ["home", "serve"]

pytestmark = pytest.mark.usefixtures("home")
Serve = Callable[..., FakeCoordinator]


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_source, "find_jvm", lambda: JVM)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "invalid request"),
        ("[]", "expected a JSON object"),
        ('{"request": "end"}', "not a request to the coordinators: 'end'"),
        ('{"request": "drain", "runs": "r1", "timeout": 1}', "not a request to the coordinators: 'drain'"),
    ],
)
def test_other_reads_of_the_source_are_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ControlDataSource({REQUEST: text} if text else {}).reader(StructType()).partitions()


def test_outside_of_a_driver_a_request_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_source, "find_jvm", lambda: None)
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


def test_requests_reach_the_coordinators_of_that_driver_alone(serve: Serve) -> None:
    serve("r1", "l1", jvm=JVM)
    assert list(carry_out(JVM, {"request": "statuses"})) == ["r1"]
    assert carry_out(JVM + 1, {"request": "statuses"}) == {}


def test_a_drain_drains_the_runs_that_it_names_alone(serve: Serve) -> None:
    ours, other = serve("r1", "l1"), serve("r2", "l2")
    (answer,) = carry_out(JVM, {"request": "drain", "runs": ["r1"], "timeout": 5})
    assert (answer["drained"], answer["group"]) == (True, "group of r1")
    assert (len(ours.drains), other.drains) == (1, [])


def test_a_sunk_batch_is_reported_to_the_coordinator_of_its_document(serve: Serve) -> None:
    ours, other = serve("r1", "l1"), serve("r2", "l2")
    request = {"request": "sunk", "documents": [document("r1", "l1")], "batch": 7, "query": {"id": "q-1", "name": "n"}}
    assert carry_out(JVM, request) is None
    assert (ours.told, ours.query) == ([(document("r1", "l1"), 7)], {"id": "q-1", "name": "n"})
    assert other.told == []


def test_the_groups_of_documents_are_those_of_members(serve: Serve) -> None:
    serve("r1", "l1")
    serve("r3", "l3")
    serve("r2", "l2").mode = "commit"
    documents = [document("r1", "l1"), document("r2", "l2")]
    assert carry_out(JVM, {"request": "groups", "documents": documents}) == ["group of r1"]


@pytest.mark.parametrize(
    "request_",
    [
        {"request": "drain", "runs": ["r1"], "timeout": "5"},
        {"request": "sunk", "documents": [], "batch": "7", "query": {}},
        {"request": "sunk", "documents": [], "batch": 7},
        {"request": "groups", "documents": {}},
        {},
    ],
    ids=["timeout is text", "batch is text", "no query", "documents are no list", "nothing"],
)
def test_a_request_with_a_missing_or_wrong_argument_is_refused(request_: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"not a request to the coordinators: .* Read with format\('streamgroup'\)"):
        carry_out(JVM, request_)
