from __future__ import annotations

import enum
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from streamgroup.errors import AuthenticationError, ConfigError, StreamGroupError, TransportError
from streamgroup.kafka.net.sasl.kerberos import (
    MAX_ROUNDS,
    Credentials,
    GssapiLibrary,
    GssapiMechanism,
    KerberosFailure,
    SecurityContext,
    Tickets,
    remedy,
)
from streamgroup.options.sasl import KerberosOptions
from tests.clock import Clock

PEER = "broker-1.example:9092"
ALICE = "alice@EXAMPLE.COM"
NO_LAYER_ANSWER = b"wrapped(\1\0\0\0" + ALICE.encode() + b")"
OFFER = b"wrapped(\1\0\0\0)"


class Context:
    """A security context that sends `tokens`, is complete after the last, and wraps by writing so."""

    def __init__(self, tokens: Sequence[bytes | None]) -> None:
        self.tokens = list(tokens)
        self.taken: list[bytes | None] = []
        self.failure: KerberosFailure | None = None

    @property
    def complete(self) -> bool:
        return not self.tokens

    def step(self, token: bytes | None) -> bytes | None:
        self.taken.append(token)
        if self.failure is not None:
            raise self.failure
        if token == b"bad":
            raise KerberosFailure(0, "Server not found in Kerberos database\n")
        return self.tokens.pop(0)

    def unwrap(self, message: bytes) -> bytes:
        if not message.startswith(b"wrapped("):
            raise KerberosFailure(0, "A token had an invalid MIC")
        return message[len("wrapped(") : -1]

    def wrap(self, message: bytes) -> bytes:
        return b"wrapped(" + message + b")"


def begun() -> GssapiMechanism:
    """The mechanism after its only token."""
    mechanism = GssapiMechanism(PEER, Context([b"AP-REQ"]), ALICE)
    mechanism.first()
    return mechanism


def test_the_broker_proves_itself_and_no_layer_is_chosen() -> None:
    context = Context([b"AP-REQ", None])
    mechanism = GssapiMechanism(PEER, context, ALICE)
    assert mechanism.first() == b"AP-REQ"
    assert mechanism.next(b"AP-REP") == b""
    assert not mechanism.done
    assert mechanism.next(OFFER) == NO_LAYER_ANSWER
    assert mechanism.done, "before KIP-152 the broker does not answer any more"
    assert mechanism.next(b"") is None
    assert mechanism.done
    assert context.taken == [None, b"AP-REP"]


def test_a_broker_that_has_no_token_before_its_offer() -> None:
    mechanism = begun()
    assert mechanism.next(b"") == b""
    assert mechanism.next(OFFER) == NO_LAYER_ANSWER


def test_without_a_principal_the_ticket_names_the_user() -> None:
    mechanism = GssapiMechanism(PEER, Context([b"AP-REQ"]))
    mechanism.first()
    assert mechanism.next(OFFER) == b"wrapped(\1\0\0\0)"


@pytest.mark.parametrize("layers", [1, 3, 5, 7, 0xFF])
def test_no_layer_is_chosen_among_others(layers: int) -> None:
    mechanism = begun()
    assert mechanism.next(b"wrapped(" + bytes((layers, 1, 0, 0)) + b")") == NO_LAYER_ANSWER


@pytest.mark.parametrize(
    ("offer", "cause"),
    [
        (b"wrapped(\6\0\xff\xff)", "requires a security layer of SASL"),
        (b"wrapped(\0\0\0\0)", "requires a security layer of SASL"),
        (b"wrapped(\1\0\0)", "has 3 bytes instead of 4"),
        (b"wrapped(\1\0\0\0\0)", "has 5 bytes instead of 4"),
        (b"wrapped()", "has 0 bytes instead of 4"),
        (b"\1\0\0\0", "cannot read the security layers that the broker offers: A token had an invalid MIC"),
    ],
)
def test_an_offer_that_cannot_be_taken(offer: bytes, cause: str) -> None:
    mechanism = begun()
    with pytest.raises(
        AuthenticationError, match=rf"^cannot authenticate to broker {PEER} as user '{ALICE}' .*{cause}"
    ):
        mechanism.next(offer)
    assert not mechanism.done


