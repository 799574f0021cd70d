"""Reads the public keys that verify tokens: a JSON Web Key Set (RFC 7517) in a file or at an https URL.

1. Only public keys for signatures are used: RSA of at least 2,048 bits, EC and OKP. Symmetric keys are ignored, so no
   public key can ever verify an HMAC (RFC 8725, 2.1). The private part of a key is dropped.
2. Sizes are bounded, and so is the time of a whole download from its handshake on: a server that sends a byte at a time
   does not extend it. A connection is tried for the same time at each address of the host.
3. A redirect is refused: it would lead to a URL that is not allowed.

The functions block: they run before the broker accepts connections, or as jobs. They need the package `joserfc`.
"""

import json
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kafkalite.config.oauthbearer import OAuthBearerSettings

if TYPE_CHECKING:
    from joserfc.jwk import Key

BYTES_MAX = 1 << 20
KEYS_MAX = 1_000
TIMEOUT_S = 10.0
RSA_MODULUS_DIGITS_MIN = 342  # base64 digits of 2,048 bits
# The public members of a key, and those that all keys may have.
MEMBERS = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
COMMON_MEMBERS = ("kty", "use", "key_ops", "alg", "kid")


def read_keys(settings: OAuthBearerSettings) -> "list[Key]":
    """Read the public keys of a listener. Raises ValueError with the reason; the text names the URL."""
    try:
        return parse_keys(_read(settings))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ValueError(f"{settings.url}: {reason}") from error


def parse_keys(data: bytes) -> "list[Key]":
    """Return the usable keys of a JSON Web Key Set. Raises ValueError if it has none."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON Web Key Set: no JSON") from None
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list) or len(listed) > KEYS_MAX:
        raise ValueError(f"it is no JSON Web Key Set: it has no list `keys` of at most {KEYS_MAX} entries")
    keys = [key for each in listed if isinstance(each, dict) for key in _usable(each)]
    if not keys:
        raise ValueError("it has no public key that verifies signatures: RSA of 2048 bits or more, EC or OKP")
    return keys


def _usable(key: Mapping[str, Any]) -> "Iterator[Key]":
    """Yield the public key of an entry, if it can be used."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from joserfc.errors import JoseError
        from joserfc.jwk import import_key
    except ImportError:
        raise ValueError("OAUTHBEARER needs joserfc: pip install 'kafkalite[security]'") from None
    members = MEMBERS.get(str(key.get("kty")))
    operations = key.get("key_ops", ["verify"])
    if members is None or key.get("use", "sig") != "sig" or not isinstance(operations, list):
        return
    modulus = key.get("n") if key.get("kty") == "RSA" else None
    if "verify" not in operations or (modulus is not None and len(str(modulus)) < RSA_MODULUS_DIGITS_MIN):
        return
    public: Any = {name: key[name] for name in (*COMMON_MEMBERS, *members) if name in key} | {"key_ops": ["verify"]}
    try:
        yield import_key(public)
    except (JoseError, UnsupportedAlgorithm, ArithmeticError, LookupError, TypeError, ValueError):
        return  # a curve or a type of later standards, or a damaged key


def _read(settings: OAuthBearerSettings) -> bytes:
    if settings.path is not None:
        with open(settings.path, "rb") as file:
            return _bounded(file.read(BYTES_MAX + 1))
    assert settings.url is not None
    return _bounded(_download(settings.url))


def _bounded(data: bytes) -> bytes:
    if len(data) > BYTES_MAX:
        raise ValueError(f"it has more than {BYTES_MAX} bytes")
    return data


def _download(url: str) -> bytes:
    """Return the bytes at an https URL, at most one more than `BYTES_MAX`."""
    import ssl
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

    class NoRedirect(HTTPRedirectHandler):
        def redirect_request(self, *args: Any) -> None:
            return None

    class BoundedSocket(ssl.SSLSocket):
        """Makes the timeout of each operation the time that is left since the begin of the handshake."""

        ends_at = 0.0

        def do_handshake(self, *args: Any) -> None:
            self.ends_at = time.monotonic() + TIMEOUT_S
            self.settimeout(_left(self.ends_at))
            super().do_handshake(*args)

        def recv_into(self, *args: Any) -> int:
            self.settimeout(_left(self.ends_at))
            return super().recv_into(*args)

    context = ssl.create_default_context()
    context.sslsocket_class = BoundedSocket
    opener = build_opener(HTTPSHandler(context=context), NoRedirect())
    try:
        with opener.open(Request(url, headers={"Accept": "application/json"}), timeout=TIMEOUT_S) as response:
            data: bytes = response.read(BYTES_MAX + 1)
            return data
    except HTTPError as error:
        error.close()
        raise ValueError(f"the server answered {error.code}") from None
    except URLError as error:
        raise ValueError(f"it cannot be read: {error.reason}") from None
    except HTTPException as error:
        raise ValueError(f"it cannot be read: {error!r}") from None


def _left(deadline: float) -> float:
    """Return the seconds until a deadline. Raises TimeoutError: it has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError(f"it was not read within {TIMEOUT_S:g} s")
    return left
