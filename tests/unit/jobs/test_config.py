from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from streamgroup.errors import ConfigError
from streamgroup.jobs.config import DeadLetterSettings, JobConfig, Sink, effective, load
from streamgroup.jobs.job_file import Metrics, SparkSettings, StopSettings, Trigger
from streamgroup.spark.parsing.framing import SchemaRegistry
from streamgroup.spark.parsing.parser import Parser

SOURCE = """
[source]
kafka.bootstrap.servers = "broker:9092"
kafka.group.id = "g"
subscribe = "orders"
"""
CONSOLE = '\n[sink]\nformat = "console"\n'
LEAST = SOURCE + CONSOLE


def read(tmp_path: Path, text: str, member: str | None = None, **environment: str) -> JobConfig:
    file = tmp_path / "job.toml"
    file.write_text(text)
    return load(file, member, {"PASSWORD": "hunter2", **environment})


def problem(tmp_path: Path, text: str, member: str | None = None, **environment: str) -> str:
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, text, member, **environment)
    return str(raised.value)


def sink(format_: str, **keys: str) -> str:
    """A job with these keys of its sink."""
    return f'{SOURCE}[sink]\nformat = "{format_}"\n' + "".join(f'{key} = "{value}"\n' for key, value in keys.items())


def test_the_smallest_job_has_defaults(tmp_path: Path) -> None:
    job = read(tmp_path, LEAST)
    assert job.source == {"kafka.bootstrap.servers": "broker:9092", "kafka.group.id": "g", "subscribe": "orders"}
    assert job.sink == Sink("console")
    assert (job.trigger, job.stop, job.spark, job.member) == (Trigger(), StopSettings(60.0), SparkSettings("job"), None)


def test_every_key_arrives(tmp_path: Path) -> None:
    job = read(
        tmp_path,
        SOURCE
        + """
        "maxOffsetsPerTrigger" = 500
        failOnDataLoss = false
        [trigger]
        available_now = true
        [sink]
        format = "csv"
        path = "/rows"
        checkpoint = "/checkpoint"
        columns = ["value", "topic"]
        partition_by = ["topic"]
        output_mode = "update"
        options = { sep = ";", header = true }
        [spark]
        app_name = "it"
        conf = { "spark.sql.shuffle.partitions" = 3 }
        [stop]
        timeout_seconds = 1.5
        """,
    )
    assert job.source["maxOffsetsPerTrigger"] == "500"
    assert job.source["failOnDataLoss"] == "false"
    assert job.trigger == Trigger(available_now=True)
    options = {"sep": ";", "header": "true"}
    assert job.sink == Sink("csv", "/rows", "/checkpoint", ("value", "topic"), ("topic",), "update", options)
    assert job.spark == SparkSettings("it", {"spark.sql.shuffle.partitions": "3"})
    assert job.stop == StopSettings(1.5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LEAST + "[zzz]\n", "unknown section [zzz]. The sections are [source], [trigger], [sink]"),
        (LEAST + "path = 3", "invalid value for [sink] path: expected a text in quotes, not a number"),
        (LEAST + "[stop]\ntimeout_seconds = true", "not true or false"),
        (
            SOURCE + "includeHeaders = [true]" + CONSOLE,
            "[source]: invalid value for includeHeaders: expected one text with commas",
        ),
        (LEAST + 'output_mode = "apend"', "for [sink] output_mode: expected one of append, update, complete"),
        (LEAST + 'options.checkpointLocation = "x"', "Write it as 'checkpoint' below [sink]"),
        (LEAST + 'options.Path = "x"', "Write it as 'path' below [sink]"),
        (LEAST + 'checkpoint = "/c/{membr}"', "unknown placeholder {membr} in [sink] checkpoint"),
        (LEAST + "[spark.conf]\nsql.x = 1", "unknown key 'sql.x' in [spark.conf]"),
        (sink("parquet", checkpoint="/c"), "[sink] path is required for format 'parquet', which writes files"),
        (sink("delta", path="/p"), "[sink] checkpoint is required"),
        (sink("delta", table="t"), "[sink] checkpoint is required"),
        (sink("delta", table="t", path="/p", checkpoint="/c"), "[sink] path and table are both set. Keep one of them"),
        (
            sink("Parquet", table="t", checkpoint="/c"),
            "cannot use [sink] table with format 'parquet': Spark identifies batches in its files by their numbers",
        ),
        (LEAST + '[metrics]\nhost = "::"', "[metrics] port or otlp_endpoint is required"),
        (LEAST + "[metrics]\nport = 65536", "expected a port from 0 to 65535, 0 for any free one"),
        (SOURCE + "[sink]\n", "[sink] format is required"),
        (
            SOURCE + 'startingOfsets = "latest"\n' + CONSOLE,
            "[source]: unknown option 'startingOfsets'. Did you mean 'startingOffsets'?",
        ),
        (LEAST + "[trigger]\nonce = true\navailable_now = true", "once and available_now are set"),
    ],
)
def test_a_mistake_is_named_with_the_next_step(tmp_path: Path, text: str, said: str) -> None:
    message = problem(tmp_path, text)
    assert said in message
    assert str(tmp_path / "job.toml") in message


