"""Reads the SASL settings of a listener: its mechanisms with their login modules, the users of PLAIN, and the
credentials with which this broker logs in to the others.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kafkalite.config.jaas import MODULES, LoginModule, parse_jaas
from kafkalite.config.keys import ConfigError
from kafkalite.config.listeners import listener_prefix
from kafkalite.config.security import JAAS, ListenerSecurity

USER = "user_"
BETWEEN_BROKERS = "sasl.mechanism.inter.broker.protocol"
NUL = "\0"
BROKER_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The SASL settings of a listener.

    Attributes:
        listener: its name in capitals.
        mechanisms: that it offers.
        logins: the login module of each mechanism that has one.
    """

    listener: str
    mechanisms: tuple[str, ...]
    logins: Mapping[str, LoginModule] = field(repr=False)

    def plain_users(self) -> dict[str, str]:
        """Return the passwords of PLAIN by user: the options `user_NAME="PASSWORD"`."""
        login = self.logins.get("PLAIN")
        options = {} if login is None else login.options
        return {name.removeprefix(USER): value for name, value in options.items() if name.startswith(USER)}


@dataclass(frozen=True, slots=True)
class BrokerCredentials:
    """The credentials with which a broker logs in to the others.

    Attributes:
        mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
        username, password: of the user of the brokers.
    """

    mechanism: str
    username: str
    password: str = field(repr=False)


def jaas_key(listener: str, mechanism: str) -> str:
    """Return the key of the JAAS text of a mechanism on a listener."""
    return f"{listener_prefix(listener)}{mechanism.lower()}.{JAAS}"


def sasl_settings(security: ListenerSecurity) -> SaslSettings:
    """Return the SASL settings of a listener.

    Raises:
        ConfigError: a mechanism is not supported, or its login module is malformed or missing.
    """
    name = security.listener
    check_mechanisms(f"{listener_prefix(name)}sasl.enabled.mechanisms", security.mechanisms)
    logins = {each: parse_jaas(jaas_key(name, each), text, each) for each, text in security.jaas.items()}
    found = SaslSettings(name, security.mechanisms, logins)
    if "PLAIN" in security.mechanisms and not found.plain_users():
        key = jaas_key(name, "PLAIN")
        example = f'{MODULES["PLAIN"]} required user_NAME="PASSWORD";'
        raise ConfigError(key, f"{key}: PLAIN has no user; set it to {example}")
    return found


def broker_credentials(sasl: SaslSettings, mechanism: str) -> BrokerCredentials:
    """Return the credentials of a broker: `username` and `password` of the login module of the mechanism between
    brokers (JaasContext.loadServerContext).

    Arguments:
        sasl: of the listener between brokers.
        mechanism: `sasl.mechanism.inter.broker.protocol`.

    Raises:
        ConfigError: the mechanism is not supported or not enabled, or the login module lacks one of the options.
    """
    name, supported = mechanism.upper(), ", ".join(BROKER_MECHANISMS)
    if name not in BROKER_MECHANISMS:
        reason = "GSSAPI (Kerberos), the default, is" if name == "GSSAPI" else f"{mechanism!r} is"
        text = f"{BETWEEN_BROKERS}: {reason} not supported between brokers; set it to one of {supported}"
        raise ConfigError(BETWEEN_BROKERS, text)
    if name not in sasl.mechanisms:
        enabled = f"{listener_prefix(sasl.listener)}sasl.enabled.mechanisms"
        raise ConfigError(BETWEEN_BROKERS, f"{BETWEEN_BROKERS}: {enabled} must include {name}")
    key, login = jaas_key(sasl.listener, name), sasl.logins.get(name)
    options = {} if login is None else login.options
    for option in ("username", "password"):
        if not options.get(option) or NUL in options[option]:
            example = f'{MODULES[name]} required username="NAME" password="PASSWORD";'
            raise ConfigError(key, f"{key}: the brokers have no {option} to log in to each other; set it to {example}")
    return BrokerCredentials(name, options["username"], options["password"])


def check_mechanisms(key: str, mechanisms: Iterable[str]) -> None:
    """Raise ConfigError unless all SASL mechanisms are supported, and there is one."""
    supported = ", ".join(MODULES)
    names = list(mechanisms)
    if "GSSAPI" in names:
        raise ConfigError(key, f"{key}: GSSAPI (Kerberos) is not supported; use {supported}")
    for each in names or [""]:
        if each not in MODULES:
            raise ConfigError(key, f"{key}: {each!r} is no SASL mechanism of this broker; use {supported}")
