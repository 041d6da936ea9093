"""Bring what the live tests need into the cache, once: so that no test waits for a download.

python -m tests.bring_jars
"""

from __future__ import annotations

from streamgroup.testing import java_tool
from streamgroup.testing.jars import resolve

RELEASES = ("3.9.1", "4.1.1")


def main() -> None:
    for release in RELEASES:
        java_tool(release, "kafka.Kafka")  # its classpath: the broker's jars and the tools'
        resolve("org.apache.kafka", "kafka-clients", release)


if __name__ == "__main__":
    main()