def test_one_error_names_all_problems(tmp_path: Path) -> None:
    message = problem(tmp_path, SOURCE + "nonsense = 1" + CONSOLE + "paht = 'x'\n[stop]\ntimeout_seconds = 'x'")
    assert "3 problems" in message
    for said in ("nonsense", "paht", "timeout_seconds"):
        assert said in message


@pytest.mark.parametrize(
    ("text", "cause"),
    [(f"a = {'[' * 5_000}", "too many nested levels"), (f"a = {'9' * 5_000}", "invalid TOML: Exceeds the limit")],
)
def test_a_file_that_python_cannot_take_in_is_named(tmp_path: Path, text: str, cause: str) -> None:
    (tmp_path / "job.toml").write_text(text)
    with pytest.raises(ConfigError, match=rf"cannot read job file .*job.toml: {cause}"):
        load(tmp_path / "job.toml", environment={})


@pytest.mark.parametrize("section", ["source", "spark.conf"])
def test_options_with_thousands_of_dots_are_refused(tmp_path: Path, section: str) -> None:
    dotted = "a." * 2_000
    text = LEAST if section != "source" else CONSOLE
    assert "too many nested tables" in problem(tmp_path, f"{text}\n[{section}]\n{dotted}b = 1")


MEMBERS = (
    SOURCE
    + """
kafka.group.instance.id = "orders-{member}"
[sink]
format = "parquet"
path = "/rows/{member}"
checkpoint = "/checkpoints/{member}"
"""
)


def test_the_member_fills_its_placeholder(tmp_path: Path) -> None:
    job = read(tmp_path, MEMBERS, "a")
    assert (job.sink.path, job.sink.checkpoint) == ("/rows/a", "/checkpoints/a")
    assert job.source["kafka.group.instance.id"] == "orders-a"


@pytest.mark.parametrize("key", ["path", "checkpoint"])
def test_a_member_without_its_own_directory_is_an_error(tmp_path: Path, key: str) -> None:
    text = MEMBERS.replace(f'{key} = "/{"rows" if key == "path" else "checkpoints"}/{{member}}"', f'{key} = "/shared"')
    assert f"[sink] {key} does not contain {{member}}, but the job is member 'a'" in problem(tmp_path, text, "a")
    assert "invalid member name 'a/b'" in problem(tmp_path, text, "a/b")


def test_tables_that_many_writers_share_need_a_checkpoint_each_but_no_path_each(tmp_path: Path) -> None:
    assert read(tmp_path, sink("delta", path="/table", checkpoint="/c/{member}"), "a").sink.path == "/table"


