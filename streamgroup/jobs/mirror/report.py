"""The result of a verification: counts and checksums of both sides as a table, and differences in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  (Spark's own habit)

from streamgroup.errors import ConfigError
from streamgroup.frozen import frozen
from streamgroup.jobs.mirror.clusters import Clusters
from streamgroup.jobs.mirror.columns import TIMESTAMP, Abilities, place_of, topic_of
from streamgroup.jobs.mirror.config import COMMITTED, ISOLATION, READ_COMMITTED, STARTS, MirrorConfig
from streamgroup.jobs.mirror.plan import MirrorPlan, Placement, TopicPlan
from streamgroup.jobs.mirror.query import source_options
from streamgroup.logformat import LogFormat
from streamgroup.model import Dialect
from streamgroup.options.parse import OPTIONS
from streamgroup.text import counted

_MODULUS = 1 << 64


@frozen
class Place:
    """The position of a record in its cluster; `partition` is the name that the cluster's tools show."""

    partition: str
    offset: int

    def __str__(self) -> str:
        return f"partition {self.partition}, offset {self.offset}"


@frozen
class Comparison:
    """Compares source and destination for one partition, or for a topic whose records are placed by their keys."""

    source: str
    destination: str
    """The names of both sides, such as `orders-0`."""
    source_records: int = 0
    destination_records: int = 0
    source_offsets: tuple[int, int] | None = None
    destination_offsets: tuple[int, int] | None = None
    """The first and the last offset that were read, of one partition only."""
    lost: int = 0
    """Records that the destination lacks although it has later ones of the same source partition."""
    behind: int = 0
    """Records that the destination lacks at the end of a source partition: the mirror may still write them."""
    repeated: int = 0
    """Copies of records in addition to the first. At-least-once delivery allows them."""
    extra: int = 0
    """Records of the destination that the source does not have."""
    disordered: int = 0
    """Records that come before an earlier record of their source partition and destination partition."""
    retimed: int = 0
    """Records with another timestamp, although the destination keeps those of producers."""
    source_sum: int = 0
    destination_sum: int = 0
    """The sums of the records' hashes. The destination's leaves out repeated records."""
    first_lost: Place | None = None
    first_behind: Place | None = None
    first_extra: Place | None = None
    first_disordered: Place | None = None
    first_retimed: Place | None = None

    @property
    def is_equal(self) -> bool:
        """Return whether the copy is complete and in order. Repeated records are allowed."""
        differing = self.lost or self.behind or self.extra or self.disordered or self.retimed
        return not differing and self.checksums[0] == self.checksums[1]

    @property
    def checksums(self) -> tuple[str, str]:
        """Return the checksums of both sides as 16 hexadecimal digits."""
        return f"{self.source_sum % _MODULUS:016x}", f"{self.destination_sum % _MODULUS:016x}"


_HEADINGS = (
    *("source", "destination", "offsets", "offsets there", "records", "records there"),
    *("lost", "behind", "repeated", "extra", "out of order", "other time", "checksum", "checksum there"),
)


