"""The mechanism of a new SASL exchange, with the password, token or ticket that the user's options name."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

from streamgroup.errors import AuthenticationError, ConfigError, StreamGroupError
from streamgroup.kafka.net.background import Background, WaitTimeout
from streamgroup.kafka.net.sasl import credentials
from streamgroup.kafka.net.sasl.credentials import begin_mechanism, make_mechanism
from streamgroup.kafka.net.sasl.kerberos import Tickets
from streamgroup.kafka.net.sasl.tokens import Tokens
from streamgroup.options.sasl import KerberosOptions, OAuthOptions, SaslOptions
from streamgroup.options.secrets import Secret
from streamgroup.options.tls import TlsOptions
from tests.unit.kafka.net.sasl.test_kerberos import ALICE, Library
from tests.waiting import TIMEOUT_S

PEER = "broker-1.example:9092"
KERBEROS = SaslOptions("GSSAPI", kerberos=KerberosOptions("kafka", ALICE, use_ticket_cache=True))


def first(options: SaslOptions) -> bytes:
    return make_mechanism(options, TlsOptions(), PEER).first()


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tokens of the function `signer_of_tests:token`, the next one first. They end in 2100."""
    left = ["token.one", "token.two"]
    module = ModuleType("signer_of_tests")
    module.token = lambda: (left.pop(0), 4_102_444_800_000)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "signer_of_tests", module)
    monkeypatch.setattr(credentials, "TOKENS", Tokens())
    return left


def provided(**others: object) -> SaslOptions:
    return SaslOptions("OAUTHBEARER", oauth=OAuthOptions(provider="signer_of_tests:token", **others))  # type: ignore[arg-type]


def test_plain_sends_the_user_and_the_password() -> None:
    assert first(SaslOptions("PLAIN", "ann", Secret("hunter2"))) == b"\0ann\0hunter2"


def test_a_password_in_a_file_is_read_for_each_exchange(tmp_path: Path) -> None:
    options = SaslOptions("PLAIN", "ann", Secret(f"file:{tmp_path / 'password'}"))
    for password in ("old", "new"):
        (tmp_path / "password").write_text(password + "\n")
        assert first(options) == b"\0ann\0" + password.encode()


def test_a_password_that_cannot_be_read_is_an_error_that_names_the_option_and_the_file() -> None:
    with pytest.raises(ConfigError, match=r"option kafka\.sasl\.jaas\.config: file /no/password: .*Check the path"):
        first(SaslOptions("SCRAM-SHA-512", "ann", Secret("file:/no/password")))


@pytest.mark.parametrize("name", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_each_exchange_of_scram_has_a_nonce_of_its_own(name: str) -> None:
    options = SaslOptions(name, "ann", Secret("hunter2"))
    assert make_mechanism(options, TlsOptions(), PEER).name == name
    sent = {first(options) for _ in range(3)}
    assert len(sent) == 3
    for token in sent:
        begin, _, nonce = token.partition(b",r=")
        assert (begin, len(nonce) >= 24) == (b"n,,n=ann", True)


def test_a_delegation_token_is_marked_as_one() -> None:
    token, password = (
        first(SaslOptions("SCRAM-SHA-256", "ann", Secret("hmac"), token_auth=is_token)) for is_token in (True, False)
    )
    assert token.endswith(b",tokenauth=true")
    assert b"tokenauth" not in password


def test_a_bearer_token_is_sent_with_the_extensions(tokens: list[str]) -> None:
    sent = first(provided(extensions=(("logicalCluster", "lkc-1"), ("pool", "p"))))
    assert sent == b"n,,\x01auth=Bearer token.one\x01logicalCluster=lkc-1\x01pool=p\x01\x01"


def test_exchanges_share_a_token_until_a_broker_rejects_it(tokens: list[str]) -> None:
    first(provided())
    mechanism = make_mechanism(provided(), TlsOptions(), PEER)
    assert b"token.one" in mechanism.first()
    mechanism.rejected("expired")
    assert b"token.two" in first(provided())
    assert tokens == []


def test_the_error_of_a_rejected_token_shows_its_end_and_not_the_token(tokens: list[str]) -> None:
    tokens[:] = ["e30.eyJleHAiOjQxMDI0NDQ4MDB9.sig"]  # {"exp": 4102444800}
    mechanism = make_mechanism(provided(), TlsOptions(), PEER)
    mechanism.first()
    mechanism.next(b'{"status": "invalid_token"}')
    with pytest.raises(
        AuthenticationError, match=r"broker-1\.example:9092 .*the token expires at 2100-01-01"
    ) as caught:
        mechanism.next(b"")
    assert "eyJ" not in str(caught.value)


def test_gssapi_opens_a_context_with_the_service_of_the_broker_and_a_rejected_ticket_is_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keytab = tmp_path / "alice.keytab"
    keytab.write_bytes(b"\x05\x02 keys")
    options = SaslOptions("GSSAPI", kerberos=KerberosOptions("kafka", ALICE, use_keytab=True, keytab=str(keytab)))
    library = Library()
    monkeypatch.setattr(credentials, "TICKETS", Tickets(lambda: library))
    make_mechanism(options, TlsOptions(), PEER)
    mechanism = make_mechanism(options, TlsOptions(), PEER)
    assert library.opened == [("kafka", "broker-1.example")] * 2
    assert len(library.stores) == 1, "both exchanges use one ticket"
    assert ALICE in str(mechanism.rejected("unknown principal"))
    make_mechanism(options, TlsOptions(), PEER)
    assert len(library.stores) == 2


@pytest.mark.parametrize(
    ("options", "cause", "next_step"),
    [
        (KERBEROS, "there was no Kerberos ticket", "reaches the KDC"),
        (provided(), "there was no token", "reaches the token endpoint"),
        (SaslOptions("PLAIN", "ann", Secret("x")), "there was no password", "the file that kafka.sasl.jaas.config"),
        (SaslOptions("SCRAM-SHA-256", "ann", Secret("x")), "there was no password", "the file that kafka.sasl.jaas"),
    ],
    ids=lambda value: value.mechanism if isinstance(value, SaslOptions) else "",
)
def test_a_wait_that_is_too_long_has_the_cause_and_the_next_step_of_its_mechanism(
    options: SaslOptions, cause: str, next_step: str, tokens: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "TICKETS", Tickets(Library))
    timeout = begin_mechanism(options, TlsOptions(), PEER).timeout
    assert timeout.cause == cause
    assert next_step in timeout.next_step


def test_the_mechanism_is_made_in_the_background_and_its_owner_is_notified() -> None:
    notified = threading.Event()
    begun = begin_mechanism(SaslOptions("PLAIN", "ann", Secret("hunter2")), TlsOptions(), PEER, notified.set)
    assert notified.wait(TIMEOUT_S)
    assert begun.done
    assert begun.result().first() == b"\0ann\0hunter2"


@pytest.mark.parametrize("error", [ConfigError("wrong"), ZeroDivisionError("hunter2")])
def test_the_error_of_the_background_is_a_typed_one_without_the_text_of_a_library(error: Exception) -> None:
    def fails() -> None:
        raise error

    background = Background(fails, WaitTimeout("it took too long", "Wait"))
    background.wait(TIMEOUT_S)
    with pytest.raises(StreamGroupError) as caught:
        background.result()
    if isinstance(error, ConfigError):
        assert caught.value is error
    else:
        assert str(caught.value) == "cannot authenticate: unexpected ZeroDivisionError. Report it"
        assert caught.value.__cause__ is caught.value.__context__ is None
