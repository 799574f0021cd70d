"""Reads the SASL settings of a listener: its mechanisms with their login modules and callbacks, the users of PLAIN, and
the credentials with which this broker logs in to the others.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from kafkalite.config.extensions.entry_points import MECHANISMS, describe_group, entry_points_of
from kafkalite.config.jaas import MODULES, PACKAGE, LoginModule, parse_jaas
from kafkalite.config.keys import ConfigError
from kafkalite.config.listeners import listener_prefix
from kafkalite.config.oauthbearer import OAuthBearerSettings
from kafkalite.config.security import CALLBACK, JAAS, ListenerSecurity

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

USER = "user_"
BETWEEN_BROKERS = "sasl.mechanism.inter.broker.protocol"
NUL = "\0"
BROKER_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
UNSECURED = "unsecured"  # options of OAuthBearerLoginModule for tokens without a signature
CALLBACK_GROUP = "kafkalite.sasl_callbacks"
# Kafka's classes that verify credentials as this broker does.
BUILT_IN_CALLBACKS = {
    "PLAIN": (f"{PACKAGE}.plain.internals.PlainServerCallbackHandler",),
    "OAUTHBEARER": (
        f"{PACKAGE}.oauthbearer.OAuthBearerValidatorCallbackHandler",
        f"{PACKAGE}.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
    ),
}


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The SASL settings of a listener.

    Attributes:
        listener: its name in capitals.
        mechanisms: that it offers.
        logins: the login module of each mechanism that has one.
        callbacks: the entry point that verifies credentials, by mechanism; without one the broker does it.
        oauthbearer: how tokens are verified; None: OAUTHBEARER is not offered.
    """

    listener: str
    mechanisms: tuple[str, ...]
    logins: Mapping[str, LoginModule] = field(repr=False)
    callbacks: Mapping[str, str] = field(default_factory=dict)
    oauthbearer: OAuthBearerSettings | None = None

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


def mechanism_key(listener: str, mechanism: str, key: str) -> str:
    """Return the key of a mechanism on a listener."""
    return f"{listener_prefix(listener)}{mechanism.lower()}.{key}"


def jaas_key(listener: str, mechanism: str) -> str:
    """Return the key of the JAAS text of a mechanism on a listener."""
    return mechanism_key(listener, mechanism, JAAS)


def sasl_settings(security: ListenerSecurity) -> SaslSettings:
    """Return the SASL settings of a listener.

    Raises:
        ConfigError: a mechanism is not supported, its login module is malformed or missing, a callback is not
            installed, or tokens of OAUTHBEARER cannot be verified.
    """
    name = security.listener
    check_mechanisms(f"{listener_prefix(name)}sasl.enabled.mechanisms", security.mechanisms)
    for each in security.jaas.keys() - MODULES.keys():
        key = jaas_key(name, each)
        raise ConfigError(key, f"{key}: {each} is a user-defined mechanism, which has no login module; remove the key")
    logins = {each: parse_jaas(jaas_key(name, each), text, each) for each, text in security.jaas.items()}
    callbacks = dict(_user_defined_callbacks(security))
    found = SaslSettings(name, security.mechanisms, logins, callbacks, security.oauthbearer)
    if "PLAIN" in security.mechanisms and "PLAIN" not in callbacks and not found.plain_users():
        key = jaas_key(name, "PLAIN")
        example = f'{MODULES["PLAIN"]} required user_NAME="PASSWORD";'
        raise ConfigError(key, f"{key}: PLAIN has no user; set it to {example}")
    if security.oauthbearer is not None:
        _check_oauthbearer(found, security.oauthbearer)
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


def _check_oauthbearer(found: SaslSettings, settings: OAuthBearerSettings) -> None:
    """Raise ConfigError if the broker would accept tokens that it cannot verify."""
    login = found.logins.get("OAUTHBEARER")
    for option in () if login is None else login.options:
        if option.startswith(UNSECURED):
            key = jaas_key(found.listener, "OAUTHBEARER")
            raise ConfigError(key, f"{key}: {option} is of tokens without a signature, which are never accepted")
    if "OAUTHBEARER" not in found.callbacks:
        settings.require()


@cache
def installed_callbacks() -> "dict[str, EntryPoint]":
    """Return the entry points of the group `kafkalite.sasl_callbacks`, by name."""
    from importlib.metadata import entry_points  # 10 ms of import

    return {each.name: each for each in entry_points(group=CALLBACK_GROUP)}


def _user_defined_callbacks(security: ListenerSecurity) -> Iterable[tuple[str, str]]:
    """Yield mechanism and entry point; no class is loaded by a name from elsewhere."""
    for mechanism, callback in security.callbacks.items():
        built_in = BUILT_IN_CALLBACKS.get(mechanism, ())
        if callback in built_in:
            continue
        if mechanism not in BUILT_IN_CALLBACKS or callback not in installed_callbacks():
            key = mechanism_key(security.listener, mechanism, CALLBACK)
            known = ", ".join([*built_in, *sorted(installed_callbacks())] if built_in else ["none for this mechanism"])
            raise ConfigError(key, f"{key}: {callback!r} is not supported, there is no such entry point; use {known}")
        yield mechanism, callback


def check_mechanisms(key: str, mechanisms: Iterable[str]) -> None:
    """Raise ConfigError unless all SASL mechanisms are built in or installed, and there is one."""
    supported = ", ".join(MODULES)
    names = list(mechanisms)
    if "GSSAPI" in names:
        raise ConfigError(key, f"{key}: GSSAPI (Kerberos) is not supported; use {supported}")
    for each in names or [""]:
        if each not in MODULES and each not in entry_points_of(MECHANISMS):
            known = f"{supported}, or an entry point of {describe_group(MECHANISMS)}"
            raise ConfigError(key, f"{key}: {each!r} is no SASL mechanism of this broker; use {known}")
