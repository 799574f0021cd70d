"""Reads the validity of X.509 certificates in PEM files: Python's ssl module loads expired ones without an error.

Only the fields in front of the validity are skipped; OpenSSL verifies everything else. Source: RFC 5280, section 4.1.
"""

import binascii
import re
import ssl
import time
from base64 import b64decode
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

CERTIFICATE = re.compile(
    rb"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----\s([A-Za-z0-9+/=\s]+)-----END (?:TRUSTED |X509 )?CERTIFICATE-----"
)
SEQUENCE, UTC_TIME, GENERALIZED_TIME, VERSION = 0x30, 0x17, 0x18, 0xA0


class Validity(NamedTuple):
    """When a certificate is valid, in seconds of the epoch."""

    begins_at: float
    ends_at: float


def validities(pem: bytes) -> list[Validity]:
    """Return the validity of each certificate of a PEM file, at least one.

    Raises:
        ValueError: there is no certificate, or one is malformed.
    """
    found = CERTIFICATE.findall(pem)
    if not found:
        raise ValueError("there is no PEM certificate in the file")
    try:
        return [_validity(b64decode(each)) for each in found]
    except (binascii.Error, ValueError, IndexError) as error:
        raise ValueError("a certificate in the file is malformed") from error


def validity_error(validity: Validity) -> str | None:
    """Return why peers reject a certificate now, and what to do; None if it is valid."""
    now = time.time()
    if validity.ends_at <= now:
        return f"{expiry_text(validity)}; renew it"
    if validity.begins_at > now:
        return f"the certificate is not valid before {_date(validity.begins_at)}; check the clock"
    return None


def expiry_text(validity: Validity) -> str:
    """Return a text with the end of a validity."""
    return f"the certificate expired at {_date(validity.ends_at)}"


def _date(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def load_failure(error: Exception) -> str:
    """Return why OpenSSL has not loaded a key or certificates, without a path and a secret."""
    if isinstance(error, ssl.SSLError):
        return error.reason or "the content is not valid"
    return (error.strerror or "") if isinstance(error, OSError) else str(error)


def subject_of(der: bytes) -> bytes:
    """Return the content of the subject of a certificate in DER format. Raises ValueError, IndexError: malformed."""
    _, rest = _fields_from_validity(der)
    return der_element(rest)[1]


def _fields_from_validity(der: bytes) -> tuple[tuple[int, bytes], bytes]:
    """Return the tag and the content of the validity, and the fields behind it."""
    _, certificate, _ = der_element(der)
    _, fields, _ = der_element(certificate)
    kind, _, rest = der_element(fields)
    skipped = 4 if kind == VERSION else 3  # version, serial number, signature algorithm, issuer
    for _ in range(skipped - 1):
        _, _, rest = der_element(rest)
    kind, validity, rest = der_element(rest)
    return (kind, validity), rest


def _validity(der: bytes) -> Validity:
    (kind, validity), _ = _fields_from_validity(der)
    if kind != SEQUENCE:
        raise ValueError("no validity")
    begin_kind, begin, rest = der_element(validity)
    end_kind, end, _ = der_element(rest)
    return Validity(_time(begin_kind, begin), _time(end_kind, end))


def der_elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and content of each element. Raises ValueError, IndexError: malformed."""
    while data:
        tag, content, data = der_element(data)
        yield tag, content


def der_element(data: bytes) -> tuple[int, bytes, bytes]:
    """Split a DER element off: its tag, its content, and the bytes behind it."""
    length, begin = data[1], 2
    if length >= 0x80:
        begin += length - 0x80
        length = int.from_bytes(data[2:begin], "big")
    if len(data) < begin + length:
        raise ValueError("truncated")
    return data[0], data[begin : begin + length], data[begin + length :]


def _time(kind: int, text: bytes) -> float:
    digits = text.decode("ascii")
    if kind == UTC_TIME:  # two digits of the year: 1950 to 2049
        digits = ("19" if digits[:2] >= "50" else "20") + digits
    elif kind != GENERALIZED_TIME:
        raise ValueError("no time")
    return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
