"""The groups or the transactional ids of principals at a broker, counted and compared with those that exist.

1. The end of a name is not reported. Once a minute, while names are counted, those that have ended are released.
2. Only names of up to NAME_MAX characters are stored: a principal with a limit cannot create longer ones.
"""

from collections.abc import Collection
from typing import Protocol

from kafkalite.clock import Clock, Outcome
from kafkalite.model import Principal
from kafkalite.slicing import Slicer
from kafkalite.state.quotas.holdings import Exists, NameHoldings

INTERVAL_S = 60.0
NAME_MAX = 1_000  # Kafka allows 32 KiB, which each counted name would take


class NamingBroker(Protocol):
    """The broker of the names."""

    clock: Clock
    slicer: Slicer


class LimitedNames:
    """The names of one subject. The end of the clock ends the releases.

    Arguments:
        limit: names of one principal.
        exempt: principals without a limit.
        exists: whether there is a name now; None = not known.
        broker: its clock and its slices.

    Attributes:
        names: the counts.
    """

    def __init__(self, limit: int, exempt: Collection[Principal], exists: Exists, broker: NamingBroker) -> None:
        self.names = NameHoldings(limit, exempt)
        self._exempt = frozenset(exempt)
        self._exists = exists
        self._broker = broker
        self._is_releasing = False

    def is_too_long(self, principal: Principal, name: str) -> bool:
        """Return whether a principal would create a name that is too long to be counted."""
        return len(name) > NAME_MAX and principal not in self._exempt and self._exists(name) is False

    def acquire(self, principal: Principal, name: str) -> bool:
        """Return whether a principal may use a name, and count it if it creates it."""
        admitted = self.names.acquire(principal, name, self._exists, int(self._broker.clock.monotonic() * 1000))
        if self.names.held and not self._is_releasing:
            self._is_releasing = True
            self._await_release()
        return admitted

    def _await_release(self) -> None:
        clock = self._broker.clock
        clock.call_at(clock.monotonic() + INTERVAL_S, self._release)

    def _release(self) -> None:
        self._broker.slicer.run(self.names.release_ended(self._exists), self._released)

    def _released(self, outcome: Outcome) -> None:
        self._is_releasing = bool(self.names.held)
        if self._is_releasing:
            self._await_release()
        outcome.result()
