"""Answers of real brokers, which tests/live/wire_conversation.py has recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamgroup.kafka.wire.frames import decode_response, encode_request
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from streamgroup.kafka.wire.primitives import Reader
from streamgroup.kafka.wire.schema import Request, decode, encode
from streamgroup.kafka.wire.versions import BrokerVersions
from tests.unit.kafka.wire.declared import REQUESTS, lowest

VECTORS = Path(__file__).parents[3] / "vectors" / "wire"
RELEASES = ("3.9.1", "4.1.1", "4.3.1")


def rows(release: str) -> list[Any]:
    return list(json.loads((VECTORS / f"kafka-{release}.json").read_text()))


EVERY_API = pytest.mark.parametrize(
    ("release", "cls"), [(r, cls) for r in RELEASES for cls in REQUESTS], ids=lambda p: p if p in RELEASES else p.NAME
)


def exchanges(release: str, cls: type[Request[Any]]) -> dict[int, tuple[bytes, bytes]]:
    return {
        row["version"]: (bytes.fromhex(row["request"]), bytes.fromhex(row["response"]))
        for row in rows(release)
        if row["api"] == cls.NAME
    }


@EVERY_API
def test_every_answer_is_read_and_written_again_byte_for_byte(release: str, cls: type[Request[Any]]) -> None:
    for version, (_, answer) in exchanges(release, cls).items():
        correlation_id, response = decode_response(cls, version, answer)
        header = 5 if cls.is_flexible(version) and cls is not ApiVersionsRequest else 4
        assert int.from_bytes(answer[:4], "big") == correlation_id
        assert encode(response, version) == answer[header:], version


@EVERY_API
def test_every_request_that_was_understood_is_still_written_so(release: str, cls: type[Request[Any]]) -> None:
    for version, (asked, _) in exchanges(release, cls).items():
        reader = Reader(asked)
        assert (reader.int16(), reader.int16()) == (cls.API_KEY, version)
        correlation_id = reader.int32()
        client_id = reader.text(reader.int16())
        if cls.is_flexible(version):
            reader.skip_tags()
        request = decode(cls, reader.take(reader.remaining), version)
        assert encode_request(request, version, correlation_id, client_id)[4:] == asked


@pytest.mark.parametrize("release", RELEASES)
def test_every_common_version_was_captured(release: str) -> None:
    answer = decode(ApiVersionsResponse, exchanges(release, ApiVersionsRequest)[0][1][4:], 0)
    broker = BrokerVersions.of(answer, release)
    for cls in REQUESTS:
        assert set(exchanges(release, cls)) == set(range(lowest(cls, broker), broker.highest(cls) + 1)), cls.NAME