def test_no_message_and_no_repr_shows_a_secret(tmp_path: Path) -> None:
    text = SOURCE + 'kafka.sasl.jaas.config = "env:JAAS"\n' + CONSOLE
    try:
        shown = repr(read(tmp_path, text, JAAS="canary"))
    except ConfigError as error:  # whether the option is available or not
        shown = str(error)
    assert "canary" not in shown
    shown = problem(tmp_path, LEAST + 'options.password = ["canary"]\nformat2 = "canary"')
    assert "canary" not in shown


EXAMPLES = sorted((Path(__file__).parents[3] / "conf").glob("*.toml"))


@pytest.mark.parametrize(
    "file", [file for file in EXAMPLES if not file.name.startswith(("mirror", "backfill"))], ids=lambda file: file.name
)
def test_the_examples_are_jobs(file: Path) -> None:
    assert load(file, "a", {}).member == "a"


def test_metrics_are_served_where_a_port_is_set(tmp_path: Path) -> None:
    assert read(tmp_path, LEAST).metrics == Metrics()
    served = read(tmp_path, LEAST + '[metrics]\nport = 9404\nhost = "::"\ncluster_name = "prod"\n').metrics
    assert served == Metrics(9404, "::", "prod")


PARSED_SOURCE = """
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
LETTERS = PARQUET + PARSER + TOPIC


def test_without_the_sections_values_are_not_parsed(tmp_path: Path) -> None:
    job = read(tmp_path, PARSED_SOURCE + PARQUET)
    assert (job.parser, job.dead_letters) == (None, DeadLetterSettings())


def test_every_key_of_a_parsing_section_arrives(tmp_path: Path) -> None:
    parser = PARSER + 'null_values = "dead_letter"\noptions = { allowComments = true }\n'
    letters = '\n[dead_letters]\npath = "/dead/{member}"\nmax_records = 0\nmax_share = 0.01\n'
    job = read(tmp_path, PARSED_SOURCE + PARQUET.replace('"/', '"/{member}/') + parser + letters, "a")
    assert job.parser == Parser("json", "id BIGINT", {"allowComments": "true"}, "dead_letter")
    assert job.dead_letters == DeadLetterSettings(path="/dead/a", max_records=0, max_share=0.01)


def test_a_topic_is_written_over_the_connection_of_the_source(tmp_path: Path) -> None:
    job = read(tmp_path, PARSED_SOURCE + LETTERS + "options.kafka.acks = 1\n")
    assert job.dead_letters.topic == "dead"
    assert job.dead_letters.options == {
        "kafka.bootstrap.servers": "broker:9092",
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": "/t.p12",
        "kafka.ssl.truststore.password": "env:PASSWORD",
        "kafka.acks": "1",
    }, "no option of the read, and the reference to the secret stays one"


def test_a_topic_of_another_cluster_inherits_nothing(tmp_path: Path) -> None:
    other = TOPIC.replace('"dead"', '"orders"') + 'options.kafka.bootstrap.servers = "b2:9"'
    job = read(tmp_path, PARSED_SOURCE + PARQUET + PARSER + other)
    assert job.dead_letters.options == {"kafka.bootstrap.servers": "b2:9"}
    assert job.dead_letters.topic == "orders", "the same name, in another cluster"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PARQUET + '[parser]\nschema = "id INT"', "[parser] format is required. Set json, csv, avro or protobuf"),
        (PARQUET + PARSER.replace("json", "jsn"), "[parser]: unknown format 'jsn' of a parser"),
        (PARQUET + TOPIC, "[dead_letters] requires [parser]"),
        (PARQUET + PARSER + "[dead_letters]\nmax_records = 1", "[dead_letters] requires topic or path, and not both"),
        (LETTERS + 'path = "/d"', "[dead_letters] requires topic or path, and not both"),
        (LETTERS + "max_records = -1", "[dead_letters] max_records: expected a whole number from 0"),
        (LETTERS + "max_share = 1.5", "for [dead_letters] max_share: expected a number from 0 to 1"),
        (LETTERS + "max_recods = 1", "Did you mean 'max_records'?"),
        (LETTERS + "options.kafka.akcs = 1", "[dead_letters.options]: unknown option 'kafka.akcs'"),
        (LETTERS + "options.topic = 't'", "cannot set topic in [dead_letters.options]"),
        (PARQUET + PARSER + '[dead_letters]\npath = "/d"\noptions.kafka.acks = 1', "and no topic is set"),
        (PARQUET + PARSER + '[dead_letters]\npath = "{membr}"', "placeholder {membr} in [dead_letters] path"),
        (LETTERS.replace('"dead"', '"orders"'), "the job would read its own dead letters"),
        (PARQUET + PARSER + 'output_mode = "update"', "unknown key 'output_mode'"),
        (PARQUET + 'output_mode = "update"\n' + PARSER, "[sink] output_mode must be append with [parser]"),
        (PARQUET.replace("parquet", "iceberg") + PARSER, "cannot use [sink] format iceberg with [parser]"),
    ],
)
def test_a_mistake_of_a_parsing_section_is_named_with_the_next_step(tmp_path: Path, text: str, said: str) -> None:
    assert said in problem(tmp_path, PARSED_SOURCE + text)


def test_a_pattern_that_reads_the_dead_letters_is_refused(tmp_path: Path) -> None:
    source = PARSED_SOURCE.replace('subscribe = "orders"', 'subscribePattern = "^d.*"')
    assert "read its own dead letters" in problem(tmp_path, source + LETTERS)


def test_the_effective_configuration_has_the_sections_and_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(PARSED_SOURCE.replace("env:PASSWORD", "hunter2") + LETTERS)
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
    parser = read(tmp_path, PARSED_SOURCE + PARQUET + AVRO).parser
    assert parser is not None
    assert parser.framing == "schema_id"
    assert parser.registry == SchemaRegistry("https://registry:8081", "etl", "hunter2", "/ca.pem")
    assert "hunter2" not in repr(parser)


def test_the_password_of_a_registry_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    for written, shown in (("env:PASSWORD", '"env:PASSWORD"'), ("hunter2", '"[hidden]"')):
        file.write_text(PARSED_SOURCE + PARQUET + AVRO.replace("env:PASSWORD", written))
        lines = effective(file, None, {"PASSWORD": "hunter2"})
        assert "hunter2" not in "\n".join(lines)
        (line,) = (line for line in lines if line.startswith("registry_password"))
        assert line.startswith(f"registry_password = {shown}")


PROTOBUF = """
[parser]
format = "protobuf"
message = "shop.Order"
descriptor = "{}"
framing = "schema_id"
"""


def test_the_descriptor_is_the_content_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "orders.desc").write_bytes(b"\n\0")
    parser = read(tmp_path, PARSED_SOURCE + PARQUET + PROTOBUF.format(tmp_path / "orders.desc")).parser
    assert parser == Parser("protobuf", framing="schema_id", message="shop.Order", descriptor=b"\n\0")


UNREADABLE = "[parser]: cannot read descriptor"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (AVRO.replace('"https:', '"ftp:'), "[parser]: invalid URL of the schema registry"),
        (AVRO.replace("registry_url", "#"), "[parser]: registry_user, registry_password, registry_ca requires"),
        (AVRO + 'framing = "plain"', "[parser]: a registry requires framing schema_id"),
        (AVRO.replace("{}", " "), "expected a text in quotes, not a text"),
        (PROTOBUF.format("none.desc"), f"{UNREADABLE} none.desc: No such file or directory. Set the path"),
        (PROTOBUF.format("a\\u0000"), f"{UNREADABLE} a\0: embedded null byte. Set the path"),
    ],
)
def test_a_mistake_with_avro_or_protobuf_is_named_with_the_next_step(tmp_path: Path, text: str, said: str) -> None:
    assert said in problem(tmp_path, PARSED_SOURCE + PARQUET + text)


def test_damaged_batches_become_rows_of_the_source_by_choice(tmp_path: Path) -> None:
    job = read(tmp_path, PARSED_SOURCE + LETTERS + "damaged_batches = true\n")
    assert job.source["includeDamagedBatches"] == "true"
    assert "includeDamagedBatches" not in job.dead_letters.options
    for text in ("", "damaged_batches = false\n"):
        assert "includeDamagedBatches" not in read(tmp_path, PARSED_SOURCE + LETTERS + text).source


DATABASE = """
[sink]
format = "Streamgroup-SQL"
checkpoint = "/c/{member}"

