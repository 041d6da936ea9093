from __future__ import annotations

import base64
import json

from streamgroup.auth.oauthbearer import OAuthBearerMechanism
from streamgroup.auth.unsecured_token import unsecured_token


def part(text: str) -> dict[str, object]:
    return dict(json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))))


def test_a_token_without_a_signature_has_the_claims_and_its_times() -> None:
    token = unsecured_token({"sub": "alice é", "iat": "forged"}, 1_700_000_000.9, 3_600)
    header, claims, signature = token.split(".")
    assert part(header) == {"alg": "none"}
    assert part(claims) == {"sub": "alice é", "iat": 1_700_000_000, "exp": 1_700_003_600}
    assert signature == ""
    assert OAuthBearerMechanism("b:1", token).first().startswith(b"n,,\x01auth=Bearer ")
