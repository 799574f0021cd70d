"""Tokens of OAUTHBEARER: their form, and the expiry that a JSON Web Token states.

A client does not verify signatures; it only rejects, before it connects, a token that no broker can accept.
"""

import binascii
import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafkalite.errors import AuthenticationError

TOKEN_BYTES_MAX = 256 << 10
TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # b64token of RFC 6750
EXTENSION_NAME = re.compile(r"[A-Za-z]+")
EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")


@dataclass(frozen=True, slots=True)
class OAuthToken:
    """A bearer token.

    Attributes:
        value: the token; never part of a text.
        expires_at: seconds of the epoch; None = what a JSON Web Token states, or unknown.
        extensions: names and values for the broker (KIP-342).
    """

    value: str = field(repr=False)
    expires_at: float | None = None
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)


def check_token(token: object, now: float) -> OAuthToken:
    """Return what `sasl_token` has returned as a token.

    Arguments:
        token: a text, a pair of a text and the expiry in milliseconds of the epoch (MSK's signer), or an OAuthToken.
        now: in seconds of the epoch.

    Raises:
        AuthenticationError: it is none of them, malformed, or has expired.
    """
    checked = _as_token(token)
    if not checked.value:
        raise AuthenticationError("sasl_token returned an empty token")
    if len(checked.value) > TOKEN_BYTES_MAX:
        raise AuthenticationError(f"sasl_token returned a token of {len(checked.value)} bytes, limit {TOKEN_BYTES_MAX}")
    if TOKEN.fullmatch(checked.value) is None:
        raise AuthenticationError("sasl_token returned a token with characters that RFC 6750 does not allow")
    _check_extensions(checked.extensions)
    expires_at = expiry_of(checked.value) if checked.expires_at is None else checked.expires_at
    if expires_at is not None and expires_at <= now:
        raise AuthenticationError(
            f"sasl_token returned a token that expired {now - expires_at:.0f} s ago; return a valid one for each call"
        )
    return OAuthToken(checked.value, expires_at, checked.extensions)


def _as_token(token: object) -> OAuthToken:
    if isinstance(token, OAuthToken):
        return token
    if isinstance(token, str):
        return OAuthToken(token)
    if isinstance(token, tuple) and len(token) == 2:
        value, expiry_ms = token
        if isinstance(value, str) and isinstance(expiry_ms, int | float):
            return OAuthToken(value, expiry_ms / 1000)
    raise AuthenticationError(
        f"sasl_token returned a {type(token).__name__}, expected a str, (token, expiry in ms) or an OAuthToken"
    )


def _check_extensions(extensions: Mapping[str, str]) -> None:
    for name, value in extensions.items():
        if name == "auth" or EXTENSION_NAME.fullmatch(name) is None:
            raise AuthenticationError(f"sasl_token: {name!r} is not the name of an extension; use letters")
        if EXTENSION_VALUE.fullmatch(value) is None:
            raise AuthenticationError(f"sasl_token: the value of extension {name} is not printable ASCII")


def expiry_of(token: str) -> float | None:
    """Return the expiry that a JSON Web Token states, in seconds of the epoch; None if it is none or states none."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return None  # an opaque token that contains dots
    expires_at = claims.get("exp") if isinstance(claims, dict) else None
    return float(expires_at) if isinstance(expires_at, int | float) and abs(expires_at) < 1e18 else None
