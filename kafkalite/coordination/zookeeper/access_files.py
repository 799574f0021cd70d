"""Reads the files that secure the sessions with ZooKeeper: PEM stores, and the identity for the scheme "digest"."""

import logging
import os
import ssl
import stat
from collections.abc import Sequence

from kafkalite.config.table_security import DIGEST_FILE, ENABLE, KEY_STORE, TRUST_STORE
from kafkalite.config.zookeeper import KEYSTORE_LOCATION, ZooKeeperSecurity
from kafkalite.coordination.errors import CoordinationError, InvalidAclError, NoAuthError, TlsError
from kafkalite.coordination.zookeeper.access import Access, kafka_acl, open_acl
from kafkalite.net.tls import PemFiles, ReloadedContext, SettingNames

LOGGER = logging.getLogger("kafkalite.coordination")

DIGEST_BYTES_MAX = 4096
OTHERS = 0o077
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
NAMES = SettingNames(
    cafile=f"{TRUST_STORE}.location",
    certfile=KEYSTORE_LOCATION,
    keyfile=KEYSTORE_LOCATION,
    password=f"{KEY_STORE}.password",
    cipher_suites="zookeeper.ssl.cipher.suites",
    without_key="append the private key to this file",
)


def load_access(security: ZooKeeperSecurity) -> Access:
    """Return what a session uses. The PEM files are loaded again when they change, the digest is not.

    Raises ValueError: a file cannot be used; the text names setting and file.
    """
    tls = ReloadedContext(pem_files(security)) if security.tls_enabled else None
    digest = None if security.digest_file is None else read_digest(security.digest_file)
    if digest is not None and tls is None:
        LOGGER.warning("%s is sent to ZooKeeper in clear text, as %s is false", DIGEST_FILE, ENABLE)
    return Access(tls, digest, kafka_acl if security.set_acl else open_acl, security.identity_settings())


def pem_files(security: ZooKeeperSecurity) -> PemFiles:
    """Return the settings of the TLS context."""
    versions = [VERSIONS[each] for each in security.tls_versions]
    return PemFiles(
        security.truststore,
        security.keystore,
        password=security.keystore_password,
        check_hostname=security.check_hostname,
        versions=(min(versions), max(versions)),
        cipher_suites=security.cipher_suites,
        names=NAMES,
    )


def read_digest(path: str) -> bytes:
    """Return USER:PASSWORD of a file with one line, which other users may not read. Raises ValueError."""
    name = f"{DIGEST_FILE} {path}"
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(DIGEST_BYTES_MAX + 1)
    except OSError as error:
        raise ValueError(f"{name}: {error.strerror}") from error
    if mode & OTHERS:
        raise ValueError(f"{name}: its mode is {stat.S_IMODE(mode):04o}, other users have access: `chmod 600` it")
    line = data.rstrip(b"\r\n")
    user, colon, password = line.partition(b":")
    if len(data) > DIGEST_BYTES_MAX or b"\n" in line or not (user and colon and password):
        raise ValueError(f"{name}: it must have one line, USER:PASSWORD, of at most {DIGEST_BYTES_MAX} bytes")
    return line


def explain(error: CoordinationError, settings: Sequence[str] = (), where: str = "") -> str:
    """Return the text of an error, and which settings to check.

    Arguments:
        error: of a session.
        settings: those that give it an identity, `Access.identity_settings`; empty = none, or not known.
        where: the settings are, for a command.
    """
    if isinstance(error, NoAuthError):
        identity = " and ".join(settings) or f"{DIGEST_FILE} or {KEYSTORE_LOCATION}"
        return f"{error}; another identity owns the nodes: check {identity}{where}"
    if isinstance(error, InvalidAclError):
        unknown = "ZooKeeper knows no identity of this session: enable authProvider.x509 there"
        return f"{error}; {unknown}, or set {DIGEST_FILE}{where}"
    if isinstance(error, TlsError):
        return f"{error}; check {NAMES.cafile} and {NAMES.certfile}{where}"
    return str(error)
