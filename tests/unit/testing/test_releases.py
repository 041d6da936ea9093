"""The Kafka releases that a test can start: jars, listeners and log lines of each."""

from __future__ import annotations

import re

import pytest

from streamgroup.errors import ConfigError
from streamgroup.testing.releases import DEFAULT_VERSION, RELEASES, Listeners, release_of

VERSIONS = ["0.7", "0.8.2.2", "0.9.0.1", "0.10.2.2", "1.1.1", "3.9.1", "4.1.1"]


def test_the_releases_are_in_the_order_of_their_numbers_and_the_default_is_the_newest() -> None:
    assert list(RELEASES) == VERSIONS
    numbers = [release.number for release in RELEASES.values()]
    assert numbers == sorted(numbers), "as text, 0.10 would come before 0.9"
    assert release_of("0.10.2.2").number == (0, 10, 2, 2)
    assert VERSIONS[-1] == DEFAULT_VERSION


@pytest.mark.parametrize("version", ["", "2.0.0", "4.1", "4.1.1 ", "latest"])
def test_another_version_is_refused_with_those_that_there_are(version: str) -> None:
    expected = f"unsupported Kafka {version}: available are {', '.join(VERSIONS)}"
    with pytest.raises(ConfigError, match=f"^{re.escape(expected)}$"):
        release_of(version)


@pytest.mark.parametrize(
    ("version", "broker", "tools", "extra"),
    [
        ("0.10.2.2", "org.apache.kafka:kafka_2.11:0.10.2.2", None, ["javax.xml.bind:jaxb-api:2.3.1"]),
        ("4.1.1", "org.apache.kafka:kafka_2.13:4.1.1", "org.apache.kafka:kafka-tools:4.1.1", []),
    ],
)
def test_jars_are_named_as_maven_names_them(version: str, broker: str, tools: str | None, extra: list[str]) -> None:
    release = release_of(version)
    assert str(release.coordinate) == broker
    assert (None if release.tools is None else str(release.tools)) == tools
    assert [str(each) for each in release.extra] == extra


def test_only_kafka_0_7_is_emulated_and_has_neither_tools_nor_another_advertised_port() -> None:
    emulated = [release for release in RELEASES.values() if release.emulated]
    assert [(each.version, each.tools, each.listeners) for each in emulated] == [("0.7", None, Listeners.HOST_NAME)]
