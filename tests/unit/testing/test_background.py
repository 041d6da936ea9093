"""Processes of ours are told from others that have taken over their number."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.testing import background
from streamgroup.testing.background import BackgroundKafka, BackgroundNode, command_line, has_ended, start_ticks
from streamgroup.testing.releases import NEWEST
from tests.waiting import soon, wait_until


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAMGROUP_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[BackgroundNode]:
    """A process whose command line names its configuration file, as a broker's does."""
    properties = str(tmp_path / "server.properties")
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()", properties], stdin=subprocess.PIPE
    )
    deadline = soon()
    while properties not in command_line(process.pid) and time.monotonic() < deadline:
        time.sleep(0.001)  # the command line shows a moment after the start of the program
    yield BackgroundNode("broker-0", process.pid, properties, start_ticks(process.pid))
    process.kill()
    process.communicate()


def remember(state: Path, node: BackgroundNode, data: Path, *, keep: bool) -> BackgroundKafka:
    known = BackgroundKafka(NEWEST, "127.0.0.1:1", str(data), keep, (node,))
    state.mkdir()
    (state / "kafka.json").write_text(json.dumps(known.as_json()))
    return known


def test_a_process_is_ours_by_its_configuration_file(node: BackgroundNode) -> None:
    assert node.properties in command_line(node.pid)
    assert node.alive
    assert not dataclasses.replace(node, properties="/another/server.properties").alive


@pytest.mark.skipif(sys.platform != "linux", reason="the start time of a process is read from /proc, which Linux has")
def test_a_process_that_began_at_another_time_is_not_ours(node: BackgroundNode) -> None:
    assert node.began is not None
    assert not dataclasses.replace(node, began=node.began - 1).alive


def test_an_unused_pid_is_dead() -> None:
    assert command_line(2**22 + 1) == ""
    assert start_ticks(2**22 + 1) is None


def test_a_process_has_ended_when_nothing_but_its_exit_code_is_left(node: BackgroundNode) -> None:
    assert not has_ended(node.pid)
    assert has_ended(2**22 + 1)
    child = subprocess.Popen([sys.executable, "-c", ""])
    wait_until(lambda: has_ended(child.pid), "the child has ended, and nobody has waited for it", 20)
    assert child.wait() == 0


_FIRST_THREAD_ENDS = """
import ctypes, socket, sys, threading
server = socket.create_server(("127.0.0.1", 0))
def wait():
    print(server.getsockname()[1], flush=True)
    sys.stdin.read()
threading.Thread(target=wait).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process has ended when its command line is gone")
def test_a_process_whose_first_thread_alone_has_ended_still_has_its_sockets() -> None:
    child = subprocess.Popen([sys.executable, "-c", _FIRST_THREAD_ENDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    port = int(child.stdout.readline())
    wait_until(lambda: not command_line(child.pid), "its first thread has ended", 20)
    assert not has_ended(child.pid)
    socket.create_connection(("127.0.0.1", port), 20).close()
    child.stdin.close()
    wait_until(lambda: has_ended(child.pid), "the other thread has ended", 20)
    child.wait()
    child.stdout.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process has ended when its command line is gone")
def test_down_waits_until_a_process_has_closed_its_sockets(
    node: BackgroundNode, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process has no command line any more before it closes them."""
    looks = iter([False, False, True])
    monkeypatch.setattr(background, "has_ended", lambda pid: next(looks))
    monkeypatch.setattr(background, "_POLL_S", 0.001)
    remember(state, node, tmp_path / "data", keep=True)
    background.down()
    assert next(looks, None) is None


def test_a_state_file_from_before_there_was_a_zookeeper_is_read(node: BackgroundNode, state: Path) -> None:
    remember(state, node, state, keep=True)
    values = json.loads((state / "kafka.json").read_text())
    del values["zookeeper_connect"]
    (state / "kafka.json").write_text(json.dumps(values))
    known = background.load()
    assert known is not None
    assert known.zookeeper_connect == ""


