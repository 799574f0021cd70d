"""Brokers and clients end or are suspended in each state of a transaction, in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import product
from pathlib import Path

import pytest

from kafkalite.testing.virtual_loop import pass_time, virtual_wall_ms
from tests.fix_torture import SHORT
from tests.kit.checker import ViolationError
from tests.kit.transactions.history import Partition
from tests.kit.transactions.states import CASES, STATES, Case, Processes
from tests.kit.transactions.wire import Address, Wire
from tests.story.cluster.administrator import Administrator
from tests.story.cluster.world import run
from tests.story.replication.final_checks import check_replicas
from tests.story.replication.test_three_replicas import until_in_sync
from tests.story.transactions.world import TransactionWorld

SEED = 1
CALL_S = 2.0
DOWN_S = (0.3, 3.0)  # the session of a broker is 2 s
FACTOR = 3
SETTINGS = {"leader.imbalance.check.interval.seconds": 2}
PARTITIONS: tuple[Partition, Partition] = (("orders", 0), ("orders", 1))


class SimulatedRig:
    """The brokers of a simulated cluster, as a `Rig`."""

    late_error = ViolationError

    def __init__(self, world: TransactionWorld) -> None:
        self.bootstrap = world.bootstrap
        self._world = world

    def connect(self) -> Wire:
        return Wire(self.bootstrap, self._world.network.dial, timeout_s=CALL_S)

    def now(self) -> float:
        return self._world.loop.time()

    def wall_ms(self) -> int:
        return virtual_wall_ms()

    async def kill(self, address: Address) -> Callable[[], Awaitable[None]]:
        broker = self._world.brokers[self._id_of(address)]
        broker.kill()
        return broker.start

    async def suspend(self, address: Address) -> Callable[[], Awaitable[None]]:
        broker = self._world.brokers[self._id_of(address)]
        broker.pause()

        async def resume() -> None:
            broker.resume()

        return resume

    def _id_of(self, address: Address) -> int:
        return int(address[0].removeprefix("broker"))


def run_cases(directory: Path, cases: list[tuple[Case, float]]) -> Processes:
    """Run cases, each with the seconds that the victim is down."""

    async def main(world: TransactionWorld) -> Processes:
        administrator = Administrator(world)
        assert await administrator.create("orders", 2, FACTOR)
        assert await administrator.create("input", 1, FACTOR)
        await until_in_sync(world)
        processes = Processes(SimulatedRig(world), PARTITIONS)
        for case, down_s in cases:
            await processes.run(case, down_s)
            await until_in_sync(world)
        await processes.check()
        await pass_time(1.0)
        await check_replicas(world)
        return processes

    return run(directory, SEED, main, lambda path, seed: TransactionWorld(path, seed, SETTINGS))


@pytest.mark.torture
@pytest.mark.parametrize("state", STATES)
def test_transaction_ends_whatever_process_ends(tmp_path: Path, state: str, simulations: int) -> None:
    """Each failure is short or long in `make test`, and both in the long form."""
    cases = list(product([case for case in CASES if case.state == state], DOWN_S))
    if simulations == SHORT["simulations"]:
        cases = [each for number, each in enumerate(cases) if number % 4 in (0, 3)]
    processes = run_cases(tmp_path, cases)
    print(f"{len(processes.seconds)} times; the longest took {max(processes.seconds):.1f} s")
