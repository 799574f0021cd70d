"""A login by SCRAM-SHA-512 as bytes on a socket, written by hand: the comparison must not depend on what it compares.

Sources: the protocol guide of Apache Kafka (SaslHandshake v1, SaslAuthenticate v1), RFC 5802.
"""

import base64
import functools
import hashlib
import hmac
import secrets
import socket
import struct

from perf.errors import VerificationError
from perf.wire import call, frame

MECHANISM, USER, PASSWORD = "SCRAM-SHA-512", "perf", "a secret"
SALT, ITERATIONS = b"salt of the loads", 4_096
HANDSHAKE, AUTHENTICATE = 17, 36


def log_in(connection: socket.socket, password: str = PASSWORD) -> int:
    """Log in on a new connection; return the error code of the last response, 0 = accepted.

    Raises VerificationError: the broker does not know the mechanism or closes the connection.
    """
    name = struct.pack(">h", len(MECHANISM)) + MECHANISM.encode()
    answer = call(connection, frame(HANDSHAKE, 1, 1, name, flexible=False))
    if answer[4:6] != b"\0\0":
        raise VerificationError(f"{MECHANISM} is refused with error {answer[4:6].hex()}")
    bare = f"n={USER},r={secrets.token_hex(12)}"
    error, challenge = _step(connection, 2, b"n,," + bare.encode())
    if error:
        return error
    return _step(connection, 3, _proof(bare, challenge.decode(), password))[0]


def _step(connection: socket.socket, correlation_id: int, message: bytes) -> tuple[int, bytes]:
    body = struct.pack(">i", len(message)) + message
    answer = call(connection, frame(AUTHENTICATE, 1, correlation_id, body, flexible=False))
    error, text_size = struct.unpack_from(">hh", answer, 4)
    at = 8 + max(0, text_size)
    (size,) = struct.unpack_from(">i", answer, at)
    return error, answer[at + 4 : at + 4 + size]


def _proof(bare: str, challenge: str, password: str) -> bytes:
    fields = dict(part.split("=", 1) for part in challenge.split(","))
    final = f"c=biws,r={fields['r']}"
    client_key, stored_key = _keys(password, fields["s"], int(fields["i"]))
    signature = hmac.digest(stored_key, f"{bare},{challenge},{final}".encode(), "sha512")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{final},p={base64.b64encode(proof).decode()}".encode()


@functools.cache
def _keys(password: str, salt: str, iterations: int) -> tuple[bytes, bytes]:
    """The client key and the stored key; the slow hash is computed once, as clients of a pool do."""
    salted = hashlib.pbkdf2_hmac("sha512", password.encode(), base64.b64decode(salt), iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha512")
    return client_key, hashlib.sha512(client_key).digest()
