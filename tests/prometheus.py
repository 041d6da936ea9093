"""Prometheus and promtool for the tests, from Debian's package, which is unpacked and not installed."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streamgroup.testing.ports import free_ports
from tests.waiting import wait_until

START_S = 30.0


def program(name: str, home: Path) -> str:
    """Return the path of `prometheus` or `promtool`: that of the PATH, or else one brought to `home`."""
    found = shutil.which(name)
    if found is not None:
        return found
    brought = home / "usr" / "bin" / name
    if not brought.exists():
        subprocess.run(["apt-get", "download", "-q", "prometheus"], cwd=home, check=True, capture_output=True)
        (package,) = home.glob("prometheus_*.deb")
        subprocess.run(["dpkg", "-x", package, home], check=True, capture_output=True)
    return str(brought)


class Prometheus:
    """A server on loopback that scrapes one driver every second."""

    def __init__(self, port: int) -> None:
        self.port = port

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples of an instant query."""
        url = f"http://127.0.0.1:{self.port}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return result

    def is_ready(self) -> bool:
        try:
            return bool(self.query("vector(1)"))
        except OSError:
            return False


@contextmanager
def scraping(home: Path, driver_port: int) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes the driver's endpoint, until the end of the block."""
    (port,) = free_ports(1)
    config = home / "prometheus.yml"
    config.write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
                "scrape_configs": [
                    {"job_name": "streamgroup", "static_configs": [{"targets": [f"127.0.0.1:{driver_port}"]}]}
                ],
            }
        )
    )
    command = [
        program("prometheus", home),
        f"--config.file={config}",
        f"--storage.tsdb.path={home / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (home / "prometheus.log").open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            server = Prometheus(port)
            wait_until(server.is_ready, "Prometheus answers", START_S)
            yield server
        finally:
            process.terminate()
            process.wait(START_S)
