"""The process of a coordinator: its signals and its log here, its death by its parent's in one of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from streamgroup.coordinator import process
from tests.fakes.signals import kept_handlers
from tests.unit.coordinator.channels import home
from tests.unit.coordinator.shells import SOON, source

__all__ = ["home", "kept_handlers"]


@pytest.mark.usefixtures("kept_handlers", "home")
def test_sigterm_unwinds_once_and_ctrl_c_is_the_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[object] = []
    monkeypatch.setattr(process, "_watch_driver", lambda coordinator, channel, jvm: None)  # it would end the tests
    monkeypatch.setattr(process.atexit, "register", registered.append)
    group = os.getpgrp()
    coordinator = process.start_coordinator(source())
    try:
        assert os.getpgrp() == group, "this process is not one that Spark has started for a source"
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        with pytest.raises(SystemExit) as ended:
            signal.raise_signal(signal.SIGTERM)
        assert ended.value.code == 0
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN, "the second one must not interrupt the leaving"
    finally:
        coordinator.stop()
        assert coordinator.stop in registered, "where the signal comes before the runner has called it"
        for close in registered:
            close()  # type: ignore[operator]


ORPHAN = """
import os, sys, time
from streamgroup.coordinator import process
process.PARENT_EVERY_S = 0.01
fails = "fails" in sys.argv
class Fake:
    def __init__(self, name): self.name, self.silence = name, self
    def look(self, jvm_is_stopped):
        if fails: raise ValueError("a defect")
    def stop(self, last_word):
        os.write(1, b"stopped " if not last_word else b"waits for whom? ")
        if fails: raise ValueError("another")
    def close(self): os.write(1, b"closed")
parent = os.getpid()
if os.fork() == 0:
    os.write(1, b"watching ")
    process._watch_driver(Fake("coordinator"), Fake("channel"), parent)
    os.write(1, b" lives on")
time.sleep(0.1)
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["", "fails"])
def test_a_coordinator_whose_jvm_is_gone_leaves_and_ends(fault: str) -> None:
    command = [sys.executable, "-c", ORPHAN, fault]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=SOON * 4, check=True)
    assert ended.stdout == b"watching stopped closed"
