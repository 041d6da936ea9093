"""The file of a mirror."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamgroup.errors import ConfigError
from streamgroup.jobs.job_file import SparkSettings, StopSettings, Trigger
from streamgroup.jobs.mirror.config import (
    SECTIONS,
    MirrorConfig,
    Placements,
    Renaming,
    check_pattern,
    effective,
    load,
)
from streamgroup.jobs.mirror.plan import Placement
from streamgroup.options.parse import parse_source
from streamgroup.options.types import Isolation
from tests.unit.test_java_regex import SLOW, SLOW_NAME

ROOT = Path(__file__).parents[4]
SOURCE = '[source]\nkafka.bootstrap.servers = "old:9092"\nkafka.group.id = "g"\nsubscribe = "orders"\n'
DESTINATION = '[destination]\nkafka.bootstrap.servers = "new:9092"\n'
MIRROR = '[mirror]\ncheckpoint = "c"\nplan = "p"\n'
LEAST = SOURCE + DESTINATION + MIRROR
IN_FLIGHT = "kafka.max.in.flight.requests.per.connection"


def of_source(keys: str) -> str:
    """The smallest mirror with more keys of its source."""
    return LEAST.replace("[destination]", f"{keys}\n[destination]")


def of_destination(keys: str) -> str:
    return LEAST.replace("[mirror]", f"{keys}\n[mirror]")


def read(tmp_path: Path, text: str, member: str | None = None) -> MirrorConfig:
    file = tmp_path / "job.toml"
    file.write_text(text)
    return load(file, member, {})


def problem(tmp_path: Path, text: str, member: str | None = None) -> str:
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, text, member)
    return str(raised.value)


def test_the_smallest_mirror_has_defaults(tmp_path: Path) -> None:
    config = read(tmp_path, LEAST)
    assert config.source["startingOffsets"] == "earliest", "a mirror copies what is there"
    assert config.source["kafka.isolation.level"] == "read_committed", "a copy has no transactions that hide records"
    assert config.destination == {"kafka.bootstrap.servers": "new:9092"}
    assert (config.checkpoint, config.plan, config.create) == ("c", "p", False)
    assert (config.placements, config.renaming) == (Placements(), Renaming())
    assert (config.trigger, config.stop, config.spark) == (Trigger(), StopSettings(60.0), SparkSettings("job"))


@pytest.mark.parametrize("name", ["kafka.isolation.level", "Kafka.Isolation.Level"])
def test_a_start_and_an_isolation_level_of_its_own_are_kept(tmp_path: Path, name: str) -> None:
    config = read(tmp_path, of_source(f'startingTimestamp = 5\n{name} = "read_uncommitted"'))
    assert "startingOffsets" not in config.source
    levels = {given: level for given, level in config.source.items() if "isolation" in given.lower()}
    assert levels == {name: "read_uncommitted"}


def test_a_source_in_zookeeper_takes_the_default_isolation_level_without_an_error(tmp_path: Path) -> None:
    config = read(tmp_path, LEAST.replace('kafka.bootstrap.servers = "old:9092"', 'zookeeper.connect = "old:2181"'))
    assert parse_source(config.source, streaming=True, strict=True).fetch.isolation is Isolation.READ_COMMITTED


def exactly_once(text: str = LEAST) -> str:
    return text.replace('plan = "p"', 'plan = "p"\nguarantee = "exactly-once"')


def test_exactly_once_commits_the_offsets_in_the_transactions_of_the_copy(tmp_path: Path) -> None:
    config = read(tmp_path, exactly_once())
    assert (config.in_transaction, config.source["offsets.store"]) == (True, "transaction")
    shown = [line for line in effective(tmp_path / "job.toml", None, {}) if "offsets.store" in line]
    assert len(shown) == 1
    assert shown[0].endswith("# [mirror] guarantee")
    config = read(tmp_path, exactly_once(of_source('Offsets.Store = "transaction"')))
    assert "offsets.store" not in config.source
    config = read(tmp_path, LEAST)
    assert (config.in_transaction, "offsets.store" in config.source) == (False, False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (exactly_once().replace("exactly-once", "twice"), "expected 'at-least-once' or 'exactly-once'"),
        (exactly_once(LEAST.replace('kafka.group.id = "g"\n', "")), "without a member of a group that commits"),
        (exactly_once(of_source('group.mode = "commit"')), "offsets.store=transaction without a membership"),
        (
            exactly_once(LEAST.replace('kafka.bootstrap.servers = "old:9092"', 'zookeeper.connect = "old:2181"')),
            "cannot use offsets.store with a group that stores its offsets in ZooKeeper",
        ),
        (
            exactly_once(of_source('kafka.isolation.level = "read_uncommitted"')),
            "the copy would have the records of aborted transactions. Remove kafka.isolation.level",
        ),
        (of_source('offsets.store = "transaction"'), "Set [mirror] guarantee = 'exactly-once'"),
    ],
)
def test_a_mirror_that_cannot_copy_in_transactions_is_refused(tmp_path: Path, text: str, said: str) -> None:
    assert said in problem(tmp_path, text)


def test_every_key_arrives(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        LEAST.replace('"c"', '"c/{member}"')
        + """
        [topics]
        partitions = "hash"
        partitions_of = { "a.b" = "keep" }
        create = true
        replication_factor = 2
        [rename]
        prefix = "p-"
        match = "(x)"
        replace = '\\1'
        table = { a.b = "c" }
        [trigger]
        once = true
        [spark]
        app_name = "it"
        conf = { spark.x = 3 }
        [stop]
        timeout_seconds = 2
        [verify]
        source = { endingTimestamp = 7 }
        destination = { startingTimestamp = 5 }
        """,
        "m",
    )
    assert config.placements == Placements(Placement.HASH, {"a.b": Placement.KEEP})
    assert config.placements.of("a.b") is Placement.KEEP
    assert config.placements.of("other") is Placement.HASH
    assert config.renaming == Renaming({"a.b": "c"}, "(x)", r"\1", "p-")
    assert (config.create, config.replication_factor) == (True, 2)
    assert (config.checkpoint, config.member) == ("c/m", "m")
    assert (config.trigger, config.stop) == (Trigger(once=True), StopSettings(2.0))
    assert config.spark == SparkSettings("it", {"spark.x": "3"})
    assert (config.verify_source, config.verify_destination) == ({"endingTimestamp": "7"}, {"startingTimestamp": "5"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (DESTINATION + MIRROR, "section [source] is required. Add it with the options of a read"),
        (SOURCE + MIRROR, "section [destination] is required. Add it with the options of a write"),
        (SOURCE + DESTINATION, "[mirror] checkpoint is required"),
        (LEAST + "[topics]\nreplication_factor = 32768", "expected a whole number from 1 to 32767"),
        (LEAST + "[topic]\n", "unknown section [topic]. Did you mean [topics]?"),
        (LEAST + '[topics]\npartitions = "keeep"', "for [topics] partitions. Did you mean 'keep'?"),
        (LEAST + '[topics.partitions_of]\na = "x"', "for [topics.partitions_of] a. Set one of keep, hash, auto"),
        (LEAST + '[rename]\nmatch = "("', "invalid value in [rename]: match is not a regular expression"),
        (LEAST + '[rename]\nreplace = "x"', "[rename] replace has no effect without match"),
        (LEAST.replace("subscribe =", "subscribee ="), "[source]: "),
        (of_source("minPartitions = 9"), "would mix up the order of its records"),
        (of_source("includeDamagedBatches = true"), "cannot set includeDamagedBatches in [source]"),
        (of_source("includeHeaders = true"), "cannot set includeHeaders in [source]"),
        (of_destination('topic = "t"'), "cannot set topic in [destination]: all records would go"),
        (of_destination("kafka.acks = 0"), "the mirror would not notice lost records"),
        (
            of_destination(f"kafka.acks = 1\n{IN_FLIGHT} = 5"),
            f"{IN_FLIGHT} in [destination] must be 1 without idempotence",
        ),
        (LEAST.replace('"c"', '"{name}"'), "unknown placeholder {name} in [mirror] checkpoint"),
        (LEAST + '[spark.conf]\nspark.speculation = "true"', "cannot use spark.speculation"),
        (LEAST + "[verify]\nsource = { assign = 1 }", "cannot set assign in [verify.source]"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, said: str) -> None:
    assert said in problem(tmp_path, text)


def test_members_need_checkpoints_of_their_own_and_one_plan(tmp_path: Path) -> None:
    assert "[mirror] checkpoint does not contain {member}" in problem(tmp_path, LEAST, "a")
    own = LEAST.replace('"c"', '"{member}"').replace('"p"', '"p/{member}"')
    assert "[mirror] plan must not contain {member}" in problem(tmp_path, own, "a")


def test_without_idempotence_one_request_is_in_flight(tmp_path: Path) -> None:
    config = read(tmp_path, of_destination("kafka.acks = 1"))
    assert config.destination[IN_FLIGHT] == "1"


@pytest.mark.parametrize("file", sorted((ROOT / "conf").glob("mirror*.toml")), ids=lambda file: file.name)
def test_the_examples_are_mirrors(file: Path) -> None:
    assert load(file, "a", {}).member == "a"


def test_the_documented_file_and_the_docs_name_every_key() -> None:
    example, docs = (ROOT / "conf" / "mirror.toml").read_text(), (ROOT / "docs" / "mirror.md").read_text()
    for section, keys in SECTIONS.items():
        for key in keys:
            assert key.name in example, f"[{section}] {key.name}"
            assert f"`{key.name}`" in docs, f"[{section}] {key.name}"


@pytest.mark.parametrize(
    ("rule", "renamed"),
    [
        pytest.param(Renaming(), "eu.orders", id="no rule"),
        pytest.param(Renaming(prefix="copy."), "copy.eu.orders", id="prefix"),
        pytest.param(Renaming(match=r"^eu\.(.*)$", replace=r"\1-eu"), "orders-eu", id="a group"),
        pytest.param(Renaming(match=r".*", replace="all"), "all", id="the first match only"),
        pytest.param(Renaming(match="us", replace="them"), "eu.orders", id="no match"),
        pytest.param(Renaming(match=r"eu\.", prefix="old-"), "old-orders", id="the prefix comes after the replacement"),
        pytest.param(Renaming({"eu.orders": "o"}, match="o", replace="x", prefix="p"), "o", id="the table wins"),
        pytest.param(Renaming({"other": "o"}, prefix="p."), "p.eu.orders", id="not in the table"),
    ],
)
def test_a_topic_gets_its_name_by_the_rule(rule: Renaming, renamed: str) -> None:
    assert rule.names(["eu.orders"]) == {"eu.orders": renamed}


@pytest.mark.parametrize("rule", [Renaming(prefix="a b"), Renaming(match=".*"), Renaming({"t": "x" * 250})])
def test_a_name_that_no_topic_may_have_is_refused(rule: Renaming) -> None:
    with pytest.raises(ConfigError, match=r"cannot rename topic 't' to .*: expected 1 to 249 letters"):
        rule.names(["t"])


def test_a_name_in_which_the_match_takes_too_long_is_refused_unless_the_table_has_it() -> None:
    with pytest.raises(ConfigError, match=rf"cannot rename topic '{SLOW_NAME}' by \[rename\] match .* 0\.25 s\."):
        Renaming(match=SLOW).name(SLOW_NAME)
    assert Renaming({SLOW_NAME: "a"}, match=SLOW).name(SLOW_NAME) == "a"


@pytest.mark.parametrize(
    ("match", "replace"),
    [
        (r"(?P<a>b+)(x)?", r"<\g<a>\g<0>\2>"),
        (r"(?i)B(?=c)", r"\n\\"),
        (r"(?>b+)c|$", r"-\060"),
        ("$", "-end"),
        (r"\b", "_"),
        (r"(?<!a)[^\W\d_]{2,3}?", "-"),
        ("z*", "y"),
    ],
)
def test_a_match_is_replaced_as_by_pythons_re(match: str, replace: str) -> None:
    check_pattern(match, replace)
    for topic in ("abbc", "a.b-c_1", "BCbc", "9"):
        assert Renaming(match=match, replace=replace)._replaced(topic) == re.sub(match, replace, topic, count=1)


def test_two_topics_with_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="cannot mirror topics 'a1' and 'a2' into one topic 'a'"):
        Renaming(match="[0-9]").names(["a2", "a1"])


@pytest.mark.parametrize(
    ("match", "replace", "said"),
    [
        ("(", "", "match is not a regular expression: missing"),
        ("[[a]", "", "match may mean something else in a later Python: Possible nested set"),
        ("(a)", r"\2", "replace does not fit match: invalid group reference 2"),
        ("(?P<n>a)", r"\g<m>", "replace does not fit match: unknown group name 'm'"),
        ("a", "\\q", "replace does not fit match: bad escape"),
    ],
)
def test_a_pattern_is_checked_before_a_topic_matches(match: str, replace: str, said: str) -> None:
    with pytest.raises(ValueError, match="^" + said.replace("(", r"\(")):
        check_pattern(match, replace)
