"""`python -m streamgroup.testing.kafka07 server.properties` runs one emulated broker until SIGTERM or Ctrl-C."""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path

from streamgroup.errors import StreamGroupError
from streamgroup.testing.kafka07.config import broker_config, read_properties
from streamgroup.testing.kafka07.server import serve

USAGE = "usage: python -m streamgroup.testing.kafka07 server.properties"


def main(arguments: list[str]) -> int:
    """Run a broker. The exit code is 1 if it could not start, 2 for a wrong command line."""
    if len(arguments) != 1:
        print(USAGE, file=sys.stderr)
        return 2
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        serve(broker_config(read_properties(Path(arguments[0]).read_text())), stop, report)
    except (OSError, StreamGroupError) as error:
        report(f"FATAL: {error}")
        return 1
    return 0


def report(line: str) -> None:
    """Print one line of the broker's log."""
    now = time.time()
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
    print(f"[{stamp},{int(now * 1000) % 1000:03}] {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
