"""The connection of a fetcher to its leader, and the pauses after failures.

A leader that is not in the image, or has another address there, gets another connection; so does one whose connection
has failed, after a pause.
"""

from kafkalite.backoff import exponential_pause
from kafkalite.cluster.fetchers.host import FetcherHost
from kafkalite.cluster.peer import Peer
from kafkalite.model import Endpoint
from kafkalite.state.follower.fetch_wait import FetchWait

FIRST_PAUSE = 16  # the first pause is this fraction of the longest one
FRAME_BYTES = 1 << 20  # of a response beside its records: some hundred bytes per partition


def pause_s(host: FetcherHost, failures: int) -> float:
    """The pause after a number of failures in a row: it doubles up to `replica.fetch.backoff.ms`.

    Kafka pauses for that time after each failure. Elections often let the first fetches fail, because a follower may
    get the state of the controller before the leader.
    """
    longest = host.config.replica_fetch_backoff_ms
    return exponential_pause(longest / FIRST_PAUSE, failures, longest) / 1000


class LeaderLink:
    """The connection.

    Arguments:
        host: the broker.
        leader: broker id.

    Attributes:
        failures: in a row; the owner counts them.
        wait: of the fetches, the owner begins and ends it.
    """

    def __init__(self, host: FetcherHost, leader: int) -> None:
        self._host = host
        self._leader = leader
        self._peer: Peer | None = None
        self._used: Endpoint | None = None  # the address of the last connection
        self.failures = 0
        self.wait = FetchWait()

    @property
    def endpoint(self) -> Endpoint | None:
        """The address of the leader; None = it is not alive."""
        return self._host.endpoints().get(self._leader)

    def peer(self) -> Peer | None:
        """The leader, None if it has no address."""
        if self._peer is None and (endpoint := self.endpoint) is not None:
            config, self._used = self._host.config, endpoint
            frame_bytes_max = config.replica_fetch_response_max_bytes + config.socket_request_max_bytes + FRAME_BYTES
            client_id = f"broker-{self._host.broker_id}-fetcher"
            timeout_s = config.replica_socket_timeout_ms / 1000
            self._peer = Peer(endpoint, client_id, self._host.dial, timeout_s, min(frame_bytes_max, 2**31 - 1))
        return self._peer

    @property
    def is_outdated(self) -> bool:
        """Whether the leader has another address than that of the last connection."""
        return self._used is not None and self._used != self.endpoint

    def close(self) -> None:
        """End the connection; its open requests end without a callback."""
        if self._peer is not None:
            self._peer.close()
            self._peer = None
