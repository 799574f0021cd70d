"""The faults of a simulated cluster. Each seed has its own subset of the kinds (swarm testing)."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from contextlib import suppress

from kafkalite.coordination.errors import NoNodeError
from kafkalite.coordination.tree import Delete
from kafkalite.coordination.znodes.controller import CONTROLLER, decode_controller
from kafkalite.testing.simulated_cluster import PORT, ZOOKEEPER, ZOOKEEPER_PORT, host_of
from kafkalite.testing.virtual_loop import pass_time
from tests.story.cluster.foreign_faults import ForeignFaults
from tests.story.cluster.late_transaction import LateTransaction
from tests.story.cluster.older_trees import OlderTrees
from tests.story.cluster.registration_faults import RegistrationFaults
from tests.story.cluster.restored_counters import restore_counters, start_after_copies, start_copy
from tests.story.cluster.world import ClusterWorld

FAULTLESS_EVERY = 20
MEAN_PAUSES_S = (0.5, 1.5, 4.0)
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
CLOCK_STEPS_MS = (-HOUR_MS, -16 * MINUTE_MS, -1000, 1000, 16 * MINUTE_MS, HOUR_MS)
CLIENT = "client"
LATE = "late transaction"
NODE = "invalid node"
Undo = Callable[[], object]


class Faults:
    """The faults of one run.

    Arguments:
        world: the brokers, the network and the random numbers.

    Attributes:
        kinds: the kinds of this seed.
    """

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._random = world.random
        self.kinds = self._chosen_kinds()
        self._starting: dict[int, asyncio.Task[None]] = {}
        self._registrations = RegistrationFaults(world, self._start, self._runs)
        self._foreign = ForeignFaults(world)
        self._trees = OlderTrees(world)
        self._undo: dict[str, Undo] = {}
        self._copies: list[asyncio.Task[None]] = []
        self._session_id = world.zookeeper.tree.open_session()

    def _chosen_kinds(self) -> list[Callable[[int], object]]:
        kinds = [
            *(self._kill, self._cut_power, self._expire, self._reset, self._stall, self._stall_zookeeper),
            *(self._depose, self._disconnect, self._isolate, self._step_clock, self._slow_disk, self._full_disk),
            *(self._delay_transaction, self._reboot, self._kill_while_hosting),
            *(self._restore_counters, self._restore_tree, self._copy_directory),
            *(self._write_node, self._raise_in_effect, self._skew_clocks),
        ]
        chosen = self._random.sample(kinds, self._random.randint(2, len(kinds)))
        if self._restore_tree in chosen:  # see `older_trees`
            chosen = [kind for kind in chosen if kind not in (self._cut_power, self._reboot)]
        return chosen

    def keep_tree(self) -> None:
        """Restore no older tree in this run."""
        self.kinds = [kind for kind in self.kinds if kind != self._restore_tree] or [self._expire]

    async def inject(self, until: float) -> None:
        """Let faults happen until a time of the loop; at its end every broker runs, and the network works."""
        loop, mean_s = self._world.loop, self._random.choice(MEAN_PAUSES_S)
        if self._world.seed % FAULTLESS_EVERY == 0:
            await pass_time(until - loop.time())
            return
        while (pause_s := self._random.expovariate(1 / mean_s)) < until - loop.time():
            await pass_time(pause_s)
            self._one()
        await pass_time(max(0.0, until - loop.time()))
        await self._heal()

    def _one(self) -> None:
        """Let one fault happen to a broker that runs, or end those that last."""
        if self._undo and self._random.random() < 0.4:
            self._undo.pop(self._random.choice(list(self._undo)))()
            return
        running = [each for each in self._world.brokers if self._runs(each)]
        if running:
            fault = self._random.choice(self.kinds)
            self._world.count(fault.__name__.strip("_"))
            fault(self._random.choice(running))

    def _runs(self, broker_id: int) -> bool:
        task = self._starting.get(broker_id)
        if task is not None and task.done():
            task.result()
            del self._starting[broker_id]
        return broker_id not in self._starting

    async def _heal(self) -> None:
        self._registrations.heal()
        self._trees.heal()
        while self._undo:
            self._undo.popitem()[1]()
        await asyncio.gather(*self._starting.values(), *self._copies)
        await self._registrations.ended()

    # Processes and machines.

    def _kill(self, broker_id: int) -> None:
        self._world.brokers[broker_id].kill()
        self._start(broker_id)

    def _cut_power(self, broker_id: int) -> None:
        self._world.brokers[broker_id].cut_power()
        self._start(broker_id)

    def _reboot(self, broker_id: int) -> None:
        self._registrations.reboot(broker_id)

    def _kill_while_hosting(self, broker_id: int) -> None:
        self._registrations.kill_while_hosting(broker_id)

    def _start(self, broker_id: int) -> None:
        pause_s = self._random.choice((0.0, 0.3, 1.0, 4.0))

        async def start() -> None:
            await pass_time(pause_s)
            await start_after_copies(self._world.brokers[broker_id])

        for kind in ("slow disk", "full disk"):
            self._undo.pop(f"{kind} {broker_id}", None)
        self._starting[broker_id] = asyncio.ensure_future(start())

    def _step_clock(self, broker_id: int) -> None:
        self._world.brokers[broker_id].jump_wall(self._random.choice(CLOCK_STEPS_MS))

    def _slow_disk(self, broker_id: int) -> None:
        broker = self._world.brokers[broker_id]
        broker.slow_jobs(self._random.choice((0.01, 0.1, 1.0)))
        self._undo[f"slow disk {broker_id}"] = lambda: broker.slow_jobs(0.0)

    def _full_disk(self, broker_id: int) -> None:
        disk = self._world.brokers[broker_id].disk
        disk.fail("write", errno.ENOSPC, when=self._random.randint(1, 20), repeat=True)
        self._undo[f"full disk {broker_id}"] = disk.faults.clear

    # Operators.

    def _restore_counters(self, _broker_id: int) -> None:
        restore_counters(self._world)

    def _copy_directory(self, broker_id: int) -> None:
        if all(task.done() for task in self._copies):
            copying = start_copy(self._world, self._world.directory, broker_id, len(self._copies))
            self._copies.append(asyncio.ensure_future(copying))

    def _restore_tree(self, _broker_id: int) -> None:
        self._trees.restore_later()

    def _skew_clocks(self, _broker_id: int) -> None:
        self._foreign.skew_clocks(self._world.brokers)

    # Programs.

    def _write_node(self, _broker_id: int) -> None:
        if NODE not in self._undo:
            self._undo[NODE] = self._foreign.write_node()

    def _raise_in_effect(self, _broker_id: int) -> None:
        controller = self._controller()
        if controller is not None and self._runs(controller):
            self._foreign.raise_in_effect(controller)

    # Sessions and connections.

    def _expire(self, broker_id: int) -> None:
        self._world.cluster.expire(broker_id)

    def _depose(self, _broker_id: int) -> None:
        """An administrator deletes `/controller`: another one is elected while the session of the last one lives."""
        zookeeper = self._world.zookeeper
        with suppress(NoNodeError):  # the election is under way
            zookeeper.tree.multi([Delete(CONTROLLER)], self._session_id, self._world.zookeeper.clock.wall_ms())
        zookeeper.fire()

    def _delay_transaction(self, broker_id: int) -> None:
        """The next transaction of the controller arrives after the election of another one."""
        controller = self._controller()
        if controller is not None and LATE not in self._undo:
            late = LateTransaction(self._world, controller, lambda: self._depose(broker_id), self._end_late)
            self._undo[LATE] = late.release

    def _end_late(self) -> None:
        self._undo.pop(LATE, lambda: None)()

    def _controller(self) -> int | None:
        """The broker that is the controller, None during an election."""
        try:
            data, _ = self._world.zookeeper.tree.get(CONTROLLER)
        except NoNodeError:
            return None
        return decode_controller(data).broker_id

    def _reset(self, broker_id: int) -> None:
        self._world.network.reset(host_of(broker_id), PORT, share=self._random.choice((0.5, 1.0)))

    def _stall(self, broker_id: int) -> None:
        self._world.network.stall(host_of(broker_id), PORT, self._random.uniform(0.1, 3.0))

    def _stall_zookeeper(self, _broker_id: int) -> None:
        self._world.network.stall(ZOOKEEPER, ZOOKEEPER_PORT, self._random.uniform(0.1, 3.0))

    def _disconnect(self, broker_id: int) -> None:
        self._disconnect_from(broker_id, self._random.choice(self._others(broker_id)))

    def _isolate(self, broker_id: int) -> None:
        for other in self._others(broker_id):
            self._disconnect_from(broker_id, other)

    def _others(self, broker_id: int) -> list[str]:
        return [CLIENT, ZOOKEEPER, *(host_of(each) for each in self._world.brokers if each != broker_id)]

    def _disconnect_from(self, broker_id: int, other: str) -> None:
        host, network = host_of(broker_id), self._world.network
        network.disconnect(host, other)
        self._undo[" - ".join(sorted((host, other)))] = lambda: network.reconnect(host, other)