def test_two_empty_answers_are_no_offer() -> None:
    mechanism = begun()
    assert mechanism.next(b"") == b""
    with pytest.raises(AuthenticationError, match="cannot read the security layers"):
        mechanism.next(b"")
    assert not mechanism.done


@pytest.mark.parametrize(
    ("code", "kind", "next_step"),
    [(37, AuthenticationError, "Set the clocks"), (34, TransportError, "A retry may succeed")],
)
def test_a_failure_of_the_context_says_what_to_do(code: int, kind: type[Exception], next_step: str) -> None:
    context = Context([b"AP-REQ", None])
    mechanism = GssapiMechanism(PEER, context, ALICE)
    mechanism.first()
    context.failure = KerberosFailure(code - 1_765_328_384, "The cause")
    with pytest.raises(kind, match=f"by SASL GSSAPI: Kerberos failed: The cause. {next_step}"):
        mechanism.next(b"AP-REP")


def test_a_broker_that_rejects_the_ticket_has_the_cause_in_its_log() -> None:
    rejections: list[int] = []
    mechanism = GssapiMechanism(PEER, Context([]), ALICE, lambda: rejections.append(1))
    error = mechanism.rejected("Authentication failed")
    assert rejections == [1]
    assert "the broker rejected the ticket: Authentication failed. The log of the broker has the cause" in str(error)
    assert isinstance(error, AuthenticationError)


def test_a_broker_cannot_ask_for_tokens_for_ever() -> None:
    mechanism = GssapiMechanism(PEER, Context([b"more"] * (MAX_ROUNDS + 1)), ALICE)
    mechanism.first()
    for _ in range(MAX_ROUNDS - 2):
        assert mechanism.next(b"more") == b"more"
    with pytest.raises(AuthenticationError, match=f"not established after {MAX_ROUNDS} tokens"):
        mechanism.next(b"more")


BASE = -1_765_328_384
"""The code of the library for error 0 of the protocol."""
EMPTY_CACHE = BASE + 141, BASE + 142
NO_CACHE, UNREACHABLE, OTHER_PRINCIPAL = BASE + 195, BASE + 156, 39_756_032
LIFE_S = 1_000


def failure(code: int, *, expired: bool = False) -> KerberosFailure:
    return KerberosFailure(code, "text of the library", expired=expired)


@pytest.mark.parametrize("code", [0, -1765328384, 1, 2**31])
def test_an_unknown_code_asks_for_a_look_at_all_settings_and_names_the_trace_and_is_not_retried(code: int) -> None:
    found = remedy(failure(code))
    assert all(word in found.next_step for word in ("keytab", "kafka.sasl.kerberos.service.name", "KRB5_TRACE"))
    assert not found.retried


class Library:
    """Gives tickets of LIFE_S seconds, and raises what a test says for credentials or for a broker."""

    def __init__(self) -> None:
        self.stores: list[Mapping[str, str]] = []
        self.opened: list[tuple[str, str]] = []
        self.no_credentials: KerberosFailure | None = None
        self.no_cache: KerberosFailure | None = None
        self.no_service: KerberosFailure | None = None

    def credentials(self, principal: str, store: Mapping[str, str]) -> Credentials:
        self.stores.append(store)
        cached = not store.get("ccache", "").startswith("MEMORY:")
        if failure := self.no_cache if cached else self.no_credentials:
            raise failure
        return Credentials(object(), principal or "of-the-cache@EXAMPLE.COM", LIFE_S)

    def open(self, credentials: Credentials, service: str, host: str) -> SecurityContext:
        self.opened.append((service, host))
        if self.no_service is not None:
            raise self.no_service
        return Context([])


@pytest.fixture
def keytab(tmp_path: Path) -> str:
    file = tmp_path / "alice.keytab"
    file.write_bytes(b"\x05\x02 keys")
    return str(file)


@pytest.fixture
def library() -> Library:
    return Library()


def by_keytab(keytab: str) -> KerberosOptions:
    return KerberosOptions("kafka", ALICE, use_keytab=True, keytab=keytab)


BY_CACHE = KerberosOptions("kafka", use_ticket_cache=True, ticket_cache="/tmp/cc")


