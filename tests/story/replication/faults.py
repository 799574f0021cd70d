"""The faults of a simulated cluster whose topics have several replicas.

Bounds: kills, stops, pauses and cut connections hit any number of brokers at any time. A power failure hits one broker,
also a last member of an ISR with eligible replicas, and no other one until all replicas are in sync again; where each
topic is flushed before the acknowledgement it hits any broker at any time. A failed disk counts as a power failure: the
next start of its broker is unclean.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

from kafkalite.errors import KafkaError
from kafkalite.protocol.messages.elect_leaders import ElectLeadersRequest
from kafkalite.testing.simulated_cluster import ZOOKEEPER, host_of
from kafkalite.testing.virtual_loop import pass_time
from tests.story.cluster.faults import Faults
from tests.story.cluster.restored_counters import start_after_copies
from tests.story.replication.observer import Observer
from tests.story.replication.world import ReplicatedWorld

Fault = Callable[[int], object]
PREFERRED = 0
PAUSES_S = (0.2, 1.0, 3.0, 8.0)
WITHOUT_BROKER_S = (0.0, 0.3, 1.0, 4.0)
FAILING_DISKS_EVERY = 6  # in these seeds disks fail with EIO, among other faults
PROGRAMS_EVERY = 6  # in these seeds a foreign program writes invalid nodes, and effects of the controller raise


class ReplicaFaults(Faults):
    """The faults of one run.

    Arguments:
        world: the brokers, the network and the random numbers.
        observer: notes the power failures.
    """

    _world: ReplicatedWorld

    def __init__(self, world: ReplicatedWorld, observer: Observer) -> None:
        self._observer = observer
        self._electing: list[asyncio.Task[None]] = []
        self._recovering = False  # not all replicas are in sync since a power failure, or a failed disk
        super().__init__(world)
        self._keep_jobs_slow()

    def _chosen_kinds(self) -> list[Fault]:
        kinds = [
            *(self._kill, self._stop, self._kill_several, self._expire, self._pause, self._isolate),
            *(self._cut_from_zookeeper, self._stall, self._disconnect, self._stall_zookeeper, self._cut_from_broker),
            *(self._kill_while_hosting, self._depose, self._delay_transaction, self._reset),
            *(self._cut_power, self._slow_disk, self._full_disk, self._step_clock, self._elect_preferred),
        ]
        return [
            self._random.choice((self._kill, self._pause)),
            *self._random.sample(kinds, self._random.randint(2, len(kinds))),
            *([self._fail_disk] * 2 if self._world.seed % FAILING_DISKS_EVERY == 4 else []),
            *([self._write_node] * 2 + [self._raise_in_effect] if self._world.seed % PROGRAMS_EVERY == 2 else []),
        ]

    def _one(self) -> None:
        self._recovering = self._recovering and not self._recovered()
        super()._one()

    def _recovered(self) -> bool:
        """Whether all replicas are in sync again. Before the broker has registered, the tree has it in the ISRs."""
        return self._world.all_in_sync() and not self._observer.counts_unclean()

    async def _heal(self) -> None:
        await super()._heal()
        await asyncio.gather(*self._electing)

    # Processes and machines.

    def _runs(self, broker_id: int) -> bool:
        return super()._runs(broker_id) and self._world.runs(broker_id)

    def _kill_several(self, _broker_id: int) -> None:
        """Kill any number of brokers at the same time."""
        running = [each for each in self._world.brokers if self._runs(each)]
        for each in self._random.sample(running, self._random.randint(1, len(running))):
            self._kill(each)

    def _cut_power(self, broker_id: int) -> None:
        if self._world.flushed or self._may_lose_power(broker_id):
            self._recovering = True
            self._observer.lost_power(broker_id)
            self._repair_disks()
            self._world.count("power failures")
            super()._cut_power(broker_id)

    def _may_lose_power(self, broker_id: int) -> bool:
        """Whether a power failure is within the bounds: no other broker has lost records since all were in sync, and
        each partition of several replicas has another one with all acknowledged records.
        """
        if self._recovering:
            return False
        replicas, states = self._world.replicas(), self._world.observed_states()
        if any(state.complete == {broker_id} and len(replicas[each]) > 1 for each, state in states.items()):
            return False
        if any(state.isr == (broker_id,) and state.eligible for state in states.values()):
            self._world.count("power failures of last members")
        return True

    def _pause(self, broker_id: int) -> None:
        """Let the process of a broker not run for a while."""
        broker, name = self._world.brokers[broker_id], f"pause {broker_id}"
        if name in self._undo:
            return

        def resume() -> None:
            timer.cancel()
            self._undo.pop(name, None)
            broker.resume()

        broker.pause()
        timer = self._world.loop.call_later(self._random.choice(PAUSES_S), resume)
        self._undo[name] = resume

    def _stop(self, broker_id: int) -> None:
        """Stop a broker as an administrator does, and start it again."""
        pause_s = self._random.choice(WITHOUT_BROKER_S)
        self._end_pause(broker_id)

        async def restart() -> None:
            await self._world.brokers[broker_id].stop()
            await pass_time(pause_s)
            await start_after_copies(self._world.brokers[broker_id])
            self._keep_jobs_slow()

        self._starting[broker_id] = asyncio.ensure_future(restart())

    def _start(self, broker_id: int) -> None:
        self._end_pause(broker_id)
        super()._start(broker_id)
        self._starting[broker_id].add_done_callback(lambda _: self._keep_jobs_slow())

    def _end_pause(self, broker_id: int) -> None:
        self._undo.pop(f"pause {broker_id}", lambda: None)()

    def _keep_jobs_slow(self) -> None:
        """Jobs take some time, also after a start."""
        for broker_id, broker in self._world.brokers.items():
            if self._world.jobs_take_s and f"slow disk {broker_id}" not in self._undo:
                broker.slow_jobs(self._world.jobs_take_s)

    def _slow_disk(self, broker_id: int) -> None:
        super()._slow_disk(broker_id)
        self._undo[f"slow disk {broker_id}"] = lambda: self._world.brokers[broker_id].slow_jobs(self._world.jobs_take_s)

    def _fail_disk(self, broker_id: int) -> None:
        """A write or a flush of a broker fails: it takes its log directory offline, stops, and is started again."""
        if self._recovering:
            return
        broker = self._world.brokers[broker_id]

        def restart(_text: str) -> None:
            self._recovering = True
            self._observer.lost_power(broker_id)
            self._repair_disks()
            self._world.count("failed disks")
            self._world.loop.call_soon(lambda: self._runs(broker_id) and self._stop(broker_id))

        broker.on_failed = restart
        operation = self._random.choice(("sync", "sync", "write"))
        broker.disk.fail(operation, errno.EIO, when=self._random.randint(1, 20))
        self._undo[f"failing disk {broker_id}"] = broker.disk.faults.clear

    def _repair_disks(self) -> None:
        """Records are lost on one broker at a time: the disks that would fail later do not."""
        for name in [each for each in self._undo if each.startswith("failing disk")]:
            self._undo.pop(name)()

    # Connections.

    def _cut_from_zookeeper(self, broker_id: int) -> None:
        self._disconnect_from(broker_id, ZOOKEEPER)

    def _cut_from_broker(self, broker_id: int) -> None:
        """Cut a broker from one other broker: both reach ZooKeeper and the clients."""
        self._disconnect_from(broker_id, host_of(self._random.choice([*(self._world.brokers.keys() - {broker_id})])))

    # Operators.

    def _elect_preferred(self, broker_id: int) -> None:
        """Ask a broker to elect the preferred leaders of all partitions."""

        async def elect() -> None:
            request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None, timeout_ms=2_000)
            try:
                await self._world.call(self._controller() or broker_id, request, 2)
            except KafkaError:
                self._world.count("an election has no response")

        self._electing.append(asyncio.ensure_future(elect()))
