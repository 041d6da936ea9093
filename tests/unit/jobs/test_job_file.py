"""A job file is read section by section, and one error names all of its problems."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from streamgroup.errors import ConfigError
from streamgroup.jobs import config, ingest
from streamgroup.jobs.job_file import HIDDEN, JobFileReader, StopSettings, read_toml
from streamgroup.jobs.keys import (
    COUNT,
    COUNT_FROM_ZERO,
    FLAG,
    LARGE_COUNT,
    OPTIONS,
    PORT,
    SECONDS,
    SHARE,
    TEXT,
    TEXTS,
    Key,
)
from streamgroup.jobs.keys import SECTIONS as INGEST_SECTIONS
from streamgroup.jobs.mirror import command as mirror
from streamgroup.jobs.mirror import config as mirror_config
from streamgroup.options.kinds import ValueKind
from streamgroup.options.rows import Option, Scope

SECTIONS = {
    "sink": (
        Key("format", TEXT, "Format of the sink.", required=True),
        Key("path", TEXT, "Directory of the rows."),
        Key("mode", TEXT, "Output mode.", default='"append"'),
        Key("columns", TEXTS, "Columns to write."),
        Key("options", OPTIONS, "Options of the sink."),
    ),
    "spark": (Key("app_name", TEXT, "Name of the application."),),
}
SOURCE = {"source": ((Option("failOnDataLoss", target="source.fail_on_data_loss"),), Scope.STREAM)}
SECRET = "kafka.sasl.jaas.config"


def reader(member: str | None = None, **environment: str) -> JobFileReader:
    return JobFileReader(Path("job.toml"), member, environment, sections=SECTIONS, of_options=SOURCE)


# -- the file ----------------------------------------------------------------------------------------------------------


def test_the_content_of_a_file_is_that_of_its_toml(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text('[sink]\npath = "/größe"\nkafka.group.id = "g"\n', encoding="utf-8")
    assert read_toml(file) == {"sink": {"path": "/größe", "kafka": {"group": {"id": "g"}}}}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a = \xff", "byte 4 is not UTF-8, which TOML requires. Save the file as UTF-8"),
        (b"a = b", "invalid TOML: Invalid value (at line 1, column 5). Check that texts are in quotes"),
    ],
    ids=["not UTF-8", "no quotes"],
)
def test_a_file_that_is_not_toml_is_an_error_that_names_the_file_and_the_place(
    content: bytes, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "job.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_toml(file)
    assert str(caught.value).startswith(f"cannot read job file {file}: {said}")


def test_a_file_that_cannot_be_opened_is_an_error_with_the_cause_and_the_option(tmp_path: Path) -> None:
    for file, cause in ((tmp_path / "none.toml", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError) as caught:
            read_toml(file)
        assert str(caught.value) == f"cannot read job file {file}: {cause}. Check the path after --config"


def test_one_problem_stands_alone_and_several_are_listed() -> None:
    read = reader()
    read.raise_problems()
    read.problems.append("first")
    with pytest.raises(ConfigError, match=r"^invalid job file job\.toml: first$"):
        read.raise_problems()
    read.problems.append("second")
    with pytest.raises(ConfigError, match=r"^invalid job file job\.toml: 2 problems:\n  - first\n  - second$"):
        read.raise_problems()


# -- sections and values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"snik": {}}, "unknown section [snik]. Did you mean [sink]?"),
        ({"xyz": {}}, "unknown section [xyz]. The sections are [source], [sink], [spark]"),
        ({"format": "csv"}, "key 'format' has no section. Move it below [sink]"),
        ({"xyz": 1}, "key 'xyz' has no section. The sections are [source], [sink], [spark]"),
        ({"sink": "csv"}, "'sink' is a section, not a key. Write [sink] on a separate line"),
    ],
)
def test_an_entry_that_is_not_a_section_is_a_problem_with_the_next_step(document: dict[str, Any], problem: str) -> None:
    read = reader()
    assert read.sections({"spark": {}, **document}) == {"spark": {}}
    assert read.problems == [problem]


def test_missing_and_unknown_keys_and_values_of_another_kind_are_all_reported() -> None:
    read = reader()
    assert read.values("sink", {"paht": "x", "columns": "a", "path": "/p"}) == {"path": "/p"}
    unknown, invalid, missing = read.problems
    assert unknown == "unknown key 'paht' in section [sink]. Did you mean 'path'?"
    assert invalid.startswith("invalid value for [sink] columns: expected a list of texts")
    assert missing == "[sink] format is required. Format of the sink."


def test_references_and_the_member_are_filled_in_wherever_a_text_stands() -> None:
    read = reader("a", HOME="/home", FORMAT="csv")
    content = {
        "format": "env:FORMAT",
        "path": "{member}/{member}",
        "columns": ["env:HOME", "'{member}'", "env:HOME/x"],
        "options": {"dir": "env:HOME", "n": 3},
    }
    assert read.values("sink", content) == {
        "format": "csv",
        "path": "a/a",
        "columns": ("/home", "'a'", "env:HOME/x"),
        "options": {"dir": "/home", "n": "3"},
    }
    assert read.problems == []
    assert read.has_member("[sink] path")
    assert not read.has_member("[sink] format")


def test_a_reference_to_a_variable_that_is_not_set_is_a_problem_that_names_the_place() -> None:
    read = reader()
    assert read.values("sink", {"format": "csv", "options": {"password": "env:DB"}})["options"] == {"password": ""}
    assert read.problems == [
        "invalid value for [sink] options password: the environment variable DB is not set. Set it for the job"
    ]


def test_a_placeholder_without_a_member_stays_and_is_a_problem() -> None:
    read = reader(STREAMGROUP_MEMBER="")
    assert read.values("sink", {"format": "csv", "path": "/{member}"})["path"] == "/{member}"
    assert read.problems == [
        "[sink] path contains {member}, but the job has no member name. Set --member or STREAMGROUP_MEMBER"
    ]


def test_options_are_flat_texts_and_a_reference_to_a_secret_stays_one() -> None:
    read = reader("a", JAAS="canary", GROUP="g")
    content = {SECRET: "env:JAAS", "kafka": {"group": {"id": "env:GROUP"}}, "subscribe": "t-{member}", "x": True}
    found = read.options("source", content, "the options of the read")
    assert found == {SECRET: "env:JAAS", "kafka.group.id": "g", "subscribe": "t-a", "x": "true"}
    assert read.problems == []
    assert "canary" not in "\n".join(read.effective())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "section [source] is required. Add it with the options of the read"),
        ({}, "section [source] is required. Add it with the options of the read"),
        ({"subscribe": ["a", "b"]}, "[source]: invalid value for subscribe: expected one text with commas"),
    ],
)
def test_a_section_of_options_is_required_and_options_of_another_kind_are_its_problem(
    content: dict[str, Any] | None, said: str
) -> None:
    read = reader()
    assert read.options("source", content, "the options of the read") == {}
    (problem,) = read.problems
    assert problem.startswith(said)


def test_a_secret_whose_variable_is_not_set_is_a_problem_before_the_driver_follows_it() -> None:
    read = reader()
    read.options("source", {SECRET: "env:JAAS"}, "the options of the read")
    (problem,) = read.problems
    assert problem.startswith(f"invalid value for [source] {SECRET}: the environment variable JAAS is not set")


# -- the member --------------------------------------------------------------------------------------------------------


def test_the_member_of_the_command_line_wins_over_that_of_the_environment() -> None:
    members = [reader("a", STREAMGROUP_MEMBER="b"), reader(STREAMGROUP_MEMBER="b"), reader(), reader("")]
    assert [read.member for read in members] == ["a", "b", None, None]


@pytest.mark.parametrize("member", ["a", "A.b_c-9", "..a", "a" * 120])
def test_a_member_name_may_be_the_name_of_a_directory(member: str) -> None:
    read = reader(member)
    read.check_member()
    assert (read.member, read.problems) == (member, [])


@pytest.mark.parametrize("member", ["a/b", ".", "...", "a b", "ä", "a" * 121, "a\n"])
def test_another_member_name_is_one_problem_and_the_rest_of_the_file_is_still_read(member: str) -> None:
    read = reader(member)
    read.check_member()
    (problem,) = read.problems
    assert problem.startswith(f"invalid member name {member!r}: expected up to 120 letters")
    assert read.values("sink", {"format": "csv", "path": "/{member}"})["path"] == "/member"


Check = Callable[[JobFileReader], None]


@pytest.mark.parametrize(
    ("check", "problem"),
    [
        (lambda read: read.check_trigger({}), None),
        (lambda read: read.check_trigger({"once": False, "processing_time": "1 second"}), None),
        (
            lambda read: read.check_trigger({"once": True, "processing_time": "1 second"}),
            "[trigger] accepts one key, but once and processing_time are set. Keep one of them",
        ),
        (lambda read: read.check_placeholders("sink", {"path": "/{member}/{}"}, ("table",)), None),
        (lambda read: read.check_placeholders("sink", {"path": "/{member}"}, ("path",)), None),
        (
            lambda read: read.check_placeholders("sink", {"path": "/{member}/{}"}, ("path",)),
            "unknown placeholder {} in [sink] path. The only placeholder is {member}",
        ),
        (lambda read: read.check_target({"path": "/p"}), None),
        (
            lambda read: read.check_target({"path": "/p", "table": "t"}),
            "[sink] path and table are both set. Keep one of them",
        ),
        (lambda read: read.check_options_of_sink({"options": {"sep": ";"}}, {"path": "path"}), None),
        (
            lambda read: read.check_options_of_sink({"options": {"Path": "/c"}}, {"path": "path"}),
            "cannot use path in [sink.options]: the job sets it. Write it as 'path' below [sink]",
        ),
        (lambda read: read.check_metrics({}), None),
        (lambda read: read.check_metrics({"host": "::", "port": 0}), None),
        (lambda read: read.check_metrics({"otlp_endpoint": "http://c:4318"}), None),
        (
            lambda read: read.check_metrics({"host": "::"}),
            "[metrics] port or otlp_endpoint is required. Set one, or remove the section",
        ),
        (lambda read: read.check_spark({"conf": {"spark.a": "1"}}), None),
        (
            lambda read: read.check_spark({"conf": {"sql.a": "1"}}),
            "unknown key 'sql.a' in [spark.conf]. The names of Spark settings begin with 'spark.'",
        ),
    ],
)
def test_a_check_adds_a_problem_with_the_next_step_or_none(check: Check, problem: str | None) -> None:
    read = reader()
    check(read)
    assert read.problems == ([] if problem is None else [problem])


@pytest.mark.parametrize(
    ("member", "path", "is_refused"), [("a", "/{member}", False), ("a", "/shared", True), (None, "/shared", False)]
)
def test_members_need_a_path_each(member: str | None, path: str, is_refused: bool) -> None:
    read = reader(member)
    values = read.values("sink", {"format": "csv", "path": path})
    read.check_paths_of_members("sink", values, ("path", "columns"))
    assert len(read.problems) == is_refused
    assert all("[sink] path does not contain {member}, but the job is member 'a'" in each for each in read.problems)


# -- the effective configuration ---------------------------------------------------------------------------------------


def test_the_effective_configuration_has_set_values_and_defaults_each_with_its_origin() -> None:
    read = reader("a", FORMAT="csv")
    read.values("sink", {"format": "env:FORMAT", "path": "/{member}", "options": {"password": "p", "sep": ";"}})
    read.options("source", {"FAILONDATALOSS": "false"}, "")
    read.note("source", {"startingOffsets": "earliest"}, "the mirror")
    assert [" ".join(line.split()) for line in read.effective()] == [
        "# job.toml, as member a (--member)",
        "[source]",
        'FAILONDATALOSS = "false" # file',
        'startingOffsets = "earliest" # the mirror',
        "",
        "[sink]",
        'format = "env:FORMAT" # environment variable FORMAT',
        'path = "/a" # file, {member} from --member',
        'mode = "append" # default',
        "",
        "[sink.options]",
        'password = "[hidden]" # file',
        'sep = ";" # file',
        "",
        "[spark]",
        'app_name = "job" # default, the name of the file',
    ]
    of_environment = reader(STREAMGROUP_MEMBER="b").effective()
    assert of_environment[0] == "# job.toml, as member b (environment variable STREAMGROUP_MEMBER)"
    assert "failOnDataLoss = true  # default" in of_environment


ROOT = Path(__file__).parents[3]
INGEST, MIRROR = ROOT / "conf" / "ingest.toml", ROOT / "conf" / "mirror.toml"
EFFECTIVE_SOURCE = """
[source]
kafka.bootstrap.servers = "broker:9092"
kafka.group.id = "g"
subscribe = "orders"
"""


def lines(tmp_path: Path, text: str, member: str | None = None, **environment: str) -> list[str]:
    file = tmp_path / "job.toml"
    file.write_text(text)
    return config.effective(file, member, environment)


def line(found: list[str], key: str) -> str:
    (only,) = (line for line in found if line.startswith(f"{key} = "))
    return " ".join(only.split())


def test_no_secret_is_shown_but_references_are(tmp_path: Path) -> None:
    text = (
        EFFECTIVE_SOURCE
        + 'kafka.ssl.keystore.location = "/k.p12"\nkafka.ssl.keystore.password = "hunter2"\n'
        + 'kafka.ssl.truststore.location = "/t.p12"\nkafka.ssl.truststore.password = "file:/run/secret"\n'
        + 'kafka.security.protocol = "SSL"\nkafka.ssl.keystore.type = "PKCS12"\nkafka.ssl.truststore.type = "PKCS12"\n'
        + '[sink]\nformat = "console"\noptions = { password = "hunter3", token = "env:TOKEN" }\n'
        + '[spark]\nconf = { "spark.authenticate.secret" = "hunter4", '
        + '"spark.hadoop.fs.azure.account.key.n" = "hunter6", '
        + '"spark.hadoop.javax.jdo.option.ConnectionURL" = "jdbc:mysql://db/x?user=u&password=hunter7" }\n'
    )
    found = lines(tmp_path, text, TOKEN="hunter5")
    assert "hunter" not in "\n".join(found)
    assert line(found, "kafka.ssl.keystore.password") == f'kafka.ssl.keystore.password = "{HIDDEN}" # file'
    assert line(found, "kafka.ssl.truststore.password").startswith(
        'kafka.ssl.truststore.password = "file:/run/secret" #'
    )
    assert line(found, "token") == 'token = "env:TOKEN" # environment variable TOKEN'


def test_an_invalid_file_is_refused_as_by_the_job(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\[sink\] format is required"):
        lines(tmp_path, EFFECTIVE_SOURCE)


def test_the_mirror_shows_what_it_sets_itself(tmp_path: Path) -> None:
    found = mirror_config.effective(MIRROR, "a", {})
    assert line(found, "startingOffsets") == 'startingOffsets = "earliest" # the mirror'
    assert line(found, "orders") == 'orders = "orders-copy" # file'


@pytest.mark.parametrize(("job", "file"), [(ingest.main, INGEST), (mirror.main, MIRROR)], ids=["ingest", "mirror"])
def test_the_printed_configuration_is_a_job_file_again(
    job: object, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(job)
    job(["--config", str(file), "--member", "a", "--print-config"])
    printed = capsys.readouterr().out
    tomllib.loads(printed)
    again = tmp_path / "again.toml"
    again.write_text(printed)
    load = config.load if file is INGEST else mirror_config.load
    assert load(again, None, {}).source.items() >= load(file, "a", {}).source.items()


def test_the_defaults_of_keys_are_those_of_the_job() -> None:
    defaults = {key.name: key.default for keys in INGEST_SECTIONS.values() for key in keys if key.default}
    assert defaults == {
        "output_mode": f'"{config.Sink("x").output_mode}"',
        "guarantee": f'"{config.Sink("x").guarantee}"',
        "timeout_seconds": f"{StopSettings().timeout_seconds:g}",
    }


INF, NAN = float("inf"), float("nan")


def refused(kind: ValueKind, value: object) -> str:
    with pytest.raises(ValueError, match=r"^(expected|invalid value for) ") as caught:
        kind.parse(value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "type_", "accepted", "others"),
    [
        (SECONDS, float, [0.001, 1, 86_400], [0, -1, 86_400.5, INF, NAN]),
        (COUNT, int, [1, 32_767], [0, -1, 32_768, 1.0]),
        (LARGE_COUNT, int, [1, 2**63 - 1], [0, 2**63, 1.5]),
        (COUNT_FROM_ZERO, int, [0, 2**63 - 1], [-1, 2**63, 0.0]),
        (SHARE, float, [0, 0.1, 1], [-0.1, 1.1, NAN]),
        (PORT, int, [0, 9404, 65_535], [-1, 65_536, 80.0]),
    ],
    ids=["seconds", "count", "large count", "count from zero", "share", "port"],
)
def test_a_number_is_accepted_up_to_its_bounds(
    kind: ValueKind, type_: type, accepted: list[float], others: list[float]
) -> None:
    assert [kind.parse(value) for value in accepted] == accepted
    assert type(kind.parse(1)) is type_
    for value in (*others, True, "1", [1], {"a": 1}, date(2026, 1, 1)):
        assert ", not " in refused(kind, value)


@pytest.mark.parametrize(
    ("kind", "accepted", "others"),
    [
        (TEXT, [("a", "a"), (" a ", " a ")], ["", " ", 1, True, ["a"]]),
        (FLAG, [(True, True), (False, False)], ["true", 0, 1, []]),
        (TEXTS, [(["a"], ("a",)), (["a", "b c"], ("a", "b c"))], ["a", [], ["a", ""], ["a", 1], [["a"]]]),
    ],
    ids=["text", "flag", "texts"],
)
def test_a_text_a_flag_and_a_list_accept_no_other_type(
    kind: ValueKind, accepted: list[tuple[Any, Any]], others: list[Any]
) -> None:
    assert [kind.parse(value) for value, _ in accepted] == [parsed for _, parsed in accepted]
    for value in others:
        refused(kind, value)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("", "an empty text"),
        ("canary", "a text"),
        (True, "true or false"),
        (-7, "a number"),
        (0.5, "a number"),
        (["canary"], "a list"),
        ({"canary": "canary"}, "a table"),
        (date(2026, 1, 1), "a date or a time"),
    ],
)
def test_an_error_names_the_type_in_the_words_of_toml_and_never_the_value(value: object, named: str) -> None:
    said = refused(PORT, value)
    assert said == f"expected a port from 0 to 65535, 0 for any free one, not {named}"


def test_options_are_flat_texts_whether_their_dots_are_in_quotes_or_not() -> None:
    document = tomllib.loads('kafka.group.id = "g"\n"kafka.client.id" = "c"\nflag = true\nn = 3\nshare = 0.5')
    flat = {"kafka.group.id": "g", "kafka.client.id": "c", "flag": "true", "n": "3", "share": "0.5"}
    assert OPTIONS.parse(document) == flat
    assert OPTIONS.parse({}) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('a.b = "canary"\n"a.b" = "x"', "a.b is set twice, once in quotes and once without. Remove one of them"),
        ('a.b = ["canary"]', 'invalid value for a.b: expected one text with commas, for example "a,b", not a list'),
        ("a.b = 2026-01-01", "invalid value for a.b: expected a text, a number, true or false, not a date or a time"),
    ],
)
def test_an_option_that_is_not_one_text_is_refused_by_its_whole_name(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        OPTIONS.parse(tomllib.loads(text))


def test_tables_nested_too_deeply_are_an_error_and_not_a_crash() -> None:
    table: dict[str, object] = {"a": "x"}
    for _ in range(5_000):
        table = {"a": table}
    with pytest.raises(ValueError, match="too many nested tables, one for each dot in a name without quotes"):
        OPTIONS.parse(table)


def test_options_that_are_not_a_table_are_refused() -> None:
    assert refused(OPTIONS, "a=b") == "expected a table of options, not a text"


KEYS = [(section, key) for section, keys in INGEST_SECTIONS.items() for key in keys]


@pytest.mark.parametrize(("section", "key"), KEYS, ids=[f"{section}.{key.name}" for section, key in KEYS])
def test_a_key_is_described_and_its_default_is_a_value_that_it_accepts(section: str, key: Key) -> None:
    assert key.doc.endswith(".")
    assert [each.name for each in INGEST_SECTIONS[section]].count(key.name) == 1
    if key.default:
        assert not key.required, "a required key is never without a value"
        value = tomllib.loads(f"value = {key.default}")["value"]
        assert key.kind.parse(value) == value
