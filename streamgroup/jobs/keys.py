"""The keys of job files: the kinds of their values, the keys that jobs share, and those of the ingest job.

A key has the name of its field in `streamgroup.jobs.config`. `docs/jobs.md` and `conf/ingest.toml` show all keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from streamgroup.frozen import frozen
from streamgroup.options.kinds import ValueKind


@frozen
class Key:
    """One key of a section. A required key has no default."""

    name: str
    kind: ValueKind
    doc: str
    required: bool = False
    default: str = ""
    """The default as TOML; empty where an unset key has no value."""


_MOST = 32_767
_MOST_OFFSETS = 2**63 - 1


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected a text in quotes, not {_named(value)}")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false without quotes, not {_named(value)}")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(v, str) and v.strip() for v in value):
        raise ValueError(f'expected a list of texts, for example ["a", "b"], not {_named(value)}')
    return tuple(value)


def _number(
    to: type[int] | type[float], expected: str, is_accepted: Callable[[float], bool]
) -> Callable[[object], float]:
    """Return the parser of a number. Only `float` accepts a decimal point."""
    types = (int,) if to is int else (int, float)

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, types) or not is_accepted(value):
            raise ValueError(f"expected {expected}, not {_named(value)}")
        return to(value)

    return read


def _options(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError(f"expected a table of options, not {_named(value)}")
    try:
        flat = list(_flattened(value, ()))
    except RecursionError:
        raise ValueError("too many nested tables, one for each dot in a name without quotes") from None
    names = [name for name, _ in flat]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{twice[0]} is set twice, once in quotes and once without. Remove one of them")
    return dict(flat)


def _flattened(table: Mapping[str, object], above: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the entries of nested tables under names with dots.

    In TOML, `kafka.group.id = "g"` without quotes is a table in a table. The user means one option.
    """
    for name, value in table.items():
        path = (*above, name)
        match value:
            case Mapping():
                yield from _flattened(value, path)
            case bool():
                yield ".".join(path), str(value).lower()
            case str() | int() | float():
                yield ".".join(path), str(value)
            case list():
                raise ValueError(
                    f'invalid value for {".".join(path)}: expected one text with commas, for example "a,b", not a list'
                )
            case _:
                raise ValueError(
                    f"invalid value for {'.'.join(path)}: expected a text, a number, true or false, not {_named(value)}"
                )


def _named(value: object) -> str:
    """Return the type of a value in TOML's terms. An error never shows the value, which may be a secret."""
    names = {str: "a text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a table"}
    return "an empty text" if value == "" else names.get(type(value), "a date or a time")


TEXT = ValueKind("text", _text)
FLAG = ValueKind("true or false", _flag)
TEXTS = ValueKind("list of texts", _texts)
SECONDS = ValueKind("seconds", _number(float, "a number of seconds above 0 and up to 86400", lambda n: 0 < n <= 86_400))
COUNT = ValueKind("number", _number(int, f"a whole number from 1 to {_MOST}", lambda n: 0 < n <= _MOST))
LARGE_COUNT = ValueKind("number", _number(int, "a whole number above 0", lambda n: 0 < n <= _MOST_OFFSETS))
COUNT_FROM_ZERO = ValueKind("number", _number(int, "a whole number from 0 on", lambda n: 0 <= n <= _MOST_OFFSETS))
SHARE = ValueKind("number", _number(float, "a number from 0 to 1", lambda n: 0 <= n <= 1))
OPTIONS = ValueKind("table", _options)
PORT = ValueKind("port", _number(int, "a port from 0 to 65535, 0 for any free one", lambda n: 0 <= n <= 65_535))

COMMON: Mapping[str, tuple[Key, ...]] = {
    "trigger": (
        Key("processing_time", TEXT, 'The shortest time between the starts of two batches, for example "5 seconds".'),
        Key(
            "available_now", FLAG, "Read the backlog that exists at the start, in batches within the limits, then end."
        ),
        Key("once", FLAG, "Read the backlog that exists at the start in one batch, then end."),
    ),
    "spark": (
        Key("app_name", TEXT, "Name of the application in Spark's web UI. The default is the name of the job file."),
        Key("conf", OPTIONS, "Spark settings by their full names: `spark.sql.shuffle.partitions = 4`."),
    ),
    "stop": (
        Key(
            "timeout_seconds",
            SECONDS,
            "Seconds that a stop waits for the batch in flight. The default is 60. Increase it if batches take longer.",
            default="60",
        ),
    ),
    "metrics": (
        Key("port", PORT, "Port at which the driver serves metrics to Prometheus. None is served without it."),
        Key("host", TEXT, "Address that the port is opened at. The default is `127.0.0.1`."),
        Key(
            "cluster_name",
            TEXT,
            "Value of the label `cluster_name` of the metrics of groups and logs. The default is `default`.",
        ),
        Key(
            "otlp_endpoint",
            TEXT,
            "URL that the driver exports metrics to by OpenTelemetry, such as `http://collector:4318/v1/metrics`.",
        ),
        Key(
            "otlp_interval_seconds",
            SECONDS,
            "Seconds from one export by OpenTelemetry to the next. The default is 60.",
        ),
    ),
}
"""The sections that streaming jobs share. The backfill, a batch job, shares `spark` alone."""

