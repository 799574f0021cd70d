"""Authenticates the connections of listeners with SASL; the dispatcher gets their allowed requests only.

Connections of other listeners have the principal of their certificate, or that of a user-defined principal builder.
"""

import logging
from collections.abc import Iterable, Mapping

from kafkalite._speedups.net.framing import Connection, Reply
from kafkalite.rate_limited_log import RateLimitedLog
from kafkalite.server.authentication.login import ListenerLogin, Login, Serve
from kafkalite.server.authentication.principals import Principals


class Authentication:
    """The logins of a broker's connections.

    Arguments:
        listeners: those with SASL.
        serve: serves a request.
        principals: the user-defined principal builders, by listener.
        log: of connections without a principal.
    """

    def __init__(
        self,
        listeners: Iterable[ListenerLogin],
        serve: Serve,
        principals: Mapping[str, Principals],
        log: RateLimitedLog,
    ) -> None:
        self._listeners = {each.name: each for each in listeners}
        self._serve = serve
        self._principals = principals
        self._log = log

    def admit(self, connection: Connection) -> bool:
        """Prepare an open connection: it must authenticate if its listener has SASL. False: it has no principal."""
        listener = self._listeners.get(connection.listener)
        if listener is not None:
            connection.state = Login(listener, connection)
            return True
        principals = self._principals.get(connection.listener)
        return principals is None or self._identified(principals, connection)

    def _identified(self, principals: Principals, connection: Connection) -> bool:
        reason = principals.identify(connection)
        if reason is not None:
            peer, name = (connection.peer_host, connection.peer_port), connection.listener
            self._log(logging.ERROR, f"principal {name} {reason}", "%s:%d on %s: %s", *peer, name, reason)
        return reason is None

    def disconnected(self, connection: Connection) -> None:
        """A connection is closed."""
        if connection.state is not None:
            connection.state = connection.state.end()

    def request(self, reply: Reply, frame: memoryview) -> None:
        """Serve a frame, if the connection may send it."""
        login = reply.connection.state
        if login is None or login.is_open:
            self._serve(reply, frame)
        else:
            login.request(reply, frame)
