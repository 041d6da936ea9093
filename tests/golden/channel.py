"""Messages of the control channel: requests as clients send them, answers as a coordinator process gives them."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from streamgroup.cli import _click, drain
from streamgroup.coordinator.control import channel
from streamgroup.coordinator.control.drains import drain_together
from streamgroup.coordinator.planning.document import to_value
from streamgroup.kafka.net import local
from streamgroup.spark.channel import SunkNotifier
from tests.golden.stored import DOCUMENTS, LINEAGE, RUN
from tests.unit.coordinator.channels import JVM

REQUESTS = ("drain", "end", "sunk", "ranges", "status")
TOKEN = "token of the run"
DOCUMENT = to_value(DOCUMENTS["a batch"])
QUERY = {"id": "0f6a64d6-0000-4000-8000-c2b54d8e0001", "name": "orders"}
TIMEOUT_S = 10.0
_RANDOM = {
    "run": RUN,
    "lineage": LINEAGE,
    "member": "member-1",
    "last": "2026-11-21T12:00:00+00:00",
}
"""Values that differ from run to run, and what stands for them in a golden file."""
_MEASURED = {"in_flight_s": 1.5, "without_assignment_s": 0.5, "seconds": 0.25, "host": "127.0.0.1"}
"""Durations and the client's address, and what stands for them, also for one of no time and for none."""
_COUNTED = frozenset({"connections"})
"""Fields with counts of the whole process: their keys are kept, and numbers in order stand for the counts."""


@contextmanager
def served(answer: str) -> Iterator[list[str]]:
    """Stand in for the coordinator process of RUN that gives `answer` to each request; yield the requests."""
    base = channel.directory(JVM) / RUN
    channel.make_private(base.parent.parent)
    channel.make_private(base.parent)
    base.with_suffix(".token").write_text(TOKEN)
    listener = local.Listener(base.with_suffix(".sock"), 16, TIMEOUT_S, TIMEOUT_S)
    requests: list[str] = []

    def serve() -> None:
        try:
            while (connection := listener.accept()) is not None:
                _serve(connection, requests, answer)
        except OSError:
            return  # closed

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield requests
    finally:
        listener.close()
        thread.join(TIMEOUT_S)
        for suffix in (".sock", ".token"):
            base.with_suffix(suffix).unlink()


def _serve(connection: local.MessageSocket, requests: list[str], answer: str) -> None:
    with connection:
        requests.append(connection.recv_bytes(channel.LARGEST_MESSAGE).decode())
        connection.send_bytes(answer.encode())


def sent_requests() -> dict[str, str]:
    """Return each kind of request as this version's clients send it, by its name."""
    with served('{"drained": true, "proven": true, "why": ""}') as requests:
        drain_together(JVM, [RUN], 60.0, ends=True)
        SunkNotifier(JVM).notify([DOCUMENT], 12, QUERY)
        channel.ask(JVM, RUN, "ranges")
        channel.statuses(JVM)
    found = {str(json.loads(text)["request"]): text for text in requests}
    assert tuple(found) == REQUESTS
    return found


def normalized(answer: Mapping[str, Any]) -> str:
    """Return an answer as text, without what differs from run to run."""
    return json.dumps(_normalized(dict(answer)))


def _normalized(value: Any) -> Any:
    match value:
        case dict():
            known = {k: _RANDOM[k] for k, v in value.items() if k in _RANDOM and v}
            known |= {k: _MEASURED[k] for k in value if k in _MEASURED}
            known |= {k: {name: n for n, name in enumerate(v)} for k, v in value.items() if k in _COUNTED}
            return {k: known[k] if k in known else _normalized(v) for k, v in value.items()}
        case list():
            return [_normalized(each) for each in value]
        case str():
            return re.sub(r"document \d+ of run \w+", f"document 1 of run {RUN}", value)
    return value


def shown(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return what this version's `streamgroup drain --list` shows of a coordinator process's status."""
    (row,) = _click.json_rows(drain.COLUMNS, [drain.Running(JVM, RUN, dict(status))])
    del row["pid"]
    return row


def read_answers(answers: Mapping[str, str]) -> dict[str, Any]:
    """Return what this version's clients take from answers, by the name of the request."""
    readers: dict[str, Callable[[], Any]] = {
        "drain": lambda: drain_together(JVM, [RUN], 60.0)[0]["drained"],
        "end": lambda: channel.ask(JVM, RUN, "end"),
        "sunk": lambda: channel.ask(JVM, RUN, "sunk", document=DOCUMENT, batch=12, query=QUERY)["proven"],
        "ranges": lambda: channel.ask(JVM, RUN, "ranges")["ranges"],
        "status": lambda: shown(channel.statuses(JVM)[RUN]),
    }
    found = {}
    for name, answer in answers.items():
        with served(answer):
            found[name] = readers[name]()
    return found
