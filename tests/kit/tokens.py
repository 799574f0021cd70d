"""Tokens of OAUTHBEARER for tests: an issuer with keys of its own, and tokens that no issuer would sign."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, Key, RSAKey

ISSUER, AUDIENCE, USER = "https://issuer.example", "kafkalite", "alice"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def segment(value: object) -> str:
    """A part of a token."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def claims(**changed: Any) -> dict[str, Any]:
    """The claims of a valid token; None removes one."""
    now = int(time.time())
    found = {"iss": ISSUER, "aud": AUDIENCE, "sub": USER, "iat": now, "exp": now + 300, **changed}
    return {name: value for name, value in found.items() if value is not None}


class Issuer:
    """Signs tokens.

    Arguments:
        key_id: of its first key.
        rsa: with an RSA key; it costs 0.1 s.
    """

    def __init__(self, key_id: str = "first", *, rsa: bool = False) -> None:
        self._rsa = rsa
        self.keys: list[Key] = []
        self.add_key(key_id)

    def add_key(self, key_id: str) -> None:
        """Sign with another key from now on; the earlier ones stay published."""
        parameters: Any = {"kid": key_id, "use": "sig"}
        new: Key = RSAKey.generate_key(2048, parameters) if self._rsa else ECKey.generate_key("P-256", parameters)
        self.keys.append(new)

    def document(self) -> bytes:
        """The JSON Web Key Set."""
        return json.dumps({"keys": [each.as_dict(private=False) for each in self.keys]}).encode()

    def publish(self, path: Path) -> dict[str, str]:
        """Write the keys to a file; returns the settings of a broker that reads it."""
        path.write_bytes(self.document())
        return {"kafkalite.sasl.oauthbearer.allowed.files": str(path), **oauth_settings(path.as_uri())}

    def token(self, algorithm: str | None = None, header: dict[str, Any] | None = None, **changed: Any) -> str:
        """A signed token with these claims."""
        algorithm = algorithm or ("RS256" if self._rsa else "ES256")
        head = {"alg": algorithm, "kid": self.keys[-1].kid, **(header or {})}
        return jwt.encode(
            {k: v for k, v in head.items() if v is not None}, claims(**changed), self.keys[-1], [algorithm]
        )

    def unsigned(self, algorithm: str = "none", signature: bytes = b"", **changed: Any) -> str:
        """A token without a signature, or with these bytes as its signature."""
        head = {"alg": algorithm, "kid": self.keys[-1].kid}
        return f"{segment(head)}.{segment(claims(**changed))}.{segment(signature) if signature else ''}"

    def hmac_with_public_key(self, secret: bytes) -> str:
        """A token with an HMAC whose secret is public: a form of the public key."""
        signed = f"{segment({'alg': 'HS256', 'kid': self.keys[-1].kid})}.{segment(claims())}"
        return f"{signed}.{segment(hmac.digest(secret, signed.encode(), hashlib.sha256))}"


def oauth_settings(url: str) -> dict[str, str]:
    """The settings of a broker that reads its keys from here."""
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }
