from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

CRASH = """
import os, resource, sys
from dataclasses import replace
from streamgroup.kafka.net.link import Link
from streamgroup.options.sasl import SaslOptions
from streamgroup.options.secrets import Secret
from streamgroup.options.tls import TlsOptions
from streamgroup.options.types import ClientOptions, ZooKeeperOptions
from streamgroup.zookeeper.client import client_of

hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
plain = ClientOptions((("127.0.0.1", 1),))
registry = ZooKeeperOptions((("127.0.0.1", 1),), username="bob", password=Secret("canary"))
how = sys.argv[1]
if how == "zookeeper":
    client_of(registry)
else:
    sasl = SaslOptions("PLAIN", "alice", Secret("canary")) if how == "sasl" else None
    tls = TlsOptions() if how == "tls" else None
    Link("127.0.0.1", 1, replace(plain, sasl=sasl, tls=tls), 0.0)
if how == "raised again":
    from streamgroup.core_files import disable_core_files
    disable_core_files()
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    Link("127.0.0.1", 1, replace(plain, tls=TlsOptions()), 0.0)
print(resource.getrlimit(resource.RLIMIT_CORE)[0], flush=True)
os.abort()
"""


def crash(how: str, home: Path) -> tuple[int, list[Path]]:
    """Crash a process that has opened such a connection. Return its limit of a core file, and what it left behind."""
    home.mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", CRASH, how], cwd=home, capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.returncode == -6, ended.stderr
    return int(ended.stdout), list(home.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_CORE)[1] == 0, reason="this system allows no core files")
def test_a_process_that_authenticates_or_encrypts_leaves_no_core_file_unless_it_wants_one(tmp_path: Path) -> None:
    ended = {how: crash(how, tmp_path / how) for how in ("plaintext", "sasl", "tls", "zookeeper", "raised again")}
    assert {how: limit == 0 for how, (limit, _) in ended.items()} == {
        "plaintext": False,
        "sasl": True,
        "tls": True,
        "zookeeper": True,
        "raised again": False,  # by the program itself, which may want one
    }
    # A system may write core files elsewhere (kernel.core_pattern): then a crash leaves nothing here at all.
    wrote = {how for how, (_, left) in ended.items() if left}
    assert wrote in ({"plaintext", "raised again"}, set())
