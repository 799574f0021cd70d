"""Returns how each listener of a broker is secured: its protocol, SASL mechanisms, key store, trust store and limits.

A listener's value of KEY is `listener.name.NAME.KEY`, of a mechanism `listener.name.NAME.MECHANISM.KEY`, with names in
lower case; without it the value is that of KEY (ListenerName.java, AbstractConfig.valuesWithPrefixOverride). Passwords
and keys are in no `repr`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from kafkalite.config.keys import ConfigError, Value
from kafkalite.config.listeners import listener_prefix
from kafkalite.config.oauthbearer import OAuthBearerSettings, oauthbearer_settings
from kafkalite.model import Endpoint

JAAS, CALLBACK = "sasl.jaas.config", "sasl.server.callback.handler.class"
OF_MECHANISM_ONLY = (JAAS, CALLBACK)  # Kafka ignores them without a mechanism
PEM, PKCS12, JKS = "PEM", "PKCS12", "JKS"
PKCS12_SUFFIXES = (".p12", ".pfx")
STORE_TYPES = (PEM, PKCS12, JKS)
TLS_PROTOCOLS, SASL_PROTOCOLS = ("SSL", "SASL_SSL"), ("SASL_PLAINTEXT", "SASL_SSL")
ClientAuth = Literal["none", "requested", "required"]


@dataclass(frozen=True, slots=True)
class KeyStore:
    """Where the private key of a listener and its certificate are.

    Attributes:
        type: PEM or PKCS12.
        location: path; None: `key` and `chain` are the texts.
        password: of the store.
        key_password: of the private key; None: that of the store.
        key, chain: PEM texts.
    """

    type: str
    location: str | None
    password: str | None = field(repr=False)
    key_password: str | None = field(repr=False)
    key: str | None = field(repr=False)
    chain: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class TrustStore:
    """Where the certificates of trusted issuers are: a path, or a PEM text.

    Attributes:
        type: PEM or PKCS12.
        location: path; None: `certificates` is the text.
        password: of the store.
        certificates: PEM text.
    """

    type: str
    location: str | None
    password: str | None = field(repr=False)
    certificates: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The TLS settings of a listener.

    Attributes:
        prefix: of the keys that name the values in errors: `listener.name.NAME.`.
        key_store: None: only for connections to other brokers.
        trust_store: None: the issuers of the system.
        client_auth: whether clients must present a certificate.
        versions: TLSv1.2, TLSv1.3, or both.
        cipher_suites: standard names; empty: OpenSSL's choice.
        check_hostname: the certificate of another broker must name its host.
        mapping_rules: ssl.principal.mapping.rules.
    """

    prefix: str
    key_store: KeyStore | None
    trust_store: TrustStore | None
    client_auth: ClientAuth
    versions: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    check_hostname: bool
    mapping_rules: str


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """How a listener is secured.

    Attributes:
        listener: its name in capitals.
        protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        mechanisms: enabled SASL mechanisms; empty without SASL.
        jaas: text of `sasl.jaas.config` by mechanism, for those that have one.
        reauth_ms: `connections.max.reauth.ms` by mechanism; 0 = never.
        receive_bytes_max: `sasl.server.max.receive.size`.
        connections_max: `max.connections` of this listener; None: only that of the broker.
        tls: None without TLS.
        callbacks: `sasl.server.callback.handler.class` by mechanism, for those that have one.
        oauthbearer: how tokens are verified; None: OAUTHBEARER is not enabled.
    """

    listener: str
    protocol: str
    mechanisms: tuple[str, ...] = ()
    jaas: Mapping[str, str] = field(default_factory=dict, repr=False)
    reauth_ms: Mapping[str, int] = field(default_factory=dict)
    receive_bytes_max: int = 524_288
    connections_max: int | None = None
    tls: TlsSettings | None = None
    callbacks: Mapping[str, str] = field(default_factory=dict)
    oauthbearer: OAuthBearerSettings | None = None

    @property
    def uses_sasl(self) -> bool:
        """Whether clients authenticate with SASL."""
        return self.protocol in SASL_PROTOCOLS


