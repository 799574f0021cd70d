"""The faults of replicated clusters; in some seeds coordinators lose what they have appended and not committed."""

from __future__ import annotations

from kafkalite.cluster.topics.internal_topics import TRANSACTION_STATE
from kafkalite.testing.simulated_cluster import PORT, host_of
from kafkalite.testing.virtual_loop import pass_time
from tests.story.replication.faults import ReplicaFaults

LOST_EVERY = 5  # seeds; the others have the faults of `tests.story.replication`
MEAN_PAUSE_S = 0.4
UNCOMMITTED_S = (0.1, 0.3)


class TransactionFaults(ReplicaFaults):
    """The faults of one run."""

    async def inject(self, until: float) -> None:
        """Let faults happen until a time of the loop; at its end every broker runs, and the network works."""
        if self._world.seed % LOST_EVERY != 2:
            await super().inject(until)
            return
        loop = self._world.loop
        while (pause_s := self._random.expovariate(1 / MEAN_PAUSE_S)) < until - loop.time():
            await pass_time(pause_s)
            self._lose_uncommitted()
        await pass_time(max(0.0, until - loop.time()))
        await self._heal()

    def _lose_uncommitted(self) -> None:
        """Hold back what a coordinator answers to its followers, and kill it: the next leader lacks its last records.

        Until then it receives requests and sends its own, so the markers of a decision could reach their partitions
        while the decision is on this broker alone.
        """
        states = self._world.observed_states()
        leaders = {state.leader for (topic, _), state in states.items() if topic == TRANSACTION_STATE.name}
        coordinators = [each for each in self._world.brokers if each in leaders and self._runs(each)]
        if not coordinators:
            return
        broker_id = self._random.choice(coordinators)
        name = f"uncommitted {broker_id}"
        if name in self._undo:
            return
        self._world.count("lost tails")
        followers = {host_of(each) for each in self._world.brokers}
        release = self._world.network.hold_responses(host_of(broker_id), PORT, followers)

        def end() -> None:
            timer.cancel()
            release()
            self._undo.pop(name, None)
            if self._runs(broker_id):
                self._kill(broker_id)

        timer = self._world.loop.call_later(self._random.choice(UNCOMMITTED_S), end)
        self._undo[name] = end
