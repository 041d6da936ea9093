"""The properties of a consumer of Kafka 0.7 or 0.8: one with a new name is refused with it, others have no effect."""

from __future__ import annotations

import pytest

from streamgroup.errors import ConfigError
from streamgroup.options.old_consumers import OLD_CONSUMERS
from streamgroup.options.rows import Effect, Option, Scope
from tests.unit.options.reads import batch, stream

ROWS = {option.name: option for option in OLD_CONSUMERS}
REFUSED = [option for option in OLD_CONSUMERS if option.elsewhere is Effect.REFUSED]
IGNORED = [option for option in OLD_CONSUMERS if option.elsewhere is Effect.IGNORED]


def name_of(option: Option) -> str:
    return option.name


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("kafka.zookeeper.connect", "zookeeper.connect"),
        ("kafka.zk.connect", "zookeeper.connect"),
        ("kafka.zk.sessiontimeout.ms", "zookeeper.session.timeout.ms"),
        ("kafka.groupid", "kafka.group.id"),
        ("kafka.fetch.size", "kafka.max.partition.fetch.bytes"),
        ("kafka.fetch.message.max.bytes", "kafka.max.partition.fetch.bytes"),
        ("kafka.fetch.wait.max.ms", "kafka.fetch.max.wait.ms"),
        ("kafka.socket.timeout.ms", "kafka.request.timeout.ms"),
        ("kafka.socket.buffersize", "kafka.receive.buffer.bytes"),
        ("kafka.autooffset.reset", "startingOffsets"),
        ("kafka.mirror.topics.whitelist", "subscribe"),
    ],
)
def test_a_property_with_another_name_is_refused_with_that_name(old: str, new: str) -> None:
    assert ROWS[old].elsewhere is Effect.REFUSED
    assert f"Set '{new}'" in ROWS[old].why


def test_a_property_that_would_commit_before_the_sink_has_a_batch_is_refused_with_the_reason() -> None:
    assert ROWS["kafka.auto.commit.enable"].elsewhere is Effect.REFUSED
    assert "commits offsets only after their batch has reached the sink" in ROWS["kafka.auto.commit.enable"].why


@pytest.mark.parametrize("option", REFUSED, ids=name_of)
def test_a_refused_property_ends_each_kind_of_read_with_an_error_that_names_it_and_the_next_step(
    option: Option,
) -> None:
    for read in (stream, batch):
        with pytest.raises(ConfigError) as caught:
            read(**{option.name: "7"})
        assert option.name in str(caught.value)
        assert option.why in str(caught.value)
    assert any(step in option.why for step in (". Set '", ". Leave the option out"))


@pytest.mark.parametrize("option", IGNORED, ids=name_of)
def test_an_ignored_property_ends_no_read_and_the_log_says_why_it_has_no_effect(option: Option) -> None:
    for read in (stream, batch):
        plain, given = read(), read(**{option.name: "7"})
        (note,) = set(given.notes) - set(plain.notes)
        assert option.name in note
        assert option.why in note
        assert given.fetch == plain.fetch


def test_no_property_of_an_old_consumer_takes_effect_in_any_read_or_write() -> None:
    assert [option.name for option in OLD_CONSUMERS if option.effect(Scope.ALL | Scope.WRITE) is Effect.USED] == []


@pytest.mark.parametrize("name", ["kafka.offsets.storage", "kafka.dual.commit.enabled"])
def test_a_property_that_still_takes_effect_is_not_in_the_table(name: str) -> None:
    assert name not in ROWS
