"""A test leads one process of a cluster: its addresses, and its start, stop and restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamgroup.testing.node import KafkaNode, NodePlan, properties_text


class Process:
    """Stands for a ServerProcess: `log` has what it was asked to do, in order."""

    name = "broker 0 of Kafka 3.9.1"
    pid = 4711

    def __init__(self, log: list[str], *, alive: bool) -> None:
        self.calls = log
        self.alive = alive

    def launch(self) -> None:
        self.calls.append("launch")
        self.alive = True

    def await_ready(self) -> None:
        self.calls.append("await_ready")

    def stop(self) -> None:
        self.calls.append("stop")
        self.alive = False


def node(plan: NodePlan, *, alive: bool = False) -> tuple[KafkaNode, list[str]]:
    """Return a node of this plan, and all that it does."""
    log: list[str] = []
    process: Any = Process(log, alive=alive)
    made = KafkaNode(plan, Path("/cluster") / plan.name / "server.properties", process, lambda: log.append("vacancy"))
    return made, log


@pytest.mark.parametrize(
    ("plan", "roles", "name"),
    [
        (NodePlan(0, 9092), ("broker",), "broker-0"),
        (NodePlan(2, 9092, controller_port=9093), ("broker", "controller"), "broker-2"),
        (NodePlan(3, None, controller_port=9093), ("controller",), "controller"),
    ],
    ids=["ZooKeeper mode", "combined", "separate controller"],
)
def test_the_ports_of_a_process_say_which_roles_it_has(plan: NodePlan, roles: tuple[str, ...], name: str) -> None:
    assert (plan.roles, plan.name) == (roles, name)
    assert node(plan)[0].name == name


@pytest.mark.parametrize(
    ("plan", "address", "direct"),
    [
        (NodePlan(0, 1), "127.0.0.1:1", "127.0.0.1:1"),
        (NodePlan(0, 1, advertised_port=2), "127.0.0.1:2", "127.0.0.1:1"),
        (NodePlan(0, 1, internal_port=3), "127.0.0.1:1", "127.0.0.1:3"),
        (NodePlan(0, 1, advertised_port=2, internal_port=3), "127.0.0.1:2", "127.0.0.1:3"),
        (NodePlan(0, None, controller_port=4), "", ""),
    ],
    ids=["plain", "behind a proxy", "secured", "secured behind a proxy", "separate controller"],
)
def test_clients_connect_to_the_proxy_and_brokers_to_the_listener_without_one(
    plan: NodePlan, address: str, direct: str
) -> None:
    made, _ = node(plan)
    assert (made.address, made.direct_address) == (address, direct)


@pytest.mark.parametrize("alive", [True, False], ids=["running", "killed"])
def test_a_restart_stops_a_running_process_first_and_ends_when_the_new_one_serves(alive: bool) -> None:
    made, log = node(NodePlan(0, 9092), alive=alive)
    made.restart()
    assert log == ([*["stop"] * alive, "vacancy", "launch", "await_ready"])


def test_a_properties_file_survives_backslashes_and_line_ends() -> None:
    assert properties_text({"a": "C:\\x", "b": "1\n2"}) == "a=C:\\\\x\nb=1\\n2\n"
    assert properties_text({}) == ""


def test_its_text_names_the_process_its_address_and_whether_it_lives() -> None:
    running, _ = node(NodePlan(0, 9092), alive=True)
    assert repr(running) == "<broker 0 of Kafka 3.9.1 127.0.0.1:9092 alive>"
    running.stop()
    assert repr(running) == "<broker 0 of Kafka 3.9.1 127.0.0.1:9092 down>"
