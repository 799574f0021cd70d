"""Reads the keys and certificates of listeners, PEM texts and files or PKCS12 files, and loads them into TLS contexts.

Errors name setting and file, and no password. PKCS12 needs the package `cryptography`.
"""

import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.config.security import PKCS12, KeyStore, TrustStore, jks_conversion
from kafkalite.net.certificates import Validity, load_failure, validities

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

# Linear in the length of the text, also without an end: an admin can send it as a dynamic config.
_ENTRY = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([^-]*(?:-(?!----)[^-]*)*)-----END \1-----")
JKS_MAGIC = b"\xfe\xed\xfe\xed"
LINE_CHARS = 64


class KeyMaterial(NamedTuple):
    """A private key, its certificate and the chain, as PEM text; `password` is that of the key."""

    pem: bytes
    password: str | None

    def __repr__(self) -> str:
        return "KeyMaterial(...)"


def load_key(context: ssl.SSLContext, store: KeyStore, prefix: str) -> Validity:
    """Load the key and the certificate of a store into a context; return the validity of the certificate.

    Arguments:
        context: of a server or a client.
        store: text or file.
        prefix: of the keys, for errors.

    Raises:
        ValueError: the store cannot be read, or its key does not belong to its certificate; the text names the key.
    """
    name = f"{prefix}ssl.keystore.key" if store.location is None else f"{prefix}ssl.keystore.location {store.location}"
    material = _read_pkcs12_key(name, prefix, store) if store.type == PKCS12 else _read_pem_key(name, store)
    asked = []

    def password() -> str:
        asked.append(True)
        return material.password or ""

    try:
        with _as_file(material.pem) as path:
            context.load_cert_chain(path, None, password)
    except (OSError, ValueError) as error:
        raise ValueError(_key_reason(name, prefix, error, material, encrypted=bool(asked))) from None
    return _checked_validities(name, material.pem)[0]


def load_trusted(context: ssl.SSLContext, store: TrustStore | None, prefix: str, purpose: ssl.Purpose) -> None:
    """Let a context trust the certificates of a store.

    Arguments:
        context: verifies peers.
        store: None = the issuers that the system trusts for this purpose.
        prefix: of the keys, for errors.
        purpose: of the peers' certificates.

    Raises:
        ValueError: the store cannot be read, or has no certificate; the text names the key.
    """
    if store is None:
        context.load_default_certs(purpose)
        return
    at = f"{prefix}ssl.truststore.location {store.location}"
    name = f"{prefix}ssl.truststore.certificates" if store.location is None else at
    if store.type == PKCS12:
        pem = _read_pkcs12_certificates(name, prefix, store)
    else:
        pem = _certificates(_text(name, store.location, store.certificates))
    _checked_validities(name, pem)
    try:
        context.load_verify_locations(cadata=pem.decode())
    except (OSError, ValueError) as error:
        raise ValueError(f"{name}: cannot be used: {load_failure(error)}") from None


def stamp_of(location: str | None) -> tuple[int, int, int]:
    """Return a value that changes with a file; zeros without one. Raises OSError."""
    if location is None:
        return (0, 0, 0)
    found = os.stat(location)
    return (found.st_ino, found.st_size, found.st_mtime_ns)


def _checked_validities(name: str, pem: bytes) -> list[Validity]:
    try:
        return validities(pem)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _read(name: str, path: str) -> bytes:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{name}: {error.strerror}") from error
    if data.startswith(JKS_MAGIC):
        raise ValueError(f"{name}: it has Java's format JKS: convert it by {jks_conversion(path)}")
    return data


def _text(name: str, location: str | None, text: str | None) -> str:
    return (text or "") if location is None else _read(name, location).decode("utf-8", "replace")


def _read_pem_key(name: str, store: KeyStore) -> KeyMaterial:
    text = _text(name, store.location, f"{store.key}\n{store.chain}")
    keys = [each for each in _entries(text) if "PRIVATE KEY" in each[0]]
    if len(keys) != 1:
        raise ValueError(f"{name}: it has {len(keys)} private keys, expected one in PEM format")
    return KeyMaterial(_pem(*keys[0]) + _certificates(text), store.key_password)


def _certificates(text: str) -> bytes:
    return b"".join(_pem(kind, body) for kind, body in _entries(text) if kind.endswith("CERTIFICATE"))


def _entries(text: str) -> list[tuple[str, str]]:
    return [(found[1], found[2].strip()) for found in _ENTRY.finditer(text)]


def _pem(kind: str, body: str) -> bytes:
    """Return an entry as OpenSSL reads it; Kafka also reads those whose lines are joined by blanks."""
    if ":" not in body:  # without the headers of old encrypted keys
        digits = "".join(body.split())
        body = "\n".join(digits[at : at + LINE_CHARS] for at in range(0, len(digits), LINE_CHARS))
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n".encode()


def _read_pkcs12_key(name: str, prefix: str, store: KeyStore) -> KeyMaterial:
    assert store.location is not None
    found = _pkcs12(name, f"{prefix}ssl.keystore.password", store.location, store.password)
    from cryptography.hazmat.primitives import serialization

    if found.key is None or found.cert is None:
        raise ValueError(f"{name}: it has no private key with a certificate")
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key = found.key.private_bytes(pem, pkcs8, serialization.NoEncryption())
    chain = [found.cert, *found.additional_certs]
    return KeyMaterial(key + b"".join(each.certificate.public_bytes(pem) for each in chain), None)


def _read_pkcs12_certificates(name: str, prefix: str, store: TrustStore) -> bytes:
    assert store.location is not None
    found = _pkcs12(name, f"{prefix}ssl.truststore.password", store.location, store.password)
    from cryptography.hazmat.primitives.serialization import Encoding

    entries = [*([found.cert] if found.cert is not None else []), *found.additional_certs]
    return b"".join(each.certificate.public_bytes(Encoding.PEM) for each in entries)


def _pkcs12(name: str, password_name: str, location: str, password: str | None) -> "PKCS12KeyAndCertificates":
    """Return the content of a PKCS12 file."""
    try:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise ValueError(f"{name}: PKCS12 needs cryptography: pip install 'kafkalite[security]'") from None
    data = _read(name, location)
    try:
        return load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        raise ValueError(f"{name}: it is no PKCS12 file, or {password_name} is not its password") from None


@contextmanager
def _as_file(pem: bytes) -> Iterator[str]:
    """Yield the path of a file with this content, that only this process can read: OpenSSL reads keys from paths."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("kafkalite-key", os.MFD_CLOEXEC)
        try:
            os.write(fd, pem)
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
        return
    with tempfile.NamedTemporaryFile() as file:  # mode 0600
        file.write(pem)
        file.flush()
        yield file.name


def _key_reason(name: str, prefix: str, error: Exception, material: KeyMaterial, *, encrypted: bool) -> str:
    if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        return f"{name}: the key does not belong to the first certificate"
    if encrypted and not material.password:
        return f"{name}: the key is encrypted; set {prefix}ssl.key.password"
    if encrypted:
        return f"{name}: the key cannot be decrypted with {prefix}ssl.key.password"
    return f"{name}: no usable key and certificate: {load_failure(error)}"
