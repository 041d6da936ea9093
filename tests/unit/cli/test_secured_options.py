"""The options of a client of a secured server can be pasted into Python, TOML and a file of Java's properties."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from streamgroup.cli._secured_options import options_text
from streamgroup.testing.background import BackgroundClient

JAAS = "org.example.Module required\nusername=\"alicé 🔑\" password='a\\b';"
OPTIONS = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.jaas.config": JAAS}


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\nssl.truststore.type=PEM\n\n")
    return file


def blocks(client: BackgroundClient) -> list[str]:
    """The texts for Python, TOML and Java."""
    return options_text(client).removeprefix("\n").split("\n\n")


def test_quotes_backslashes_and_line_ends_reach_python_and_toml_as_they_are(properties: Path) -> None:
    python, toml, _ = blocks(BackgroundClient("PLAIN", OPTIONS, str(properties)))
    assert ast.literal_eval(python.partition("options = ")[2]) == OPTIONS
    kafka = tomllib.loads(toml)["source"]["kafka"]
    assert (kafka["security"]["protocol"], kafka["sasl"]["jaas"]["config"]) == ("SASL_SSL", JAAS)


def test_java_gets_its_flags_before_the_lines_of_the_file_which_end_the_text(properties: Path) -> None:
    client = BackgroundClient("GSSAPI", OPTIONS, str(properties), ("-Done=1", "-Dtwo=2"))
    assert blocks(client)[2].split("\n") == [
        f"# GSSAPI for streamgroup's commands and Java's tools: --command-config {properties}",
        "# export KAFKA_OPTS=-Done=1",
        "# export KAFKA_OPTS=-Dtwo=2",
        "security.protocol=SASL_SSL",
        "ssl.truststore.type=PEM",
    ]


def test_without_flags_java_gets_the_file_alone_and_each_block_names_the_mechanism(properties: Path) -> None:
    found = blocks(BackgroundClient("SCRAM-SHA-512", {}, str(properties)))
    assert [block.split("\n")[0].split(" ")[:2] for block in found] == [["#", "SCRAM-SHA-512"]] * 3
    assert "KAFKA_OPTS" not in found[2]
    assert ast.literal_eval(found[0].partition("options = ")[2]) == {}
    assert tomllib.loads(found[1]) == {"source": {}}


def test_a_file_of_properties_that_was_deleted_is_an_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent\.properties"):
        options_text(BackgroundClient("PLAIN", OPTIONS, str(tmp_path / "absent.properties")))