def test_a_context_is_opened_with_the_brokers_service_at_its_host(library: Library, keytab: str) -> None:
    context, principal = Tickets(lambda: library).open(by_keytab(keytab), PEER)
    assert isinstance(context, Context)
    assert principal == ALICE
    assert library.opened == [("kafka", "broker-1.example")]
    (store,) = library.stores
    assert store["client_keytab"] == f"FILE:{keytab}"
    assert store["ccache"].startswith("MEMORY:streamgroup-")


def test_a_ticket_from_a_keytab_is_used_for_four_fifths_of_its_life(library: Library, keytab: str) -> None:
    tickets = Tickets(lambda: library, clock := Clock(1_000_000.0))
    for seconds, asked in ((0, 1), (0, 1), (799, 1), (2, 2), (0, 2)):
        clock.now += seconds
        tickets.open(by_keytab(keytab), PEER)
        assert len(library.stores) == asked
    assert library.stores[0]["ccache"] != library.stores[1]["ccache"], "contexts of the old ticket go on"


def test_a_kdc_that_is_away_costs_nothing_while_the_ticket_is_valid(library: Library, keytab: str) -> None:
    tickets = Tickets(lambda: library, clock := Clock(1_000_000.0))
    tickets.open(by_keytab(keytab), PEER)
    library.no_credentials = KerberosFailure(UNREACHABLE, "Cannot contact any KDC for realm 'EXAMPLE.COM'")
    clock.now += 900
    tickets.open(by_keytab(keytab), PEER)
    clock.now += 100
    with pytest.raises(TransportError, match=r"alice@.* from keytab .*: Cannot contact any KDC .*reaches the KDC"):
        tickets.open(by_keytab(keytab), PEER)


def test_a_ticket_cache_is_read_for_each_connection(library: Library) -> None:
    tickets = Tickets(lambda: library)
    assert [tickets.open(BY_CACHE, PEER)[1] for _ in range(2)] == ["of-the-cache@EXAMPLE.COM"] * 2
    tickets.open(replace(BY_CACHE, ticket_cache="KEYRING:persistent:7"), PEER)
    tickets.open(replace(BY_CACHE, ticket_cache=""), PEER)
    assert [store.get("ccache") for store in library.stores] == [
        *("FILE:/tmp/cc", "FILE:/tmp/cc", "KEYRING:persistent:7", None)
    ]
    # Otherwise the library would take the system's client keytab where the cache has no ticket.
    assert {store["client_keytab"] for store in library.stores} == {"MEMORY:streamgroup-none"}


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        *(
            (KerberosFailure(code, "None found"), "ticket cache /tmp/cc: None found")
            for code in (*EMPTY_CACHE, NO_CACHE)
        ),
        (KerberosFailure(100_001, "Success", expired=True), "ticket cache /tmp/cc: the ticket has ended"),
    ],
)
def test_no_ticket_in_the_cache_names_kinit_unless_a_keytab_has_one(
    library: Library, keytab: str, failure: KerberosFailure, text: str
) -> None:
    library.no_cache = failure
    tickets = Tickets(lambda: library)
    with pytest.raises(AuthenticationError, match=rf"{text}\. Run kinit on each machine"):
        tickets.open(BY_CACHE, PEER)
    both = replace(by_keytab(keytab), use_ticket_cache=True)
    assert tickets.open(both, PEER)[1] == ALICE
    library.no_cache = KerberosFailure(BASE + 194, "Credentials cache permissions incorrect")
    with pytest.raises(AuthenticationError, match=r"permissions incorrect. Give this process permission"):
        tickets.open(both, PEER)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, r"cannot read the keytab .*alice.keytab: No such file or directory. Correct keyTab"),
        (b"\x04\x02 others", r"alice.keytab: it is not a keytab. Write it with ktadd"),
        (b"", r"it is not a keytab"),
    ],
)
def test_a_file_that_is_no_keytab_is_named_before_the_library_looks_elsewhere(
    library: Library, keytab: str, content: bytes | None, text: str
) -> None:
    Path(keytab).unlink()
    if content is not None:
        Path(keytab).write_bytes(content)
    with pytest.raises(ConfigError, match=text):
        Tickets(lambda: library).open(by_keytab(keytab), PEER)
    assert library.stores == []


