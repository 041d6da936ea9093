from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from streamgroup.errors import ConfigError
from streamgroup.jobs.config import JobConfig, effective, load
from streamgroup.jobs.parsing_sections import DeadLetterSettings
from streamgroup.parsing.framing import SchemaRegistry
from streamgroup.parsing.parser import Parser

SOURCE = """
[source]
kafka.bootstrap.servers = "broker:9092"
kafka.security.protocol = "SSL"
kafka.ssl.truststore.location = "/t.p12"
kafka.ssl.truststore.password = "env:PASSWORD"
kafka.group.id = "g"
subscribe = "orders"
"""
PARQUET = '\n[sink]\nformat = "parquet"\npath = "/rows"\ncheckpoint = "/c"\n'
PARSER = '\n[parser]\nformat = "json"\nschema = "id BIGINT"\n'
TOPIC = '\n[dead_letters]\ntopic = "dead"\n'


def read(tmp_path: Path, text: str, member: str | None = None) -> JobConfig:
    file = tmp_path / "job.toml"
    file.write_text(text)
    return load(file, member, {"PASSWORD": "hunter2"})


def problem(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, text)
    return str(raised.value)


def test_without_the_sections_values_are_not_parsed(tmp_path: Path) -> None:
    job = read(tmp_path, SOURCE + PARQUET)
    assert (job.parser, job.dead_letters) == (None, DeadLetterSettings())


def test_every_key_arrives(tmp_path: Path) -> None:
    parser = PARSER + 'null_values = "dead_letter"\noptions = { allowComments = true }\n'
    letters = '\n[dead_letters]\npath = "/dead/{member}"\nmax_records = 0\nmax_share = 0.01\n'
    job = read(tmp_path, SOURCE + PARQUET.replace('"/', '"/{member}/') + parser + letters, "a")
    assert job.parser == Parser("json", "id BIGINT", {"allowComments": "true"}, "dead_letter")
    assert job.dead_letters == DeadLetterSettings(path="/dead/a", max_records=0, max_share=0.01)


def test_a_topic_is_written_over_the_connection_of_the_source(tmp_path: Path) -> None:
    job = read(tmp_path, SOURCE + PARQUET + PARSER + TOPIC + "options.kafka.acks = 1\n")
    assert job.dead_letters.topic == "dead"
    assert job.dead_letters.options == {
        "kafka.bootstrap.servers": "broker:9092",
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": "/t.p12",
        "kafka.ssl.truststore.password": "env:PASSWORD",
        "kafka.acks": "1",
    }, "no option of the read, and the reference to the secret stays one"


def test_a_topic_of_another_cluster_inherits_nothing(tmp_path: Path) -> None:
    other = TOPIC.replace("dead", "orders", 2).replace("[orders_letters]", "[dead_letters]")
    job = read(
        tmp_path, SOURCE + PARQUET + PARSER + other + '\n[dead_letters.options]\nkafka.bootstrap.servers = "b2:9"'
    )
    assert job.dead_letters.options == {"kafka.bootstrap.servers": "b2:9"}
    assert job.dead_letters.topic == "orders", "the same name, in another cluster"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            PARQUET + PARSER.replace('format = "json"', ""),
            "[parser] format is required. Set json, csv, avro or protobuf",
        ),
        (PARQUET + PARSER.replace("json", "jsn"), "[parser]: unknown format 'jsn' of a parser"),
        (PARQUET + PARSER + 'null_values = "x"', "[parser]: unknown value 'x' for null_values"),
        (PARQUET + PARSER + "options.mode = 'x'", "[parser]: cannot set option mode of a parser"),
        (PARQUET + TOPIC, "[dead_letters] requires [parser]"),
        (PARQUET + PARSER + "[dead_letters]\nmax_records = 1", "[dead_letters] requires topic or path, and not both"),
        (PARQUET + PARSER + TOPIC + 'path = "/d"', "[dead_letters] requires topic or path, and not both"),
        (
            PARQUET + PARSER + TOPIC + "max_records = -1",
            "[dead_letters] max_records: expected a whole number from 0",
        ),
        (PARQUET + PARSER + TOPIC + "max_share = 1.5", "for [dead_letters] max_share: expected a number from 0 to 1"),
        (PARQUET + PARSER + TOPIC + "max_recods = 1", "Did you mean 'max_records'?"),
        (PARQUET + PARSER + TOPIC + "options.kafka.akcs = 1", "[dead_letters.options]: unknown option 'kafka.akcs'"),
        (PARQUET + PARSER + TOPIC + "options.topic = 't'", "cannot set topic in [dead_letters.options]"),
        (PARQUET + PARSER + '[dead_letters]\npath = "/d"\noptions.kafka.acks = 1', "and no topic is set"),
        (
            PARQUET + PARSER + '[dead_letters]\npath = "{membr}"',
            "placeholder {membr} in [dead_letters] path",
        ),
        (PARQUET + PARSER + TOPIC.replace('"dead"', '"orders"'), "the job would read its own dead letters"),
        (PARQUET + PARSER + 'output_mode = "update"', "unknown key 'output_mode'"),
        (PARQUET + 'output_mode = "update"\n' + PARSER, "[sink] output_mode must be append with [parser]"),
        (PARQUET.replace("parquet", "iceberg") + PARSER, "cannot use [sink] format iceberg with [parser]"),
    ],
)
def test_a_mistake_is_named_with_the_next_step(tmp_path: Path, text: str, said: str) -> None:
    assert said in problem(tmp_path, SOURCE + text)


