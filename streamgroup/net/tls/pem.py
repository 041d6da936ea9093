"""Reads PEM as Kafka does: several blocks in one text, also with spaces in place of line ends (KIP-651)."""

from __future__ import annotations

import base64
import binascii
import re
from typing import NamedTuple

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_WIDTH = 64


class Block(NamedTuple):
    """One block: its label, such as `CERTIFICATE`, and the text between its delimiters."""

    label: str
    body: str

    @property
    def is_certificate(self) -> bool:
        return self.label in ("CERTIFICATE", "X509 CERTIFICATE")

    @property
    def is_private_key(self) -> bool:
        return self.label.endswith("PRIVATE KEY")

    def decoded(self) -> bytes:
        """Return the bytes of the block. Raises ValueError for invalid base64."""
        try:
            return base64.b64decode("".join(self.body.split()), validate=True)
        except binascii.Error:
            raise ValueError(f"the block {self.label} is not valid base64") from None

    def canonical(self) -> bytes:
        """Return the block in lines of 64 characters, as most readers expect it."""
        if ":" in self.body:  # headers, as in keys that are encrypted in OpenSSL's old way
            lines = self.body.strip().splitlines()
        else:
            text = "".join(self.body.split())
            lines = [text[at : at + _WIDTH] for at in range(0, len(text), _WIDTH)]
        return "\n".join((f"-----BEGIN {self.label}-----", *lines, f"-----END {self.label}-----", "")).encode()


def blocks_of(text: str) -> list[Block]:
    """Return the blocks of `text` in their order; text around them is ignored."""
    return [Block(label, body) for label, body in _BLOCK.findall(text)]
