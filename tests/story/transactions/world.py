"""A simulated cluster with transactional applications, which are killed, and continue as zombies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

from kafkalite.config.keys import SettingValue
from kafkalite.testing.virtual_loop import pass_time, virtual_wall_ms
from tests.kit.transactions.applications import Application, Surroundings
from tests.kit.transactions.history import History
from tests.kit.transactions.producer import Settings
from tests.kit.transactions.wire import Wire
from tests.story.replication.world import ReplicatedWorld

TIMEOUTS_MS = (1_500, 3_000, 5_000)
LIFETIMES_S = (1.0, 3.0, 10.0)
RESTARTS_S = (0.0, 0.05, 0.5)
CALL_S = (0.7, 2.0, 5.0)
STATE_PARTITIONS = 3
SETTINGS: dict[str, SettingValue] = {
    "transaction.state.log.num.partitions": STATE_PARTITIONS,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    # The checker reads every decision; faults move the clocks by hours.
    "log.cleaner.min.compaction.lag.ms": 1_000 * 3_600_000,
}


class TransactionWorld(ReplicatedWorld):
    """The brokers, which do not run yet, and what the applications share.

    Arguments:
        directory: of the log directories.
        seed: of all random decisions.
        settings: more configs of the brokers.

    Attributes:
        version: of the clients' transactions, 1 or 2.
        history: what the applications have done.
        timeout_ms: of transactions.
    """

    def __init__(self, directory: Path, seed: int, settings: Mapping[str, SettingValue] | None = None) -> None:
        super().__init__(directory, seed, {**SETTINGS, **(settings or {})})
        random = Random(seed + 3)
        self.version = 2 if random.random() < 0.7 else 1
        self.history = History(self.loop.time)
        self.timeout_ms = random.choice(TIMEOUTS_MS)
        self._call_s = random.choice(CALL_S)

    def connect(self) -> Wire:
        """The connections of a new process."""
        return Wire(self.bootstrap, self.network.dial, timeout_s=self._call_s)

    def around(self) -> Surroundings:
        """What a new application uses."""
        delivery_s = self.timeout_ms / 1000 + 1.0
        settings = Settings(timeout_ms=self.timeout_ms, delivery_s=delivery_s, wall_ms=virtual_wall_ms)
        random = Random(self.random.random())
        return Surroundings(self.connect, self.history, random, self.loop.time, self.version, settings)


class Supervisor:
    """Runs incarnations of one application, one after the other: each is killed, or continues beside the next one.

    Arguments:
        world: the cluster.
        make: makes the next incarnation.
    """

    def __init__(self, world: TransactionWorld, make: Callable[[], Application]) -> None:
        self._world = world
        self._make = make
        self._tasks: dict[asyncio.Task[None], Application] = {}
        self._lifetime_s = world.random.choice(LIFETIMES_S)
        self._last: asyncio.Task[None] | None = None
        self.errors: list[str] = []

    async def run(self, until: float) -> None:
        """Let incarnations be killed until a time of the loop; then one runs alone until `stop`."""
        await self._run(until)
        await self.stop()
        self._last = asyncio.ensure_future(self._keep())

    async def _keep(self) -> None:
        """Start another incarnation where one ends: a request of an earlier one that arrives late may fence it."""
        while True:
            task = self._start()
            await asyncio.wait([task])
            del self._tasks[task]
            task.result()

    async def _run(self, until: float) -> None:
        while True:
            task = self._start()
            rest_s = until - self._world.loop.time()
            lifetime_s = self._world.random.expovariate(1 / self._lifetime_s)
            await asyncio.wait([task], timeout=max(0.0, min(lifetime_s, rest_s)))
            if task.done():
                task.result()  # it was fenced
                if self._world.loop.time() < until:
                    await pass_time(0.2)
                continue
            if lifetime_s >= rest_s:
                return
            if self._world.random.random() < 0.6:
                self._world.count("killed clients")
                await self._kill(task)
                await pass_time(self._world.random.choice(RESTARTS_S))
            else:
                self._world.count("zombies")

    async def stop(self) -> None:
        """End all incarnations where they are."""
        if self._last is not None:
            self._last.cancel()
            (outcome,) = await asyncio.gather(self._last, return_exceptions=True)
            if outcome is not None and not isinstance(outcome, asyncio.CancelledError):
                raise outcome
        for task in list(self._tasks):
            await self._kill(task)

    def _start(self) -> asyncio.Task[None]:
        application = self._make()
        task = asyncio.ensure_future(application.run())
        self._tasks[task] = application
        return task

    async def _kill(self, task: asyncio.Task[None]) -> None:
        application = self._tasks.pop(task)
        application.kill()
        task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        self.errors += application.errors
        if outcome is not None and not isinstance(outcome, asyncio.CancelledError):
            raise outcome
