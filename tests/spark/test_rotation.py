"""Certificates and tokens that change under a running query of Spark: its coordinator, and the tasks of its batches."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from streamgroup.testing import Authority, KafkaServer, write_pem
from tests.conftest import MakeTopic
from tests.secured import options_with_token_file, replace_file, token_of, use_certificate
from tests.spark.support import Load, Streams, Sunk, committed, log_ends, under_load
from tests.waiting import repeatedly, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.long, pytest.mark.timeout(400)]

PARTITIONS = 4
LIFE_S = 8.0
"""The life of a token. A session with the broker lives half as long."""
CERTIFICATE_LIFE_S = 40.0
GOES_ON_S = 90.0


def goes_on(sunk: Sunk) -> None:
    """Wait until two more batches have sunk: the second one was planned after this call."""
    assert sunk.query is not None

    def batch() -> int:
        assert sunk.query is not None
        assert sunk.query.isActive, sunk.query.exception()
        progress = sunk.query.lastProgress
        return -1 if progress is None else int(progress["batchId"])

    seen = batch()
    wait_until(lambda: batch() >= seen + 2, "the query goes on", GOES_ON_S)


def connect_anew(server: KafkaServer, sunk: Sunk) -> None:
    """Reset all connections. The query reads on over new ones."""
    before = server.proxies[0].accepted
    server.proxies[0].cut()
    goes_on(sunk)
    assert server.proxies[0].accepted > before


def test_a_query_outlives_its_tokens_and_the_certificates_of_both_sides(
    streams: Streams, make_topic: MakeTopic, tmp_path: Path
) -> None:
    config = {"connections.max.reauth.ms": int(LIFE_S * 500)}
    with KafkaServer(
        security="SASL_SSL", mechanisms=["OAUTHBEARER"], mutual_tls=True, proxied=True, config=config
    ) as server:
        security, token = server.security, tmp_path / "token.jwt"

        def renew() -> None:
            replace_file(token, lambda new: new.write_text(token_of(server, "client", LIFE_S)))

        renew()
        own, trusted = security.files.pem("client"), security.files.ca
        end = datetime.now(UTC) + timedelta(seconds=CERTIFICATE_LIFE_S)
        write_pem(own, security.authority.issue("client", (), until=end))
        options = options_with_token_file(server, "client", token)
        load = Load(server, make_topic(server, PARTITIONS), PARTITIONS)
        frame = streams.read(server, load.topic, "rotation", maxOffsetsPerTrigger=200, **options)
        began = time.monotonic()
        with repeatedly(renew, LIFE_S / 8), under_load(load):
            sunk = streams.to_parquet(frame)
            goes_on(sunk)
            replace_file(own, lambda file: write_pem(file, security.authority.issue("client", ())))
            connect_anew(server, sunk)
            old, new = security.authority.certificate_pem(), Authority.create("the next authority")
            replace_file(trusted, lambda file: file.write_bytes(old + new.certificate_pem()))
            connect_anew(server, sunk)
            use_certificate(server, new.issue())
            connect_anew(server, sunk)
            replace_file(trusted, lambda file: file.write_bytes(new.certificate_pem()))
            connect_anew(server, sunk)
            while time.monotonic() - began < 3 * LIFE_S or datetime.now(UTC) < end:
                goes_on(sunk)
            connect_anew(server, sunk)
        ends = log_ends(server, load.topic, PARTITIONS)
        wait_until(lambda: len(set(sunk.rows("partition", "offset"))) >= sum(ends.values()), "all is read", GOES_ON_S)
        wait_until(lambda: committed(server, "rotation", load.topic) == ends, "all is committed", GOES_ON_S)
        assert sunk.query is not None
        assert sunk.query.isActive, "no restart"
        # Spark's file sink keeps one version of a batch, so a batch that is tried again is not there twice either.
        found = Counter(sunk.rows("partition", "offset"))
        assert found == Counter((partition, offset) for partition, until in ends.items() for offset in range(until))
        assert Counter(sunk.values()) == Counter(load.sent)
        sunk.query.stop()
