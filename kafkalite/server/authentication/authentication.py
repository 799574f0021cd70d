"""Authenticates the connections of listeners with SASL; the dispatcher gets their allowed requests only."""

from collections.abc import Iterable

from kafkalite._speedups.net.framing import Connection, Reply
from kafkalite.server.authentication.login import ListenerLogin, Login, Serve


class Authentication:
    """The logins of a broker's connections.

    Arguments:
        listeners: those with SASL.
        serve: serves a request.
    """

    def __init__(self, listeners: Iterable[ListenerLogin], serve: Serve) -> None:
        self._listeners = {each.name: each for each in listeners}
        self._serve = serve

    def connected(self, connection: Connection) -> None:
        """A connection is open: it must authenticate if its listener has SASL."""
        listener = self._listeners.get(connection.listener)
        if listener is not None:
            connection.state = Login(listener, connection)

    def disconnected(self, connection: Connection) -> None:
        """A connection is closed."""
        if connection.state is not None:
            connection.state.closed()

    def request(self, reply: Reply, frame: memoryview) -> None:
        """Serve a frame, if the connection may send it."""
        login = reply.connection.state
        if login is None or login.is_open:
            self._serve(reply, frame)
        else:
            login.request(reply, frame)
