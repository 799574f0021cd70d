"""Parses the messages of SCRAM (RFC 5802, section 7): attributes `letter=value`, separated by commas.

Invariants:
1. A message has at most `SCRAM_BYTES_MAX` bytes and is read in one pass.
2. Optional extensions are ignored, mandatory ones (`m=`) are rejected.
3. An error text never contains the message: it may hold a proof.
"""

import binascii
from base64 import b64decode
from typing import NamedTuple, NoReturn

from kafkalite.errors import AuthenticationError

SCRAM_BYTES_MAX = 16_384
TOKEN_AUTH = "tokenauth"


class ClientFirst(NamedTuple):
    """The first message of a client.

    Attributes:
        header: the GS2 header, which the final message repeats as channel binding.
        bare: the message without the header.
        authorization_id, username, nonce: its fields.
        is_token: whether the user name is the id of a delegation token: the extension `tokenauth=true` of Kafka.
    """

    header: str
    bare: str
    authorization_id: str
    username: str
    nonce: str
    is_token: bool = False


class ServerFirst(NamedTuple):
    """The first message of a broker; `text` is the whole message."""

    text: str
    nonce: str
    salt: bytes
    iterations: int


class ClientFinal(NamedTuple):
    """The final message of a client.

    Attributes:
        without_proof: the part that the proof signs.
        channel_binding, nonce, proof: its fields.
    """

    without_proof: str
    channel_binding: bytes
    nonce: str
    proof: bytes

    def __repr__(self) -> str:
        return "ClientFinal()"


def sasl_name(name: str) -> str:
    """Return a user name as SCRAM writes it."""
    return name.replace("=", "=3D").replace(",", "=2C")


def parse_client_first(message: bytes) -> ClientFirst:
    """Parse `n,[a=authorization id],n=user,r=nonce[,extensions]`. Raises AuthenticationError."""
    what = "the first message of the client"
    text = _text(message, what)
    binding, _, rest = text.partition(",")
    authorization_id, _, bare = rest.partition(",")
    if binding not in ("n", "y"):
        _fail(what, "channel binding is not supported")
    if authorization_id and not authorization_id.startswith("a="):
        _fail(what, "the second field is not an authorization id")
    name, nonce = _values(bare, "nr", what)
    return ClientFirst(
        f"{binding},{authorization_id},",
        bare,
        _unescaped(authorization_id[2:], what) if authorization_id else "",
        _unescaped(name, what),
        _nonce(nonce, what),
        _extensions(bare).get(TOKEN_AUTH, "").lower() == "true",
    )


def parse_server_first(message: bytes) -> ServerFirst:
    """Parse `r=nonce,s=salt,i=iterations[,extensions]`. Raises AuthenticationError."""
    what = "the first answer of the broker"
    text = _text(message, what)
    nonce, salt, iterations = _values(text, "rsi", what)
    if not (iterations.isascii() and iterations.isdigit() and len(iterations) <= 10):
        _fail(what, "the number of iterations is not a number")
    return ServerFirst(text, _nonce(nonce, what), _bytes(salt, what), int(iterations))


def parse_client_final(message: bytes) -> ClientFinal:
    """Parse `c=channel binding,r=nonce[,extensions],p=proof`. Raises AuthenticationError."""
    what = "the final message of the client"
    without_proof, separator, proof = _text(message, what).rpartition(",p=")
    if not separator:
        _fail(what, "it has no proof")
    binding, nonce = _values(without_proof, "cr", what)
    return ClientFinal(without_proof, _bytes(binding, what), _nonce(nonce, what), _bytes(proof, what))


def parse_server_final(message: bytes) -> bytes:
    """Parse `v=signature` or `e=error`, and return the signature. Raises AuthenticationError."""
    what = "the final answer of the broker"
    text = _text(message, what)
    if text.startswith("e="):
        raise AuthenticationError(f"the broker rejected the authentication: {text[2:102]!r}")
    (signature,) = _values(text, "v", what)
    return _bytes(signature, what)


def _text(message: bytes, what: str) -> str:
    if len(message) > SCRAM_BYTES_MAX:
        _fail(what, f"it has {len(message)} bytes, limit {SCRAM_BYTES_MAX}")
    try:
        text = message.decode()
    except UnicodeDecodeError:
        _fail(what, "it is not UTF-8")
    if "\0" in text:
        _fail(what, "it contains NUL")
    return text


def _values(text: str, letters: str, what: str) -> list[str]:
    """Return the values of the leading attributes, which must be these letters in this order."""
    attributes = text.split(",")
    if attributes[0].startswith("m="):
        _fail(what, "it has a mandatory extension")
    if len(attributes) < len(letters):
        _fail(what, f"it has {len(attributes)} attributes, expected {len(letters)}")
    for attribute, letter in zip(attributes, letters, strict=False):
        if attribute[:2] != f"{letter}=":
            _fail(what, f"attribute {letter} is missing")
    return [attribute[2:] for attribute in attributes[: len(letters)]]


def _extensions(bare: str) -> dict[str, str]:
    """Return the extensions behind the name and the nonce of a client's first message."""
    pairs = (each.partition("=") for each in bare.split(",")[2:])
    return {name: value for name, _, value in pairs}


def _unescaped(name: str, what: str) -> str:
    if not name or "=" in name.replace("=2C", "").replace("=3D", ""):
        _fail(what, "the user name is not valid")
    return name.replace("=2C", ",").replace("=3D", "=")


def _nonce(text: str, what: str) -> str:
    if not (text.isascii() and text.isprintable() and text and " " not in text):
        _fail(what, "the nonce is not valid")
    return text


def _bytes(text: str, what: str) -> bytes:
    try:
        data = b64decode(text, validate=True)
    except (binascii.Error, ValueError):  # ValueError: the text is not ASCII
        data = b""
    if not data:
        _fail(what, "a value is not base64, or empty")
    return data


def _fail(what: str, reason: str) -> NoReturn:
    raise AuthenticationError(f"SCRAM: {what} is not valid: {reason}")
