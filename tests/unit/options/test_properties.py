"""Rows for properties of Kafka's Java clients: each name gets the prefix that Spark's users write."""

from __future__ import annotations

from streamgroup.options import kinds
from streamgroup.options.properties import ignored, refused, used
from streamgroup.options.rows import Effect, Scope


def test_a_used_property_has_the_prefix_of_spark_and_takes_effect_in_all_reads() -> None:
    row = used("fetch.min.bytes", "Bytes to wait for.", kinds.POSITIVE, "fetch.min_bytes")
    assert row.name == "kafka.fetch.min.bytes"
    assert (row.doc, row.target, row.kind.parse("7")) == ("Bytes to wait for.", "fetch.min_bytes", 7)
    for scope in (Scope.BATCH, Scope.MEMBER, Scope.COMMIT, Scope.OFF):
        assert row.effect(scope) is Effect.USED
    assert row.effect(Scope.WRITE) is Effect.IGNORED


def test_a_used_property_with_a_narrower_scope_is_ignored_outside_of_it() -> None:
    row = used("session.timeout.ms", "Milliseconds.", kinds.POSITIVE, default="`45000`", scope=Scope.MEMBER)
    assert row.default == "`45000`"
    assert row.effect(Scope.MEMBER) is Effect.USED
    assert row.effect(Scope.COMMIT) is Effect.IGNORED


def test_a_refused_property_is_refused_everywhere_with_its_reason() -> None:
    row = refused("interceptor.classes", "an interceptor is a Java class")
    assert row.name == "kafka.interceptor.classes"
    for scope in (Scope.BATCH, Scope.STREAM, Scope.WRITE):
        assert row.effect(scope) is Effect.REFUSED
        assert row.reason(scope) == "an interceptor is a Java class"


def test_ignored_properties_are_one_row_for_each_name_with_the_same_reason() -> None:
    rows = ignored("metric.reporters  metrics.num.samples", "the property concerns the Java client")
    assert [row.name for row in rows] == ["kafka.metric.reporters", "kafka.metrics.num.samples"]
    for row in rows:
        assert row.effect(Scope.ALL | Scope.WRITE) is Effect.IGNORED
        assert row.reason(Scope.WRITE) == "the property concerns the Java client"


def test_no_names_are_no_rows() -> None:
    assert ignored("", "no reason") == ()
