"""Defines `FetchingBroker`: a registered broker, as its fetchers use it."""

from collections.abc import Callable, Mapping

from kafkalite.clock import Clock, Raised
from kafkalite.config.broker import BrokerConfig
from kafkalite.model import Endpoint
from kafkalite.net.peer_dial import PeerDial
from kafkalite.server.process.resources import BrokerResources
from kafkalite.slicing import Slicer
from kafkalite.storage.manager import LogManager


class FetchingBroker:
    """The `FetcherHost` of a broker.

    Arguments:
        resources: clock, logs and ports.
        broker_id: of this broker.
        config: returns the present configuration.
        broker_epoch: returns the epoch of the present registration.
        endpoints: returns the addresses of the live brokers for brokers, by id.
    """

    def __init__(
        self,
        resources: BrokerResources,
        broker_id: int,
        config: Callable[[], BrokerConfig],
        broker_epoch: Callable[[], int],
        endpoints: Callable[[], Mapping[int, Endpoint]],
    ) -> None:
        self.clock: Clock = resources.clock
        self.slicer: Slicer = resources.slicer
        self.logs: LogManager = resources.logs
        self.dial: PeerDial = resources.peer_dial
        self.report: Raised = resources.callback_failed
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.endpoints = endpoints
        self._config = config

    @property
    def config(self) -> BrokerConfig:
        """The present configuration."""
        return self._config()
