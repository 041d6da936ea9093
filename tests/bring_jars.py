"""Bring what the live tests need into the cache, once: so that no test waits for it.

python -m tests.bring_jars          what `make test` needs
python -m tests.bring_jars --pin    fetch all, also for long tests; write the sums to streamgroup/testing/jars.sha256
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from streamgroup.testing import archive_classes, jars
from streamgroup.testing.jars import progress
from streamgroup.testing.releases import RELEASES, Coordinate, Quorum, Release
from streamgroup.testing.zookeeper import VERSIONS_APART
from tests.spark.class_archive import class_archive

LONG_RELEASES = ("2.8.2", "3.6.2", "4.0.1", "4.1.1", "4.2.1")
"""The releases of brokers that only long tests start."""
CLIENTS = "4.1.1"
"""Tests compare our messages also with this release of Kafka's clients. `make test` starts no broker of it."""
DELTA = (
    ("io.delta", "delta-spark_4.2_2.13", "4.4.0"),
    ("io.delta", "delta-storage", "4.4.0"),
    ("io.delta", "delta-kernel-api", "4.4.0"),
    ("io.delta", "delta-kernel-defaults", "4.4.0"),
)
"""Delta Lake for Spark 4.2, of whose dependencies a table needs these; the long tests fetch it."""
JDBC = ("org.postgresql", "postgresql", "42.7.8")
"""PostgreSQL's driver for Spark's JDBC sink, which the fault runs compare with; the long tests fetch it."""


def of_tests() -> Iterator[tuple[Coordinate, bool]]:
    """The modules that servers, tools and tests run from, and whether with all that they depend on."""
    for release in RELEASES.values():
        if release.version in LONG_RELEASES:
            continue
        yield from _of_broker(release)
        if release.quorum is Quorum.KRAFT:
            yield Coordinate("org.apache.kafka", "kafka-clients", release.version), True
    yield Coordinate("org.apache.kafka", "kafka-clients", CLIENTS), True
    for version in VERSIONS_APART:
        yield Coordinate("org.apache.zookeeper", "zookeeper", version), False


def _of_broker(release: Release) -> Iterator[tuple[Coordinate, bool]]:
    """Yield the modules of a release's broker and tools; none of an emulated one."""
    if release.emulated:
        return
    yield release.coordinate, True
    yield from ((extra, False) for extra in release.extra)
    if release.tools is not None:
        yield release.tools, False


def of_spark() -> Iterator[tuple[Coordinate, bool]]:
    """The modules of Spark's own connector, which tests and benchmarks compare with."""
    from benchmarks.batch_read import CONNECTOR  # noqa: PLC0415  (it imports Spark)

    yield from ((Coordinate(*module), False) for module in CONNECTOR)


def of_long_tests() -> Iterator[tuple[Coordinate, bool]]:
    """The modules that only long tests fetch."""
    for version in LONG_RELEASES:
        yield from _of_broker(RELEASES[version])
    yield from ((Coordinate(*module), False) for module in (*DELTA, JDBC))


def pin() -> None:
    """Write the sums of all modules, of jars that were resolved for it and not taken from the cache."""
    sums: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as work:
        for coordinate, transitive in (*of_tests(), *of_spark(), *of_long_tests()):
            name = jars.directory_name(coordinate, transitive=transitive)
            into = Path(work, name)
            with progress(f"resolving {coordinate}") as shown:
                jars.retrieve(coordinate, into, transitive=transitive, timeout_s=jars.RESOLVE_TIMEOUT_S, shown=shown)
            jars.write_manifest(coordinate, into)
            sums[name] = jars.manifest_sums(into)
    jars.write_pins(sums)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bring_jars")
    parser.add_argument("--pin", action="store_true", help="write streamgroup/testing/jars.sha256 anew")
    if parser.parse_args().pin:
        pin()
        print(f"written: {jars.PINS}. Look at what has changed before you commit it (git diff)", file=sys.stderr)
        return
    for coordinate, transitive in (*of_tests(), *of_spark()):
        jars.resolve(coordinate.organisation, coordinate.module, coordinate.revision, transitive=transitive)
    with progress("archiving the classes that servers and Spark load"):
        archive_classes()
        class_archive()


if __name__ == "__main__":
    main()