def test_a_pattern_that_reads_the_dead_letters_is_refused(tmp_path: Path) -> None:
    source = SOURCE.replace('subscribe = "orders"', 'subscribePattern = "^d.*"')
    assert "read its own dead letters" in problem(tmp_path, source + PARQUET + PARSER + TOPIC)


def test_the_effective_configuration_has_the_sections_and_no_secret(tmp_path: Path) -> None:
    text = SOURCE.replace("env:PASSWORD", "hunter2") + PARQUET + PARSER + TOPIC
    file = tmp_path / "job.toml"
    file.write_text(text)
    lines = effective(file, None, {})
    assert "hunter2" not in "\n".join(lines)
    shown = tomllib.loads("\n".join(lines))
    assert shown["parser"] == {"format": "json", "schema": "id BIGINT", "null_values": "keep"}
    letters = shown["dead_letters"]
    assert (letters["topic"], letters["max_share"]) == ("dead", 0.1)
    assert letters["options"]["kafka"]["bootstrap"]["servers"] == "broker:9092"
    assert letters["options"]["kafka"]["ssl"]["truststore"]["password"] == "[hidden]"
    (line,) = (line for line in lines if line.startswith("max_share"))
    assert line.endswith("# default")
    assert sum(line.endswith("# [source]") for line in lines) == 4


AVRO = """
[parser]
format = "avro"
schema = "{}"
registry_url = "https://registry:8081"
registry_user = "etl"
registry_password = "env:PASSWORD"
registry_ca = "/ca.pem"
"""


def test_a_registry_implies_schema_ids(tmp_path: Path) -> None:
    parser = read(tmp_path, SOURCE + PARQUET + AVRO).parser
    assert parser is not None
    assert parser.framing == "schema_id"
    assert parser.registry == SchemaRegistry("https://registry:8081", "etl", "hunter2", "/ca.pem")
    assert "hunter2" not in repr(parser)


def test_the_password_of_a_registry_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    for written, shown in (("env:PASSWORD", '"env:PASSWORD"'), ("hunter2", '"[hidden]"')):
        file.write_text(SOURCE + PARQUET + AVRO.replace("env:PASSWORD", written))
        lines = effective(file, None, {"PASSWORD": "hunter2"})
        assert "hunter2" not in "\n".join(lines)
        (line,) = (line for line in lines if line.startswith("registry_password"))
        assert line.startswith(f"registry_password = {shown}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (AVRO.replace('"https:', '"ftp:'), "[parser]: invalid URL of the schema registry"),
        (AVRO.replace("registry_url", "#"), "[parser]: registry_user, registry_password, registry_ca requires"),
        (AVRO.replace("avro", "json"), "[parser]: cannot use framing or a registry with format json"),
        (AVRO + 'framing = "plain"', "[parser]: a registry requires framing schema_id"),
        (AVRO + 'framing = "x"', "[parser]: unknown value 'x' for framing"),
        (AVRO + 'options.a = "b"', "[parser]: cannot set options with format avro"),
        (AVRO.replace("{}", " "), "expected a text in quotes, not a text"),
    ],
)
def test_a_mistake_with_avro_is_named_with_the_next_step(tmp_path: Path, text: str, said: str) -> None:
    assert said in problem(tmp_path, SOURCE + PARQUET + text)


PROTOBUF = """
[parser]
format = "protobuf"
message = "shop.Order"
descriptor = "{}"
framing = "schema_id"
"""


def test_the_descriptor_is_the_content_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "orders.desc").write_bytes(b"\n\0")
    parser = read(tmp_path, SOURCE + PARQUET + PROTOBUF.format(tmp_path / "orders.desc")).parser
    assert parser == Parser("protobuf", framing="schema_id", message="shop.Order", descriptor=b"\n\0")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("missing.desc", "[parser]: cannot read descriptor missing.desc: No such file or directory. Set the path"),
        ("a\\u0000", "[parser]: cannot read descriptor a\0: embedded null byte. Set the path"),
    ],
)
def test_a_descriptor_that_cannot_be_read_is_named(tmp_path: Path, path: str, said: str) -> None:
    assert said in problem(tmp_path, SOURCE + PARQUET + PROTOBUF.format(path))


def test_damaged_batches_become_rows_of_the_source_by_choice(tmp_path: Path) -> None:
    job = read(tmp_path, SOURCE + PARQUET + PARSER + TOPIC + "damaged_batches = true\n")
    assert job.source["includeDamagedBatches"] == "true"
    assert "includeDamagedBatches" not in job.dead_letters.options
    for text in ("", "damaged_batches = false\n"):
        assert "includeDamagedBatches" not in read(tmp_path, SOURCE + PARQUET + PARSER + TOPIC + text).source
