"""TLS contexts of PEM files, which are loaded again when the files have changed.

Invariants:
1. TLS 1.2 is the oldest version, and the newest is that of OpenSSL, unless the settings restrict them.
2. Files that cannot be used are named when they are first loaded, not in the handshake. OpenSSL never asks the terminal
   for a password.
3. Files that cannot be used any more after a change (half of a new pair, for example) are reported in the log, and the
   context of the previous ones stays in use.
"""

import logging
import os
import ssl
import time
from typing import NamedTuple

from kafkalite.net.certificates import Validity, expiry_text, load_failure, validities, validity_error
from kafkalite.net.cipher_suites import use_cipher_suites

LOGGER = logging.getLogger("kafkalite.net")
Path = str | os.PathLike[str]
Stamp = tuple[tuple[int, int, int], ...]
MISSING: Stamp = ((-1, -1, -1),)
"""The stamp of files one of which cannot be found."""

ALL_VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.MAXIMUM_SUPPORTED)


class SettingNames(NamedTuple):
    """The settings that name the files, and what to do about a missing key, for the texts of errors."""

    cafile: str = "ssl_cafile"
    certfile: str = "ssl_certfile"
    keyfile: str = "ssl_keyfile"
    password: str = "ssl_password"
    cipher_suites: str = "ssl_cipher_suites"
    without_key: str = "set ssl_keyfile if the key is in another file"


class PemFiles(NamedTuple):
    """The files of a client's TLS context.

    Attributes:
        cafile: certificates of the issuers that are trusted; None = those of the system.
        certfile: the client's certificate and its chain; None = the client has none.
        keyfile: its private key; None = it is in `certfile`.
        password: of the key.
        check_hostname: the certificate of the server must name its host.
        versions: the oldest and the newest TLS version.
        cipher_suites: standard names; empty = those of OpenSSL.
        names: of the settings.
    """

    cafile: Path | None = None
    certfile: Path | None = None
    keyfile: Path | None = None
    password: str | None = None
    check_hostname: bool = True
    versions: tuple[ssl.TLSVersion, ssl.TLSVersion] = ALL_VERSIONS
    cipher_suites: tuple[str, ...] = ()
    names: SettingNames = SettingNames()

    def __repr__(self) -> str:
        return (
            f"PemFiles(cafile={self.cafile!r}, certfile={self.certfile!r}, keyfile={self.keyfile!r}, "
            f"check_hostname={self.check_hostname})"
        )

    def stamp(self) -> Stamp:
        """Return a value that changes with the files. Raises OSError."""
        found = (os.stat(path) for path in (self.cafile, self.certfile, self.keyfile) if path is not None)
        return tuple((each.st_ino, each.st_size, each.st_mtime_ns) for each in found)


class FixedContext:
    """A context that the application has created."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context

    def get(self) -> ssl.SSLContext:
        """Return the context for the next connection."""
        return self._context


class ReloadedContext:
    """A client's context of PEM files, for connections one after the other.

    Arguments:
        files: loaded at once.

    Raises:
        ValueError: a file cannot be used; the text names setting and file.
    """

    def __init__(self, files: PemFiles) -> None:
        self._files = files
        self._stamp: Stamp = ()
        self._context = self._load()

    def __repr__(self) -> str:
        return f"ReloadedContext({self._files!r})"

    def get(self) -> ssl.SSLContext:
        """Return the context for the next connection; the files are loaded again if they have changed."""
        try:
            if self._current_stamp() != self._stamp:
                self._context = self._load()
        except ValueError as error:
            LOGGER.warning("TLS files have changed and cannot be used, the previous ones stay in use: %s", error)
        return self._context

    def _current_stamp(self) -> Stamp:
        try:
            return self._files.stamp()
        except OSError:
            return MISSING

    def _load(self) -> ssl.SSLContext:
        self._stamp = MISSING
        try:
            self._stamp = self._files.stamp()  # also of files that cannot be used: they are reported once
        except OSError as error:
            raise ValueError(f"{_setting_of(self._files, error.filename)}: {error.strerror}") from error
        return load_client_context(self._files)


def load_client_context(files: PemFiles) -> ssl.SSLContext:
    """Return a client's context.

    Raises:
        ValueError: a file cannot be read, is no PEM file, is encrypted with another password, does not belong to the
            other one, or has expired, or a cipher suite cannot be used; the text names setting and file.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version, context.maximum_version = files.versions
    if files.cipher_suites:
        _use_cipher_suites(context, files)
    context.check_hostname = files.check_hostname
    if files.cafile is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _load_issuers(context, f"{files.names.cafile} {os.fspath(files.cafile)}", files.cafile)
    if files.certfile is not None:
        _load_certificate(context, files)
    return context


def _use_cipher_suites(context: ssl.SSLContext, files: PemFiles) -> None:
    try:
        use_cipher_suites(context, files.cipher_suites)
    except ValueError as error:
        raise ValueError(f"{files.names.cipher_suites}: {error}") from error


def _load_issuers(context: ssl.SSLContext, name: str, cafile: Path) -> None:
    found = _validities(name, cafile)
    if all(each.ends_at <= time.time() for each in found):
        raise ValueError(f"{name}: {expiry_text(found[0])}; replace it")
    try:
        context.load_verify_locations(cafile=cafile)
    except (OSError, ValueError) as error:
        raise ValueError(f"{name}: cannot be used: {load_failure(error)}") from error


def _load_certificate(context: ssl.SSLContext, files: PemFiles) -> None:
    assert files.certfile is not None
    name = f"{files.names.certfile} {os.fspath(files.certfile)}"
    rejection = validity_error(_validities(name, files.certfile)[0])
    if rejection is not None:
        raise ValueError(f"{name}: {rejection}")
    asked = []

    def password() -> str:
        asked.append(True)
        return files.password or ""

    try:
        context.load_cert_chain(files.certfile, files.keyfile, password)
    except (OSError, ValueError) as error:
        raise ValueError(_key_reason(files, error, encrypted=bool(asked))) from error


def _key_reason(files: PemFiles, error: Exception, *, encrypted: bool) -> str:
    names = files.names
    setting, key = (names.certfile, files.certfile) if files.keyfile is None else (names.keyfile, files.keyfile)
    assert key is not None
    name = f"{setting} {os.fspath(key)}"
    if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        return f"{name}: the key does not belong to the certificate in {os.fspath(files.certfile or '')}"
    if encrypted and not files.password:
        return f"{name}: the key is encrypted; set {names.password}"
    if encrypted:
        return f"{name}: the key cannot be decrypted with {names.password}"
    hint = f"; {names.without_key}" if files.keyfile is None else ""
    return f"{name}: no usable private key: {load_failure(error)}{hint}"


def _validities(name: str, path: Path) -> list[Validity]:
    try:
        with open(path, "rb") as file:
            found = validities(file.read())
    except OSError as error:
        raise ValueError(f"{name}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return found


def _setting_of(files: PemFiles, path: object) -> str:
    for field in ("cafile", "certfile", "keyfile"):
        value = getattr(files, field)
        if value is not None and os.fspath(value) == path:
            return f"{getattr(files.names, field)} {path}"
    return str(path)
