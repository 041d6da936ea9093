from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from streamgroup.advice import Requester
from streamgroup.kafka.net.requester import requester_of
from streamgroup.options.sasl import sasl_options
from streamgroup.options.secrets import Secret
from streamgroup.options.tls import TlsOptions
from streamgroup.options.types import ClientOptions
from streamgroup.testing import Authority, write_pem, write_pkcs12

OPTIONS = ClientOptions((("broker-1", 9092), ("broker-2", 9093)))
MODULES = "org.apache.kafka.common.security"


def principal(mechanism: str, module: str, **settings: str) -> str:
    given = {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{MODULES}.{module}"}
    given |= {f"sasl.{name.replace('_', '.')}": value for name, value in settings.items()}
    return requester_of(replace(OPTIONS, sasl=sasl_options(given, ""))).principal


def test_a_listener_without_authentication_knows_everybody_as_anonymous() -> None:
    assert requester_of(OPTIONS) == Requester("User:ANONYMOUS", "broker-1:9092,broker-2:9093")
    assert requester_of(replace(OPTIONS, tls=TlsOptions())).principal == "User:ANONYMOUS"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_the_user_of_sasl_is_the_principal(mechanism: str) -> None:
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    assert principal(mechanism, f'{module}LoginModule required username="alice" password="p";') == "User:alice"


def test_the_owner_of_a_token_is_known_to_the_brokers_alone() -> None:
    token = 'scram.ScramLoginModule required username="id" password="hmac" tokenauth="true";'
    assert principal("SCRAM-SHA-256", token) == ""
    module = "oauthbearer.OAuthBearerLoginModule required"
    assert principal("OAUTHBEARER", f"{module};", oauthbearer_token_endpoint_url="file:/token") == ""
    assert principal("OAUTHBEARER", f'{module} unsecuredLoginStringClaim_sub="alice";') == "User:alice"


def test_sasl_is_the_principal_even_beside_a_client_certificate(tmp_path: Path) -> None:
    tls = _certificate(tmp_path)
    jaas = f'{MODULES}.plain.PlainLoginModule required username="alice" password="p";'
    sasl = sasl_options({"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}, "")
    assert requester_of(replace(OPTIONS, tls=tls, sasl=sasl)).principal == "User:alice"


def test_the_subject_of_the_client_certificate_is_the_principal(tmp_path: Path) -> None:
    assert requester_of(replace(OPTIONS, tls=_certificate(tmp_path))).principal == "User:CN=client"
    store = tmp_path / "client.p12"
    write_pkcs12(store, Authority.create("a").issue("client"), password="secret")
    tls = TlsOptions(keystore_type="PKCS12", keystore_location=str(store), keystore_password=Secret("secret"))
    assert requester_of(replace(OPTIONS, tls=tls)).principal == "User:CN=client"


def test_a_certificate_that_cannot_be_read_leaves_the_principal_open(tmp_path: Path) -> None:
    tls = TlsOptions(keystore_type="PEM", keystore_location=str(tmp_path / "none.pem"))
    assert requester_of(replace(OPTIONS, tls=tls)).principal == ""


@pytest.mark.slow
def test_a_task_without_a_client_certificate_does_not_load_the_reader_of_key_stores() -> None:
    program = (
        "import sys, streamgroup.executor.read.fetcher, streamgroup.executor.write.sink_writer\n"
        "import streamgroup.kafka.net.requester as r\n"
        "from streamgroup.options.types import ClientOptions\n"
        "assert r.requester_of(ClientOptions((('h', 1),))).principal == 'User:ANONYMOUS'\n"
        "assert 'cryptography' not in sys.modules"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr


def _certificate(directory: Path) -> TlsOptions:
    write_pem(directory / "client.pem", Authority.create("a").issue("client"))
    return TlsOptions(keystore_type="PEM", keystore_location=str(directory / "client.pem"))
