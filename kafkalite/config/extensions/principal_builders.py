"""Reads `principal.builder.class` of each listener: Kafka's default, which is built in, or an entry point."""

from collections.abc import Iterable, Mapping

from kafkalite.config.extensions.entry_points import PRINCIPAL_BUILDERS, describe_group, entry_points_of
from kafkalite.config.keys import ConfigError, Value
from kafkalite.config.listeners import listener_prefix

KEY = "principal.builder.class"
DEFAULT = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"


def principal_builders(values: Mapping[str, Value], listeners: Iterable[str]) -> dict[str, str]:
    """Return the entry points that build principals, by listener; those with the default are left out.

    Arguments:
        values: of all keys, those of listeners included.
        listeners: their names in capitals.

    Raises ConfigError: there is no such entry point.
    """
    found = {}
    for listener in listeners:
        own = f"{listener_prefix(listener)}{KEY}"
        key = own if values.get(own) else KEY
        name = str(values.get(key) or DEFAULT)
        if name != DEFAULT:
            check_builder(key, name)
            found[listener] = name
    return found


def check_builder(key: str, name: str) -> None:
    """Raise ConfigError unless an installed package offers the builder. No class is loaded by a name from elsewhere."""
    if name not in entry_points_of(PRINCIPAL_BUILDERS):
        known = f"{DEFAULT}, or an entry point of {describe_group(PRINCIPAL_BUILDERS)}"
        raise ConfigError(key, f"{key}: {name!r} is no principal builder of this broker; use {known}")
