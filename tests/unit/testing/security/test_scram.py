from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from streamgroup.testing.security.scram import credential
from streamgroup.testing.security.settings import SaslMechanism


def test_the_example_of_rfc_7677() -> None:
    """User `user`, password `pencil`: the proof of the client and the signature of the server follow from the keys."""
    made = credential("user", SaslMechanism.SCRAM_SHA_256, "pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    messages = (f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}").encode()
    assert base64.b64encode(hmac.digest(made.server_key, messages, "sha256")) == (
        b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    )
    signature = hmac.digest(made.stored_key, messages, "sha256")
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == made.stored_key


@pytest.mark.parametrize(("mechanism", "size"), [(SaslMechanism.SCRAM_SHA_256, 32), (SaslMechanism.SCRAM_SHA_512, 64)])
def test_brokers_in_zookeeper_mode_keep_a_credential_as_text(mechanism: SaslMechanism, size: int) -> None:
    made = credential("client", mechanism, "secret", b"salt", 5000)
    fields = dict(field.split("=", 1) for field in made.text().split(","))
    assert list(fields) == ["salt", "stored_key", "server_key", "iterations"]
    assert (base64.b64decode(fields["salt"]), fields["iterations"]) == (b"salt", "5000")
    assert len(base64.b64decode(fields["stored_key"])) == len(base64.b64decode(fields["server_key"])) == size
    assert "secret" not in f"{made!r}{made.text()}"
