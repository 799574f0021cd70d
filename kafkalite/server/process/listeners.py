"""Binds the listeners of a broker, and chooses the address under which each client reaches the broker again.

Without `advertised.listeners` that is the local address of the client's own connection: a name or 0.0.0.0 from the
configuration may mean nothing, or something else, on the client's machine.

All listeners without security share one driver. Each other one has its own driver, limits and TLS contexts.
"""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafkalite._speedups.net.framing import Connection, Limits, Service
from kafkalite.clock import Clock, Offload
from kafkalite.config.broker import BrokerConfig
from kafkalite.config.keys import ConfigError
from kafkalite.config.listeners import listener_prefix
from kafkalite.model import Endpoint, Node
from kafkalite.net.listener import AcceptRates, ConnectionCounts, SocketOptions
from kafkalite.server.process.descriptors import descriptors_of_process
from kafkalite.server.process.ports import BrokerListener, ListenerFactory

if TYPE_CHECKING:
    from kafkalite.config.security import ListenerSecurity, TlsSettings
    from kafkalite.net.client.connection import Dial
    from kafkalite.net.server_tls import ServerTls
    from kafkalite.server.process.tls_reload import TlsReload

LOGGER = logging.getLogger("kafkalite.server")
LOCAL_ONLY = "localhost"
ALL_ADDRESSES = ("", "0.0.0.0", "::")
GROUP_LIMIT = "/sys/fs/cgroup/memory.max"
NO_SECURITY = ""  # the driver of all listeners without security
REQUESTS_SHARE = 8  # of the memory is for requests in progress
CREATION_RATE = "max.connection.creation.rate"
UNLIMITED = 2**31 - 1  # its default
NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class Listeners:
    """All listeners of a broker.

    Arguments:
        loop: of the broker.
        service: serves the connections.
        config: names, addresses and limits.
        listen: creates the listeners (`Ports`).

    Attributes:
        tls: the TLS side by listener name.

    Raises ConfigError: keys, certificates or rules of a listener cannot be used.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, service: Service, config: BrokerConfig, listen: ListenerFactory
    ) -> None:
        self._config = config
        self.descriptors = descriptors_of_process()
        self._counts = ConnectionCounts(config.max_connections, config.max_connections_per_ip)
        self.tls: dict[str, ServerTls] = {}
        self._reload: TlsReload | None = None
        self._drivers: dict[str, BrokerListener] = {}
        names = dict.fromkeys(driver_name(config, each.listener) for each in config.listeners)
        for name in names:
            side = self._tls_side(name)
            self._drivers[name] = listen(
                loop,
                service,
                limits_of(config, name, len(names)),
                tls=side,
                counts=self._counts,
                sockets=sockets_of(config),
                refuse_from=self.descriptors.refuse_from,
            )
        self._advertised = {endpoint.listener: endpoint for endpoint in config.advertised_listeners}
        self.addresses: list[Endpoint] = []

    def _tls_side(self, name: str) -> "ServerTls | None":
        settings = self._tls_settings(name)
        if settings is None:
            return None
        from kafkalite.net.server_tls import ServerTls  # for brokers with TLS

        try:
            between_brokers = name == self._config.listener_between_brokers and self._config.coordination is not None
            self.tls[name] = ServerTls(settings, dials=between_brokers)
        except ValueError as error:
            key = str(error).partition(" ")[0].rstrip(":")
            raise ConfigError(key, f"{error} (listener {name})") from None
        return self.tls[name]

    def open(self, inherited: list[tuple[str, socket.socket]]) -> None:
        """Accept connections on the sockets of a service manager, and at the configured addresses of the other
        listeners.
        """
        if self.descriptors.limit is not None:
            LOGGER.info(
                "file descriptors: limit %d, %d kept for logs: connections are refused while %d are open",
                *self.descriptors,
            )
        for (_name, listening), endpoint in zip(inherited, self._config.listeners, strict=False):
            host, port = self._driver(endpoint.listener).inherit(listening, endpoint.listener)
            self.addresses.append(endpoint._replace(host=host, port=port))
        for endpoint in self._config.listeners[len(inherited) :]:
            self._bind(endpoint)

    def own_node(self, broker_id: int, rack: str | None, connection: Connection) -> Node:
        """Return this broker with the address at which the client of a connection reaches it."""
        advertised = self._advertised.get(connection.listener)
        if advertised is not None:
            return Node(broker_id, advertised.host, advertised.port, rack)
        return Node(broker_id, connection.local_host, connection.local_port, rack)

    def registered_endpoints(self) -> tuple[Endpoint, ...]:
        """Return the address of each listener for clients and other brokers, as a registration has it."""
        return tuple(self._advertised.get(each.listener) or reachable(each) for each in self.addresses)

    def suspend(self, reason: str) -> None:
        """Close all connections, and accept none until `resume`."""
        for driver in self._drivers.values():
            driver.pause()
            driver.disconnect(reason)

    def resume(self) -> None:
        """Accept connections."""
        for driver in self._drivers.values():
            driver.resume()

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed connection limits and TLS settings; connections above the limits stay open."""
        self._config = config
        for name, driver in self._drivers.items():
            security = self._security(name)
            own_max = None if security is None else security.connections_max
            driver.limit(config.max_connections, config.max_connections_per_ip, own_max)
        if self._reload is not None:
            self._reload.check()

    def limit_rates(self, rates: AcceptRates | None) -> None:
        """Limit the rates of new connections; None = no limit."""
        self._counts.rates = rates

    def watch_certificates(self, clock: Clock, offload: Offload) -> None:
        """Replace the certificates of listeners with TLS when their files change."""
        if self.tls:
            from kafkalite.server.process.tls_reload import TlsReload

            self._reload = TlsReload(self.tls, self._tls_settings, clock, offload)
            self._reload.start()

    def secure_dial(self, dial: "Dial") -> "Dial":
        """Return a function that connects to other brokers with the protocol of the listener between brokers.

        Arguments:
            dial: connects (`Ports`).
        """
        side = self.tls.get(self._config.listener_between_brokers)
        if side is None:
            return dial
        from kafkalite.net.peer_dial import TlsDial  # for clusters with TLS

        return TlsDial(dial, side.peer_context)

    def free_unused(self) -> None:
        """Free the receive buffers that no connection needed since the call before."""
        for driver in self._drivers.values():
            driver.free_unused()

    async def close(self, grace_s: float) -> None:
        """Stop accepting; open responses have `grace_s` seconds to leave."""
        await asyncio.gather(*(driver.close(grace_s) for driver in self._drivers.values()))

    def _security(self, name: str) -> "ListenerSecurity | None":
        """The security of a driver's listener; None: it has none, or the next start has no such listener."""
        if not any(each.listener == name for each in self._config.listeners):
            return None
        return self._config.listener_security(name)

    def _tls_settings(self, name: str) -> "TlsSettings | None":
        security = self._security(name)
        return None if security is None else security.tls

    def _driver(self, listener: str) -> BrokerListener:
        return self._drivers.get(listener) or self._drivers[NO_SECURITY]

    def _bind(self, endpoint: Endpoint) -> None:
        driver = self._driver(endpoint.listener)
        if endpoint.host != LOCAL_ONLY:
            host, port = driver.bind(endpoint.host, endpoint.port, endpoint.listener)
            self.addresses.append(endpoint._replace(host=host, port=port))
            return
        _host, port = driver.bind("127.0.0.1", endpoint.port, endpoint.listener)
        self.addresses.append(endpoint._replace(port=port))
        try:
            driver.bind("::1", port, endpoint.listener)
        except OSError as error:
            if error.errno not in NOT_HERE and endpoint.port:
                raise
            LOGGER.debug("not listening on ::1: %s", error)


