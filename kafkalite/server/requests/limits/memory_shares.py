"""The shares of principals in the memory of requests (`kafkalite.principal.max.queued.request.bytes`).

`_speedups/net/request_memory` has the rules. A principal has one share, whatever listeners its connections use.
"""

from collections.abc import Callable, Collection
from functools import partial

from kafkalite._speedups.net.framing import Connection
from kafkalite._speedups.net.request_memory import RequestMemoryShare
from kafkalite.model import Principal


class MemoryShares:
    """The shares of the principals that have connections.

    Arguments:
        limit: of one principal, in bytes.
        exempt: principals without a limit.
        on_full: called with a principal when a first connection of it has to wait.
    """

    def __init__(self, limit: int, exempt: Collection[Principal], on_full: Callable[[Principal], object]) -> None:
        self._limit = limit
        self._exempt = frozenset(exempt)
        self._on_full = on_full
        self._shares: dict[Principal, RequestMemoryShare] = {}

    def __len__(self) -> int:
        return len(self._shares)

    def share_of(self, principal: Principal) -> RequestMemoryShare | None:
        """Return the share of a principal; None: it has no connection that is counted."""
        return self._shares.get(principal)

    def add(self, principal: Principal, connection: Connection) -> None:
        """Count the requests of a connection, whose principal is known now, until it is closed."""
        if principal in self._exempt:
            return
        share = self._shares.get(principal)
        if share is None:
            share = RequestMemoryShare(self._limit, partial(self._on_full, principal))
            self._shares[principal] = share
        share.add(connection)

    def disconnected(self, principal: Principal) -> None:
        """A connection of a principal is closed, and is not counted any more."""
        share = self._shares.get(principal)
        if share is not None and not share.connections_count:
            del self._shares[principal]
