"""The control channel: who may speak with a coordinator, and what becomes of who says nothing."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import pytest

from streamgroup.coordinator.control import channel, drains
from streamgroup.coordinator.control.channel import ControlServer
from streamgroup.coordinator.control.drains import MOST, drain_together, record_failure, recorded_failures
from streamgroup.errors import StreamGroupError, TransportError
from streamgroup.kafka.net import local
from streamgroup.monitoring.query_totals import QueryFailure
from tests.unit.coordinator.channels import JVM, FakeCoordinator, home, serve
from tests.unit.coordinator.shells import SOON, running, until

__all__ = ["home", "serve"]

pytestmark = pytest.mark.usefixtures("home")
Serve = Callable[..., FakeCoordinator]


def say(home: Path, message: bytes, run: str = "r1") -> dict[str, Any]:
    """One message of any kind, and the answer."""
    with Client(str(home / str(JVM) / f"{run}.sock"), "AF_UNIX") as connection:
        connection.send_bytes(message)
        assert connection.poll(SOON)
        answer: dict[str, Any] = json.loads(connection.recv_bytes())
        return answer


def assert_private(home: Path) -> None:
    modes = {path.name: path.stat().st_mode & 0o777 for path in (home, *home.rglob("*"))}
    assert modes == {home.name: 0o700, str(JVM): 0o700, "r1.sock": 0o600, "r1.token": 0o600}


# -- conversations ----------------------------------------------------------------------------------------------------


def test_requests_reach_the_coordinator_of_their_run(serve: Serve) -> None:
    one, two = serve("r1", "l1"), serve("r2", "l2")
    assert channel.runs(JVM) == ["r1", "r2"]
    assert channel.ask(JVM, "r2", "status")["lineage"] == "l2"
    assert channel.ask(JVM, "r1", "drain", timeout=7)["group"] == "group of r1"
    assert (one.drains, two.drains) == ([7.0], [])


@pytest.mark.parametrize("token", ["", "wrong", "ä", None, 7, ["x"]])
def test_without_the_token_of_the_run_nothing_is_done(serve: Serve, home: Path, token: Any) -> None:
    coordinator = serve()
    answer = say(home, json.dumps({"token": token, "request": "drain", "timeout": 1}).encode())
    assert list(answer) == ["error"]
    assert coordinator.drains == []


@pytest.mark.parametrize("message", [b"[1, 2]", b'"drain"', b"null", b"no json", b"\xff", b"{}", b"[" * 5_000])
def test_a_message_that_is_no_request_is_refused_and_the_channel_goes_on(
    serve: Serve, home: Path, message: bytes
) -> None:
    serve()
    assert list(say(home, message)) == ["error"]
    assert channel.ask(JVM, "r1", "status")["run"] == "r1"


def test_requests_that_the_channel_does_not_know_are_named(serve: Serve) -> None:
    coordinator = serve()
    with pytest.raises(StreamGroupError, match="unknown request on the control channel: 'explode'"):
        channel.ask(JVM, "r1", "explode")
    with pytest.raises(StreamGroupError, match="drain"):
        channel.ask(JVM, "r1", "drain", timeout="soon")
    coordinator.refusal = StreamGroupError("not now")
    with pytest.raises(StreamGroupError, match="not now"):
        channel.ask(JVM, "r1", "drain", timeout=1)


def test_a_message_beyond_the_bound_ends_the_conversation_only(serve: Serve, home: Path) -> None:
    serve()
    with pytest.raises((EOFError, OSError)):  # closed while it is being sent, or without an answer
        say(home, b" " * (channel.LARGEST_MESSAGE + 1))
    assert channel.ask(JVM, "r1", "status")["run"] == "r1"


# -- timeouts ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", struct.pack("!i", 100) + b"{"], ids=["nothing", "half a message"])
def test_a_client_that_does_not_end_its_message_is_hung_up_on_and_holds_up_nobody(
    serve: Serve, home: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(channel, "MESSAGE_TIMEOUT_S", 1.0)
    serve()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(home / str(JVM) / "r1.sock"))
        silent.sendall(sent)
        assert channel.ask(JVM, "r1", "status")["run"] == "r1"
        silent.settimeout(SOON)
        assert silent.recv(1) == b"", "hung up on"
    assert channel.ask(JVM, "r1", "status")["run"] == "r1"


def test_an_answer_is_waited_for_as_long_as_said(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "MESSAGE_TIMEOUT_S", SOON)
    serve().may_answer.clear()
    began = time.monotonic()
    with pytest.raises(TransportError, match=r"run r1 .* has not responded to request status"):
        channel.ask(JVM, "r1", "status", answer_timeout=0.05)
    assert time.monotonic() - began < channel.MESSAGE_TIMEOUT_S


def test_a_coordinator_that_is_stopped_is_waited_for_no_longer_by_many(
    serve: Serve, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "MESSAGE_TIMEOUT_S", SOON)
    monkeypatch.setattr(channel, "_BACKLOG", 1)
    monkeypatch.setattr(ControlServer, "_serve", lambda server: None)
    serve()
    began = time.monotonic()
    for words in ("has not responded", "has not responded", "its process may be stopped", "its process may be stopped"):
        with pytest.raises(TransportError, match=rf"run r1 .* {words}"):
            channel.ask(JVM, "r1", "status", answer_timeout=0.05)
    assert time.monotonic() - began < channel.MESSAGE_TIMEOUT_S


@pytest.mark.parametrize("answer", [b"[1]", b"no json", b"\xff", b"[" * 5_000])
def test_an_answer_that_is_not_an_object_is_an_error_that_names_the_run(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    serve()

    def recv_bytes(connection: Any, limit: int) -> bytes:
        del connection, limit
        return answer

    monkeypatch.setattr(ControlServer, "_answer", lambda server, connection: connection.send_bytes(b"sent"))
    monkeypatch.setattr(local.MessageSocket, "recv_bytes", recv_bytes)
    with pytest.raises(
        TransportError, match=r"cannot read the response of the coordinator of run r1 .* to request status: "
    ):
        channel.ask(JVM, "r1", "status")


def test_a_run_that_is_not_there_and_one_that_died_are_transport_errors(home: Path) -> None:
    with pytest.raises(TransportError, match="cannot reach the coordinator of run nobody "):
        channel.ask(JVM, "nobody", "status")
    dead = home / str(JVM)
    dead.mkdir(parents=True)
    (dead / "r9.token").write_text("t")
    (dead / "r9.sock").touch()
    with pytest.raises(TransportError, match=r"cannot reach the coordinator of run r9 "):
        channel.ask(JVM, "r9", "status")


# -- privacy ----------------------------------------------------------------------------------------------------------


def test_the_channel_is_the_users_alone_and_leaves_nothing_behind(home: Path) -> None:
    server = ControlServer(FakeCoordinator(), JVM)
    server.start()
    assert_private(home)
    server.close()
    server.close()
    assert list(home.iterdir()) == []


def test_the_end_of_a_process_that_closed_its_channel_is_quiet(home: Path) -> None:
    program = """
