from __future__ import annotations

from pathlib import Path

import pytest

from streamgroup.errors import ConfigError
from streamgroup.jobs.config import JobConfig, Sink, load
from streamgroup.jobs.job_file import Metrics, SparkSettings, StopSettings, Trigger

SOURCE = """
[source]
kafka.bootstrap.servers = "broker:9092"
kafka.group.id = "g"
subscribe = "orders"
"""
CONSOLE = '\n[sink]\nformat = "console"\n'


def read(tmp_path: Path, text: str, member: str | None = None, **environment: str) -> JobConfig:
    file = tmp_path / "job.toml"
    file.write_text(text)
    return load(file, member, environment)


def problem(tmp_path: Path, text: str, member: str | None = None, **environment: str) -> str:
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, text, member, **environment)
    return str(raised.value)


def test_the_smallest_job_has_defaults(tmp_path: Path) -> None:
    job = read(tmp_path, SOURCE + CONSOLE)
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


def test_keys_with_dots_need_no_quotes_and_may_have_them(tmp_path: Path) -> None:
    quoted = SOURCE.replace("kafka.group.id", '"kafka.group.id"')
    assert read(tmp_path, quoted + CONSOLE).source == read(tmp_path, SOURCE + CONSOLE).source


def test_a_key_given_twice_with_and_without_quotes_is_refused(tmp_path: Path) -> None:
    assert "kafka.group.id is set twice" in problem(tmp_path, SOURCE + '"kafka.group.id" = "h"\n' + CONSOLE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SOURCE + CONSOLE + "[zzz]\n", "unknown section [zzz]. The sections are [source], [trigger], [sink]"),
        (SOURCE + CONSOLE + "[stop]\nx = 3", "unknown key 'x' in section [stop]. Its keys are timeout_seconds"),
        (
            SOURCE + CONSOLE + "[trigger]\nonce = 1",
            "invalid value for [trigger] once: expected true or false without quotes, not a number",
        ),
        (SOURCE + CONSOLE + "path = 3", "invalid value for [sink] path: expected a text in quotes, not a number"),
        (SOURCE + CONSOLE + 'path = ""', "invalid value for [sink] path: expected a text in quotes, not an empty text"),
        (
            SOURCE + CONSOLE + "[stop]\ntimeout_seconds = 0",
            "for [stop] timeout_seconds: expected a number of seconds above 0",
        ),
        (
            SOURCE + CONSOLE + "[stop]\ntimeout_seconds = nan",
            "for [stop] timeout_seconds: expected a number of seconds above 0",
        ),
        (SOURCE + CONSOLE + "[stop]\ntimeout_seconds = true", "not true or false"),
        (SOURCE + CONSOLE + "options = 1", "for [sink] options: expected a table of options, not a number"),
        (
            SOURCE + CONSOLE + "options.a = 2020-01-01",
            "for [sink] options: invalid value for a: expected a text, a number, true or false, not a date or a time",
        ),
        (
            SOURCE + "includeHeaders = [true]" + CONSOLE,
            "[source]: invalid value for includeHeaders: expected one text with commas",
        ),
        (
            SOURCE + CONSOLE + 'output_mode = "apend"',
            "for [sink] output_mode: expected one of append, update, complete",
        ),
        (SOURCE + CONSOLE + 'options.checkpointLocation = "x"', "Write it as 'checkpoint' below [sink]"),
        (SOURCE + CONSOLE + 'options.Path = "x"', "Write it as 'path' below [sink]"),
        (
            SOURCE + CONSOLE + 'checkpoint = "/c/{membr}"',
            "unknown placeholder {membr} in [sink] checkpoint. The only placeholder is {member}",
        ),
        (
            SOURCE + CONSOLE + "[spark.conf]\nsql.x = 1",
            "unknown key 'sql.x' in [spark.conf]. The names of Spark settings begin with 'spark.'",
        ),
        (
            SOURCE + '[sink]\nformat = "parquet"\ncheckpoint = "/c"',
            "[sink] path is required for format 'parquet', which writes files",
        ),
        (SOURCE + '[sink]\nformat = "delta"\npath = "/p"', "[sink] checkpoint is required"),
        (SOURCE + '[sink]\nformat = "delta"\ntable = "t"', "[sink] checkpoint is required"),
        (
            SOURCE + '[sink]\nformat = "delta"\ntable = "t"\npath = "/p"\ncheckpoint = "/c"',
            "[sink] path and table are both set. Keep one of them",
        ),
        (
            SOURCE + '[sink]\nformat = "Parquet"\ntable = "t"\ncheckpoint = "/c"',
            "cannot use [sink] table with format 'parquet': Spark knows the batches in its files by their numbers",
        ),
        (
            SOURCE + CONSOLE + '[metrics]\nhost = "::"',
            "[metrics] port or otlp_endpoint is required. Set one, or remove the section",
        ),
        (SOURCE + CONSOLE + "[metrics]\nport = 65536", "expected a port from 0 to 65535, 0 for any free one"),
        (SOURCE + "[sink]\n", "[sink] format is required"),
        (SOURCE, "[sink] format is required"),
        (SOURCE + CONSOLE + "[trigger]\nonce = true\navailable_now = true", "once and available_now are set"),
        ("[source", "invalid TOML"),
    ],
)
def test_a_mistake_is_named_with_the_next_step(tmp_path: Path, text: str, said: str) -> None:
    message = problem(tmp_path, text)
    assert said in message
    assert str(tmp_path / "job.toml") in message


