"""Options that no table has: Spark's own source and sink ignore them, and a misspelled one must not be lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from streamgroup.errors import ConfigError
from streamgroup.options.notes import Caution
from streamgroup.options.parse import OPTIONS, parse_sink, parse_source
from streamgroup.options.rows import Scope
from tests.unit.options.reads import BATCH, STREAM, batch, stream

SINK = {"kafka.bootstrap.servers": "b1:9092", "topic": "orders"}


def write(**given: str) -> Any:
    return parse_sink({**SINK, **{name.replace("__", "."): text for name, text in given.items()}})


each_way = pytest.mark.parametrize("parse", [stream, batch, write])


# -- misspelled options ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parse", "name", "suggestion"),
    [
        (stream, "startingOffset", "Did you mean 'startingOffsets'?"),
        (stream, "starting_offsets", "Did you mean 'startingOffsets'?"),
        (stream, "subscribePatern", "Did you mean 'subscribePattern'?"),
        (stream, "kafka.sesion.timeout.ms", "Did you mean 'kafka.session.timeout.ms'?"),
        (stream, "group.jointimeouts", "Did you mean 'group.joinTimeout'?"),
        (stream, "sasl.tokenProvder", "Did you mean 'sasl.tokenProvider'?"),
        (write, "topics", "Name the topic with 'topic'"),
        (write, "kafka.ack", "Did you mean 'kafka.acks'?"),
        (write, "partitoner", "Did you mean 'partitioner'?"),
    ],
)
def test_a_misspelled_option_is_an_error_with_the_right_one(
    parse: Callable[..., Any], name: str, suggestion: str
) -> None:
    with pytest.raises(ConfigError, match=f"^unknown option '{name}'.*{re.escape(suggestion)}"):
        parse(**{name: "x"})


@each_way
@pytest.mark.parametrize("name", ["group.colour", "zookeeper.colour"])
def test_an_unknown_name_that_only_streamgroup_could_have_is_an_error(parse: Callable[..., Any], name: str) -> None:
    with pytest.raises(ConfigError, match=f"^unknown option '{name}'"):
        parse(**{name: "x"})


@pytest.mark.parametrize(
    ("name", "refused"), [("kafka.auto.offset.rest", "kafka.auto.offset.reset"), ("endingOffset", "endingOffsets")]
)
def test_a_refused_option_is_never_suggested(name: str, refused: str) -> None:
    with pytest.raises(ConfigError, match=f"^unknown option '{name}': '{refused}' is refused too, because ") as caught:
        stream(**{name: "x"})
    assert OPTIONS[refused.lower()].reason(Scope.STREAM) in str(caught.value)
    if refused == "endingOffsets":
        with pytest.raises(ConfigError, match="Did you mean 'endingOffsets'"):
            batch(**{name: "x"})


# -- options of others -------------------------------------------------------------------------------------------------

IGNORED = {
    "path": "load('…') has a path",
    "paths": "load('…') has a path",
    "topic": "Name the topics to read with 'subscribe'",
    "inferSchema": "Parse the column 'value'",
    "mode": "Parse the column 'value'",
    "checkpointLocation": "it is an option of writeStream",
    "includeTimestamp": "the option is for writes",
    "groupId": "the name of the group is a property of Kafka. Set 'kafka.group.id'",
    "spark.kafka.clusters.main.auth.bootstrap.servers": "into 'kafka.sasl.jaas.config', with tokenauth=true",
    "group.id": "Kafka's properties begin with 'kafka.'. Did you mean 'kafka.group.id'?",
    "Bootstrap.Servers": "Did you mean 'kafka.bootstrap.servers'?",
    "enable.auto.commit": "'kafka.enable.auto.commit' is refused too, because ",
    "zzz": "unknown option 'zzz'. Set",
    "kafka.foo": "unknown option 'kafka.foo'. Set",
    "kafka.": "unknown option 'kafka.'. Set",
}


@pytest.mark.parametrize("name", IGNORED)
@pytest.mark.parametrize("given", [STREAM, BATCH], ids=["stream", "batch"])
def test_an_option_that_sparks_source_ignores_is_ignored_with_a_warning(given: dict[str, str], name: str) -> None:
    streaming = given is STREAM
    options = parse_source({**given, name: "hunter2"}, streaming=streaming)
    (note,) = options.notes
    assert isinstance(note, Caution)
    assert note.startswith(f"ignored unknown option {name!r}")
    assert IGNORED[name] in note
    assert note.endswith(" Set strict=true to refuse unknown options")
    assert "hunter2" not in note
    without = parse_source(given, streaming=streaming)
    assert (options.client, options.subscription, options.group) == (
        without.client,
        without.subscription,
        without.group,
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("path", "Name the topic with 'topic'"),
        ("mode", "Call mode('append')"),
        ("spark.kafka.clusters.main.sasl.token.mechanism", "into 'kafka.sasl.jaas.config', with tokenauth=true"),
        ("acks", "Kafka's properties begin with 'kafka.'. Did you mean 'kafka.acks'?"),
        ("kafka.schema.registry.url", "unknown option 'kafka.schema.registry.url'"),
    ],
)
def test_an_option_that_sparks_sink_ignores_is_ignored_with_a_warning(name: str, text: str) -> None:
    options = write(**{name: "x"})
    (note,) = options.notes
    assert isinstance(note, Caution)
    assert text in note
    assert options.producer == write().producer


@pytest.mark.parametrize(
    "name",
    ["checkpointLocation", "queryName", "asyncProgressTrackingEnabled", "asyncProgressTrackingCheckpointIntervalMs"],
)
def test_an_option_of_writestream_reaches_every_sink_and_is_no_news(name: str) -> None:
    assert write(**{name: "x", "strict": "true"}).notes == ()


# -- strict ------------------------------------------------------------------------------------------------------------


@each_way
@pytest.mark.parametrize("name", ["path", "mode", "zzz", "kafka.foo", "bootstrap.servers"])
def test_strict_refuses_every_unknown_option(parse: Callable[..., Any], name: str) -> None:
    assert len(parse(**{name: "x", "strict": "false"}).notes) == 1
    with pytest.raises(ConfigError, match=f"^unknown option '{name}'"):
        parse(**{"STRICT": "True", name: "x"})


@each_way
def test_strict_is_true_or_false_wherever_it_stands_among_the_options(parse: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=r"(?s)^2 problems .*unknown option 'aaa'.*unknown option 'zzz'"):
        parse(aaa="x", strict="true", zzz="x")
    assert parse(strict=" false ").notes == parse(strict="true").notes == ()
    with pytest.raises(ConfigError, match=r"^invalid value 'yes' for option strict: expected true or false"):
        parse(strict="yes")


def test_the_caller_gives_the_default_of_strict() -> None:
    with pytest.raises(ConfigError, match=r"^unknown option 'zzz'"):
        parse_source({**STREAM, "zzz": "x"}, streaming=True, strict=True)
    with pytest.raises(ConfigError, match=r"^unknown option 'zzz'"):
        parse_sink({**SINK, "zzz": "x"}, strict=True)
    assert len(parse_source({**STREAM, "zzz": "x", "strict": "false"}, streaming=True, strict=True).notes) == 1
