"""The table of ZooKeeper's options (`zookeeper.*`), and how they change the options of a group.

Names and defaults are those of Kafka's old consumers, and of the brokers' own client of ZooKeeper (KIP-515).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from streamgroup.options import kinds
from streamgroup.options.client import TLS
from streamgroup.options.rows import Effect, Option, Scope
from streamgroup.options.tls import BROKERS, PEM, ZOOKEEPERS, TlsOptions, contradictions, warnings
from streamgroup.options.types import GroupOptions, GroupProtocol, OffsetsStorage, ZooKeeperOptions

CONNECT = "zookeeper.connect"
ENABLE = "zookeeper.ssl.client.enable"
PREFIX = "zookeeper."
_TLS_SECTION = "zookeeper_tls"
_STORE_TYPES = ("truststore.type", "keystore.type")

_DOCS = {
    "endpoint.identification.algorithm": (
        "How the client verifies that a server's certificate is valid for its host name in `zookeeper.connect`. An "
        "empty value switches the verification off, and the log warns."
    ),
    "truststore.type": "Format of the trusted certificates. JKS files are refused, with the command to convert.",
    "truststore.location": (
        "Path of the file with the certificates to trust, on the driver. By default the client trusts what the "
        "operating system trusts."
    ),
    "keystore.type": (
        "Format of the client's key and certificate. `jks` is a `.jks` file with PKCS12 in it; a file in Java's older "
        "format is refused, with the command to convert."
    ),
    "keystore.location": (
        "Path of the file with the client's private key and certificate chain, on the driver. ZooKeeper identifies "
        "a client by the certificate's subject."
    ),
    "keystore.certificate.chain": (
        "The client's certificate as PEM, then its authorities' certificates. Requires `zookeeper.ssl.keystore.key`."
    ),
}
"""The descriptions of TLS options that differ from those for brokers, by the name without the prefix."""


def _tls_rows() -> Iterator[Option]:
    """Yield the rows of `zookeeper.ssl.*`: those of `kafka.ssl.*` with another prefix."""
    for row in TLS:
        name = row.name.removeprefix(BROKERS.prefix)
        yield dataclasses.replace(
            row,
            name=ZOOKEEPERS.prefix + name,
            doc=_DOCS.get(name, row.doc),
            target=f"{_TLS_SECTION}.{row.target.partition('.')[2]}",
            default_text="`PEM` for a file `.pem` or options with PEM, else `PKCS12`"
            if name in _STORE_TYPES
            else row.default_text,
        )


ZOOKEEPER: tuple[Option, ...] = (
    Option(
        CONNECT,
        "Addresses of the ZooKeeper servers, with the brokers' chroot if they have one: `zk1:2181,zk2:2181/kafka`. The "
        "driver finds the brokers there, so `kafka.bootstrap.servers` is optional. A member joins its group there. "
        "Set it for brokers before 0.9 and for groups of old consumers.",
        kinds.ZOOKEEPER,
        default_text="none; the port: 2181",
    ),
    Option(
        "zookeeper.session.timeout.ms",
        "Milliseconds without a ping after which ZooKeeper expires a session, and other members claim its partitions. "
        "ZooKeeper grants between 2 and 20 of its ticks, by default at most 40 s. A warning in the log names the "
        "granted timeout if it is shorter.",
        kinds.POSITIVE,
        "zookeeper.session_timeout_ms",
    ),
    Option(
        "zookeeper.connection.timeout.ms",
        "Milliseconds that the first connection to ZooKeeper may take.",
        kinds.POSITIVE,
        "zookeeper.connection_timeout_ms",
        default_text="`zookeeper.session.timeout.ms`",
    ),
    Option(
        "zookeeper.username",
        "User for ZooKeeper's scheme `digest`, or for SASL with `zookeeper.sasl.mechanism`. Requires "
        "`zookeeper.password`.",
        kinds.TEXT,
        "zookeeper.username",
        "none",
    ),
    Option(
        "zookeeper.password",
        "Password of `zookeeper.username`, or a reference to it: `env:NAME` or `file:/path`. The driver follows the "
        "reference, so Spark's plan never contains the password.",
        kinds.SECRET,
        "zookeeper.password",
    ),
    Option(
        "zookeeper.sasl.mechanism",
        "`DIGEST-MD5` authenticates the user by SASL, for servers with a JAAS section `Server`. By default the client "
        "uses ZooKeeper's scheme `digest`.",
        kinds.ZOOKEEPER_SASL,
        "zookeeper.sasl_mechanism",
        "none",
    ),
    Option(
        "zookeeper.set.acl",
        "Whether only the user, or the client certificate's subject, may write the nodes that a member creates. "
        "All users may read them. If `true`, all consumers of the group need the same identity.",
        kinds.BOOLEAN,
        "zookeeper.creator_only",
    ),
    Option(
        ENABLE,
        "Whether the connections to ZooKeeper use TLS. `zookeeper.connect` then has the port of the servers' TLS "
        "listener (`secureClientPort`).",
        kinds.BOOLEAN,
        default_text="`false`",
    ),
    *_tls_rows(),
    Option(
        "zookeeper.clientCnxnSocket",
        scope=Scope.NONE,
        why="it names a Java class. 'zookeeper.ssl.client.enable' alone sets whether connections use TLS",
    ),
    *(
        Option(
            f"zookeeper.ssl.{name}.enable",
            scope=Scope.NONE,
            elsewhere=Effect.REFUSED,
            why="OpenSSL does not check here whether certificates are revoked. Leave the option out",
        )
        for name in ("crl", "ocsp")
    ),
)


def section(
    values: Mapping[str, Any], given: Collection[str], problems: list[str], notes: list[str]
) -> ZooKeeperOptions | None:
    """Return the section, or None without `zookeeper.connect`. `values` has the parsed values by option name."""
    if CONNECT not in values:
        named = [name for name in sorted(given) if name.startswith(PREFIX) and name != CONNECT]
        if named and CONNECT not in given:
            problems.append(
                f"cannot use {', '.join(named)}: {CONNECT} is not set. Add option('{CONNECT}', 'host:port')"
            )
        return None
    servers, chroot = values[CONNECT]
    rest = _fields("zookeeper", values)
    options = ZooKeeperOptions(servers, chroot, tls=_tls(values, given, problems, notes), **rest)
    if "connection_timeout_ms" not in rest:  # as in Kafka's old consumers
        options = dataclasses.replace(options, connection_timeout_ms=options.session_timeout_ms)
    if bool(options.username) != (options.password is not None):
        problems.append(
            "zookeeper.username and zookeeper.password require each other: only one of them is set. Set both or none"
        )
    if options.creator_only and not options.username and not (options.tls and options.tls.has_keystore):
        problems.append(
            "zookeeper.set.acl=true requires an identity. Set zookeeper.username and zookeeper.password, or a client "
            f"certificate: {ZOOKEEPERS.prefix}keystore.location"
        )
    if options.sasl_mechanism and not options.username:
        problems.append("zookeeper.sasl.mechanism requires a user. Set zookeeper.username and zookeeper.password")
    if options.username and not options.sasl_mechanism and options.tls is None:
        notes.append(
            "the connection to ZooKeeper is without TLS: anyone on the network can read zookeeper.password. Set "
            f"{ENABLE}=true"
        )
    return options


def _fields(section_name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    targets = ((option.name, *option.target.split(".", 1)) for option in ZOOKEEPER if option.target)
    return {field: values[name] for name, of, field in targets if of == section_name and name in values}


def _tls(values: Mapping[str, Any], given: Collection[str], problems: list[str], notes: list[str]) -> TlsOptions | None:
    """Return how to secure the connections; None without TLS, whose options then have no effect."""
    if not values.get(ENABLE, False):
        unused = sorted(name for name in given if name.startswith(ZOOKEEPERS.prefix) and name != ENABLE)
        if unused:
            problems.append(f"cannot use {', '.join(unused)}: the connection has no TLS. Set {ENABLE}=true")
        return None
    fields = _fields(_TLS_SECTION, values)
    for store, inline in (("truststore", "truststore_certificates"), ("keystore", "keystore_key")):
        is_pem = inline in fields or str(fields.get(f"{store}_location", "")).lower().endswith(".pem")
        fields.setdefault(f"{store}_type", PEM if is_pem else "PKCS12")
    options = TlsOptions(servers=ZOOKEEPERS, **fields)
    problems += contradictions(options)
    notes += warnings(options)
    return options


def registered(
    group: GroupOptions, zookeeper: ZooKeeperOptions, given: Collection[str], problems: list[str]
) -> tuple[GroupOptions, dict[str, str]]:
    """Return the options of a member whose group is registered in ZooKeeper, and why some options are ignored."""
    if "kafka.partition.assignment.strategy" in given and "range" not in group.strategies:
        problems.append(
            "invalid value for option kafka.partition.assignment.strategy: all members of a group in ZooKeeper compute "
            "Java's range. Set 'range', or leave the option out"
        )
    if group.protocol is GroupProtocol.CONSUMER:
        problems.append(
            "invalid value for option kafka.group.protocol: a group in ZooKeeper has another protocol. Leave the "
            "option out"
        )
    changed = dataclasses.replace(
        group,
        protocol=GroupProtocol.CLASSIC,
        remote_assignor=None,
        session_timeout_ms=zookeeper.session_timeout_ms,
        heartbeat_interval_ms=min(group.heartbeat_interval_ms, max(1, zookeeper.session_timeout_ms // 3)),
        strategies=("range",),
        weight=1,
        instance_id=None,
    )
    return changed, {name: why for name, why in _NOT_IN_ZOOKEEPER.items() if name in given}


def stored(
    group: GroupOptions, zookeeper: ZooKeeperOptions | None, given: Collection[str], problems: list[str]
) -> tuple[GroupOptions, dict[str, str]]:
    """Return the options of a group with the storage of its offsets, and why some options are ignored."""
    if zookeeper is None:
        if group.offsets_storage is OffsetsStorage.ZOOKEEPER:
            problems.append(
                f"cannot use kafka.offsets.storage=zookeeper: {CONNECT} is not set. Add option('{CONNECT}', "
                "'host:port')"
            )
        ignored = {_DUAL: f"without {CONNECT} only the brokers store offsets"} if _DUAL in given else {}
        return dataclasses.replace(group, dual_commit=False), ignored
    if group.offsets_storage is OffsetsStorage.KAFKA:
        # Java's default: during a migration out of ZooKeeper some consumers still read the offsets there.
        return dataclasses.replace(group, dual_commit=group.dual_commit if _DUAL in given else True), {}
    ignored = {_DUAL: "with kafka.offsets.storage=zookeeper only ZooKeeper stores offsets"} if _DUAL in given else {}
    return dataclasses.replace(group, offsets_storage=OffsetsStorage.ZOOKEEPER, dual_commit=False), ignored


_DUAL = "kafka.dual.commit.enabled"
_NOT_IN_ZOOKEEPER = {
    "kafka.group.instance.id": "a group in ZooKeeper has no static members",
    "kafka.group.remote.assignor": "all members of a group in ZooKeeper compute Java's range",
    "group.member.weight": "all members of a group in ZooKeeper compute Java's range",
    "kafka.session.timeout.ms": "a group in ZooKeeper has the session timeout of 'zookeeper.session.timeout.ms'",
}