[sink.options]
url = "postgresql://db/shop"
user = "writer"
password = "env:PASSWORD"
dbtable = "orders"
keyColumns = "id"
"""
STORE = {
    "offsets.store": "postgresql://db/shop",
    "offsets.store.user": "writer",
    "offsets.store.password": "env:PASSWORD",
}


def stored_in(url: str, more: str = "") -> str:
    return SOURCE + f'offsets.store = "{url}"\n{more}' + DATABASE


def test_a_sink_in_a_database_gives_its_connection_to_the_offsets(tmp_path: Path) -> None:
    job = read(tmp_path, SOURCE + DATABASE, "a")
    assert job.sink.writes_database
    assert job.sink.options["password"] == "env:PASSWORD", "tasks follow the reference"
    assert job.sink.target == "Streamgroup-SQL in table orders"
    assert job.sink.packages == ("sqlalchemy", "psycopg")
    assert {name: job.source[name] for name in STORE} == STORE
    lite = read(tmp_path, SOURCE + DATABASE.replace("postgresql://db", "sqlite:////tmp"), "a")
    assert lite.sink.packages == ("sqlalchemy",)
    assert read(tmp_path, LEAST).sink.packages == ()


def test_offsets_that_name_the_same_database_keep_their_own_user(tmp_path: Path) -> None:
    job = read(tmp_path, stored_in("postgresql+psycopg://auditor@db/shop"), "a")
    assert {name for name in job.source if name.startswith("offsets.store")} == {"offsets.store"}


@pytest.mark.parametrize("port", ["", ":5433"])
def test_offsets_in_another_database_are_refused(tmp_path: Path, port: str) -> None:
    other = f"postgresql://db{port}/shop2" if not port else f"postgresql://db{port}/shop"
    said = problem(tmp_path, stored_in(other), "a")
    assert f"name two databases, {other.replace('postgresql:', 'postgresql+psycopg:')} and " in said
    assert "Remove offsets.store from [source]" in said


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("checkpoint", 'path = "/p"\ncheckpoint', "cannot use [sink] path with format 'streamgroup-sql'"),
        ("checkpoint", 'table = "t"\ncheckpoint', "cannot use [sink] table with format 'streamgroup-sql': dbtable in"),
        ("checkpoint", 'partition_by = ["id"]\ncheckpoint', "cannot use [sink] partition_by with format"),
        ("checkpoint", 'output_mode = "complete"\ncheckpoint', "cannot use [sink] output_mode complete with format"),
        ('keyColumns = "id"', "output_mode = 'update'", "[sink.options]: unknown option 'output_mode'"),
        ("checkpoint", "# checkpoint", "[sink] checkpoint is required"),
        ("{member}", "shared", "[sink] checkpoint does not contain {member}, but the job is member 'a'"),
        ("dbtable", "dbtabel", "Did you mean 'dbtable'?"),
        ('dbtable = "orders"', 'dbtable = "orders"\npath = "/p"', "Name the table with 'dbtable'"),
        ("//db", "//writer:canary@db", "[sink.options]: invalid value for option url: expected a URL without a pass"),
        ("postgresql:", "oracle:", "[sink.options]: invalid URL of a database: unsupported database 'oracle'"),
        ("PASSWORD", "NOTHING", "for [sink.options] password: the environment variable NOTHING is not set"),
        (DATABASE[DATABASE.index("[sink.options]") :], "", "section [sink.options] is required. Add it with the opt"),
    ],
)
def test_a_mistake_of_a_sink_in_a_database_is_named_with_the_next_step(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    message = problem(tmp_path, SOURCE + DATABASE.replace(old, new), "a")
    assert said in message
    assert "canary" not in message


def test_rows_are_updated_only_by_their_key(tmp_path: Path) -> None:
    updated = SOURCE + DATABASE.replace("checkpoint", 'output_mode = "update"\ncheckpoint')
    assert read(tmp_path, updated, "a").sink.output_mode == "update"
    message = problem(tmp_path, updated.replace('keyColumns = "id"', ""), "a")
    assert "cannot use [sink] output_mode update" in message
    assert "the keyColumns of the rows to replace" in message


@pytest.mark.parametrize("change", ["off", "none"])
def test_a_sink_in_a_database_needs_a_group(tmp_path: Path, change: str) -> None:
    source = SOURCE.replace('kafka.group.id = "g"\n', "") if change == "none" else SOURCE + 'group.mode = "off"\n'
    assert "cannot use format 'streamgroup-sql' without a group" in problem(tmp_path, source + DATABASE, "a")


def into_kafka(guarantee: str, options: str = 'topic = "copy", "kafka.bootstrap.servers" = "b:1"') -> str:
    return sink("streamgroup", checkpoint="/c", guarantee=guarantee) + f"options = {{ {options} }}\n"


def test_exactly_once_into_kafka_commits_the_offsets_in_the_transactions_of_the_sink(tmp_path: Path) -> None:
    job = read(tmp_path, into_kafka("exactly-once"))
    assert job.source["offsets.store"] == "transaction"
    assert (job.sink.in_transaction, job.sink.options["topic"]) == (True, "copy")
    job = read(tmp_path, into_kafka("at-least-once"))
    assert "offsets.store" not in job.source
    assert not job.sink.in_transaction


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (into_kafka("twice"), "[sink] guarantee: expected 'at-least-once' or 'exactly-once'"),
        (into_kafka("exactly-once", '"kafka.batch.sise" = "1"'), "[sink.options]: "),
        (
            sink("parquet", path="/p", checkpoint="/c", guarantee="exactly-once"),
            "only 'streamgroup' and 'streamgroup-sql' store offsets and rows in one transaction",
        ),
    ],
)
def test_a_guarantee_that_the_sink_cannot_give_is_refused(tmp_path: Path, text: str, said: str) -> None:
    assert said in problem(tmp_path, text)


def test_the_connection_that_the_offsets_inherit_is_printed_without_the_secret(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    for password, shown in (("env:PASSWORD", "env:PASSWORD"), ("hunter2", "[hidden]")):
        file.write_text(SOURCE + DATABASE.replace("env:PASSWORD", password))
        lines = effective(file, "a", {"PASSWORD": "hunter2"})
        assert "hunter2" not in "\n".join(lines)
        assert sum(line.endswith("# [sink.options]") for line in lines) == len(STORE)
        printed = tomllib.loads("\n".join(lines))
        assert (printed["sink"]["options"]["password"], printed["sink"]["options"]["dbtable"]) == (shown, "orders")
        file.write_text("\n".join(lines))
        again = load(file, None, {"PASSWORD": "hunter2"})
        assert {name: again.source[name] for name in STORE} == STORE | {"offsets.store.password": shown}


def test_a_database_without_its_python_package_is_refused_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert "the Python package psycopg is not installed. Install streamgroup[sql]" in problem(
        tmp_path, SOURCE + DATABASE, "a"
    )
    monkeypatch.delitem(sys.modules, "streamgroup.sql.database")
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    assert "the Python package sqlalchemy is not installed. Install streamgroup[sql]" in problem(
        tmp_path, SOURCE + DATABASE, "a"
    )
