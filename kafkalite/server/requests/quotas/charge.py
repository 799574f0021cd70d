"""What one request is charged to the quotas of its client.

1. The time of the event loop is charged from the decoding of the request on, as percent of a second. Time of
   callbacks that continue the request is charged, too, and the share of a request in the time beside the handlers
   (`LoopTime`). Apache Kafka charges its request threads instead.
2. A request of a broker is exempt: what only brokers send, and fetches of replicas.
3. The client is throttled by the longest of the throttle times.
"""

from typing import TYPE_CHECKING, Any

from kafkalite._speedups.net.framing import Reply
from kafkalite.server.requests.quotas.broker_quotas import FETCH, MUTATION, PRODUCE, REQUEST, BrokerQuotas, user_of

if TYPE_CHECKING:
    from kafkalite.server.requests.api import Row

PERCENT_PER_NS = 100 / 1e9
PRODUCE_KEY, FETCH_KEY, EPOCH_KEY, ADD_PARTITIONS_KEY, MARKERS_KEY = 0, 1, 23, 24, 27
SASL_KEYS = (17, 36)
OF_BROKERS_SINCE = 4  # of AddPartitionsToTxn


class Charge:
    """The charge of a request.

    Arguments:
        quotas: of the broker.
        reply: of the request.
        client_id: of the client, "" without one.

    Attributes:
        exempt: nothing is charged.
    """

    __slots__ = ("_began_ns", "_client", "_is_continued", "_quotas", "_reply", "_spent_ns", "_throttle", "exempt")

    def __init__(self, quotas: BrokerQuotas, reply: Reply, client_id: str) -> None:
        self._quotas = quotas
        self._reply = reply
        self._client = user_of(reply.connection), client_id
        self._began_ns: int | None = 0
        self._is_continued = False
        self._spent_ns = quotas.loop_time.share_ns
        self._throttle: tuple[int, str] | None = None  # until when, and the quota
        self.exempt = False

    def begin(self, row: "Row", request: Any, *, between_brokers: bool) -> None:
        """The handler of the request begins.

        Produce requests are charged now: one that exceeds the quota mutes the connection before the next one is parsed.

        Arguments:
            row, request: of the request.
            between_brokers: whether brokers use the listener of the connection.
        """
        self.exempt = row.between_brokers or is_of_broker(row.api_key, request, self._reply, between_brokers)
        if row.api_key == PRODUCE_KEY:
            self._charge_produce()

    # Time of the event loop.

    def resume(self) -> None:
        """The request is continued."""
        self._is_continued = True
        self._began_ns = self._reply.connection.hub.ns_since_look()

    def pause(self) -> None:
        """The request waits, or has ended; the time after its response throttles later requests only."""
        self._add_time()
        self._began_ns = None
        if self._reply.done and self._spent_ns:
            self._charge_time()

    def _add_time(self) -> None:
        if self._began_ns is not None:
            now_ns = self._reply.connection.hub.ns_since_look()
            spent_ns = max(0, now_ns - self._began_ns)
            self._spent_ns += spent_ns
            self._began_ns = now_ns
            if self._is_continued:  # the hub has the time of the handler
                self._quotas.loop_time.continued_ns += spent_ns

    def _charge_time(self) -> int:
        """Charge the time since the last call; returns the throttle time."""
        now_ms, spent_ns = self._quotas.now_ms(), self._spent_ns
        self._spent_ns = 0
        self._quotas.loop_time.update(now_ms)
        meter = self._quotas.request.find(*self._client, now_ms)
        return 0 if meter is None or self.exempt else meter.record(spent_ns * PERCENT_PER_NS, now_ms)

    # Throttle times.

    def charge_request(self, *, with_time: bool = True) -> int:
        """Charge a request that is answered now; returns its throttle time in ms.

        `with_time`: False for a request without a response, whose time throttles later ones only.
        """
        if self.exempt:
            return 0
        if with_time:
            self._add_time()
            self._throttle_for(self._charge_time(), REQUEST)
        if self._throttle is None:
            return 0
        until_ms, quota = self._throttle
        throttle_ms = max(0, until_ms - self._quotas.now_ms())
        if throttle_ms:
            self._quotas.throttled[quota].add()
        return throttle_ms

    def mute(self, throttle_ms: int) -> None:
        """Receive nothing from the client for a time."""
        if throttle_ms:
            self._quotas.muted.mute(self._reply, throttle_ms)

    def _charge_produce(self) -> None:
        now_ms = self._quotas.now_ms()
        meter = self._quotas.producer.find(*self._client, now_ms)
        if meter is not None:
            throttle_ms = meter.record(self._reply.request_size, now_ms)
            self._throttle_for(throttle_ms, PRODUCE)
            self.mute(throttle_ms)

    def _throttle_for(self, throttle_ms: int, quota: str) -> None:
        until_ms = self._quotas.now_ms() + throttle_ms
        if throttle_ms and (self._throttle is None or until_ms > self._throttle[0]):
            self._throttle = until_ms, quota

    # Fetches.

    @property
    def fetch_bytes_max(self) -> int | None:
        """A larger response would be throttled; None = any size."""
        now_ms = self._quotas.now_ms()
        meter = self._quotas.consumer.find(*self._client, now_ms)
        return None if meter is None else max(1, int(meter.value_max(now_ms)))

    def throttles_fetch(self, size: int) -> bool:
        """Return whether a response with these bytes of records exceeds a quota; its bytes are not charged yet."""
        now_ms = self._quotas.now_ms()
        meter = self._quotas.consumer.find(*self._client, now_ms)
        if meter is not None:
            self._throttle_for(meter.throttle_ms_after(size, now_ms), FETCH)
        self._add_time()
        self._throttle_for(self._charge_time(), REQUEST)
        return self._throttle is not None

    def charge_fetched(self, size: int) -> None:
        """Charge the bytes of a response that is sent."""
        now_ms = self._quotas.now_ms()
        meter = self._quotas.consumer.find(*self._client, now_ms)
        if meter is not None and not self.exempt:
            meter.record(size, now_ms)

    # Changes of topics.

    def admits_mutations(self, count: int, *, strict: bool) -> bool:
        """Charge created or deleted partitions; returns whether they are admitted.

        Arguments:
            count: of partitions.
            strict: False for a client that does not know the error: it is throttled afterwards.
        """
        now_ms = self._quotas.now_ms()
        meter = self._quotas.mutation.find(*self._client, now_ms)
        if meter is None:
            return True
        throttle_ms = (meter.admit if strict else meter.record)(count, now_ms)
        self._throttle_for(throttle_ms, MUTATION)
        return not strict or not throttle_ms


def is_of_broker(key: int, request: Any, reply: Reply, between_brokers: bool) -> bool:
    """Return whether a request is exempt: one of a broker, or of a login.

    Arguments:
        key, request, reply: the request.
        between_brokers: as of `Charge.begin`. OffsetForLeaderEpoch is served on each listener, and a client can name a
            replica in it; other requests of brokers end the connection of a client.
    """
    if key == FETCH_KEY:
        state = request.replica_state
        return bool(request.replica_id >= 0 or (state is not None and state.replica_id >= 0))
    if key == EPOCH_KEY:
        return between_brokers and bool(request.replica_id >= 0)
    if key == ADD_PARTITIONS_KEY:
        return bool(request.transactions)
    return key in SASL_KEYS or key == MARKERS_KEY or not reply.connection.authenticated
