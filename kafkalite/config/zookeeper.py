"""Settings that secure the sessions of a broker with ZooKeeper: TLS, an identity, access control lists.

The keys are those of Apache Kafka 3.9 (ZkConfigs.java), and `kafkalite.zookeeper.digest.file` for the identity: Kafka
authenticates by SASL and a JAAS file of Java, ZooKeeper offers the scheme "digest" beside it. Stores are PEM files.
"""

from collections.abc import Mapping
from typing import NamedTuple

from kafkalite.config.keys import ConfigError, Value
from kafkalite.config.table_security import DIGEST_FILE, ENABLE, HOST_NAMES, KEY_STORE, SET_ACL, TRUST_STORE

KEYSTORE_LOCATION = f"{KEY_STORE}.location"
STORE_TYPES = ("PEM", "JKS", "PKCS12", "BCFKS")
STORE_SUFFIXES = {".jks": "JKS", ".p12": "PKCS12", ".bcfks": "BCFKS"}  # KeyStoreFileType.java


class ZooKeeperSecurity(NamedTuple):
    """The checked settings; the files are not read yet.

    Attributes:
        tls_enabled: connections use TLS; without it the others of `ssl` have no effect, as in Kafka.
        truststore: PEM file with the trusted issuers; None = those of the system.
        keystore: PEM file with certificate, chain and private key; None = no certificate.
        keystore_password: of the private key.
        tls_versions: TLSv1.2, TLSv1.3, or both.
        cipher_suites: standard names; empty = OpenSSL's choice.
        check_hostname: the certificate of a server must name its host.
        digest_file: has USER:PASSWORD; None = no identity.
        set_acl: created nodes have Kafka's access control lists.
    """

    tls_enabled: bool
    truststore: str | None
    keystore: str | None
    keystore_password: str | None
    tls_versions: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    check_hostname: bool
    digest_file: str | None
    set_acl: bool

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items() if name != "keystore_password")
        return f"ZooKeeperSecurity({shown})"

    def identity_settings(self) -> tuple[str, ...]:
        """Return the names of the settings that give this broker an identity."""
        given = ((DIGEST_FILE, self.digest_file), (KEYSTORE_LOCATION, self.keystore))
        return tuple(name for name, value in given if value is not None)

    def check_served(self, directory_key: str) -> None:
        """Raise ConfigError if the tree that brokers of one machine serve would have to be secured."""
        for name, wanted in (
            (ENABLE, self.tls_enabled),
            (DIGEST_FILE, self.digest_file is not None),
            (SET_ACL, self.set_acl),
        ):
            if wanted:
                raise ConfigError(
                    name,
                    f"{name} is for zookeeper.connect: brokers with {directory_key} serve the tree on 127.0.0.1, "
                    "without TLS and access control",
                )


def zookeeper_security(values: Mapping[str, Value]) -> ZooKeeperSecurity:
    """Return the settings. Raises ConfigError: a store of another format, ACLs without an identity."""
    enabled = bool(values[ENABLE])
    security = ZooKeeperSecurity(
        enabled,
        _store(values, TRUST_STORE) if enabled else None,
        _store(values, KEY_STORE) if enabled else None,
        _text(values, f"{KEY_STORE}.password"),
        _texts(values, "zookeeper.ssl.enabled.protocols") or (_text(values, "zookeeper.ssl.protocol") or "",),
        _texts(values, "zookeeper.ssl.cipher.suites"),
        _checks_names(values),
        _text(values, DIGEST_FILE),
        bool(values[SET_ACL]),
    )
    if security.set_acl and security.digest_file is None and security.keystore is None:
        raise ConfigError(
            SET_ACL,
            f"{SET_ACL} needs an identity that owns the nodes: set {DIGEST_FILE}, or {ENABLE} and {KEYSTORE_LOCATION}",
        )
    return security


def _store(values: Mapping[str, Value], store: str) -> str | None:
    """The path of a store of PEM format."""
    path, given = _text(values, f"{store}.location"), _text(values, f"{store}.type")
    if given is not None and given.upper() not in STORE_TYPES:
        name = f"{store}.type"
        raise ConfigError(name, f"Invalid value {given} for configuration {name}: allowed is PEM")
    suffix = "" if path is None else path[path.rfind(".") :]
    found = given.upper() if given is not None else STORE_SUFFIXES.get(suffix, "PEM")
    if path is not None and found != "PEM":
        raise ConfigError(
            f"{store}.location",
            f"{store}.location {path}: a store of type {found} is not supported, because OpenSSL reads PEM files: "
            f"export its certificates and key into one, and set {store}.type=PEM",
        )
    return path


def _checks_names(values: Mapping[str, Value]) -> bool:
    """Whether host names are compared. Kafka compares none for any text but https."""
    algorithm = _text(values, HOST_NAMES) or ""
    if algorithm.lower() not in ("https", ""):
        raise ConfigError(
            HOST_NAMES, f"Invalid value {algorithm} for configuration {HOST_NAMES}: allowed is https, or an empty text"
        )
    return bool(algorithm)


def _text(values: Mapping[str, Value], name: str) -> str | None:
    value = values[name]
    assert value is None or isinstance(value, str)
    return value


def _texts(values: Mapping[str, Value], name: str) -> tuple[str, ...]:
    value = values[name]
    assert value is None or isinstance(value, tuple)
    return value or ()
