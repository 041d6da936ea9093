"""`streamgroup demo`, as a newcomer runs it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.live, pytest.mark.long]

LONGEST_S = 180


@pytest.mark.timeout(LONGEST_S + 60)
@pytest.mark.parametrize("options", [[], ["--sql"]], ids=["files", "database"])
def test_the_demo_accounts_for_every_record_within_three_minutes(tmp_path: Path, options: list[str]) -> None:
    command = [str(Path(sys.executable).with_name("streamgroup")), "demo", "--output", str(tmp_path / "demo"), *options]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S + 30, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every record arrived exactly once" in done.stdout
    assert time.monotonic() - began < LONGEST_S
