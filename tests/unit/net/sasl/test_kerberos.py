"""The calls of the package gssapi, which a test stands in for: tests/live/test_kerberos.py has the real one."""

from __future__ import annotations

import enum
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from streamgroup.auth.kerberos_errors import KerberosFailure
from streamgroup.errors import ConfigError
from streamgroup.net.sasl.kerberos import Credentials, GssapiLibrary


class GSSError(Exception):
    maj_code = 851_968

    def __init__(self, min_code: int, *texts: str) -> None:
        self.min_code, self.texts = min_code, texts

    def get_all_statuses(self, code: int, is_major: bool) -> list[str]:
        return ["Unspecified GSS failure"] if is_major else list(self.texts)


class ExpiredCredentialsError(GSSError):
    pass


class ExpiredContextError(GSSError):
    pass


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
        return Context(self)


class Context:
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
    assert package.asked == [
        {
            "usage": "initiate",
            "name": "principal:alice@X",
            "mechs": ["krb5"],
            "store": {"ccache": "c", "client_keytab": "k"},
        },
        {"usage": "initiate", "name": None, "mechs": ["krb5"], "store": {"client_keytab": "k"}},
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