def test_a_trigger_set_to_false_is_not_set(tmp_path: Path) -> None:
    text = SOURCE + CONSOLE + '[trigger]\nonce = false\nprocessing_time = "5 seconds"'
    assert read(tmp_path, text).trigger == Trigger(processing_time="5 seconds")


def test_unknown_options_of_the_source_come_with_its_suggestion(tmp_path: Path) -> None:
    message = problem(tmp_path, SOURCE + 'startingOfsets = "latest"\n' + CONSOLE)
    assert "[source]: unknown option 'startingOfsets'. Did you mean 'startingOffsets'?" in message


def test_one_error_names_all_problems(tmp_path: Path) -> None:
    message = problem(tmp_path, SOURCE + "nonsense = 1" + CONSOLE + "paht = 'x'\n[stop]\ntimeout_seconds = 'x'")
    assert "3 problems" in message
    for said in ("nonsense", "paht", "timeout_seconds"):
        assert said in message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read job file .*absent.toml: No such file"):
        load(tmp_path / "absent.toml", environment={})


def test_a_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_bytes(b"a = '\xff'")
    with pytest.raises(ConfigError, match=r"byte 5 is not UTF-8, which TOML requires"):
        load(tmp_path / "job.toml", environment={})


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (f"a = {'[' * 5_000}", "too many nested levels"),
        (f"a = {'9' * 5_000}", "invalid TOML: Exceeds the limit"),
    ],
)
def test_a_file_that_python_cannot_take_in_is_named(tmp_path: Path, text: str, cause: str) -> None:
    (tmp_path / "job.toml").write_text(text)
    with pytest.raises(ConfigError, match=rf"cannot read job file .*job.toml: {cause}"):
        load(tmp_path / "job.toml", environment={})


@pytest.mark.parametrize("section", ["source", "spark.conf"])
def test_options_with_thousands_of_dots_are_refused(tmp_path: Path, section: str) -> None:
    dotted = "a." * 2_000
    text = SOURCE + CONSOLE if section != "source" else CONSOLE
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


def test_the_member_on_the_command_line_takes_precedence_over_the_variable(tmp_path: Path) -> None:
    assert read(tmp_path, MEMBERS, STREAMGROUP_MEMBER="b").sink.path == "/rows/b"
    assert read(tmp_path, MEMBERS, "a", STREAMGROUP_MEMBER="b").sink.path == "/rows/a"


