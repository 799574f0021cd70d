"""Processes of brokers are killed and suspended in each state of a transaction: see `tests/kit/transactions/states.py`.

The coordination directory has a process of its own: no partition loses an in-sync replica while that is suspended.
`--cluster-faults` sets the number of faults.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from tests.fix_torture import is_long
from tests.kit.broker_processes import REPLICATED, BrokerProcesses
from tests.kit.brokers import wait_until
from tests.kit.coordination_process import coordination_process
from tests.kit.transactions.history import Partition
from tests.kit.transactions.producer import real_wall_ms
from tests.kit.transactions.states import CASES, Case, Processes
from tests.kit.transactions.wire import Address, Wire

pytestmark = [pytest.mark.torture, pytest.mark.timeout(3_600)]
SETTINGS = {
    **REPLICATED,
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "6",
    "replica.lag.time.max.ms": "2000",
    "leader.imbalance.check.interval.seconds": "2",
}
SHORT = (  # in `make test`
    Case("PrepareCommit", "coordinator", "kill"),
    Case("Ongoing", "leader", "suspend"),
)
DOWN_S = (0.5, 4.0)
CALL_S = 3.0


class ProcessRig:
    """Broker processes, as a `Rig`."""

    late_error = AssertionError

    def __init__(self, cluster: BrokerProcesses) -> None:
        self.bootstrap = cluster.bootstrap
        self._cluster = cluster

    def connect(self) -> Wire:
        return Wire(self.bootstrap, timeout_s=CALL_S)

    def now(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return real_wall_ms()

    async def kill(self, address: Address) -> Callable[[], Awaitable[None]]:
        broker_id = self._id_of(address)
        self._cluster.kill(broker_id)

        async def start() -> None:
            await asyncio.to_thread(self._cluster.start, broker_id)

        return start

    async def suspend(self, address: Address) -> Callable[[], Awaitable[None]]:
        broker_id = self._id_of(address)
        self._cluster.freeze(broker_id)

        async def thaw() -> None:
            self._cluster.thaw(broker_id)

        return thaw

    def _id_of(self, address: Address) -> int:
        return next(each for each, broker in self._cluster.brokers.items() if broker.port == address[1])


def two_leaders(cluster: BrokerProcesses, partitions: list[Partition]) -> tuple[Partition, Partition]:
    """Two partitions with different leaders."""
    leaders = cluster.agreed().leaders
    first = partitions[0]
    return first, next(each for each in partitions if leaders[each] != leaders[first])


def is_complete(cluster: BrokerProcesses) -> bool:
    """Whether all brokers know that each ISR has all of them."""
    return set(cluster.agreed().in_sync.values()) == {frozenset(cluster.brokers)}


def chosen_cases(config: pytest.Config, random: Random) -> list[Case]:
    """The short list, or as many as `--cluster-faults` says."""
    count: int = config.getoption("--cluster-faults")
    return [random.choice(CASES) for _ in range(count)] if is_long(config) else list(SHORT)


def test_transactions_end_when_processes_end(tmp_path: Path, pytestconfig: pytest.Config, random: Random) -> None:
    shared = tmp_path / "shared"
    coordination = {"kafkalite.coordination.directory": str(shared)}
    with coordination_process(shared), BrokerProcesses(tmp_path, coordination, SETTINGS) as cluster:
        partitions = two_leaders(cluster, cluster.create_topic("orders", 6, factor=3))
        cluster.create_topic("input", 1, factor=3)
        processes = Processes(ProcessRig(cluster), partitions)
        for case in chosen_cases(pytestconfig, random):
            down_s = random.choice(DOWN_S)
            print(f"{case}, down for {down_s} s")
            asyncio.run(processes.run(case, down_s))
            wait_until(lambda: is_complete(cluster), "every ISR is complete")
        asyncio.run(processes.check())
    print(f"{len(processes.seconds)} faults; the longest took {max(processes.seconds):.1f} s")
