from __future__ import annotations

from pathlib import Path

import pytest

from streamgroup.errors import ConfigError
from streamgroup.jobs.config import JobConfig, Sink, SparkSettings, Stop, Trigger, load

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
    assert (job.trigger, job.stop, job.spark, job.member) == (Trigger(), Stop(60.0), SparkSettings("job"), None)


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
    assert job.stop == Stop(1.5)


def test_keys_with_dots_need_no_quotes_and_may_have_them(tmp_path: Path) -> None:
    quoted = SOURCE.replace("kafka.group.id", '"kafka.group.id"')
    assert read(tmp_path, quoted + CONSOLE).source == read(tmp_path, SOURCE + CONSOLE).source


def test_a_key_given_twice_with_and_without_quotes_is_refused(tmp_path: Path) -> None:
    assert "kafka.group.id is given twice" in problem(tmp_path, SOURCE + '"kafka.group.id" = "h"\n' + CONSOLE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SOURCE + CONSOLE + "[skin]\n", "[skin] is no section: did you mean [sink]?"),
        (SOURCE + CONSOLE + "[zzz]\n", "[zzz] is no section: the sections are [source], [trigger], [sink]"),
        ('format = "x"\n' + SOURCE + CONSOLE, "format stands outside a section: it belongs below [sink]"),
        ("stop = 3\n" + SOURCE + CONSOLE, "stop is a section: write [stop]"),
        (SOURCE + CONSOLE + 'paht = "x"', "[sink] has no key 'paht': did you mean 'path'?"),
        (SOURCE + CONSOLE + "[stop]\nx = 3", "[stop] has no key 'x': its keys are timeout_seconds"),
        (
            SOURCE + CONSOLE + "[trigger]\nonce = 1",
            "[trigger] once: true or false is expected, without quotes, not a number",
        ),
        (SOURCE + CONSOLE + 'columns = "a"', "[sink] columns: a list of texts is expected"),
        (SOURCE + CONSOLE + 'columns = ["a", 3]', "[sink] columns: a list of texts is expected"),
        (SOURCE + CONSOLE + "path = 3", "[sink] path: a text in quotes is expected, not a number"),
        (SOURCE + CONSOLE + 'path = ""', "[sink] path: a text in quotes is expected, not an empty text"),
        (SOURCE + CONSOLE + "[stop]\ntimeout_seconds = 0", "[stop] timeout_seconds: a number of seconds above 0"),
        (SOURCE + CONSOLE + "[stop]\ntimeout_seconds = nan", "[stop] timeout_seconds: a number of seconds above 0"),
        (SOURCE + CONSOLE + "[stop]\ntimeout_seconds = true", "not true or false"),
        (SOURCE + CONSOLE + "options = 1", "[sink] options: a table of options is expected, not a number"),
        (SOURCE + CONSOLE + "options.a = 2020-01-01", "[sink] options: a is a date or a time"),
        (SOURCE + "includeHeaders = [true]" + CONSOLE, "[source]: includeHeaders is a list"),
        (SOURCE + CONSOLE + 'output_mode = "apend"', "[sink] output_mode is one of append, update, complete"),
        (SOURCE + CONSOLE + 'options.checkpointLocation = "x"', "write it as 'checkpoint' below [sink]"),
        (SOURCE + CONSOLE + 'options.Path = "x"', "write it as 'path' below [sink]"),
        (
            SOURCE + CONSOLE + 'checkpoint = "/c/{membr}"',
            "[sink] checkpoint holds {membr}: the one placeholder is {member}",
        ),
        (SOURCE + CONSOLE + "[spark.conf]\nsql.x = 1", "[spark.conf] 'sql.x': Spark's settings begin with 'spark.'"),
        (
            SOURCE + '[sink]\nformat = "parquet"\ncheckpoint = "/c"',
            "[sink] path is missing: format 'parquet' writes files",
        ),
        (SOURCE + '[sink]\nformat = "delta"\npath = "/p"', "[sink] checkpoint is missing"),
        (SOURCE + "[sink]\n", "[sink] format is missing"),
        (SOURCE, "[sink] format is missing"),
        (CONSOLE, "[source] is missing"),
        (SOURCE + CONSOLE + "[trigger]\nonce = true\navailable_now = true", "once and available_now are given"),
        ("[source", "is not TOML"),
    ],
)
def test_a_mistake_is_named_with_the_way_out(tmp_path: Path, text: str, said: str) -> None:
    message = problem(tmp_path, text)
    assert said in message
    assert str(tmp_path / "job.toml") in message


