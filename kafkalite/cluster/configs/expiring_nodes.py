"""Deletes znodes that are needed for a limited time: notifications of config changes, records of deleted topics.

Kafka deletes its notifications after 15 minutes, whenever it handles another one. Here the transaction that creates the
next node deletes expired ones, and a timer deletes the others.

Source: ZkNodeChangeNotificationListener.purgeObsoleteNotifications.
"""

from collections import deque
from collections.abc import Callable, Sequence

from kafkalite.coordination.tree import Delete

EXPIRATION_MS = 15 * 60 * 1000
EXPIRED_MAX = 100  # nodes deleted by one transaction

ExpiringNode = tuple[str, int]  # path, time of its creation in ms


class ExpiringNodes:
    """The nodes that expire, in the order of their creation.

    Arguments:
        wall_ms: the wall clock, which the times of nodes follow, too.
    """

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._notices: deque[ExpiringNode] = deque()

    def __len__(self) -> int:
        return len(self._notices)

    def load(self, found: Sequence[ExpiringNode]) -> None:
        """Add the nodes that exist at the start."""
        self._notices.extend(sorted(found, key=lambda notice: notice[1]))

    def add(self, path: str) -> None:
        """Add a node that was just created."""
        self._notices.append((path, self._wall_ms()))

    def take_expired(self) -> list[ExpiringNode]:
        """Remove and return up to `EXPIRED_MAX` expired nodes, which the caller deletes."""
        limit = self._wall_ms() - EXPIRATION_MS
        expired: list[ExpiringNode] = []
        while self._notices and self._notices[0][1] < limit and len(expired) < EXPIRED_MAX:
            expired.append(self._notices.popleft())
        return expired

    def put_back(self, expired: Sequence[ExpiringNode]) -> None:
        """Add these nodes again, because the transaction that deletes them has failed."""
        self._notices.extendleft(reversed(expired))


def deletions(expired: Sequence[ExpiringNode]) -> list[Delete]:
    """The operations that delete these nodes."""
    return [Delete(path) for path, _ in expired]