def table(rows: Iterable[Comparison]) -> list[str]:
    cells = [_HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def _cells(row: Comparison) -> tuple[str, ...]:
    counts = (row.source_records, row.destination_records)
    findings = (row.lost, row.behind, row.repeated, row.extra, row.disordered, row.retimed)
    offsets = (_offsets(row.source_offsets), _offsets(row.destination_offsets))
    return (row.source, row.destination, *offsets, *map(str, counts), *map(str, findings), *row.checksums)


def _offsets(offsets: tuple[int, int] | None) -> str:
    return "-" if offsets is None else f"{offsets[0]}..{offsets[1]}"


def differences(rows: Sequence[Comparison]) -> list[str]:
    """Return a sentence for each kind of difference of each row, with the first record that it concerns."""
    return [sentence for row in rows for sentence in _sentences(row)]


def _sentences(row: Comparison) -> list[str]:
    found = [
        (
            row.lost,
            row.first_lost,
            "{destination} lacks {n} of {source}, the first at {at} of the source",
        ),
        (
            row.behind,
            row.first_behind,
            "{destination} does not have {n} at the end of {source} yet, the first at {at} of the source. If the "
            "mirror has stopped, they are lost",
        ),
        (
            row.extra,
            row.first_extra,
            "{destination} has {n} that {source} lacks, the first at {at} of the destination. Another producer has "
            "written them, or the source has deleted its own",
        ),
        (
            row.disordered,
            row.first_disordered,
            "{destination} has {n} of {source} too early, the first is at {at} of the source",
        ),
        (
            row.retimed,
            row.first_retimed,
            "{destination} has {n} of {source} with another timestamp, the first is at {at} of the source",
        ),
    ]
    sentences = [
        text.format(n=counted(count, "record"), source=row.source, destination=row.destination, at=first)
        for count, first, text in found
        if count
    ]
    if not sentences and not row.is_equal:
        sentences = [f"the checksums of {row.source} and {row.destination} differ: {' and '.join(row.checksums)}"]
    return sentences


WHOLE_TOPIC = -1
"""The place of records that are compared by topic."""
_POSITION = "struct<partition: int, offset: bigint, inner: int>"
_SIDES = ("source", "copy")
"""The prefixes of the columns of each side."""
_KINDS = ("lost", "behind", "extra", "disordered", "retimed")


def compare(spark: SparkSession, config: MirrorConfig, clusters: Clusters, plan: MirrorPlan) -> list[Comparison]:
    """Return the comparison of each partition, and of each topic whose records are placed by their keys."""
    abilities = clusters.abilities()
    common = abilities[0] & abilities[1]
    dialects = clusters.dialects()
    source = spark.read.format("streamgroup").options(**_source_options(config, plan, common, dialects[0])).load()
    destination = (
        spark.read.format("streamgroup").options(**_destination_options(config, plan, common, dialects[1])).load()
    )
    rows = _rows(source, plan, common, "source").unionByName(_rows(destination, plan, common, "copy"))
    found = {(row["topic"], row["place"]): row for row in _summary(_classified(_grouped(rows))).collect()}
    logs = dialects[0].log_format, dialects[1].log_format
    return [
        _comparison(topic, place, found.get((topic.destination, place)), logs)
        for topic in plan.topics.values()
        for place in _places(topic, found)
    ]


def described_isolation(config: MirrorConfig) -> str:
    """Return a sentence: which records both sides of a verification have."""
    source = _level(config.source, config.verify_source)
    destination = _level(COMMITTED, config.verify_destination)
    if (source, destination) == (READ_COMMITTED, READ_COMMITTED):
        return f"both sides are read with {ISOLATION}={READ_COMMITTED}: records of aborted transactions do not count"
    return f"the source is read with {ISOLATION}={source}, the destination with {ISOLATION}={destination}"


def _level(*options: Mapping[str, str]) -> str:
    """Return the isolation level of a read with these options, of which later ones take precedence."""
    found = [text for given in options for name, text in given.items() if name.lower() == ISOLATION]
    return found[-1].lower()


# -- the reads ---------------------------------------------------------------------------------------------------------


def _source_options(config: MirrorConfig, plan: MirrorPlan, common: Abilities, dialect: Dialect) -> dict[str, str]:
    starts = [name for name in config.verify_source if name.lower() in STARTS]
    options = source_options(config, list(plan.topics), common)
    if starts:
        options = {name: value for name, value in options.items() if name.lower() not in STARTS}
    elif any(name.lower() == "startingoffsets" and value.lower() == "latest" for name, value in options.items()):
        raise ConfigError(
            "cannot verify a mirror that began at the latest offsets, which are unknown. Set the start of the "
            "comparison: [verify] source = { startingTimestamp = … }"
        )
    return {**options, **_inner_index(dialect), **config.verify_source}


def _destination_options(config: MirrorConfig, plan: MirrorPlan, common: Abilities, dialect: Dialect) -> dict[str, str]:
    """Return the destination's options that apply to a read, with the topics."""
    options = {name: value for name, value in config.destination.items() if name.lower() in OPTIONS}
    options["subscribe"] = ",".join(topic.destination for topic in plan.topics.values())
    if common.headers:
        options["includeHeaders"] = "true"
    return {**options, **COMMITTED, **_inner_index(dialect), **config.verify_destination}


def _inner_index(dialect: Dialect) -> dict[str, str]:
    return {"includeInnerIndex": "true"} if dialect.log_format.has_shared_offsets else {}


# -- the job -----------------------------------------------------------------------------------------------------------


def _rows(records: DataFrame, plan: MirrorPlan, common: Abilities, side: str) -> DataFrame:
    """Return the records of one side. The columns of the other side are null."""
    is_source = side == "source"
    time = "NULL"
    if common.timestamps:
        # A topic with LogAppendTime (timestampType 1) has the times of its broker, which are not compared.
        time = TIMESTAMP if is_source else "CASE WHEN timestampType = 0 THEN timestamp END"
    (other,) = set(_SIDES) - {side}
    return records.select(
        F.expr(topic_of(plan) if is_source else "topic").alias("topic"),
        F.expr(place_of(plan, WHOLE_TOPIC, source=is_source)).alias("place"),
        F.expr(_hash(common)).alias("hash"),
        _position(records).alias(f"{side}_at"),
        F.expr(time).cast("timestamp").alias(f"{side}_time"),
        F.lit(None).cast(_POSITION).alias(f"{other}_at"),
        F.lit(None).cast("timestamp").alias(f"{other}_time"),
    )


def _position(rows: DataFrame) -> Column:
    inner = F.col("inner") if "inner" in rows.columns else F.lit(0)
    return F.struct(F.col("partition"), F.col("offset"), inner.alias("inner")).cast(_POSITION)


def _hash(common: Abilities) -> str:
    """Return the hash of a record. Spark's hash passes over nulls, so each value comes with whether it is null."""
    columns = ["value IS NULL", "value"]
    if common.keys:
        columns += ["key IS NULL", "key"]
    if common.headers:
        columns.append("transform(headers, h -> struct(h.key, h.value IS NULL, h.value))")
    return f"xxhash64({', '.join(columns)})"


def _grouped(rows: DataFrame) -> DataFrame:
    def columns_of(side: str) -> Iterator[Column]:
        yield F.count(f"{side}_at").alias(f"{side}_count")
        yield F.min(f"{side}_at").alias(f"{side}_at")
        yield F.max(f"{side}_at").alias(f"{side}_last")
        yield F.min(f"{side}_time").alias(f"{side}_time")

    return rows.groupBy("topic", "place", "hash").agg(*(column for side in _SIDES for column in columns_of(side)))


def _classified(groups: DataFrame) -> DataFrame:
    """Return the groups with the numbers of lost, behind, repeated, extra, disordered and retimed records."""
    groups = groups.withColumn("matched", F.expr("source_count > 0 AND copy_count > 0"))
    groups = groups.withColumn("single", F.expr("source_count = 1 AND copy_count > 0"))
    by_source = Window.partitionBy("topic", "source_at.partition")
    # Ordered by the first copy: a repeat restarts at an earlier record.
    in_order = Window.partitionBy("topic", "source_at.partition", "copy_at.partition", "single").orderBy("source_at")
    return (
        groups.withColumn("last_matched", F.max(F.expr("CASE WHEN matched THEN source_at END")).over(by_source))
        .withColumn("copy_before", F.lag("copy_at").over(in_order))
        .withColumn("missing", F.expr("greatest(source_count - copy_count, 0L)"))
        .withColumn("is_behind", F.expr("last_matched IS NULL OR source_at > last_matched"))
        .withColumn("lost", F.expr("CASE WHEN is_behind THEN 0L ELSE missing END"))
        .withColumn("behind", F.expr("CASE WHEN is_behind THEN missing ELSE 0L END"))
        .withColumn(
            "repeated", F.expr("CASE WHEN source_count > 0 THEN greatest(copy_count - source_count, 0L) ELSE 0L END")
        )
        .withColumn("extra", F.expr("CASE WHEN source_count = 0 THEN copy_count ELSE 0L END"))
        .withColumn("disordered", F.expr("CASE WHEN single AND copy_at < copy_before THEN 1L ELSE 0L END"))
        .withColumn("retimed", F.expr("CASE WHEN matched AND source_time != copy_time THEN 1L ELSE 0L END"))
    )


def _summary(groups: DataFrame) -> DataFrame:
    def first(kind: str) -> Column:
        at = "copy_at" if kind == "extra" else "source_at"
        return F.min(F.expr(f"CASE WHEN {kind} > 0 THEN {at} END")).alias(f"first_{kind}")

    def checksum(times: str) -> Column:
        return F.sum(F.expr(f"CAST(hash AS DECIMAL(20, 0)) * ({times})").cast("decimal(38, 0)"))

    def columns_of(side: str) -> Iterator[Column]:
        yield F.sum(f"{side}_count").alias(f"{side}_records")
        yield F.min(f"{side}_at").alias(f"{side}_first")
        yield F.max(f"{side}_last").alias(f"{side}_last")

    return groups.groupBy("topic", "place").agg(
        *(column for side in _SIDES for column in columns_of(side)),
        checksum("source_count").alias("source_sum"),
        checksum("copy_count - repeated").alias("copy_sum"),
        F.sum("repeated").alias("repeated"),
        *(F.sum(kind).alias(kind) for kind in _KINDS),
        *(first(kind) for kind in _KINDS),
    )


# -- the result --------------------------------------------------------------------------------------------------------


def _places(topic: TopicPlan, found: dict[tuple[str, int], Any]) -> list[int]:
    """Return the places of a topic: the planned partitions, and other partitions with records."""
    with_records = {place for name, place in found if name == topic.destination}
    planned = {WHOLE_TOPIC} if topic.placement is Placement.HASH else set(topic.partitions.values())
    return sorted(planned | with_records)


def _comparison(topic: TopicPlan, place: int, row: Any, logs: tuple[LogFormat, LogFormat]) -> Comparison:
    ours = {theirs: number for number, theirs in topic.partitions.items()}.get(place)
    whole = topic.placement is Placement.HASH
    source = topic.source if whole or ours is None else f"{topic.source}-{logs[0].partition_name(ours)}"
    destination = topic.destination if place < 0 else f"{topic.destination}-{logs[1].partition_name(place)}"
    if row is None:
        return Comparison(source, destination)
    firsts: dict[str, Any] = {
        f"first_{kind}": _place_of(row[f"first_{kind}"], logs[kind == "extra"]) for kind in _KINDS
    }
    return Comparison(
        source,
        destination,
        source_records=row["source_records"],
        destination_records=row["copy_records"],
        source_offsets=None if whole else _log_offsets(row["source_first"], row["source_last"]),
        destination_offsets=None if whole else _log_offsets(row["copy_first"], row["copy_last"]),
        repeated=row["repeated"],
        **{kind: row[kind] for kind in _KINDS},
        source_sum=int(row["source_sum"]),
        destination_sum=int(row["copy_sum"]),
        **firsts,
    )


def _log_offsets(first: Any, last: Any) -> tuple[int, int] | None:
    return None if first is None else (first["offset"], last["offset"])


def _place_of(position: Any, log_format: LogFormat) -> Place | None:
    return None if position is None else Place(log_format.partition_name(position["partition"]), position["offset"])