def test_a_placeholder_without_a_member_is_an_error(tmp_path: Path) -> None:
    message = problem(tmp_path, MEMBERS, STREAMGROUP_MEMBER="")
    assert (
        "[sink] checkpoint contains {member}, but the job has no member name. Set "
        "--member or STREAMGROUP_MEMBER" in message
    )
    assert "[source] kafka.group.instance.id contains {member}" in message


@pytest.mark.parametrize("key", ["path", "checkpoint"])
def test_a_member_without_its_own_directory_is_an_error(tmp_path: Path, key: str) -> None:
    text = MEMBERS.replace(f'{key} = "/{"rows" if key == "path" else "checkpoints"}/{{member}}"', f'{key} = "/shared"')
    assert f"[sink] {key} does not contain {{member}}, but the job is member 'a'" in problem(tmp_path, text, "a")


def test_tables_that_many_writers_share_need_a_checkpoint_each_but_no_path_each(tmp_path: Path) -> None:
    text = SOURCE + '[sink]\nformat = "delta"\npath = "/table"\ncheckpoint = "/c/{member}"'
    assert read(tmp_path, text, "a").sink.path == "/table"


@pytest.mark.parametrize("member", ["a/b", "..", ".", "a b", "ä", "a" * 121])
def test_a_member_name_that_cannot_be_a_directory_name_is_refused(tmp_path: Path, member: str) -> None:
    assert "invalid member name" in problem(tmp_path, MEMBERS, member)


def test_secrets_come_from_the_environment(tmp_path: Path) -> None:
    text = SOURCE + CONSOLE + 'options.password = "env:DB_PASSWORD"'
    assert read(tmp_path, text, DB_PASSWORD="s3cret").sink.options == {"password": "s3cret"}
    assert "for [sink] options password: the environment variable DB_PASSWORD is not set" in problem(tmp_path, text)


def test_no_message_and_no_repr_shows_a_secret(tmp_path: Path) -> None:
    text = SOURCE + 'kafka.sasl.jaas.config = "env:JAAS"\n' + CONSOLE
    environment = {"JAAS": "canary"}
    try:
        shown = repr(read(tmp_path, text, **environment))
    except ConfigError as error:  # whether the option is available or not
        shown = str(error)
    assert "canary" not in shown
    shown = problem(tmp_path, SOURCE + CONSOLE + 'options.password = ["canary"]\nformat2 = "canary"')
    assert "canary" not in shown


def test_the_reference_to_a_secret_of_the_source_stays_one(tmp_path: Path) -> None:
    """The driver follows the reference, so neither Spark's plan nor the executors get the secret."""
    zookeeper = '[source]\nzookeeper.connect = "zk"\nzookeeper.username = "bob"\nzookeeper.password = "env:ZK"\n'
    text = zookeeper + 'kafka.group.id = "env:GROUP"\nsubscribe = "t"\n' + CONSOLE
    source = read(tmp_path, text, ZK="canary", GROUP="g").source
    assert (source["zookeeper.password"], source["kafka.group.id"]) == ("env:ZK", "g")
    assert "the environment variable ZK is not set" in problem(tmp_path, text.replace("env:GROUP", "g"))


EXAMPLES = sorted((Path(__file__).parents[3] / "conf").glob("*.toml"))


@pytest.mark.parametrize(
    "file",
    [file for file in EXAMPLES if not file.name.startswith(("mirror", "backfill"))],
    ids=lambda file: file.name,
)
def test_the_examples_are_jobs(file: Path) -> None:
    assert load(file, "a", {}).member == "a"


def test_metrics_are_served_where_a_port_is_set(tmp_path: Path) -> None:
    assert read(tmp_path, SOURCE + CONSOLE).metrics == Metrics()
    served = read(tmp_path, SOURCE + CONSOLE + '[metrics]\nport = 9404\nhost = "::"\ncluster_name = "prod"\n').metrics
    assert served == Metrics(9404, "::", "prod")