from streamgroup.coordinator.control.channel import ControlServer
server = ControlServer(type("C", (), {"run": "r1"})(), 1)
server.start()
server.close()
"""
    environment = {**os.environ, "TMPDIR": str(home.parent)}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=30, check=True
    )
    assert ended.stderr == ""


def test_a_directory_open_to_others_is_not_used(serve: Serve, home: Path, caplog: pytest.LogCaptureFixture) -> None:
    home.mkdir(mode=0o700)
    home.chmod(0o750)
    serve()
    assert channel.runs(JVM) == []
    assert "cannot open the control channel" in caplog.text
    assert "not a private directory" in caplog.text


def test_a_directory_that_is_anothers_is_not_used(
    serve: Serve, home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home.mkdir(mode=0o700)
    uid = os.getuid()
    uids = iter([uid])  # once for the directory's name, then another user looks at it
    monkeypatch.setattr(os, "getuid", lambda: next(uids, uid + 1))
    serve()
    assert list(home.iterdir()) == []
    assert "not a private directory" in caplog.text


def test_a_link_to_a_private_directory_is_not_used(serve: Serve, home: Path, caplog: pytest.LogCaptureFixture) -> None:
    elsewhere = home.parent / "elsewhere"
    (elsewhere / "999999999").mkdir(parents=True)
    elsewhere.chmod(0o700)
    home.symlink_to(elsewhere)
    serve()
    assert [path.name for path in elsewhere.iterdir()] == ["999999999"], "neither used nor swept"
    assert "not a private directory" in caplog.text


@pytest.mark.parametrize("open_to_others", ["home", "driver"])
def test_a_channel_that_another_user_could_make_is_not_believed(serve: Serve, home: Path, open_to_others: str) -> None:
    """The temporary directory is everybody's: whoever makes ours first could tell a sink what its batch covers."""
    coordinator = serve()
    ({"home": home, "driver": home / str(JVM)}[open_to_others]).chmod(0o777)
    with pytest.raises(TransportError, match="not a private directory"):
        channel.ask(JVM, "r1", "drain", timeout=1.0)
    assert coordinator.drains == []
    assert channel.runs(JVM) == []
    assert channel.drivers() == ([] if open_to_others == "home" else [JVM])


