"""Finds weak settings in the texts of a broker's configuration, of kafkalite or Apache Kafka.

The texts may be those of a file or of DescribeConfigs, which has no passwords.
"""

import ipaddress
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kafkalite.config.definitions import BROKER_KEYS
from kafkalite.config.keys import ConfigError
from kafkalite.config.listeners import listener_prefix, parse_listeners, parse_protocol_map
from kafkalite.config.oauthbearer import AUDIENCE, ISSUER, URL
from kafkalite.model import Endpoint

OLD_PROTOCOLS = ("SSLv2", "SSLv3", "TLSv1", "TLSv1.0", "TLSv1.1")
WEAK_CIPHERS = ("NULL", "EXPORT", "_RC4_", "_DES_", "3DES", "_MD5", "_ANON_")
TLS, SASL, CLEAR = ("SSL", "SASL_SSL"), ("SASL_PLAINTEXT", "SASL_SSL"), ("PLAINTEXT", "SASL_PLAINTEXT")


class Weakness(NamedTuple):
    """A weak setting.

    Attributes:
        key: of the setting.
        problem: what an attacker can do.
        remedy: what to change.
    """

    key: str
    problem: str
    remedy: str


class Settings:
    """The texts of a configuration by key, with values of listeners and mechanisms.

    Arguments:
        texts: by key; those of other keys are the defaults.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def text(self, key: str, *prefixes: str) -> str:
        """Return the text behind the first prefix that has one, else that of the broker or the default."""
        for name in (*(f"{prefix}{key}" for prefix in prefixes), key):
            if name in self._texts:
                return self._texts[name].strip()
        row = BROKER_KEYS.get(key)
        return "" if row is None else row.text(row.default) or ""

    def name(self, key: str, *prefixes: str) -> str:
        """Return the name under which a text is set."""
        return next((name for prefix in prefixes if (name := f"{prefix}{key}") in self._texts), key)

    def texts(self, key: str, *prefixes: str) -> list[str]:
        """Return the entries of a list."""
        return [each.strip() for each in self.text(key, *prefixes).split(",") if each.strip()]

    def listeners(self) -> tuple[Endpoint, ...]:
        """Return the listeners. Raises ConfigError."""
        protocols = parse_protocol_map(self.texts("listener.security.protocol.map"))
        return parse_listeners("listeners", self.texts("listeners"), protocols)


def weak_settings(texts: Mapping[str, str]) -> Iterator[Weakness]:
    """Yield the weak settings of a configuration; no file is read."""
    settings = Settings(texts)
    try:
        listeners = settings.listeners()
    except ConfigError as error:
        yield Weakness(error.key, str(error), "correct it")
        return
    for listener in listeners:
        yield from _of_listener(settings, listener)
    yield from _of_rights(settings)
    yield from _of_zookeeper(settings)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a bound address; no host is all addresses."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _of_listener(settings: Settings, listener: Endpoint) -> Iterator[Weakness]:
    name, protocol, prefix = listener.listener, listener.security_protocol, listener_prefix(listener.listener)
    if protocol in CLEAR and not is_loopback(listener.host):
        subject = "each client is ANONYMOUS, and records" if protocol == "PLAINTEXT" else "records"
        yield Weakness(
            "listeners",
            f"{name} at {listener.host or 'all addresses'} has protocol {protocol}: {subject} are sent in clear text",
            f"use {'SSL or SASL_SSL' if protocol == 'PLAINTEXT' else 'SASL_SSL'}, or bind {name} to localhost",
        )
    if protocol in SASL:
        yield from _of_sasl(settings, listener, prefix)
    if protocol in TLS:
        yield from _of_tls(settings, protocol, prefix)


def _of_sasl(settings: Settings, listener: Endpoint, prefix: str) -> Iterator[Weakness]:
    key, mechanisms = "sasl.enabled.mechanisms", settings.texts("sasl.enabled.mechanisms", prefix)
    if "PLAIN" in mechanisms and listener.security_protocol == "SASL_PLAINTEXT" and not is_loopback(listener.host):
        yield Weakness(
            settings.name(key, prefix),
            f"PLAIN on {listener.listener} without TLS: passwords are sent in clear text",
            "use SASL_SSL, or SCRAM-SHA-512",
        )
    own = f"{prefix}oauthbearer."
    for claim in (URL, AUDIENCE, ISSUER) if "OAUTHBEARER" in mechanisms else ():
        handler = settings.text("sasl.server.callback.handler.class", own)
        if not settings.text(claim, own, prefix) and (not handler or "OAuthBearerValidatorCallback" in handler):
            problem = "OAUTHBEARER without it accepts tokens of others; Kafka's default, those without a signature"
            yield Weakness(f"{own}{claim}", problem, "set it")


def _of_tls(settings: Settings, protocol: str, prefix: str) -> Iterator[Weakness]:
    versions, auth = "ssl.enabled.protocols", "ssl.client.auth"
    if old := [each for each in settings.texts(versions, prefix) if each in OLD_PROTOCOLS]:
        yield Weakness(settings.name(versions, prefix), f"{', '.join(old)} can be broken", "use TLSv1.2,TLSv1.3")
    suites = settings.texts("ssl.cipher.suites", prefix)
    if weak := [each for each in suites if any(part in each.upper() for part in WEAK_CIPHERS)]:
        key = settings.name("ssl.cipher.suites", prefix)
        yield Weakness(key, f"{', '.join(weak)} can be broken", "leave the key out: the default has strong suites")
    if protocol == "SSL" and settings.text(auth, prefix) != "required":
        problem = "clients need no certificate: those without one are ANONYMOUS"
        yield Weakness(settings.name(auth, prefix), problem, f"set {prefix}{auth}=required, or use SASL_SSL")
    key = "ssl.endpoint.identification.algorithm"
    if settings.text(key, prefix).lower() != "https":
        problem = "a broker accepts each certificate of the authority as that of another broker"
        yield Weakness(settings.name(key, prefix), problem, "set it to https")


def _of_rights(settings: Settings) -> Iterator[Weakness]:
    authorizer, everyone = "authorizer.class.name", "allow.everyone.if.no.acl.found"
    if not settings.text(authorizer):
        name = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        yield Weakness(authorizer, "there is no authorizer: every client may do everything", f"set it to {name}")
    if settings.text(everyone).lower() == "true":
        problem = "every client may use topics, groups and the cluster, as long as they have no ACL"
        yield Weakness(everyone, problem, "add ACLs, then set it to false")
    for principal in settings.text("super.users").split(";"):
        if principal.strip() in ("User:ANONYMOUS", "User:*"):
            problem = f"{principal.strip()}: every client without authentication may do everything"
            yield Weakness("super.users", problem, "name the administrators and the brokers")


def _of_zookeeper(settings: Settings) -> Iterator[Weakness]:
    if settings.text("zookeeper.connect") and settings.text("authorizer.class.name"):
        if settings.text("zookeeper.set.acl").lower() != "true":
            problem = "each client of ZooKeeper can change ACLs and users"
            yield Weakness("zookeeper.set.acl", problem, "set it to true, and give the brokers an identity")
        if settings.text("zookeeper.ssl.client.enable").lower() != "true":
            problem = "the connection to ZooKeeper is in clear text"
            yield Weakness("zookeeper.ssl.client.enable", problem, "set it to true, and the keys of the trust store")