def reachable(endpoint: Endpoint) -> Endpoint:
    """Replace an address that means all of this machine by the machine's name (SocketServer.scala)."""
    return endpoint._replace(host=socket.getfqdn()) if endpoint.host in ALL_ADDRESSES else endpoint


def driver_name(config: BrokerConfig, listener: str) -> str:
    """Return the name of the driver of a listener: its own, or NO_SECURITY for the common one."""
    if config.has_default_security(listener):
        return NO_SECURITY
    return listener


def limits_of(config: BrokerConfig, driver: str = NO_SECURITY, drivers: int = 1) -> Limits:
    """Return the limits of a driver.

    Arguments:
        config: of the broker.
        driver: the name of its listener.
        drivers: their number; they share the memory for requests equally.
    """
    queued, own_max, uses_sasl = config.queued_max_request_bytes, None, False
    login_bytes_max = config.sasl_server_max_receive_size
    if driver != NO_SECURITY:
        security = config.listener_security(driver)
        own_max, uses_sasl = security.connections_max, security.uses_sasl
        login_bytes_max = security.receive_bytes_max
    return Limits(
        authenticate=uses_sasl,
        request_bytes_max=config.socket_request_max_bytes,
        connections_max=config.max_connections if own_max is None else own_max,
        connections_per_ip_max=config.max_connections_per_ip,
        connections_per_ip_overrides=resolve_hosts(config.max_connections_per_ip_overrides),
        idle_ms_max=config.connections_max_idle_ms,
        login_bytes_max=login_bytes_max,
        all_requests_bytes_max=(queued if queued > 0 else memory_bytes() // REQUESTS_SHARE) // drivers,
    )


def sockets_of(config: BrokerConfig) -> SocketOptions:
    """Return the socket options."""
    return SocketOptions(
        send_buffer_bytes=config.socket_send_buffer_bytes,
        receive_buffer_bytes=config.socket_receive_buffer_bytes,
        backlog=config.socket_listen_backlog_size,
    )


def resolve_hosts(limits: Mapping[str, int]) -> dict[str, int]:
    """Resolve the host names of connection limits; raises ConfigError for an unknown name."""
    found: dict[str, int] = {}
    for host, count in limits.items():
        try:
            addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            key = "max.connections.per.ip.overrides"
            raise ConfigError(key, f"{key}: cannot resolve {host!r}: {error}") from error
        found.update((str(address[4][0]), count) for address in addresses)
    return found


def memory_bytes() -> int:
    """Return the memory that this process may use: the machine's, or the limit of its control group."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        with open(GROUP_LIMIT) as file:
            given = file.read().strip()
    except OSError:  # not Linux, or no control groups of version 2
        return machine
    return min(machine, int(given)) if given.isdigit() else machine


class CreationRates(NamedTuple):
    """Connections per second; None = no limit."""

    broker: int | None
    listeners: Mapping[str, int | None]

    def __bool__(self) -> bool:
        """Whether there is a limit."""
        return self.broker is not None or any(rate is not None for rate in self.listeners.values())


def creation_rates(config: BrokerConfig) -> CreationRates:
    """Return the limits of a configuration."""
    listeners = (each.listener for each in config.listeners)
    return CreationRates(
        limit_of(config.max_connection_creation_rate),
        {
            listener: limit_of(config.values.get(f"{listener_prefix(listener)}{CREATION_RATE}"))
            for listener in listeners
        },
    )


def limit_of(value: object) -> int | None:
    """Return the limit that a value means."""
    return value if isinstance(value, int) and value < UNLIMITED else None