def test_a_principal_that_the_keytab_lacks_is_named(library: Library, keytab: str) -> None:
    library.no_credentials = KerberosFailure(NO_CACHE, "No credentials cache found")
    with pytest.raises(ConfigError, match=r"alice.keytab has no key of 'alice@EXAMPLE.COM'.*klist -k"):
        Tickets(lambda: library).open(by_keytab(keytab), PEER)
    with pytest.raises(ConfigError, match=r"the default client keytab has no key of 'alice@EXAMPLE.COM'"):
        Tickets(lambda: library).open(by_keytab(""), PEER)


@pytest.mark.parametrize(
    ("code", "kind", "next_step"),
    [
        (BASE + 6, AuthenticationError, "create the principal in the realm"),
        (BASE + 7, AuthenticationError, "Correct kafka.sasl.kerberos.service.name"),
        (BASE + 14, AuthenticationError, "aes256-cts"),
        (BASE + 18, AuthenticationError, "The realm's administrator"),
        (BASE + 24, AuthenticationError, "Write the keytab again"),
        (BASE + 29, TransportError, "A retry may succeed"),
        (BASE + 33, TransportError, "Set the clocks"),
        (BASE + 34, TransportError, "A retry may succeed"),
        (BASE + 31, AuthenticationError, "Write the keytab again"),
        (BASE + 37, AuthenticationError, "Set the clocks"),
        (BASE + 148, AuthenticationError, "Set the clocks"),
        (BASE + 154, AuthenticationError, "Correct krb5.conf"),
        (UNREACHABLE, TransportError, "reaches the KDC"),
        (BASE + 194, AuthenticationError, "permission to read the ticket cache"),
        (BASE + 220, TransportError, "reaches the KDC"),
        (BASE + 224, AuthenticationError, "Correct krb5.conf"),
        (OTHER_PRINCIPAL, AuthenticationError, "run kinit for this principal"),
        (1, AuthenticationError, "environment variable KRB5_TRACE to the path of a file"),
    ],
)
def test_a_failure_says_what_to_do_and_whether_a_retry_may_help(
    library: Library, keytab: str, code: int, kind: type[StreamGroupError], next_step: str
) -> None:
    library.no_credentials = KerberosFailure(code, "The cause.")
    with pytest.raises(kind, match=rf"from keytab .*: The cause\. .*{next_step}"):
        Tickets(lambda: library).open(by_keytab(keytab), PEER)


def test_a_broker_that_the_kdc_does_not_know_is_named(library: Library, keytab: str) -> None:
    library.no_service = KerberosFailure(BASE + 7, "Server kafka/broker-1.example@EXAMPLE.COM not found")
    with pytest.raises(AuthenticationError) as caught:
        Tickets(lambda: library).open(by_keytab(keytab), PEER)
    assert str(caught.value).startswith(
        f"cannot authenticate to broker {PEER} as user '{ALICE}' by SASL GSSAPI: the KDC gave no ticket for "
        "kafka@broker-1.example: Server kafka/broker-1.example@EXAMPLE.COM not found. "
        "Correct kafka.sasl.kerberos.service.name"
    )
    library.no_service = KerberosFailure(UNREACHABLE, "Cannot contact any KDC")
    with pytest.raises(TransportError):
        Tickets(lambda: library).open(by_keytab(keytab), PEER)


class GSSError(Exception):
    maj_code = 851_968

    def __init__(self, min_code: int, *texts: str) -> None:
        self.min_code, self.texts = min_code, texts

    def get_all_statuses(self, code: int, is_major: bool) -> list[str]:
        return ["Unspecified GSS failure"] if is_major else list(self.texts)


class ExpiredCredentialsError(GSSError): ...


class ExpiredContextError(GSSError): ...


class Flag(enum.IntFlag):
    mutual_authentication = 2
    integrity = 32


