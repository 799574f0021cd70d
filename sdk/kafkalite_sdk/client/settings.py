"""The settings that every client of a cluster shares: its bootstrap addresses, and times in seconds.

Pure. The public classes take times in milliseconds, under Java's names, and convert them.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from kafkalite.model import shown_address
from kafkalite_sdk.client.security import Security

if TYPE_CHECKING:
    from kafkalite_sdk.client.environment import Environment

DEFAULT_PORT = 9092
PORT_MAX = 65_535
ADDRESS = r"(?:\[(?P<ipv6>[^\[\]]+)\]|(?P<host>[^:\[\]/\s]+))(?::(?P<port>\d{1,5}))?"
Addresses = tuple[tuple[str, int], ...]

SOURCES = {"zookeeper": "kafkalite_sdk.zk.bootstrap"}
"""By the scheme of `bootstrap_servers`, the module whose `parse_source` reads it; imported on first use."""


class AddressSource(Protocol):
    """Follows the addresses of the brokers of a cluster for one client."""

    async def open(self, timeout_s: float) -> None:
        """Begin; return when the first addresses were passed on.

        Raises KafkaConnectionError: there are none within `timeout_s` seconds. ClientUseError: it was closed.
        """

    def close(self) -> Awaitable[None]:
        """End everything."""


class AddressService(Protocol):
    """`bootstrap_servers` that name a service which knows the addresses of brokers. Its text has no secret."""

    def follow(
        self, security: Security, environment: "Environment", use: Callable[[Addresses], object]
    ) -> AddressSource:
        """Return a source for one client, in the running event loop.

        Arguments:
            security: of the connections to brokers.
            environment: connections and randomness.
            use: called with the addresses at first, and whenever they have changed.
        """


class BootstrapServers(NamedTuple):
    """`bootstrap_servers`: addresses, or else a source of them."""

    addresses: Addresses = ()
    source: AddressService | None = None


class ClientSettings(NamedTuple):
    """The settings of a `ClusterClient`.

    Attributes:
        bootstrap: host and port of the brokers that a client asks first; see `parse_bootstrap`. Empty with a source.
        client_id: sent with every request.
        request_timeout_s: deadline of a request; a later response ends its connection.
        connect_timeout_s: deadline for connecting, negotiation of versions and authentication together.
        default_api_timeout_s: deadline of an operation that may need several requests.
        metadata_max_age_s: metadata is requested again after this time.
        retry_backoff_s, retry_backoff_max_s: pause before a request is repeated; it doubles with each failure, up to
            the second.
        reconnect_backoff_s, reconnect_backoff_max_s: the same for connections to one broker.
        connections_max_idle_s: a connection without requests is closed after this time.
        rebootstrap_after_s: without metadata for this time, the client forgets all brokers and begins again with
            `bootstrap`.
        security: TLS and SASL; see `parse_security`.
        source: of the addresses of brokers; None = `bootstrap` has them.
    """

    bootstrap: Addresses
    client_id: str = "kafkalite"
    request_timeout_s: float = 30.0
    connect_timeout_s: float = 10.0
    default_api_timeout_s: float = 60.0
    metadata_max_age_s: float = 300.0
    retry_backoff_s: float = 0.1
    retry_backoff_max_s: float = 1.0
    reconnect_backoff_s: float = 0.05
    reconnect_backoff_max_s: float = 1.0
    connections_max_idle_s: float = 540.0
    rebootstrap_after_s: float = 300.0
    security: Security = Security()
    source: AddressService | None = None

    def servers_text(self) -> str:
        """Return the addresses, or their source, as text."""
        return address_text(self.bootstrap) if self.source is None else str(self.source)


def parse_servers(servers: str | Iterable[str]) -> BootstrapServers:
    """Parse bootstrap servers: as `parse_bootstrap`, or `zookeeper://host:port,host:port/chroot?listener=NAME`.

    Raises ValueError, TypeError: as `parse_bootstrap`.
    """
    texts = [servers] if isinstance(servers, str) else servers
    text = texts[0].strip() if isinstance(texts, list | tuple) and len(texts) == 1 and isinstance(texts[0], str) else ""
    scheme, separator, _rest = text.partition("://")
    if not separator or "@" in text or scheme not in SOURCES:
        return BootstrapServers(parse_bootstrap(servers))
    return BootstrapServers(source=cast(AddressService, import_module(SOURCES[scheme]).parse_source(text)))


def parse_bootstrap(servers: str | Iterable[str]) -> Addresses:
    """Parse bootstrap servers: `host:port` separated by commas, or several such texts. The default port is 9092.

    Raises:
        ValueError: there is no address, or one is not `host:port`. TypeError: a mapping, as other clients accept it.
    """
    if isinstance(servers, Mapping):
        raise TypeError(
            'bootstrap_servers is a mapping, expected "host:port"; pass the settings as arguments: linger_ms=5 for '
            '{"linger.ms": 5}'
        )
    texts = list(servers) if isinstance(servers, Iterable) and not isinstance(servers, str) else [servers]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f'bootstrap_servers: expected "host:port,host:port" or a list of "host:port", got {servers!r}')
    if any("@" in text for text in texts):
        shown = ",".join(shown_address(text) for text in texts)
        raise ValueError(
            f"bootstrap_servers: user names and passwords are no part of an address, expected {shown!r} with "
            "sasl_username and sasl_password"
        )
    addresses = [_parse_address(part.strip()) for text in texts for part in text.split(",") if part.strip()]
    if not addresses:
        raise ValueError(f'bootstrap_servers is {servers!r}, expected at least one address such as "localhost:9092"')
    return tuple(dict.fromkeys(addresses))


def address_text(bootstrap: Iterable[tuple[str, int]]) -> str:
    """Return addresses as text."""
    return ", ".join(f"{host}:{port}" for host, port in bootstrap)


def _parse_address(text: str) -> tuple[str, int]:
    match = re.fullmatch(ADDRESS, text)
    if match is None:
        raise ValueError(f'bootstrap_servers: {text!r} is not an address; expected "host:port" or "[ipv6]:port"')
    port = DEFAULT_PORT if match["port"] is None else int(match["port"])
    if not 0 < port <= PORT_MAX:
        raise ValueError(f"bootstrap_servers: {text!r} has port {port}, expected 1 to {PORT_MAX}")
    return match["ipv6"] or match["host"], port