def listener_security(values: Mapping[str, Value], endpoint: Endpoint) -> ListenerSecurity:
    """Return how a listener is secured; files are not read.

    Arguments:
        values: of all keys, those of listeners included.
        endpoint: name and protocol.

    Raises ConfigError: settings contradict each other, or a store has a format that is not supported.
    """
    found = _ListenerValues(values, listener_prefix(endpoint.listener))
    protocol, limit = endpoint.security_protocol, values.get(f"{found.prefix}max.connections")
    connections_max = limit if isinstance(limit, int) else None
    tls = _tls(found, with_sasl=protocol in SASL_PROTOCOLS) if protocol in TLS_PROTOCOLS else None
    if protocol not in SASL_PROTOCOLS:
        return ListenerSecurity(endpoint.listener, protocol, connections_max=connections_max, tls=tls)
    mechanisms = tuple(each.upper() for each in found.texts("sasl.enabled.mechanisms"))
    jaas, callbacks = found.by_mechanism(mechanisms, JAAS), found.by_mechanism(mechanisms, CALLBACK)
    oauthbearer = None
    if "OAUTHBEARER" in mechanisms:
        oauthbearer = oauthbearer_settings(found.prefix, partial(found.of_mechanism, "OAUTHBEARER"))
    return ListenerSecurity(
        endpoint.listener,
        protocol,
        mechanisms,
        jaas,
        {each: found.number_of(each, "connections.max.reauth.ms") for each in mechanisms},
        found.number("sasl.server.max.receive.size"),
        connections_max,
        tls,
        callbacks,
        oauthbearer,
    )


class _ListenerValues:
    """The values of one listener."""

    def __init__(self, values: Mapping[str, Value], prefix: str) -> None:
        self._values = values
        self.prefix = prefix

    def name(self, key: str) -> str:
        """The name under which a value is set."""
        own = f"{self.prefix}{key}"
        return own if own in self._values else key

    def value(self, key: str) -> Value:
        return self._values.get(f"{self.prefix}{key}", self._values.get(key))

    def of_mechanism(self, mechanism: str, key: str) -> Value:
        """The value of a mechanism; that of the listener, then of the broker, unless it is of a mechanism only."""
        own = f"{self.prefix}{mechanism.lower()}.{key}"
        return self._values[own] if own in self._values else None if key in OF_MECHANISM_ONLY else self.value(key)

    def by_mechanism(self, mechanisms: tuple[str, ...], key: str) -> dict[str, str]:
        """The texts of the mechanisms that have one."""
        ignored = f"{self.prefix}{key}"
        if self._values.get(ignored):
            raise ConfigError(ignored, f"{ignored} is of no mechanism: write {self.prefix}MECHANISM.{key}")
        return {each: str(text) for each in mechanisms if (text := self.of_mechanism(each, key))}

    def number_of(self, mechanism: str, key: str) -> int:
        value = self.of_mechanism(mechanism, key)
        return value if isinstance(value, int) else 0

    def number(self, key: str) -> int:
        value = self.value(key)
        assert isinstance(value, int)
        return value

    def text(self, key: str) -> str | None:
        value = self.value(key)
        return value if isinstance(value, str) and value else None

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.value(key)
        return value if isinstance(value, tuple) else ()


def _tls(found: _ListenerValues, *, with_sasl: bool) -> TlsSettings:
    algorithm, client_auth = found.text("ssl.endpoint.identification.algorithm"), found.text("ssl.client.auth")
    if with_sasl and found.name("ssl.client.auth") == "ssl.client.auth":
        client_auth = None  # as in Kafka, SASL_SSL has only that of the listener (ChannelBuilders.java)
    auth: dict[str | None, ClientAuth] = {"requested": "requested", "required": "required"}
    return TlsSettings(
        found.prefix,
        _key_store(found),
        _trust_store(found),
        auth.get(client_auth, "none"),
        found.texts("ssl.enabled.protocols"),
        found.texts("ssl.cipher.suites"),
        algorithm is not None and algorithm.lower() == "https",
        found.text("ssl.principal.mapping.rules") or "",
    )


