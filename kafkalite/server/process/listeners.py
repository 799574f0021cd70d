"""Binds the listeners of a broker, and chooses the address under which each client reaches the broker again.

Without `advertised.listeners` that is the local address of the client's own connection: a name or 0.0.0.0 from the
configuration may mean nothing, or something else, on the client's machine.
"""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Mapping

from kafkalite._speedups.net.framing import Connection, Limits, Service
from kafkalite.config.broker import BrokerConfig
from kafkalite.config.keys import ConfigError
from kafkalite.model import Endpoint, Node
from kafkalite.net.listener import SocketOptions
from kafkalite.server.process.descriptors import descriptors_of_process
from kafkalite.server.process.ports import ListenerFactory

LOGGER = logging.getLogger("kafkalite.server")
LOCAL_ONLY = "localhost"
ALL_ADDRESSES = ("", "0.0.0.0", "::")
GROUP_LIMIT = "/sys/fs/cgroup/memory.max"
REQUESTS_SHARE = 8  # of the memory is for requests in progress
NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class Listeners:
    """All listeners of a broker.

    Arguments:
        loop: of the broker.
        service: serves the connections.
        config: names, addresses and limits.
        listen: creates the listener (`Ports`).
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, service: Service, config: BrokerConfig, listen: ListenerFactory
    ) -> None:
        self._config = config
        self.descriptors = descriptors_of_process()
        self._listener = listen(
            loop, service, limits_of(config), sockets=sockets_of(config), refuse_from=self.descriptors.refuse_from
        )
        self._advertised = {endpoint.listener: endpoint for endpoint in config.advertised_listeners}
        self.addresses: list[Endpoint] = []

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
            host, port = self._listener.inherit(listening, endpoint.listener)
            self.addresses.append(Endpoint(endpoint.listener, host, port))
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
        self._listener.pause()
        self._listener.disconnect(reason)

    def resume(self) -> None:
        """Accept connections."""
        self._listener.resume()

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed connection limits; connections above them stay open."""
        self._listener.limit(config.max_connections, config.max_connections_per_ip)

    def free_unused(self) -> None:
        """Free the receive buffers that no connection needed since the call before."""
        self._listener.free_unused()

    async def close(self, grace_s: float) -> None:
        """Stop accepting; open responses have `grace_s` seconds to leave."""
        await self._listener.close(grace_s)

    def _bind(self, endpoint: Endpoint) -> None:
        if endpoint.host != LOCAL_ONLY:
            host, port = self._listener.bind(endpoint.host, endpoint.port, endpoint.listener)
            self.addresses.append(Endpoint(endpoint.listener, host, port))
            return
        _host, port = self._listener.bind("127.0.0.1", endpoint.port, endpoint.listener)
        self.addresses.append(Endpoint(endpoint.listener, LOCAL_ONLY, port))
        try:
            self._listener.bind("::1", port, endpoint.listener)
        except OSError as error:
            if error.errno not in NOT_HERE and endpoint.port:
                raise
            LOGGER.debug("not listening on ::1: %s", error)


def reachable(endpoint: Endpoint) -> Endpoint:
    """Replace an address that means all of this machine by the machine's name (SocketServer.scala)."""
    return endpoint._replace(host=socket.getfqdn()) if endpoint.host in ALL_ADDRESSES else endpoint


def limits_of(config: BrokerConfig) -> Limits:
    """Return the limits of the connection layer."""
    queued = config.queued_max_request_bytes
    return Limits(
        request_bytes_max=config.socket_request_max_bytes,
        connections_max=config.max_connections,
        connections_per_ip_max=config.max_connections_per_ip,
        connections_per_ip_overrides=resolve_hosts(config.max_connections_per_ip_overrides),
        idle_ms_max=config.connections_max_idle_ms,
        all_requests_bytes_max=queued if queued > 0 else memory_bytes() // REQUESTS_SHARE,
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
