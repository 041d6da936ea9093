"""The files of a secured server: nobody else reads them, and a kept directory has them again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import pkcs12

from streamgroup.testing.releases import NEWEST, release_of
from streamgroup.testing.security.material import prepare
from streamgroup.testing.security.settings import SecuritySettings, settings_of


def settings(*users: str) -> SecuritySettings:
    return settings_of(release_of(NEWEST), "SASL_SSL", mechanisms=["OAUTHBEARER", "PLAIN"], users=users)


def test_only_the_owner_reads_the_files(tmp_path: Path) -> None:
    made = prepare(tmp_path / "security", settings("client"))
    files = list((tmp_path / "security").iterdir())
    assert {made.files.ca, made.files.broker, made.files.token_key, made.files.pem("client")} < set(files)
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert (tmp_path / "security").stat().st_mode & 0o777 == 0o700


def test_a_kept_directory_has_the_same_passwords_authority_and_certificates(tmp_path: Path) -> None:
    first = prepare(tmp_path, settings("client"))
    kept = [first.files.authority, first.files.pem("client"), first.files.token_key]
    before = [file.read_bytes() for file in kept]
    again = prepare(tmp_path, settings("client", "late"))
    assert [file.read_bytes() for file in kept] == before
    assert again.passwords.store == first.passwords.store
    assert {name: again.passwords.users[name] for name in ("admin", "client")} == first.passwords.users
    assert len({*again.passwords.users.values(), again.passwords.store}) == 4, "each password is another"
    assert again.files.pem("late").exists()


def test_a_test_may_give_the_brokers_another_certificate(tmp_path: Path) -> None:
    made = prepare(tmp_path, settings("client"), lambda authority: authority.issue("b", ["elsewhere.example"]))
    password = json.loads(made.files.passwords.read_text())["store"].encode()
    certificate = pkcs12.load_key_and_certificates(made.files.broker.read_bytes(), password)[1]
    assert certificate is not None
    assert certificate.subject.rfc4514_string() == "CN=b"


def test_material_shows_no_password(tmp_path: Path) -> None:
    made = prepare(tmp_path, settings("client"))
    assert made.passwords.users["client"] not in repr(made) + repr(made.passwords)


@pytest.mark.parametrize("mechanism", [None, "PLAIN"])
def test_each_mechanism_of_a_user_has_a_properties_file(tmp_path: Path, mechanism: str | None) -> None:
    files = prepare(tmp_path, settings("client")).files
    expected = "client-client.properties" if mechanism is None else "client-client-PLAIN.properties"
    assert files.client_properties("client", mechanism).name == expected
