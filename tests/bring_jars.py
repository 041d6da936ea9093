"""Bring what the live tests need into the cache, once: so that no test waits for a download.

python -m tests.bring_jars
"""

from __future__ import annotations

from streamgroup.testing import java_tool
from streamgroup.testing.jars import resolve
from streamgroup.testing.releases import RELEASES, Quorum
from streamgroup.testing.zookeeper import VERSIONS_APART, zookeeper_jars


def main() -> None:
    for release in RELEASES.values():
        if release.emulated:
            continue
        java_tool(release.version, "kafka.Kafka")  # its classpath: the broker's jars and the tools'
        if release.quorum is Quorum.KRAFT:
            resolve("org.apache.kafka", "kafka-clients", release.version)
    for version in VERSIONS_APART:
        zookeeper_jars(version)


if __name__ == "__main__":
    main()