class Package(ModuleType):
    """The part of gssapi that is used. `failure` is raised by the calls that ask the KDC."""

    MechType = SimpleNamespace(kerberos="krb5")
    NameType = SimpleNamespace(kerberos_principal="principal", hostbased_service="service")
    RequirementFlag = Flag
    exceptions = SimpleNamespace(
        GSSError=GSSError, ExpiredCredentialsError=ExpiredCredentialsError, ExpiredContextError=ExpiredContextError
    )

    def __init__(self) -> None:
        super().__init__("gssapi")
        self.failure: GSSError | None = None
        self.lifetime: int | None = 600
        self.asked: list[Any] = []
        self.Name, self.Credentials, self.SecurityContext = self._name, self._credentials, self._context

    def _name(self, text: str, kind: str) -> str:
        return f"{kind}:{text}"

    def _credentials(self, **asked: Any) -> Any:
        self.asked.append(asked)
        return SimpleNamespace(name="alice@X", lifetime=self.lifetime)

    def _context(self, **asked: Any) -> Any:
        self.asked.append(asked)
        return LibraryContext(self)


class LibraryContext:
    def __init__(self, package: Package) -> None:
        self.package = package
        self.taken: list[bytes | None] = []

    @property
    def complete(self) -> bool:
        return len(self.taken) == 2

    def step(self, token: bytes | None = None) -> bytes | None:
        if self.package.failure is not None:
            raise self.package.failure
        self.taken.append(token)
        return b"AP-REQ" if token is None else None

    def wrap(self, message: bytes, encrypt: bool) -> Any:
        return SimpleNamespace(message=b"%d" % encrypt + message)

    def unwrap(self, message: bytes) -> Any:
        return SimpleNamespace(message=message[1:])


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Package:
    found = Package()
    monkeypatch.setitem(sys.modules, "gssapi", found)
    return found


TICKET = Credentials("handle", "alice@X", 1)


def test_credentials_are_those_of_a_principal_and_a_store(package: Package) -> None:
    library = GssapiLibrary()
    found = library.credentials("alice@X", {"ccache": "c", "client_keytab": "k"})
    assert (found.principal, found.lifetime_s) == ("alice@X", 600)
    package.lifetime = None
    assert library.credentials("", {"client_keytab": "k"}).lifetime_s == 86_400
    for asked in package.asked:
        assert (asked.pop("usage"), asked.pop("mechs")) == ("initiate", ["krb5"])
    assert package.asked == [
        {"name": "principal:alice@X", "store": {"ccache": "c", "client_keytab": "k"}},
        {"name": None, "store": {"client_keytab": "k"}},
    ]


def test_an_open_context_has_its_first_token_and_demands_the_brokers_proof(package: Package) -> None:
    context = GssapiLibrary().open(TICKET, "kafka", "broker-1")
    (asked,) = package.asked
    assert asked["name"] == "service:kafka@broker-1"
    assert asked["creds"] == "handle"
    assert asked["flags"] == Flag.mutual_authentication | Flag.integrity
    package.failure = GSSError(0)  # whoever asks the KDC from now on fails
    assert not context.complete
    assert context.step(None) == b"AP-REQ"
    package.failure = None
    assert context.step(b"AP-REP") is None
    assert context.complete
    assert context.wrap(b"m") == b"0m", "without encryption"
    assert context.unwrap(b"1m") == b"m"


@pytest.mark.parametrize(
    ("error", "code", "text", "expired"),
    [
        (GSSError(2**32 - 1_765_328_377, "Server not found"), -1_765_328_377, "Server not found", False),
        (GSSError(39_756_032, "Principal does not match"), 39_756_032, "Principal does not match", False),
        (ExpiredCredentialsError(100_001, "Success"), 100_001, "Unspecified GSS failure", True),
        (GSSError(0), 0, "Unspecified GSS failure", False),
    ],
)
def test_an_error_of_the_package_has_the_code_of_the_library(
    package: Package, error: GSSError, code: int, text: str, expired: bool
) -> None:
    package.failure = error
    with pytest.raises(KerberosFailure) as caught:
        GssapiLibrary().open(TICKET, "kafka", "broker-1")
    assert (caught.value.code, caught.value.text, caught.value.expired) == (code, text, expired)


def test_a_missing_package_names_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError, match=r"pip install 'streamgroup\[kerberos\]'.*libkrb5-dev"):
        GssapiLibrary()
