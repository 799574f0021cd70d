"""Finds weak settings of a configuration file: also passwords, permissions of files, and certificates that end soon."""

import os
import ssl
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from kafkalite.cli.failure import fail
from kafkalite.cli.security.weak_settings import Weakness, weak_settings
from kafkalite.config.broker import BrokerConfig
from kafkalite.config.definitions import BROKER_KEYS, listener_key
from kafkalite.config.files import read_file
from kafkalite.config.keys import ConfigError
from kafkalite.config.sasl import sasl_settings
from kafkalite.config.security import TlsSettings
from kafkalite.net.certificates import expiry_text
from kafkalite.net.key_stores import load_key

DAY_S = 86_400
PASSWORD_CHARACTERS_MIN = 8
# Those of Kafka's documentation and of Java, and what people try first.
KNOWN_PASSWORDS = frozenset(
    ("admin-secret", "alice-secret", "broker-secret", "changeit", "confluent", "kafka-secret", "password", "test1234")
)
SECRET_FILES = ("keystore.location", "kafkalite.zookeeper.digest.file")


def weak_file_settings(path: str, days: int) -> Iterator[Weakness]:
    """Yield the weak settings of a file; ends the command if it cannot be read.

    Arguments:
        path: of the file.
        days: certificates that end so soon are reported.
    """
    try:
        texts = read_file(path)
    except ConfigError as error:
        fail(str(error))
    yield from weak_settings(texts)
    if any(is_secret(name) for name, text in texts.items() if text):
        yield from _readable("", path)
    for name, text in texts.items():
        if text and name.endswith(SECRET_FILES):
            yield from _readable(name, text)
        if text and name.endswith(".password") and is_secret(name):
            yield from _password(name, text)
    try:
        config = BrokerConfig({name: text for name, text in texts.items() if not name.startswith("log.dir")})
        yield from _of_config(config, days)
    except ConfigError as error:
        yield Weakness(error.key, f"the broker does not start: {error}", "correct it")


def is_secret(name: str) -> bool:
    """Whether the value of a key is a password or a private key."""
    key = BROKER_KEYS.get(name) or listener_key(name)
    return key is not None and key.sensitive


def _of_config(config: BrokerConfig, days: int) -> Iterator[Weakness]:
    """Yield weak passwords of PLAIN, and certificates that end."""
    for endpoint in config.listeners:
        security = config.listener_security(endpoint.listener)
        if "PLAIN" in security.mechanisms:
            key = f"listener.name.{endpoint.listener.lower()}.plain.sasl.jaas.config"
            for user, password in sasl_settings(security).plain_users().items():
                yield from _password(key, password, user)
        if security.tls is not None:
            yield from _certificate(security.tls, days)


def _password(key: str, password: str, user: str | None = None) -> Iterator[Weakness]:
    owner = "the password" if user is None else f"the password of {user}"
    reason = None
    if password == user:
        reason = "is the name of the user"
    elif password.lower() in KNOWN_PASSWORDS:
        reason = "is in the documentation of Kafka or Java"
    elif len(password) < PASSWORD_CHARACTERS_MIN:
        reason = f"has less than {PASSWORD_CHARACTERS_MIN} characters"
    if reason is not None:
        yield Weakness(key, f"{owner} {reason}", "choose a random one")


def _readable(key: str, path: str) -> Iterator[Weakness]:
    """Yield that others can read or change a file with secrets."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return  # the start of the broker reports it
    others = [word for bit, word in ((stat.S_IROTH, "read"), (stat.S_IWOTH | stat.S_IWGRP, "change")) if mode & bit]
    if others:
        yield Weakness(key, f"other users can {' and '.join(others)} {path}", f"chmod 600 {Path(path)}")


def _certificate(tls: TlsSettings, days: int) -> Iterator[Weakness]:
    key = f"{tls.prefix}ssl.keystore.location"
    if tls.key_store is None:
        return
    try:
        validity = load_key(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), tls.key_store, tls.prefix)
    except ValueError as error:
        yield Weakness(key, f"the broker does not start: {error}", "correct it")
        return
    left_s = validity.ends_at - time.time()
    if left_s <= 0:
        yield Weakness(key, expiry_text(validity), "renew it")
    elif left_s < days * DAY_S:
        yield Weakness(key, f"the certificate expires in {left_s / DAY_S:.0f} days", "renew it")
