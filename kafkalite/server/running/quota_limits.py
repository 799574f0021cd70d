"""Passes the stored client quotas to the parts that enforce them. Imported with the first quota."""

from collections.abc import Mapping
from functools import partial
from typing import Protocol

from kafkalite._speedups.net.heartbeats import Heartbeats
from kafkalite.clock import await_outcome
from kafkalite.cluster.configs.client_quotas import QuotaEntity
from kafkalite.cluster.configs.quota_reads import read_all
from kafkalite.coordination.backend import Coordination
from kafkalite.server.process.listeners import Listeners, creation_rates
from kafkalite.server.requests.dispatch import Dispatcher
from kafkalite.server.requests.quotas.broker_quotas import BrokerQuotas, LimitedBroker
from kafkalite.slicing import Slicer


class QuotaBroker(LimitedBroker, Protocol):
    """The parts of a broker that enforce quotas."""

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
        self.configure()
        read = partial(read_all, self._broker.metadata, self._broker.slicer)
        self.replace_all((await await_outcome(read)).result())

    def configure(self) -> None:
        """Apply the rates of new connections of the configuration."""
        if self.enforced is not None or creation_rates(self._broker.config):
            self._quotas().configure(self._broker.config)
            self._changed()

    def replace_all(self, found: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Apply all stored quotas."""
        if found or self.enforced is not None:
            self._quotas().replace_all(found)
            self._changed()

    def replace(self, entity: QuotaEntity, values: Mapping[str, float]) -> None:
        """Apply the stored quotas of an entity."""
        if values or self.enforced is not None:
            self._quotas().replace(entity, values)
            self._changed()

    def change(self, entity: QuotaEntity, texts: Mapping[str, str | None]) -> None:
        """Apply a change that this broker has stored: the new text of each key, None = it was removed."""
        self._quotas().change(entity, texts)
        self._changed()

    def _quotas(self) -> BrokerQuotas:
        if self.enforced is None:
            self.enforced = BrokerQuotas(self._broker)
        return self.enforced

    def _changed(self) -> None:
        """Charge requests and connections as far as there are limits."""
        quotas, broker = self._quotas(), self._broker
        broker.dispatcher.quotas = quotas if quotas.limits_clients else None
        if not quotas.limits_clients:
            quotas.muted.release()
        broker.heartbeats.disabled = bool(quotas.request)
        broker.listening.limit_rates(quotas if quotas.connections else None)
