"""Ten ways to connect wrongly to a secured cluster. Each ends at once, with the error that the page shows."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, NewTopic

from streamgroup.cli._properties import without_prefix
from streamgroup.cli.main import main
from streamgroup.coordinator.coordinator import Coordinator
from streamgroup.coordinator.planning.document import to_value
from streamgroup.errors import AuthenticationError, AuthorizationError, StreamGroupError, TlsError
from streamgroup.executor.read.fetcher import read
from streamgroup.executor.write.sink_writer import write
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.model import INITIAL_DOCUMENT, Broker, FetchRange, FetchTask, OffsetRange, TopicPartition
from streamgroup.options.parse import parse_sink, parse_source
from streamgroup.options.types import LimitOptions, SourceOptions
from streamgroup.testing import Authority, Identity, KafkaServer
from tests.secured import ANY_NAMES, options_with_token_file, token_of, use_certificate, without_scram

pytestmark = [pytest.mark.live, pytest.mark.timeout(300), pytest.mark.usefixtures("fresh_process")]

PAGE = Path(__file__).parents[2] / "docs" / "security-errors.md"
AT_ONCE_S = 30.0
"""Far below the deadline of 60 s (default.api.timeout.ms), and enough for a busy machine."""
TOPIC, GROUP = "orders", "orders-ingest"
TIMEOUT_S = 30

Options = dict[str, str]


@dataclass(frozen=True)
class Cluster:
    """The secured cluster, a directory for files of the test, and the id of TOPIC."""

    server: KafkaServer
    home: Path
    topic_id: str


@dataclass(frozen=True)
class Wrong:
    """One way to be wrong: the section of the page, the error, and the options of the client."""

    section: str
    error: type[StreamGroupError]
    options: Callable[[Cluster], Options]
    shown: Callable[[Authority], Identity] = Authority.issue
    """The certificate that the broker shows."""

    def __str__(self) -> str:
        return self.section


def of(user: str = "client", mechanism: str = "PLAIN") -> Callable[[Cluster], Options]:
    """Return the options of a user."""
    return lambda cluster: cluster.server.security.client(user, mechanism).options


def with_a_wrong_password(cluster: Cluster) -> Options:
    return cluster.server.security.client(password="wrong").options


def with_another_authority(cluster: Cluster) -> Options:
    file = cluster.home / "other-ca.pem"
    file.write_bytes(Authority.create("another").certificate_pem())
    return {**of()(cluster), "kafka.ssl.truststore.location": str(file)}


def at_the_plaintext_port(cluster: Cluster) -> Options:
    return {**of()(cluster), "kafka.bootstrap.servers": cluster.server.direct_servers}


def without_tls(cluster: Cluster) -> Options:
    return {"kafka.bootstrap.servers": cluster.server.bootstrap_servers}


def with_a_mechanism_that_is_off(cluster: Cluster) -> Options:
    return {**of(mechanism="SCRAM-SHA-256")(cluster), "kafka.sasl.mechanism": "SCRAM-SHA-512"}


def with_an_expired_token(cluster: Cluster) -> Options:
    file = cluster.home / "token.jwt"
    file.write_text(token_of(cluster.server, "client", -3600))
    return options_with_token_file(cluster.server, "client", file)


def expired(authority: Authority) -> Identity:
    return authority.issue(expired=True)


def of_another_host(authority: Authority) -> Identity:
    return authority.issue(hosts=["elsewhere.example"])


WAYS = [
    Wrong("The authority is unknown", TlsError, with_another_authority),
    Wrong("The password is wrong", AuthenticationError, with_a_wrong_password),
    Wrong("The user has no password for the mechanism", AuthenticationError, of("plain-only", "SCRAM-SHA-256")),
    Wrong("The listener does not have the mechanism", AuthenticationError, with_a_mechanism_that_is_off),
    Wrong("TLS at a plaintext port", TlsError, at_the_plaintext_port),
    Wrong("Plaintext at a TLS port", TlsError, without_tls),
    Wrong("The user lacks a permission", AuthorizationError, of("stranger")),
    Wrong("The token has expired", AuthenticationError, with_an_expired_token),
    Wrong("The certificate has expired", TlsError, of(), expired),
    Wrong("The certificate is for another host", TlsError, of(), of_another_host),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with KafkaServer(
        security="SASL_SSL",
        mechanisms=["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"],
        acls=True,
        users=["client", "stranger", "plain-only"],
        config=ANY_NAMES,
    ) as server:
        without_scram(server, "plain-only")
        admin = AdminClient({"bootstrap.servers": server.direct_servers, "log_level": 3})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(TIMEOUT_S)
        server.security.add_acl("client", "READ", topic=TOPIC)
        server.security.add_acl("client", "READ", group=GROUP)
        with closing(KafkaCluster(parsed(server.client_options).client)) as known:
            topic_id = known.snapshot({TOPIC}, known.deadline()).topics[TOPIC].topic_id
        yield Cluster(server, tmp_path_factory.mktemp("wrong"), topic_id)


@pytest.fixture(scope="module")
def way(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[tuple[Wrong, Options]]:
    """One way to be wrong, and its options, while the broker shows the certificate of that way."""
    wrong: Wrong = request.param
    own = wrong.shown is Authority.issue
    if not own:
        use_certificate(cluster.server, wrong.shown(cluster.server.security.authority))
    yield wrong, wrong.options(cluster)
    if not own:
        use_certificate(cluster.server, cluster.server.security.authority.issue())


each_way = pytest.mark.parametrize("way", WAYS, ids=str, indirect=True)


def parsed(options: Mapping[str, str]) -> SourceOptions:
    given = {"subscribe": TOPIC, "startingOffsets": "earliest", "kafka.group.id": GROUP, **options}
    return parse_source(given, streaming=True)


def by_a_cluster_connection(options: SourceOptions, _: Cluster) -> None:
    with closing(KafkaCluster(options.client)) as connected:
        connected.snapshot({TOPIC}, connected.deadline())


def by_a_coordinator(options: SourceOptions, _: Cluster) -> None:
    coordinator = Coordinator(options)
    try:
        coordinator.latest_offset(to_value(INITIAL_DOCUMENT), limits=LimitOptions(), once=True)
    finally:
        coordinator.stop()


def by_a_task(options: SourceOptions, cluster: Cluster) -> None:
    host, port = options.client.bootstrap_servers[0]
    ranges = FetchRange(OffsetRange(TopicPartition(TOPIC, 0), 0, 1), Broker(0, host, port), cluster.topic_id, 0)
    list(read(FetchTask((ranges,)), options.client, options.fetch))


@each_way
@pytest.mark.parametrize("road", [by_a_cluster_connection, by_a_coordinator, by_a_task], ids=lambda road: road.__name__)
def test_the_error_comes_at_once_and_is_that_of_the_page(
    way: tuple[Wrong, Options], cluster: Cluster, road: Callable[[SourceOptions, Cluster], None]
) -> None:
    wrong, options = way
    began = time.monotonic()
    with pytest.raises(wrong.error) as caught:
        road(parsed(options), cluster)
    assert time.monotonic() - began < AT_ONCE_S
    shown_on_the_page(wrong.section, str(caught.value))


@pytest.mark.parametrize("way", [way for way in WAYS if way.error is not AuthorizationError], ids=str, indirect=True)
def test_a_write_shows_the_same_error_at_once(way: tuple[Wrong, Options]) -> None:
    """A write needs other rights than a read, so that error has another text."""
    wrong, options = way
    began = time.monotonic()
    with pytest.raises(wrong.error) as caught:
        write([pa.record_batch({"value": pa.array([b"x"])})], parse_sink({**options, "topic": TOPIC}))
    assert time.monotonic() - began < AT_ONCE_S
    shown_on_the_page(wrong.section, str(caught.value))


@each_way
def test_a_command_shows_the_same_error(way: tuple[Wrong, Options], tmp_path: Path) -> None:
    wrong, options = way
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name.removeprefix('kafka.')}={value}\n" for name, value in options.items()))
    began = time.monotonic()
    where = ["--bootstrap-server", options["kafka.bootstrap.servers"], "--command-config", str(file)]
    ran = CliRunner().invoke(main, ["topics", *where, "--describe", "--topic", TOPIC, "--timeout", "60000"])
    assert time.monotonic() - began < AT_ONCE_S
    assert ran.exit_code == 1, ran.output
    shown_on_the_page(wrong.section, ran.stderr.splitlines()[-1].removeprefix("Error: "), without_prefix)


def test_the_page_has_a_section_for_each_way_and_no_other() -> None:
    assert sections().keys() == {wrong.section for wrong in WAYS}


def shown_on_the_page(section: str, message: str, names: Callable[[str], str] = str) -> None:
    """Check that the page shows the message. A word in angle brackets stands for any text.

    `names` changes the names of options on the page into those of the message.
    """
    texts = map(names, sections()[section])
    patterns = [re.sub(r"<[a-z ]+>", ".+?", re.escape(text).replace("\\ ", " ")) for text in texts]
    assert any(re.fullmatch(pattern, message) for pattern in patterns), f"docs/{PAGE.name} does not show: {message}"


def sections() -> dict[str, list[str]]:
    """Return the messages in the sections of the page, each on one line."""
    _, *parts = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    blocks = {part.partition("\n")[0]: re.findall(r"^```text\n(.*?)^```", part, re.M | re.S) for part in parts}
    return {title: [" ".join(text.split()) for text in found] for title, found in blocks.items() if found}
