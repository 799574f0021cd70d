"""Passes the stored client quotas to the parts that enforce them, which are imported with the first quota."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kafkalite._speedups.net.heartbeats import Heartbeats
from kafkalite.clock import Clock, await_outcome
from kafkalite.config.broker import BrokerConfig
from kafkalite.coordination.backend import Coordination
from kafkalite.metrics import Registry
from kafkalite.server.process.listeners import Listeners, creation_rates
from kafkalite.server.requests.dispatch import Dispatcher
from kafkalite.slicing import Slicer

if TYPE_CHECKING:
    from kafkalite.cluster.configs.client_quotas import QuotaEntity
    from kafkalite.server.requests.quotas.broker_quotas import BrokerQuotas


class QuotaBroker(Protocol):
    """The parts of a broker that enforce quotas, and those that `BrokerQuotas` needs."""

    config: BrokerConfig
    clock: Clock
    metrics: Registry
    dispatcher: Dispatcher
    heartbeats: Heartbeats
    listening: Listeners
    slicer: Slicer

    @property
    def metadata(self) -> Coordination: ...


class QuotaLimits:
    """The stored quotas, and the configured rates of new connections.

    Arguments:
        broker: enforces them.

    Attributes:
        enforced: None: there were none yet.
    """

    def __init__(self, broker: QuotaBroker) -> None:
        self._broker = broker
        self.enforced: BrokerQuotas | None = None

    async def load(self) -> None:
        """Apply the configured rates, and read all quotas. Raises CoordinationError."""
        from kafkalite.cluster.configs.quota_reads import read_all

        self.configure()
        read = partial(read_all, self._broker.metadata, self._broker.slicer)
        self.replace_all((await await_outcome(read)).result())

    def configure(self) -> None:
        """Apply the rates of new connections of the configuration."""
        if self.enforced is not None or creation_rates(self._broker.config):
            self._quotas().configure(self._broker.config)
            self._changed()

    def replace_all(self, found: "Mapping[QuotaEntity, Mapping[str, float]]") -> None:
        """Apply all stored quotas."""
        if found or self.enforced is not None:
            self._quotas().replace_all(found)
            self._changed()

    def replace(self, entity: "QuotaEntity", values: Mapping[str, float]) -> None:
        """Apply the stored quotas of an entity."""
        if values or self.enforced is not None:
            self._quotas().replace(entity, values)
            self._changed()

    def change(self, entity: "QuotaEntity", texts: Mapping[str, str | None]) -> None:
        """Apply a change that this broker has stored: the new text of each key, None = it was removed."""
        self._quotas().change(entity, texts)
        self._changed()

    def _quotas(self) -> "BrokerQuotas":
        if self.enforced is None:
            from kafkalite.server.requests.quotas.broker_quotas import BrokerQuotas

            self.enforced = BrokerQuotas(self._broker)
        return self.enforced

    def _changed(self) -> None:
        """Charge requests and connections as far as there are limits."""
        quotas, broker = self._quotas(), self._broker
        broker.dispatcher.limit_clients(quotas if quotas.limits_clients else None)
        if not quotas.limits_clients:
            quotas.muted.release()
        broker.heartbeats.has_quota = quotas.limits if quotas.request else None
        broker.listening.limit_rates(quotas if quotas.connections else None)
