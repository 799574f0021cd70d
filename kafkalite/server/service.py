"""What the connection layer sees of the broker: connections come and go, frames are served, a pass ends."""

from kafkalite._speedups.net.framing import Connection
from kafkalite._speedups.net.heartbeats import Heartbeats
from kafkalite.cluster.replicas import Replicas
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.server.dispatch import Dispatcher


class BrokerService:
    """The seam between `net` and the broker."""

    def __init__(self, dispatcher: Dispatcher, replicas: Replicas, heartbeats: Heartbeats) -> None:
        # Bound methods are handed through as they are: this is called for every request.
        self.request = dispatcher.request
        self.flush = replicas.write_pending
        self.quick = heartbeats
        self.pinning = frozenset({ProduceRequest.api_key})  # its records are views of the frame
        self.connections = 0

    def connected(self, _connection: Connection) -> bool:
        self.connections += 1
        return True

    def disconnected(self, _connection: Connection) -> None:
        self.connections -= 1
