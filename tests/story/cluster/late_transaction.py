"""A transaction of a controller that arrives after the election of another one.

1. The requests of the controller's broker to ZooKeeper are held back from a transaction of the controller on. The
   broker still receives events.
2. `/controller` is deleted. The broker reads that only after its transaction has arrived.
3. Another broker is elected. After a pause the held requests arrive in their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kafkalite.coordination.znodes.controller import CONTROLLER_EPOCH
from kafkalite.testing.simulated_cluster import ZOOKEEPER, host_of
from tests.story.cluster.world import ClusterWorld

PAUSES_S = (0.0, 0.001, 0.01, 0.1)  # in the first ones the new controller has read the tree in part


class LateTransaction:
    """Holds back the next transaction of a controller.

    Arguments:
        world: the cluster.
        controller: a broker id.
        depose: deletes `/controller`.
        ended: called when the transaction may arrive; it calls `release`.
    """

    def __init__(
        self, world: ClusterWorld, controller: int, depose: Callable[[], object], ended: Callable[[], object]
    ) -> None:
        self._world = world
        self._depose = depose
        self._ended = ended
        self._pause_s = world.random.choice(PAUSES_S)
        self._timer: asyncio.TimerHandle | None = None
        self._released = False
        # Each transaction of a controller begins with the check of its epoch.
        self._hold = world.network.hold_next(host_of(controller), ZOOKEEPER, CONTROLLER_EPOCH.encode(), self._held)

    def release(self) -> None:
        """Let the held requests arrive, also if no other broker is elected; or wait for no transaction any more."""
        self._released = True
        if self._won in self._world.trace.won:
            self._world.trace.won.remove(self._won)
        if self._timer is not None:
            self._timer.cancel()
        self._hold.release()

    def _held(self) -> None:
        if self._released:  # since the write
            return
        self._world.count("late transactions")
        self._world.trace.won.append(self._won)
        self._depose()

    def _won(self) -> None:
        if self._released:  # by another callback of this election
            return
        self._world.trace.won.remove(self._won)
        self._timer = self._world.loop.call_later(self._pause_s, self._ended)
