"""Java's keytool, which shows what Java finds in a store."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from streamgroup.testing.java import java_executable


def keytool_list(store: Path, password: str) -> str:
    """The output of `keytool -list` about a store."""
    ran = subprocess.run(
        [java_executable().resolve().parent / "keytool", "-list", "-keystore", store, "-storepass:env", "PASSWORD"],
        env={**os.environ, "PASSWORD": password},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
