"""Connects the connection layer to the broker: connections open and close, frames are served, an iteration ends."""

import logging

from kafkalite._speedups.net.framing import Connection
from kafkalite._speedups.net.heartbeats import Heartbeats
from kafkalite.cluster.replicas import Replicas
from kafkalite.server.requests.dispatch import PRODUCE, Dispatcher
from kafkalite.state.fetch_sessions import FetchSessions

LOGGER = logging.getLogger("kafkalite.connections")


class BrokerService:
    """The broker as the connection layer sees it."""

    def __init__(
        self, dispatcher: Dispatcher, replicas: Replicas, heartbeats: Heartbeats, fetch_sessions: FetchSessions
    ) -> None:
        # Bound methods are handed through as they are: this is called for every request.
        self.request = dispatcher.request
        self.write_pending = replicas.write_pending
        self.quick = heartbeats
        self.pinning = frozenset({PRODUCE})  # its records are views of the frame
        self.connections = 0
        self._fetch_sessions = fetch_sessions

    def connected(self, connection: Connection) -> bool:
        self.connections += 1
        host, port = connection.peer_host, connection.peer_port
        LOGGER.debug("%s:%d connected to %s; %d connections", host, port, connection.listener, self.connections)
        return True

    def disconnected(self, connection: Connection) -> None:
        self.connections -= 1
        host, port = connection.peer_host, connection.peer_port
        LOGGER.debug("%s:%d disconnected: %s; %d connections", host, port, connection.reason, self.connections)
        self._fetch_sessions.disconnected(connection)
