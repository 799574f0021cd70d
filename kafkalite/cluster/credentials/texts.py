"""The text of a SCRAM credential in a node of `/config/users` (ScramCredentialUtils.java)."""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Mapping

from kafkalite.net.sasl.scram import HASHES, ScramCredential

NAMES = ("salt", "stored_key", "server_key", "iterations")


def encode_credential(credential: ScramCredential) -> str:
    """Return the text."""
    salt, stored, server = (
        b64encode(each).decode() for each in (credential.salt, credential.stored_key, credential.server_key)
    )
    return f"salt={salt},stored_key={stored},server_key={server},iterations={credential.iterations}"


def decode_credential(text: str) -> ScramCredential:
    """Return the credential; raises ValueError, whose text contains no part of it."""
    fields = dict(pair.split("=", 1) for pair in text.split(",") if "=" in pair)
    if fields.keys() != {*NAMES}:
        raise ValueError(f"the credential does not consist of {', '.join(NAMES)}")
    try:
        salt, stored, server = (b64decode(fields[name], validate=True) for name in NAMES[:3])
        return ScramCredential(salt, int(fields["iterations"]), stored, server)
    except (binascii.Error, ValueError):
        raise ValueError("a field of the credential is neither base64 nor a number") from None


def decode_credentials(texts: Mapping[str, str]) -> tuple[dict[str, ScramCredential], list[str]]:
    """Return the credentials among the settings of a user by mechanism, and the errors of those that are not valid."""
    found: dict[str, ScramCredential] = {}
    errors = []
    for mechanism in HASHES:
        if mechanism in texts:
            try:
                found[mechanism] = decode_credential(texts[mechanism])
            except ValueError as error:
                errors.append(f"{mechanism}: {error}")
    return found, errors
