"""What the fetchers use of their broker."""

from collections.abc import Mapping
from typing import Protocol

from kafkalite.clock import Clock, Raised
from kafkalite.config.broker import BrokerConfig
from kafkalite.model import Endpoint
from kafkalite.net.peer_dial import PeerDial
from kafkalite.slicing import Slicer
from kafkalite.storage.manager import LogManager


class FetcherHost(Protocol):
    """A registered broker.

    Attributes:
        clock: for pauses.
        slicer: applies responses.
        logs: truncates, restarts and flushes logs.
        broker_id: of this broker.
        config: the present one.
        dial: connects.
        report: called with an unexpected exception.
    """

    @property
    def clock(self) -> Clock: ...
    @property
    def slicer(self) -> Slicer: ...
    @property
    def logs(self) -> LogManager: ...
    @property
    def broker_id(self) -> int: ...
    @property
    def config(self) -> BrokerConfig: ...
    @property
    def dial(self) -> PeerDial: ...
    @property
    def report(self) -> Raised: ...

    def broker_epoch(self) -> int:
        """The broker epoch of the present registration."""

    def endpoints(self) -> Mapping[int, Endpoint]:
        """The addresses of the live brokers for brokers, by id."""