@pytest.mark.parametrize(
    "timeout", [pytest.param(-(10**400), id="hundreds of digits"), float("inf"), float("nan"), 1e9]
)
def test_a_drain_without_an_end_is_refused(serve: Serve, timeout: float) -> None:
    coordinator = serve()
    with pytest.raises(StreamGroupError, match="at most 604800 seconds"):
        channel.ask(JVM, "r1", "drain", timeout=timeout)
    assert coordinator.drains == []


def test_what_drivers_left_that_are_dead_is_swept(serve: Serve, home: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(SOON)
    for name in (str(ended.pid), str(os.getppid()), "notes"):
        (home / name).mkdir(parents=True)
        (home / name / "r0.token").touch()
    home.chmod(0o700)
    serve()
    assert {path.name for path in home.iterdir()} == {str(os.getppid()), "notes", str(JVM)}


def test_a_socket_that_cannot_be_made_is_logged(serve: Serve, home: Path, caplog: pytest.LogCaptureFixture) -> None:
    serve("r" * 120)
    until(lambda: "cannot open the control channel" in caplog.text, "a warning")
    shutil.rmtree(home)


# -- long paths, and cleaners of the temporary directory --------------------------------------------------------------


@pytest.fixture
def deep_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Under a temporary directory whose path is longer than the address of a socket may be."""
    deep = home.parent.joinpath(*(str(level) * 30 for level in range(5)))
    deep.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(deep))
    return deep / home.name


def test_a_temporary_directory_with_a_long_path_has_a_channel(serve: Serve, deep_home: Path) -> None:
    coordinator = serve()
    assert channel.ask(JVM, "r1", "drain", timeout=7)["group"] == "group of r1"
    assert coordinator.drains == [7.0]
    assert (deep_home / str(JVM) / "r1.sock").stat().st_mode & 0o777 == 0o600
    assert len(os.fsencode(deep_home)) > 150


def test_a_long_path_on_a_system_without_proc_is_refused_with_the_remedy(
    serve: Serve, deep_home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(local, "_DESCRIPTORS", deep_home / "no proc")
    serve()
    assert "at most 103 are allowed without /proc. Set TMPDIR to a shorter directory" in caplog.text
    assert channel.runs(JVM) == []


def test_the_files_of_a_driver_never_grow_old(serve: Serve, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "KEEP_EVERY_S", 0.05)
    serve()
    channel.announce_listener(JVM, 1)
    (home / str(JVM) / "0123.claim").touch()
    paths = [home, *home.rglob("*")]
    assert len(paths) == 6
    for path in paths:
        os.utime(path, (0, 0))
    until(lambda: all(path.stat().st_mtime > 0 and path.stat().st_atime > 0 for path in paths), "all are touched")


def remove_token(home: Path) -> None:
    (home / str(JVM) / "r1.token").unlink()


def remove_socket(home: Path) -> None:
    (home / str(JVM) / "r1.sock").unlink()


@pytest.mark.parametrize("remove", [remove_token, remove_socket, shutil.rmtree], ids=lambda remove: remove.__name__)
def test_a_channel_that_was_cleaned_away_is_made_anew(
    serve: Serve,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    remove: Callable[[Path], None],
) -> None:
    monkeypatch.setattr(channel, "KEEP_EVERY_S", 0.05)
    coordinator = serve()
    remove(home)
    until(lambda: channel.statuses(JVM) != {}, "it can be asked again")
    channel.ask(JVM, "r1", "drain", timeout=1)
    assert coordinator.drains == [1.0]
    assert_private(home)
    assert "the files of the control channel" in caplog.text


def test_a_channel_that_cannot_be_made_anew_is_said_once(
    serve: Serve, home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(channel, "KEEP_EVERY_S", 0.01)
    serve()
    tried: list[Path] = []

    def refuse(path: Path) -> None:
        tried.append(path)
        raise PermissionError("no")

    monkeypatch.setattr(channel, "make_private", refuse)
    shutil.rmtree(home)
    until(lambda: len(tried) > 2, "it is tried again")
    assert caplog.text.count("cannot preserve the files of the control channel") == 1


def test_a_channel_that_is_closed_makes_nothing_anew(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = ControlServer(FakeCoordinator(), JVM)
    server.start()
    server.close()
    server._keep()
    assert list(home.iterdir()) == []


# -- word from outside ------------------------------------------------------------------------------------------------


def test_every_request_arrives_with_its_arguments(serve: Serve) -> None:
    coordinator = serve()
    assert channel.ask(JVM, "r1", "sunk", document={"n": 1}, batch=7, query={"id": "q"}) == {"proven": True, "why": ""}
    assert channel.ask(JVM, "r1", "sunk", document={"n": 2}, batch=None, query={})["proven"]
    assert coordinator.told == [({"n": 1}, 7), ({"n": 2}, None)]
    coordinator.batch = [["t", 0, 1, 2]]
    assert channel.ask(JVM, "r1", "ranges")["ranges"] == [["t", 0, 1, 2]]
    channel.ask(JVM, "r1", "drain", timeout=1, ends=True)
    assert coordinator.ends is True
    channel.ask(JVM, "r1", "drain", timeout=1)
    assert coordinator.ends is False
    channel.ask(JVM, "r1", "end")
    assert coordinator.ended == 1


@pytest.mark.parametrize(
    "arguments", [{}, {"document": "text", "batch": 1, "query": {}}, {"document": {}, "batch": "1", "query": {}}]
)
def test_a_sunk_without_a_document_is_no_request(serve: Serve, arguments: dict[str, Any]) -> None:
    coordinator = serve()
    with pytest.raises(StreamGroupError, match="unknown request on the control channel: 'sunk'"):
        channel.ask(JVM, "r1", "sunk", **arguments)
    assert coordinator.told == []


def test_a_channel_that_closes_lets_the_answer_under_way_out(home: Path) -> None:
    coordinator = FakeCoordinator()
    server = ControlServer(coordinator, JVM)
    server.start()
    begun = threading.Event()

    def drain_slowly() -> None:
        begun.set()
        time.sleep(0.2)

    coordinator.while_draining = drain_slowly
    answers: list[dict[str, Any]] = []
    with running(lambda: answers.append(channel.ask(JVM, "r1", "drain", timeout=1))):
        assert begun.wait(SOON)
        server.close()
    assert answers[0]["drained"]


def test_a_slow_answer_does_not_keep_a_process_from_its_end(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "LAST_ANSWERS_TIMEOUT_S", 0.1)
    coordinator = FakeCoordinator()
    server = ControlServer(coordinator, JVM)
    server.start()
    begun, go_on = threading.Event(), threading.Event()

    def drain_for_ever() -> None:
        begun.set()
        assert go_on.wait(SOON)

    coordinator.while_draining = drain_for_ever
    with running(lambda: channel.ask(JVM, "r1", "drain", timeout=1)):
        assert begun.wait(SOON)
        began = time.monotonic()
        server.close()
        assert time.monotonic() - began < SOON / 2
        go_on.set()


# -- the listener's mark ----------------------------------------------------------------------------------------------


def test_a_drivers_listener_is_known_to_its_coordinators_alone(serve: Serve, home: Path) -> None:
    serve()
    assert not channel.is_listened(JVM)
    assert channel.cores_announced(JVM) is None
    channel.announce_listener(JVM, 4)
    channel.announce_listener(JVM, 16)
    assert (channel.is_listened(JVM), channel.is_listened(JVM + 1)) == (True, False)
    assert channel.cores_announced(JVM) == 16, "executors come and go"
    assert channel.drivers() == [JVM], "the mark is no driver"
    channel.unannounce_listener(JVM)
    channel.unannounce_listener(JVM)
    assert not channel.is_listened(JVM)


def test_a_listener_alone_leaves_nothing_behind(home: Path) -> None:
    channel.announce_listener(JVM, 1)
    channel.unannounce_listener(JVM)
    assert not home.exists()


# -- a query with several sources is drained as one, and each coordinator tells why not -------------------------------


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drains, "POLL_S", 0.005)


def test_without_coordinators_there_is_nothing_to_wait_for() -> None:
    assert drain_together(JVM, [], 5.0, ends=True) == []


def test_all_coordinators_drain_at_once_and_answer_in_the_order_asked_for(serve: Serve) -> None:
    """One that planned while another waits for its last batch would be drained without that batch."""
    one, two = serve("r1", "l1"), serve("r2", "l2")
    together = threading.Barrier(2)
    for each in (one, two):
        each.while_draining = lambda: together.wait(SOON)
    answers = drain_together(JVM, ["r2", "r1"], 7.0)
    assert [(answer["run"], answer["drained"]) for answer in answers] == [("r2", True), ("r1", True)]
    assert (one.drains, two.drains) == ([7.0], [7.0])
    assert (one.ended, two.ended) == (0, 0)


def test_a_coordinator_that_refuses_or_has_ended_counts_as_not_drained_with_the_reason(serve: Serve) -> None:
    refusing, well = serve("r1", "l1"), serve("r2", "l2")
    refusing.refusal = TransportError("the group moves just now")
    first, gone, last = drain_together(JVM, ["r1", "gone", "r2"], 5.0)
    assert first == {"drained": False, "why": "the group moves just now"}
    assert gone["drained"] is False
    assert f"cannot reach the coordinator of run gone (driver pid {JVM}): " in gone["why"]
    assert (last["drained"], well.drains) == (True, [5.0])


def test_a_batch_that_has_not_sunk_in_time_is_told_and_the_query_ends_all_the_same(serve: Serve) -> None:
    late, well = serve("r1", "l1"), serve("r2", "l2")
    late.drained, late.why = False, "the timeout expired"
    answers = drain_together(JVM, ["r1", "r2", "gone"], 5.0, ends=True)
    assert [answer["drained"] for answer in answers] == [False, True, False]
    assert answers[0]["why"] == "the timeout expired"
    assert (late.ended, well.ended) == (1, 1)
    assert (late.ends, well.ends) == (True, True), "the coordinator knows that no batch follows"


def test_the_caller_is_called_all_the_while(serve: Serve) -> None:
    """`streamgroup drain` and `drain(query)` look then whether the query has failed."""
    is_called = threading.Event()
    serve().while_draining = lambda: is_called.wait(SOON)
    (answer,) = drain_together(JVM, ["r1"], SOON, meanwhile=is_called.set)
    assert answer["drained"]
    assert is_called.is_set()


def test_an_error_of_the_caller_ends_the_wait(serve: Serve) -> None:
    is_over = threading.Event()
    serve().while_draining = lambda: is_over.wait(SOON)

    def fails() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drain_together(JVM, ["r1"], SOON, meanwhile=fails)
    is_over.set()


def test_a_coordinator_that_hangs_is_left_after_the_timeout(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drains, "ANSWER_GRACE_S", 0.05)
    is_over = threading.Event()
    serve().while_draining = lambda: is_over.wait(SOON)
    try:
        (answer,) = drain_together(JVM, ["r1"], 0.05)
    finally:
        is_over.set()
    assert answer["drained"] is False
    assert "has not responded" in answer["why"]


# -- the failures of drivers ------------------------------------------------------------------------------------------

NO_PROCESS = 2**22 + 1
"""Beyond the largest pid of Linux."""


def failure(at: float = 7.5, text: str = "orders-0: gone") -> QueryFailure:
    return QueryFailure(at, "orders", ("etl", "audit"), "DataLossError", text)


def test_failures_of_all_drivers_are_read_in_the_order_of_their_times() -> None:
    assert recorded_failures() == []
    record_failure(JVM, failure(9))
    record_failure(NO_PROCESS, failure(8, "two\nlines, ä"))
    record_failure(JVM, failure(10))
    assert recorded_failures() == [failure(8, "two\nlines, ä"), failure(9), failure(10)]


def test_a_driver_keeps_its_newest_failures_alone() -> None:
    for at in range(MOST + 5):
        record_failure(JVM, failure(at))
    assert [one.at for one in recorded_failures()] == list(range(5, MOST + 5))


def test_threads_that_record_at_the_same_time_lose_nothing(home: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda at: record_failure(JVM, failure(at)), range(MOST)))
    assert [one.at for one in recorded_failures()] == list(range(MOST))
    assert len(list(home.iterdir())) == 1


def test_only_this_user_can_read_the_file_and_another_ones_directory_is_not_read(home: Path) -> None:
    record_failure(JVM, failure())
    path = home / f"{JVM}{channel.FAILURES}"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in home.iterdir()] == [path.name]
    home.chmod(0o755)
    assert recorded_failures() == []
    with pytest.raises(PermissionError):
        record_failure(JVM, failure())


@pytest.mark.parametrize("line", ["", "{", "[]", "null", "{}", '{"at": "x"}', "[" * 100_000, "\xff"])
def test_a_line_that_is_no_failure_is_left_out(home: Path, line: str) -> None:
    record_failure(JVM, failure())
    path = home / f"{JVM}{channel.FAILURES}"
    path.write_text(f"{line}\n{path.read_text()}")
    assert recorded_failures() == [failure()]


def test_bytes_that_are_no_text_leave_the_file_out(home: Path) -> None:
    record_failure(JVM, failure())
    (home / f"{JVM}{channel.FAILURES}").write_bytes(b"\xff\xfe")
    assert recorded_failures() == []


def test_the_failures_of_an_ended_driver_stay_for_an_hour(home: Path, serve: Serve) -> None:
    record_failure(NO_PROCESS, failure())
    serve("r1")  # sweeps
    assert recorded_failures() == [failure()]
    (home / f"{NO_PROCESS}.x1y2.new").touch()  # of a driver that was killed as it wrote
    path = home / f"{NO_PROCESS}{channel.FAILURES}"
    old = path.stat().st_mtime - channel.FAILURES_KEPT_S - 1
    os.utime(path, (old, old))
    assert recorded_failures() == []
    serve("r2")
    assert list(home.glob(f"{NO_PROCESS}*")) == []


def test_a_file_that_another_sweep_has_removed_meanwhile_opens_the_channel_all_the_same(
    home: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_failure(NO_PROCESS, failure())
    gone = home / f"{NO_PROCESS}{channel.FAILURES}"
    listed = type(home).iterdir

    def removed_when_listed(path: Path) -> Iterator[Path]:
        for found in list(listed(path)):
            if found == gone:
                found.unlink()
            yield found

    monkeypatch.setattr(type(home), "iterdir", removed_when_listed)
    serve("r1")
    assert channel.runs(JVM) == ["r1"]


def test_the_failures_of_a_driver_that_lives_are_not_swept(home: Path, serve: Serve) -> None:
    record_failure(os.getpid(), failure())
    path = home / f"{os.getpid()}{channel.FAILURES}"
    os.utime(path, (0, 0))
    serve("r1")
    assert recorded_failures() == [failure()]
