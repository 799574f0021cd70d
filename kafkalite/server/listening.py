"""The broker's listeners: binding what the configuration names, and telling clients where to come back.

Without `advertised.listeners` a client is told the address at which its own connection reached us: a name or 0.0.0.0
from the configuration might mean nothing, or something else, where the client runs.
"""

import asyncio
import errno
import logging
import resource
import socket

from kafkalite._speedups.framing import Connection, Limits, Service
from kafkalite.config.broker import BrokerConfig
from kafkalite.model import Endpoint, Node
from kafkalite.net.listener import Listener

LOGGER = logging.getLogger("kafkalite.server")
LOCAL_ONLY = "localhost"
NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class Listening:
    """All listeners of a broker.

    Arguments:
        loop, service: who serves the connections.
        config: names, addresses and limits.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, service: Service, config: BrokerConfig) -> None:
        self._config = config
        self._listener = Listener(loop, service, limits_of(config))
        self._advertised = {endpoint.listener: endpoint for endpoint in config.advertised_listeners}
        self.addresses: list[Endpoint] = []

    def open(self, inherited: list[tuple[str, socket.socket]]) -> None:
        """Accept connections: on sockets from the service manager where there are any, else where the configuration
        says.
        """
        for (_name, listening), endpoint in zip(inherited, self._config.listeners, strict=False):
            host, port = self._listener.inherit(listening, endpoint.listener)
            self.addresses.append(Endpoint(endpoint.listener, host, port))
        for endpoint in self._config.listeners[len(inherited) :]:
            self._bind(endpoint)

    def nodes(self, brokers: tuple[Node, ...], own_id: int, connection: Connection) -> list[Node]:
        """The brokers as this connection's client should reach them."""
        return [self._as_seen(node, connection) if node.broker_id == own_id else node for node in brokers]

    def configure(self, config: BrokerConfig) -> None:
        """Put changed limits of connections into force; connections above them stay until they end."""
        self._listener.limit(config.max_connections, config.max_connections_per_ip)

    async def close(self, grace_s: float) -> None:
        """Accept no more; let open answers leave for at most `grace_s` seconds."""
        await self._listener.close(grace_s)

    def _as_seen(self, node: Node, connection: Connection) -> Node:
        told = self._advertised.get(connection.listener)
        if told is not None:
            return Node(node.broker_id, told.host, told.port, node.rack)
        return Node(node.broker_id, connection.local_host, connection.local_port, node.rack)

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


def limits_of(config: BrokerConfig) -> Limits:
    """The configuration's limits in the connection layer's words."""
    return Limits(
        request_bytes_max=config.socket_request_max_bytes,
        connections_max=config.max_connections,
        connections_per_ip_max=config.max_connections_per_ip,
        idle_ms_max=config.connections_max_idle_ms,
    )


def raise_open_file_limit() -> None:
    """Lift the soft limit of open files to the hard one: segments and connections both need descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
