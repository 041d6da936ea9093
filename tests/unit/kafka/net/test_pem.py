"""Key and certificate files as PEM: several blocks in one text, spelled as users and Kafka's own options spell them."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroup.kafka.net.tls.stores import Block, blocks_of


def test_blocks_have_canonical_lines() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    for spelled in (text, text.replace("\n", " "), text.replace("\n", "\r\n"), f"Bag Attributes: x\n{text}"):
        (block,) = blocks_of(spelled)
        assert block.canonical().decode() == text
        assert block.is_private_key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no block at all",
        "-----BEGIN CERTIFICATE-----\nYQ==",
        "-----BEGIN CERTIFICATE-----\nYQ==\n-----END PRIVATE KEY-----",
        "-----begin certificate-----\nYQ==\n-----end certificate-----",
    ],
    ids=["empty", "other text", "no end", "another end", "lower case"],
)
def test_a_text_without_a_whole_block_has_none(text: str) -> None:
    assert blocks_of(text) == []


def test_blocks_come_in_their_order_without_the_text_around_them() -> None:
    text = (
        "subject=CN = a\n-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\nissuer=\n"
        "-----BEGIN RSA PRIVATE KEY----- Yg== -----END RSA PRIVATE KEY----- end"
    )
    assert [(block.label, block.decoded()) for block in blocks_of(text)] == [
        ("CERTIFICATE", b"a"),
        ("RSA PRIVATE KEY", b"b"),
    ]


@pytest.mark.parametrize(
    ("label", "is_certificate", "is_private_key"),
    [
        ("CERTIFICATE", True, False),
        ("X509 CERTIFICATE", True, False),
        ("CERTIFICATE REQUEST", False, False),
        ("TRUSTED CERTIFICATE", False, False),
        ("PRIVATE KEY", False, True),
        ("EC PRIVATE KEY", False, True),
        ("ENCRYPTED PRIVATE KEY", False, True),
        ("PUBLIC KEY", False, False),
    ],
)
def test_the_label_says_what_a_block_holds(label: str, is_certificate: bool, is_private_key: bool) -> None:
    block = Block(label, "")
    assert (block.is_certificate, block.is_private_key) == (is_certificate, is_private_key)


@pytest.mark.parametrize("body", ["YQ", "Y!Q=", "Y", "YQ==YQ=="])
def test_invalid_base64_is_an_error_that_names_the_block_and_shows_nothing_of_it(body: str) -> None:
    with pytest.raises(ValueError, match=r"^the block PRIVATE KEY is not valid base64$"):
        Block("PRIVATE KEY", body).decoded()


def test_the_headers_of_an_encrypted_key_keep_their_lines() -> None:
    lines = ["Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-256-CBC,00FF", "", "YWJj"]
    (block,) = blocks_of("\r\n".join(["-----BEGIN RSA PRIVATE KEY-----", *lines, "-----END RSA PRIVATE KEY-----"]))
    begin, *inside, end, rest = block.canonical().decode().split("\n")
    assert inside == lines, "the empty line ends the headers"
    assert (begin, end, rest) == ("-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----", "")


@settings(max_examples=30)
@given(data=st.binary(max_size=200), gap=st.sampled_from(["\n", " ", "\r\n", "\t"]), width=st.integers(1, 80))
def test_any_bytes_survive_any_spelling_and_the_canonical_one(data: bytes, gap: str, width: int) -> None:
    encoded = base64.b64encode(data).decode()
    pieces = [encoded[at : at + width] for at in range(0, len(encoded), width)]
    (block,) = blocks_of(gap.join(["-----BEGIN CERTIFICATE-----", *pieces, "-----END CERTIFICATE-----"]))
    (canonical,) = blocks_of(block.canonical().decode())
    assert (block.decoded(), canonical.decoded()) == (data, data)
    assert max(map(len, block.canonical().splitlines())) <= 64
