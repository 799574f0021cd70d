"""Parses Kafka's syntax of listeners: `NAME://HOST:PORT`, comma-separated (SocketServerConfigs.java)."""

import re
from collections.abc import Iterable, Mapping, Sequence

from kafkalite.config.definitions import LISTENER_PREFIX
from kafkalite.config.keys import INT_MAX, ConfigError
from kafkalite.model import Endpoint

LISTENER = re.compile(r"([^:/\s]+)://(?:\[([0-9a-fA-F:.%\w]*)\]|([^:/\[\]\s]*)):([0-9]{1,5})")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAINTEXT = "PLAINTEXT"
PORT_MAX = 65535
EVERYWHERE = ("", "0.0.0.0", "::")


def parse_protocol_map(entries: Sequence[str]) -> dict[str, str]:
    """Return security protocols by listener name; raises ConfigError."""
    key, protocols = "listener.security.protocol.map", {}
    for entry in entries:
        name, colon, protocol = (part.strip().upper() for part in entry.partition(":"))
        if not name or not colon or protocol not in PROTOCOLS:
            raise ConfigError(key, f"{key}: {entry!r} is not NAME:PROTOCOL with a protocol of {', '.join(PROTOCOLS)}")
        protocols[name] = protocol
    return protocols


def parse_listeners(key: str, entries: Sequence[str], protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """Read the listeners of `listeners` or `advertised.listeners`; raises ConfigError that names `key`."""
    endpoints = tuple(parse_listener(key, entry, protocols) for entry in entries)
    names = [endpoint.listener for endpoint in endpoints]
    if len(set(names)) != len(names):
        raise ConfigError(key, f"{key}: listener names must be unique, got {', '.join(names)}")
    return endpoints


def parse_listener(key: str, entry: str, protocols: Mapping[str, str]) -> Endpoint:
    """Read one `NAME://HOST:PORT`; raises ConfigError that names `key`."""
    match = LISTENER.fullmatch(entry)
    if match is None or int(match[4]) > PORT_MAX:
        raise ConfigError(
            key,
            f"{key}: {entry!r} is not NAME://HOST:PORT with a port from 0 to {PORT_MAX}",
        )
    name = match[1].upper()
    protocol = protocols.get(name)
    if protocol is None:
        raise ConfigError(key, f"{key}: listener.security.protocol.map has no protocol for the listener {name}")
    return Endpoint(name, match[2] if match[2] is not None else match[3], int(match[4]), protocol)


def check_ports(listeners: Sequence[Endpoint]) -> None:
    """Raise ConfigError if two listeners share a port, unless they are one IPv4 and one IPv6 address (KIP-797)."""
    key = "listeners"
    if not listeners:
        raise ConfigError(key, f"{key}: at least one listener is required")
    for at, one in enumerate(listeners):
        for other in listeners[:at]:
            if one.port and one.port == other.port and (":" in one.host) == (":" in other.host):
                raise ConfigError(key, f"{key}: {other} and {one} have the same port")


def check_advertised(advertised: Sequence[Endpoint], listeners: Sequence[Endpoint]) -> None:
    """Raise ConfigError if an advertised address is no real address or names an unknown listener."""
    key, names = "advertised.listeners", {endpoint.listener for endpoint in listeners}
    for endpoint in advertised:
        if endpoint.listener not in names:
            raise ConfigError(key, f"{key}: {endpoint} does not name one of the listeners ({', '.join(sorted(names))})")
        if endpoint.host in EVERYWHERE:
            raise ConfigError(key, f"{key}: clients cannot connect to {endpoint}; give a host name or an address")


def listener_prefix(listener: str) -> str:
    """Return the prefix of the keys of a listener (ListenerName.configPrefix)."""
    return f"{LISTENER_PREFIX}{listener.lower()}."


def check_listener_names(names: Iterable[str], protocols: Mapping[str, str]) -> None:
    """Raise ConfigError if a key is for a listener that does not exist.

    Arguments:
        names: of all keys that are set.
        protocols: by listener name; also those of listeners that only other nodes have.
    """
    for name in names:
        if name.startswith(LISTENER_PREFIX):
            listener = name.removeprefix(LISTENER_PREFIX).partition(".")[0]
            if listener.upper() not in protocols or listener != listener.lower():
                known = ", ".join(sorted(each.lower() for each in protocols))
                raise ConfigError(name, f"{name}: there is no listener {listener} ({known})")


def listener_between_brokers(wanted: str | None, listeners: Sequence[Endpoint], protocol: str = PLAINTEXT) -> str:
    """Return the name of the listener between brokers.

    Arguments:
        wanted: `inter.broker.listener.name`; None: the first listener with `protocol`.
        listeners: of this broker.
        protocol: `security.inter.broker.protocol`.

    Raises ConfigError if there is no such listener.
    """
    key, names = "inter.broker.listener.name", [endpoint.listener for endpoint in listeners]
    if wanted is not None:
        if wanted.upper() not in names:
            raise ConfigError(key, f"{key}: {wanted} does not name one of the listeners ({', '.join(sorted(names))})")
        return wanted.upper()
    found = [endpoint.listener for endpoint in listeners if endpoint.security_protocol == protocol]
    if not found:
        raise ConfigError(
            key,
            f"{key}: name one of the listeners ({', '.join(names)}) for connections between brokers: none has the "
            f"protocol {protocol} (security.inter.broker.protocol)",
        )
    return found[0]


def check_additional_listeners(names: Iterable[str], listeners: Sequence[Endpoint]) -> None:
    """Raise ConfigError if a further listener between brokers is none of this broker; names are in capitals."""
    key, known = "kafkalite.inter.broker.additional.listeners", sorted(endpoint.listener for endpoint in listeners)
    for name in names:
        if name not in known:
            raise ConfigError(key, f"{key}: {name} is none of the listeners ({', '.join(known)}), in capitals")


def parse_overrides(text: str) -> dict[str, int]:
    """Return limits of single addresses by host: HOST:COUNT, comma-separated; raises ConfigError."""
    name = "max.connections.per.ip.overrides"
    limits: dict[str, int] = {}
    for member in filter(None, (part.strip() for part in text.split(","))):
        host, colon, count = member.rpartition(":")
        if not (colon and host and count.isascii() and count.isdigit() and len(count) <= 10) or int(count) > INT_MAX:
            raise ConfigError(name, f"Invalid value {member!r} for configuration {name}: expected HOST:COUNT")
        limits[host.strip("[]")] = int(count)
    return limits
