"""The quotas of a broker: the limits that are stored, and what is charged to them.

Each broker limits its own clients; a client of several brokers has the quota at each of them, as in Kafka.
"""

from collections.abc import Mapping
from typing import Protocol

from kafkalite._speedups.net.framing import Connection
from kafkalite.clock import Clock
from kafkalite.cluster.configs.client_quotas import CLIENT_ID, IP, USER, QuotaEntity, values_of
from kafkalite.config.broker import BrokerConfig
from kafkalite.metrics import Registry
from kafkalite.model import ANONYMOUS, Principal
from kafkalite.server.process.listeners import creation_rates
from kafkalite.server.requests.quotas.loop_time import LoopTime
from kafkalite.server.requests.quotas.muted_connections import MutedConnections
from kafkalite.state.quotas.client_limits import NO_NAME, ClientLimits
from kafkalite.state.quotas.connection_rates import ConnectionRates
from kafkalite.state.quotas.meters import BucketMeter
from kafkalite.state.quotas.paced_meter import PacedMeter
from kafkalite.state.quotas.rates import Windows

PRODUCE, FETCH, REQUEST, MUTATION = "produce", "fetch", "request", "controller-mutation"
CONNECTION_RATE = "connection_creation_rate"
KEPT_CLIENTS_MAX = 20_000  # of which is known whether a quota limits them; client ids may be random
KEPT_CHARACTERS_MAX = 250  # of a client id


class LimitedBroker(Protocol):
    """The broker that the quotas are for."""

    config: BrokerConfig
    clock: Clock
    metrics: Registry


class BrokerQuotas:
    """The quotas of a broker.

    Arguments:
        broker: its clock, windows and metrics.

    Attributes:
        producer, consumer: bytes per second.
        request: percentage of the time of the event loop.
        mutation: created and deleted partitions per second.
        connections: rates of new connections.
        loop_time: what a request costs beside its handler.
        muted: the connections of throttled clients.
        throttled: counters of throttled requests by quota.
    """

    def __init__(self, broker: LimitedBroker) -> None:
        config = broker.config
        windows = Windows(config.quota_window_num, config.quota_window_size_seconds * 1000)
        mutations = Windows(config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000)
        self._broker = broker
        self._known: dict[QuotaEntity, dict[str, float]] = {}
        self._limited: dict[tuple[Principal | None, str | None], bool] = {}  # by principal and client id
        self.loop_time = LoopTime()
        self.producer = ClientLimits(lambda limit, _now_ms: PacedMeter(limit, windows))
        self.consumer = ClientLimits(lambda limit, _now_ms: PacedMeter(limit, windows))
        self.request = ClientLimits(lambda limit, _now_ms: PacedMeter(limit, windows, windows.size_ms))
        self.mutation = ClientLimits(lambda limit, now_ms: BucketMeter(limit, mutations, now_ms))
        self.connections = ConnectionRates(windows, config.exempt_listeners)
        self.muted = MutedConnections(broker.clock)
        metrics = broker.metrics
        name, text = "kafkalite_throttled_requests_total", "Requests after which a connection was muted."
        self.throttled = {
            quota: metrics.counter(name, text, quota=quota) for quota in (PRODUCE, FETCH, REQUEST, MUTATION)
        }
        text = "Connections from which nothing is received because of a quota."
        metrics.gauge("kafkalite_muted_connections", text, lambda: len(self.muted))
        self._accepts = {
            "delayed": metrics.counter(
                "kafkalite_delayed_accepts_total", "Pauses of listeners because of rates of new connections."
            ),
            "refused": metrics.counter(
                "kafkalite_throttled_connections_total",
                "Connections that were closed because of the rate of their address.",
            ),
        }
        self.configure(config)

    @property
    def limits_clients(self) -> bool:
        """Whether there are quotas of users or client ids."""
        return bool(self.producer or self.consumer or self.request or self.mutation)

    def limits(self, connection: Connection, client_id: str | None) -> bool:
        """Return whether a quota limits a client. Each request asks, so the answers are kept until a quota changes.

        Arguments:
            connection: of the client.
            client_id: of the request, None without one.
        """
        client = connection.principal, client_id
        try:
            return self._limited[client]
        except KeyError:
            self.loop_time.add(connection.hub, self.now_ms())
            names = user_of(connection), client_id or ""
            subjects = self.producer, self.consumer, self.request, self.mutation
            limited = any(each.limit_of(*names) is not None for each in subjects)
            if len(self._limited) >= KEPT_CLIENTS_MAX:
                self._limited.clear()
            if len(names[1]) <= KEPT_CHARACTERS_MAX:
                self._limited[client] = limited
            return limited

    def now_ms(self) -> int:
        """Return the time of all rates."""
        return int(self._broker.clock.monotonic() * 1000)

    # The limits.

    def configure(self, config: BrokerConfig) -> None:
        """Apply the rates of new connections of the broker and its listeners."""
        rates = creation_rates(config)
        self.connections.limit_broker(rates.broker)
        for listener, rate in rates.listeners.items():
            self.connections.limit_listener(listener, rate)

    def replace_all(self, found: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Apply all stored quotas; entities that are not among them have none."""
        for entity in {*self._known, *found}:
            self.replace(entity, found.get(entity, {}))

    def change(self, entity: QuotaEntity, texts: Mapping[str, str | None]) -> None:
        """Apply a change that this broker has stored: the new text of each key, None = it was removed."""
        kept = {key: value for key, value in self._known.get(entity, {}).items() if key not in texts}
        self.replace(entity, {**kept, **values_of({key: text for key, text in texts.items() if text is not None})})

    def replace(self, entity: QuotaEntity, values: Mapping[str, float]) -> None:
        """Apply the quotas of an entity."""
        names = dict(entity.names)
        if values:
            self._known[entity] = dict(values)
        else:
            self._known.pop(entity, None)
        if IP in names:
            self.connections.limit_address(names[IP], values.get(CONNECTION_RATE))
            return
        self._limited.clear()
        pair = names.get(USER, NO_NAME), names.get(CLIENT_ID, NO_NAME)
        self.producer.set(pair, values.get("producer_byte_rate"))
        self.consumer.set(pair, values.get("consumer_byte_rate"))
        self.request.set(pair, values.get("request_percentage"))
        self.mutation.set(pair, values.get("controller_mutation_rate"))

    # New connections.

    def charge_connection(self, listener: str, host: str) -> tuple[float, float]:
        """Charge a new connection.

        Arguments:
            listener: its name.
            host: address of the client.

        Returns two times in seconds: after which the listener accepts the next connection, and after which this one is
        closed; 0 = at once, and never.
        """
        admission = self.connections.charge(listener, host, self.now_ms())
        if admission.address_ms:
            self._accepts["refused"].add()
        if admission.listener_ms:
            self._accepts["delayed"].add()
        return admission.listener_ms / 1000, admission.address_ms / 1000


def user_of(connection: Connection) -> str:
    """Return the name of the user that a connection is charged to."""
    return str((connection.principal or ANONYMOUS).name)