def test_a_zookeeper_beside_the_brokers_is_none_of_them(node: BackgroundNode, state: Path, tmp_path: Path) -> None:
    known = remember(state, node, tmp_path / "data", keep=True)
    nodes = (dataclasses.replace(node, name="zookeeper"), node)
    (state / "kafka.json").write_text(json.dumps(dataclasses.replace(known, nodes=nodes).as_json()))
    assert background.up(NEWEST, 1, {}, None, None)[1]


def test_down_ends_our_process_and_removes_our_data(node: BackgroundNode, state: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    known = remember(state, node, data, keep=False)
    assert background.load() == known
    assert background.down() == known
    assert not node.alive
    assert not data.exists()
    assert background.load() is None
    assert background.down() is None


def test_down_leaves_the_users_own_data(node: BackgroundNode, state: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    remember(state, node, data, keep=True)
    background.down()
    assert data.exists()


def test_down_leaves_a_process_that_is_not_ours(node: BackgroundNode, state: Path, tmp_path: Path) -> None:
    remember(state, dataclasses.replace(node, properties="/gone/server.properties"), tmp_path / "data", keep=True)
    before = time.monotonic()
    background.down()
    assert node.alive
    assert time.monotonic() - before < 10, "down waited for the sockets of a process that is not ours"


def test_up_beside_one_of_another_security_is_refused(node: BackgroundNode, state: Path, tmp_path: Path) -> None:
    known = remember(state, node, tmp_path / "data", keep=True)
    with pytest.raises(
        StreamGroupError, match=r"with SASL_SSL and PLAIN: Kafka with no security runs at .* kafka down"
    ):
        background.up(NEWEST, 1, {}, None, None, mechanisms=("PLAIN",))
    client = background.BackgroundClient(
        "PLAIN", {"kafka.sasl.mechanism": "PLAIN"}, "/s/client.properties", ("-Dflag",)
    )
    secured = dataclasses.replace(known, clients=(client,))
    (state / "kafka.json").write_text(json.dumps(secured.as_json()))
    assert background.up(NEWEST, 1, {}, None, None, mechanisms=("PLAIN",)) == (secured, True)
    with pytest.raises(StreamGroupError, match=r"with no security: Kafka with SASL_SSL and PLAIN runs at"):
        background.up(NEWEST, 1, {}, None, None)


def test_up_beside_one_of_another_version_is_refused(node: BackgroundNode, state: Path, tmp_path: Path) -> None:
    known = remember(state, node, tmp_path / "data", keep=True)
    with pytest.raises(StreamGroupError, match=rf"{re.escape(NEWEST)} with 1 brokers runs at .* kafka down"):
        background.up("3.9.1", 1, {}, None, None)
    assert background.up(NEWEST, 1, {}, None, None) == (known, True)


# -- other users ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["", "kafka.json"])
def test_a_record_that_another_user_may_have_written_stops_and_removes_nothing(
    state: Path, node: BackgroundNode, tmp_path: Path, where: str
) -> None:
    remember(state, node, tmp_path / "data", keep=False)
    (tmp_path / "data").mkdir()
    (state / where).chmod(0o777)
    with pytest.raises(ConfigError, match=r"other users may write to it \(mode 777\) and change the record"):
        background.down()
    assert node.alive
    assert (tmp_path / "data").exists()


def test_the_record_of_another_user_is_not_used(
    state: Path, node: BackgroundNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(state, node, tmp_path / "data", keep=False)
    if os.geteuid() == 0:
        os.chown(state / "kafka.json", 12345, -1)
    else:  # only root can give files away: this process takes itself for another user
        user = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(ConfigError, match=r"it belongs to user \d+, not to this one .* STREAMGROUP_STATE"):
        background.down()
    assert node.alive


def test_a_new_record_is_in_a_directory_of_this_user_alone(state: Path) -> None:
    before = os.umask(0o002)
    try:
        assert background.down() is None
    finally:
        os.umask(before)
    assert state.stat().st_mode & 0o777 == 0o700