SOURCE = "source"
SINK = "sink"
PARSER = "parser"
DEAD_LETTERS = "dead_letters"

AT_LEAST_ONCE, EXACTLY_ONCE = "at-least-once", "exactly-once"
"""The values of `guarantee`."""

SECTIONS: Mapping[str, tuple[Key, ...]] = {
    "trigger": COMMON["trigger"],
    SINK: (
        Key(
            "format",
            TEXT,
            "Format of the sink: `parquet`, `console`, `streamgroup-sql`, or any other that Spark can stream into.",
            required=True,
        ),
        Key("path", TEXT, "Directory of the rows. Required for file formats. May contain `{member}`."),
        Key(
            "table",
            TEXT,
            "Name of a table, for example `lake.db.orders`, of a format such as `delta` or `iceberg`. Spark creates it "
            "if it does not exist. All members write into one table.",
        ),
        Key(
            "checkpoint",
            TEXT,
            "Directory of the query's checkpoint. Required for all formats but `console`. May contain `{member}`.",
        ),
        Key(
            "columns",
            TEXTS,
            'SQL expressions of the columns to write: `["CAST(value AS STRING) AS value"]`. The default is all '
            "columns.",
        ),
        Key("partition_by", TEXTS, "Columns by which Spark partitions the rows into subdirectories."),
        Key(
            "output_mode",
            TEXT,
            "Spark's output mode: `append` (the default), `update` or `complete`.",
            default='"append"',
        ),
        Key(
            "guarantee",
            TEXT,
            "`exactly-once` writes the rows of a batch and the offsets in one transaction, with the format "
            "`streamgroup` (into the cluster of the source) or `streamgroup-sql`. `at-least-once` may repeat a batch "
            "after a failure.",
            default='"at-least-once"',
        ),
        Key("options", OPTIONS, "Options that Spark passes to the sink."),
    ),
    PARSER: (
        Key("format", TEXT, "How the values of records are read: `json`, `csv`, `avro` or `protobuf`. Required."),
        Key("schema", TEXT, "Columns of a value in Spark's DDL: `id BIGINT`. For `avro`, a schema in JSON."),
        Key(
            "null_values",
            TEXT,
            "Whether a record without a value (a tombstone) becomes a row without fields, `keep`, or a `dead_letter`.",
        ),
        Key("message", TEXT, "For `protobuf`, the full name of the message: `shop.Order`."),
        Key("descriptor", TEXT, "For `protobuf`, a file that protoc --descriptor_set_out has written."),
        Key("options", OPTIONS, "Options of Spark's `from_json` or `from_csv`."),
        Key(
            "framing",
            TEXT,
            "For `avro` and `protobuf`: `plain`, or `schema_id` for values with the prefix of a schema registry, which "
            "is the default with `registry_url`.",
        ),
        Key("registry_url", TEXT, "URL of the schema registry with the values' schemas."),
        Key("registry_user", TEXT, "User of the registry, for HTTP's basic authentication."),
        Key("registry_password", TEXT, "Password of the user: `env:NAME` or `file:/path`."),
        Key("registry_ca", TEXT, "PEM file of the authorities to trust for the registry, in place of the system's."),
    ),
    DEAD_LETTERS: (
        Key("topic", TEXT, "Topic of the records that the parser cannot read."),
        Key("path", TEXT, "Directory of these records as Parquet files, instead of `topic`. May contain `{member}`."),
        Key("max_records", COUNT_FROM_ZERO, "The most dead letters in one batch. With more the job stops."),
        Key(
            "max_share",
            SHARE,
            "The largest share of dead letters in one batch, from 0 to 1. The default is 0.1 if neither limit is set.",
        ),
        Key(
            "damaged_batches",
            FLAG,
            "Whether a damaged record batch is a dead letter with the batch's bytes. By default it stops the job.",
        ),
        Key("options", OPTIONS, "Options of the write to `topic`. By default the connection of `[source]` is used."),
    ),
    "spark": COMMON["spark"],
    "stop": COMMON["stop"],
    "metrics": COMMON["metrics"],
}
"""The keys of all sections of an ingest job but `source`, whose keys are the options of `format("streamgroup")`."""

BATCH_SINK = tuple(key for key in SECTIONS[SINK] if key.name not in ("checkpoint", "output_mode", "guarantee"))
"""The keys of the sink of a job that writes batches."""