def _key_store(found: _ListenerValues) -> KeyStore | None:
    """The rules are those of DefaultSslEngineFactory.createKeystore."""
    location, key, chain = "ssl.keystore.location", "ssl.keystore.key", "ssl.keystore.certificate.chain"
    store = KeyStore(
        _store_type(found, "keystore", inline=bool(found.text(key) or found.text(chain))),
        found.text(location),
        found.text("ssl.keystore.password"),
        found.text("ssl.key.password"),
        found.text(key),
        found.text(chain),
    )
    if (store.key is None) != (store.chain is None):
        missing = key if store.key is None else chain
        raise ConfigError(missing, f"{found.name(missing)} is missing: a key and its certificate chain belong together")
    _check_store(found, "keystore", store.type, store.location, store.password, inline=store.key is not None)
    return store if store.location or store.key else None


def _trust_store(found: _ListenerValues) -> TrustStore | None:
    certificates = found.text("ssl.truststore.certificates")
    store = TrustStore(
        _store_type(found, "truststore", inline=certificates is not None),
        found.text("ssl.truststore.location"),
        found.text("ssl.truststore.password"),
        certificates,
    )
    _check_store(found, "truststore", store.type, store.location, store.password, inline=certificates is not None)
    return store if store.location or store.certificates else None


def _store_type(found: _ListenerValues, store: str, *, inline: bool) -> str:
    key, location = f"ssl.{store}.type", found.text(f"ssl.{store}.location")
    store_type = (found.text(key) or JKS).upper()
    if store_type == JKS and location is not None and location.endswith(PKCS12_SUFFIXES):
        return PKCS12  # Java's JKS reads both formats
    if store_type not in STORE_TYPES:
        name = found.name(key)
        raise ConfigError(name, f"Invalid value {store_type} for configuration {name}: allowed is PEM, PKCS12")
    if store_type == JKS and (location is not None or inline):
        name = found.name(key)
        hint = f"set {name}=PEM" if location is None else _conversion(location, name)
        raise ConfigError(name, f"{name}: key stores of type JKS can be read by Java only: {hint}")
    return store_type


def pkcs12_path(location: str) -> str:
    """Return the path of a JKS file that is converted to PKCS12."""
    return f"{location.removesuffix('.jks')}.p12"


def jks_conversion(location: str) -> str:
    """Return the command that converts a JKS file to PKCS12."""
    target = pkcs12_path(location)
    return f"keytool -importkeystore -srckeystore {location} -destkeystore {target} -deststoretype PKCS12"


def _conversion(location: str, name: str) -> str:
    """Return what to do about a JKS file."""
    return f"{jks_conversion(location)}; then set the location to {pkcs12_path(location)} and {name}=PKCS12"


def _check_store(
    found: _ListenerValues, store: str, store_type: str, location: str | None, password: str | None, *, inline: bool
) -> None:
    """Raise ConfigError as DefaultSslEngineFactory refuses contradictions."""
    at, secret = found.name(f"ssl.{store}.location"), found.name(f"ssl.{store}.password")
    if inline and store_type != PEM:
        raise ConfigError(at, f"{found.name(f'ssl.{store}.type')} must be PEM for keys and certificates as text")
    if inline and location is not None:
        raise ConfigError(at, f"{at}: the {store} is configured as text, too; choose one")
    if password is not None and store_type == PEM and (inline or location is not None):
        instead = f"; encrypted keys need {found.name('ssl.key.password')}" if store == "keystore" else ""
        raise ConfigError(secret, f"{secret} must not be set: PEM files have no password{instead}")
    if password is not None and location is None and not inline:
        raise ConfigError(at, f"{secret} is set, and {at} is not")
    if password is None and location is not None and store_type != PEM and store == "keystore":
        raise ConfigError(secret, f"{secret} is missing: it is the password of {location}")
