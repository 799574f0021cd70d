"""Salts of SCRAM credentials in the form of Apache Kafka: a number of 130 bits as lower case digits of base 36.

A broker shows a salt to each client that begins a login. Users of Kafka's tools, users of kafkalite and names without a
credential have salts of one form: neither length nor alphabet of a salt shows whether a user exists.

Source: ScramFormatter.secureRandomBytes of Apache Kafka 4.3.
"""

import secrets

BITS = 130  # 26 digits at most
DIGITS = b"0123456789abcdefghijklmnopqrstuvwxyz"


def new_salt() -> bytes:
    """Return a random salt."""
    return _format(secrets.randbits(BITS))


def derived_salt(digest: bytes) -> bytes:
    """Return the salt of a digest.

    Arguments:
        digest: an HMAC with a secret, at least 17 bytes.
    """
    return _format(int.from_bytes(digest, "big") % (1 << BITS))


def _format(number: int) -> bytes:
    digits = bytearray()
    while number:
        number, digit = divmod(number, len(DIGITS))
        digits.append(DIGITS[digit])
    return bytes(reversed(digits)) or DIGITS[:1]