def test_a_trigger_that_is_false_is_not_given(tmp_path: Path) -> None:
    text = SOURCE + CONSOLE + '[trigger]\nonce = false\nprocessing_time = "5 seconds"'
    assert read(tmp_path, text).trigger == Trigger(processing_time="5 seconds")


def test_unknown_options_of_the_source_come_with_its_suggestion(tmp_path: Path) -> None:
    message = problem(tmp_path, SOURCE + 'startingOfsets = "latest"\n' + CONSOLE)
    assert "[source]: unknown option 'startingOfsets'. Did you mean 'startingOffsets'?" in message


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    message = problem(tmp_path, SOURCE + "nonsense = 1" + CONSOLE + "paht = 'x'\n[stop]\ntimeout_seconds = 'x'")
    assert "3 problems" in message
    for said in ("nonsense", "paht", "timeout_seconds"):
        assert said in message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent.toml cannot be read: No such file"):
        load(tmp_path / "absent.toml", environment={})


def test_a_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_bytes(b"a = '\xff'")
    with pytest.raises(ConfigError, match=r"not UTF-8, which TOML must be: byte 5"):
        load(tmp_path / "job.toml", environment={})


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


def test_the_member_of_the_command_line_goes_before_the_variable(tmp_path: Path) -> None:
    assert read(tmp_path, MEMBERS, STREAMGROUP_MEMBER="b").sink.path == "/rows/b"
    assert read(tmp_path, MEMBERS, "a", STREAMGROUP_MEMBER="b").sink.path == "/rows/a"


def test_a_placeholder_without_a_member_is_an_error(tmp_path: Path) -> None:
    message = problem(tmp_path, MEMBERS, STREAMGROUP_MEMBER="")
    assert "[sink] checkpoint holds {member}: name the member with --member or STREAMGROUP_MEMBER" in message
    assert "[source] kafka.group.instance.id holds {member}" in message


@pytest.mark.parametrize("key", ["path", "checkpoint"])
def test_a_member_without_a_place_of_its_own_is_an_error(tmp_path: Path, key: str) -> None:
    text = MEMBERS.replace(f'{key} = "/{"rows" if key == "path" else "checkpoints"}/{{member}}"', f'{key} = "/shared"')
    assert f"[sink] {key} does not hold {{member}}, and this job is member 'a'" in problem(tmp_path, text, "a")


def test_tables_that_many_writers_share_need_a_checkpoint_each_but_no_path_each(tmp_path: Path) -> None:
    text = SOURCE + '[sink]\nformat = "delta"\npath = "/table"\ncheckpoint = "/c/{member}"'
    assert read(tmp_path, text, "a").sink.path == "/table"


@pytest.mark.parametrize("member", ["a/b", "..", ".", "a b", "ä", "a" * 121])
def test_a_member_that_is_no_directory_name_is_refused(tmp_path: Path, member: str) -> None:
    assert "cannot name a member" in problem(tmp_path, MEMBERS, member)


def test_secrets_come_from_the_environment(tmp_path: Path) -> None:
    text = SOURCE + CONSOLE + 'options.password = "env:DB_PASSWORD"'
    assert read(tmp_path, text, DB_PASSWORD="s3cret").sink.options == {"password": "s3cret"}
    assert "[sink] options password refers to the environment variable DB_PASSWORD, which is not set" in problem(
        tmp_path, text
    )


def test_secrets_stand_in_no_message_and_no_repr(tmp_path: Path) -> None:
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
    """The driver follows it: so the secret enters neither Spark's plan nor what travels to executors."""
    zookeeper = '[source]\nzookeeper.connect = "zk"\nzookeeper.username = "bob"\nzookeeper.password = "env:ZK"\n'
    text = zookeeper + 'kafka.group.id = "env:GROUP"\nsubscribe = "t"\n' + CONSOLE
    source = read(tmp_path, text, ZK="canary", GROUP="g").source
    assert (source["zookeeper.password"], source["kafka.group.id"]) == ("env:ZK", "g")
    assert "environment variable ZK, which is not set" in problem(tmp_path, text.replace("env:GROUP", "g"))


@pytest.mark.parametrize(
    "file", sorted((Path(__file__).parents[3] / "conf").glob("*.toml")), ids=lambda file: file.name
)
def test_the_examples_are_jobs(file: Path) -> None:
    assert load(file, "a", {}).member == "a"
