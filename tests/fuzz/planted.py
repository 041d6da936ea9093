"""Bugs to plant, at least one for each decoder in Python: the fuzzer must find each within 10 000 cases.

A bug is a small change of one function's text, as a mutant is (`tests/mutants`), but in the running process. The
encoders in C have their planted bugs in `tests/sanitizers.py`.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from streamgroup import logline
from streamgroup.cli import produce
from streamgroup.coordinator.control import channel
from streamgroup.coordinator.planning import document
from streamgroup.group import commits, sticky, user_data
from streamgroup.group.registry import nodes, patterns
from streamgroup.jobs import job_file, sinkguard
from streamgroup.jobs.backfill import command
from streamgroup.jobs.mirror import plan
from streamgroup.kafka.net import frames
from streamgroup.kafka.net.sasl import mechanisms, tokens
from streamgroup.kafka.records import batches, codecs, messages07
from streamgroup.kafka.wire import kafka07, primitives, registrations
from streamgroup.options import kinds, parse, sasl
from streamgroup.spark import queries
from streamgroup.spark.parsing import avro, framing, protobuf
from streamgroup.zookeeper import client


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A change of `function`: `old`, which occurs in it once, becomes `new`. `decoders` are prefixes of names."""

    decoders: tuple[str, ...]
    function: Callable[..., Any]
    old: str
    new: str
    known: Mapping[str, int] = field(default_factory=dict)
    """The case that finds it at a decoder for which the cases before that one take long."""

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Run the block with the bug. All who hold the function have it, since its code is changed in place."""
        function = inspect.unwrap(getattr(self.function, "__func__", self.function))
        source = textwrap.dedent(inspect.getsource(function))
        assert source.count(self.old) == 1, f"{function.__qualname__} has not {self.old!r} once"
        made: dict[str, Any] = {}
        text = "from __future__ import annotations\n" + source.replace(self.old, self.new)
        exec(text, dict(function.__globals__), made)
        other = made[function.__name__]
        before = function.__code__
        function.__code__ = inspect.unwrap(getattr(other, "__func__", other)).__code__
        try:
            yield
        finally:
            function.__code__ = before


_NEVER = "ZeroDivisionError"
_BOTH = "(ValueError, RecursionError)"

BUGS = (
    # bytes
    PlantedBug(
        ("wire/", "net/connection"), primitives.Reader.unpack, "if stop > self.end:", "if stop > self.end + 1000:"
    ),
    PlantedBug(("wire/Fetch", "wire/Produce"), primitives.Reader.text, "UnicodeDecodeError", _NEVER),
    PlantedBug(("net/frames",), frames.FrameReader._checked, "if size < self.smallest:", "if size < -1:"),
    PlantedBug(("wire/kafka07-request",), kafka07._read_topic, '"replace"', '"strict"'),
    PlantedBug(("records/batches",), batches.Frames._batch, "if end > len(data):", "if end > len(data) + 9:"),
    PlantedBug(
        ("records/sets",),
        batches.Frames._messages,
        "if size > left - SIZE_END:",
        "if size > left:",
        {"records/sets": 5031, "records/sets-unchecked": 968},
    ),
    PlantedBug(("records/messages07",), messages07._frame, "if magic > 1:", "if magic > 2:"),
    PlantedBug(
        ("records/codecs",),
        codecs.inflated,
        "min(bound(number, data), max(limit, 0))",
        "bound(number, data) + limit * 9",
    ),
    PlantedBug(("records/codecs",), codecs.bound, "(struct.error, IndexError)", _NEVER),
    # text
    PlantedBug(("group/commit-metadata",), commits.CommitMetadata.parse, _BOTH, "ValueError"),
    PlantedBug(("group/identity",), user_data.decode_identity, _BOTH, "ValueError"),
    PlantedBug(("group/sticky-user-data",), sticky.decode_user_data, "len(data) < INT32.size", "len(data) < 2"),
    PlantedBug(
        ("planning/document",), document._pair, "or len(pair) != 2", "or len(pair) > 2", {"planning/document": 2530}
    ),
    PlantedBug(("spark/offset",), queries._streamgroup_value, _BOTH, "ValueError"),
    PlantedBug(
        ("zookeeper/broker", "zookeeper/count", "zookeeper/owner", "zookeeper/consumer", "zookeeper/view"),
        registrations.read_text,
        "UnicodeDecodeError",
        _NEVER,
    ),
    PlantedBug(
        ("zookeeper/partitions",), registrations.read_partitions, "not isinstance(partitions, dict)", "not partitions"
    ),
    PlantedBug(("zookeeper/partition-name",), registrations.partition_in, "except ValueError", "except KeyError"),
    PlantedBug(
        ("zookeeper/consumer", "zookeeper/view"),
        nodes.read_consumer,
        "(WHITE_LIST, BLACK_LIST)",
        "{WHITE_LIST, BLACK_LIST}",
    ),
    PlantedBug(("zookeeper/pattern",), patterns._compiled, "except ValueError", f"except {_NEVER}"),
    PlantedBug(("zookeeper/committed",), nodes._read_metadata, _BOTH, "ValueError"),
    PlantedBug(("zookeeper/offset",), registrations.read_number, "text.isascii() and ", ""),
    PlantedBug(("options/values",), kinds._object, "except RecursionError", f"except {_NEVER}"),
    PlantedBug(
        ("options/source", "options/sink", "options/values"), kinds._addresses, "if not match or not 0 <", "if not 0 <"
    ),
    PlantedBug(
        ("jobs/ingest-file", "jobs/mirror-file", "jobs/backfill-file"),
        job_file.read_toml,
        "except RecursionError",
        f"except {_NEVER}",
        {"jobs/ingest-file": 1321, "jobs/mirror-file": 663},
    ),
    PlantedBug(("jobs/backfill-plan",), command.BackfillPlan.from_json, "(OverflowError, RecursionError)", _NEVER),
    PlantedBug(("jobs/mirror-plan",), plan.MirrorPlan.from_json, "(OverflowError, RecursionError)", _NEVER),
    PlantedBug(("jobs/sink-note",), sinkguard.SinkOwner.of, ", RecursionError)", ")"),
    PlantedBug(
        ("driver/control",),
        channel.read_message,
        "except RecursionError",
        f"except {_NEVER}",
        {"driver/control-request": 1611},
    ),
    PlantedBug(
        ("driver/control-request",),
        channel.ControlServer._carry_out,
        "-LONGEST_DRAIN_S <= ",
        "",
        {"driver/control-request": 3252},
    ),
    PlantedBug(("cli/produce-json",), produce.JsonReader._row, _BOTH, "ValueError", {"cli/produce-json": 743}),
    PlantedBug(("logline",), logline.parse, "except ValueError", f"except {_NEVER}"),
    # SASL
    PlantedBug(("auth/scram-first", "auth/scram-final"), mechanisms.ScramMechanism._base64, "ValueError", _NEVER),
    PlantedBug(("auth/bearer-error",), mechanisms._fields_of, _BOTH, "ValueError"),
    PlantedBug(("auth/endpoint-answer",), tokens._token_in, "KeyError, TypeError", "KeyError"),
    PlantedBug(("auth/endpoint-error",), tokens._oauth_error, "not isinstance(answer, dict)", "False"),
    PlantedBug(("auth/bearer-token",), tokens.end_of, "IndexError, ", ""),
    PlantedBug(("zookeeper/sasl-challenge",), client.DigestMd5.response, 'given.get("nonce", "")', 'given["nonce"]'),
    PlantedBug(("options/jaas",), sasl._module, "value is None or value.text", "value.text"),
    PlantedBug(("options/client-file",), parse.kafka_properties, "found is None", "False"),
    # Values
    PlantedBug(("parsing/prefix",), framing.split_schema_id, "len(value) < _SIZE", "len(value) > 3 and value[0]"),
    PlantedBug(("parsing/message-index",), framing.split_message_index, "position < 0", "position < -9"),
    PlantedBug(("parsing/avro", "parsing/avro-schema"), avro.AvroReader.read, "except Exception", f"except {_NEVER}"),
    PlantedBug(("parsing/avro-schema",), avro.is_schema, "except Exception", f"except {_NEVER}"),
    PlantedBug(("parsing/protobuf",), protobuf.ProtobufReader.read, "except Exception", f"except {_NEVER}"),
    PlantedBug(("parsing/descriptor",), protobuf.ProtobufReader.__init__, "except Exception", f"except {_NEVER}"),
    PlantedBug(("parsing/proto-text",), protobuf.messages_in, 'token == "}" and len(blocks) > 1', 'token == "}"'),
)
