"""One member per group and application (R28): who holds the claim, and when it is free again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from streamgroup.coordinator.control.claims import Claim
from streamgroup.errors import ConfigError
from tests.unit.coordinator.shells import SOON

HOLDER = """
import sys, time
from pathlib import Path
from streamgroup.coordinator.control.claims import Claim
Claim(Path(sys.argv[1]), "g", "", "the-other-run").take()
print("taken", flush=True)
time.sleep(60)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path / "channels" / "4711"


def files(home: Path) -> list[str]:
    return sorted(path.name for path in home.iterdir())


def test_a_second_member_without_a_name_is_refused_with_the_ways_out(home: Path) -> None:
    first = Claim(home, "g", "", "r1")
    first.take()
    with pytest.raises(ConfigError) as refused:
        Claim(home, "g", "", "r2").take(timeout=0.1)
    text = str(refused.value)
    assert f"run r1 in process {os.getpid()}" in text
    for way in ("its own kafka.group.id", ".option('group.member', '<name>')", "group.mode=commit"):
        assert way in text
    assert "as with format('kafka'), set .option('group.mode', 'off')" in text
    assert "streamgroup.default_mode(spark, 'off')" in text
    assert "STREAMGROUP_GROUP_MODE=off" in text
    first.release()
    Claim(home, "g", "", "r3").take(timeout=0.1)


def test_members_with_names_of_their_own_and_other_groups_are_let_in(home: Path) -> None:
    claims = [Claim(home, *who, "r") for who in (("g", ""), ("g", "a"), ("g", "b"), ("h", ""), ("g,a", ""))]
    for claim in claims:
        claim.take(timeout=0.0)
    with pytest.raises(ConfigError, match="already the member 'a' of this group"):
        Claim(home, "g", "a", "r").take(timeout=0.0)
    for claim in claims:
        claim.release()
        claim.release()
    assert files(home) == [], "nothing is left behind"


def test_a_predecessor_that_is_just_leaving_is_waited_for(home: Path) -> None:
    first, second = Claim(home, "g", "", "r1"), Claim(home, "g", "", "r2")
    first.take()
    taken = threading.Event()

    def take() -> None:
        second.take(timeout=SOON)
        taken.set()

    thread = threading.Thread(target=take)
    thread.start()
    assert not taken.wait(0.2)
    first.release()
    thread.join(SOON)
    assert taken.is_set()
    with pytest.raises(ConfigError, match="run r2"):
        Claim(home, "g", "", "r3").take(timeout=0.0)
    second.release()


def test_a_run_that_is_stopped_meanwhile_waits_no_longer_and_has_no_claim(home: Path) -> None:
    first, second = Claim(home, "g", "", "r1"), Claim(home, "g", "", "r2")
    first.take()
    began = time.monotonic()
    second.take(is_over=lambda: time.monotonic() - began > 0.1, timeout=SOON)
    assert time.monotonic() - began < SOON
    second.release()
    assert len(files(home)) == 1, "it is the other's"
    first.release()


@pytest.mark.parametrize("text", ["", "{}", "[]", "[" * 4_096, "no json"])
def test_a_claim_whose_file_is_damaged_is_held_all_the_same(home: Path, text: str) -> None:
    first = Claim(home, "g", "", "r1")
    first.take()
    (claimed,) = files(home)
    (home / claimed).write_text(text)
    with pytest.raises(ConfigError, match="unknown run"):
        Claim(home, "g", "", "r2").take(timeout=0.0)
    first.release()


def test_death_frees_the_claim(home: Path) -> None:
    home.parent.mkdir(mode=0o700)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(home)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"taken\n"
        with pytest.raises(ConfigError, match=f"run the-other-run in process {holder.pid}"):
            Claim(home, "g", "", "r").take(timeout=0.1)
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate(timeout=SOON)
    mine = Claim(home, "g", "", "r")
    mine.take(timeout=SOON)
    mine.release()
    assert files(home) == []


def test_where_the_directory_cannot_be_made_the_query_goes_on(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    home.parent.mkdir(mode=0o755)
    for run in ("r1", "r2"):
        Claim(home, "g", "", run).take()
    assert "cannot check for another query of this application" in caplog.text
    assert "private" in caplog.text
