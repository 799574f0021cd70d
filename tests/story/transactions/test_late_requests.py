"""A request that arrives after the next transaction has begun has no effect on it (KAFKA-17754, KAFKA-14402).

The network holds back one request of a client, or one WriteTxnMarkers of a coordinator. The sender repeats it on
another connection, or the client aborts. Then the next transaction begins, and the request arrives. TV2 has no anomaly.
TV1 has some, as in Apache Kafka: a late EndTxn ends the next transaction.

`--simulations N` sets the number of late requests of each kind.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest

from kafkalite.config.keys import SettingValue
from kafkalite.testing.memory_network import HeldBytes
from kafkalite.testing.virtual_loop import pass_time, virtual_wall_ms
from tests.fix_torture import SHORT
from tests.kit.checker import Anomaly
from tests.kit.transactions.checker import check
from tests.kit.transactions.history import Partition
from tests.kit.transactions.markers import check_markers
from tests.kit.transactions.producer import AbortableError, FencedError, RawProducer, Settings
from tests.kit.transactions.readers import CommittedReader, read_entries, wait_stable
from tests.kit.transactions.wire import TRANSACTION, Address, Retries, Wire
from tests.story.cluster.administrator import Administrator
from tests.story.cluster.world import run
from tests.story.replication.test_three_replicas import until_in_sync
from tests.story.transactions.world import TransactionWorld

TIMES = 6  # of each kind, in `make test`
LONG = 1_000
OF_A_CLUSTER = 250  # late requests; more take another cluster, with the next seed
SEED = 1
P: Partition = ("orders", 0)
Q: Partition = ("orders", 1)
CALL_S = 0.3
ARRIVAL_S = 0.05
MARKERS_S = 60.0
SETTINGS: dict[str, SettingValue] = {"kafkalite.group.peer.timeout.ms": 300}  # until a coordinator repeats its markers
STABLE_S = 60.0
CLIENT = "client"
FULL = "the last reading"


class LateRequests:
    """A producer whose requests are late.

    Arguments:
        world: the cluster.
        version: of transactions.
        number: of this producer.
    """

    def __init__(self, world: TransactionWorld, version: int, number: int) -> None:
        self.world = world
        self.random = Random(world.seed * 10_000 + number)
        self.wire = Wire(world.bootstrap, world.network.dial, timeout_s=CALL_S, keeps_late=True)
        settings = Settings(timeout_ms=20_000, delivery_s=30.0, wall_ms=virtual_wall_ms)
        self.producer = RawProducer(self.wire, f"late-{number}", version, world.history, world.loop.time, settings)
        self._hold: HeldBytes | None = None
        self._is_held = asyncio.Event()

    async def run(self, kind: Callable[[LateRequests], Awaitable[None]]) -> None:
        """A transaction with a late request, and the next one, during which it arrives; then a third one."""
        await self.producer.initialize()
        await kind(self)
        await self._next(commit=self.random.random() < 0.5)
        await self._third()
        await self.wire.close()

    async def _next(self, *, commit: bool) -> None:
        producer = self.producer
        producer.begin()
        try:
            await producer.send(P)
            assert self._hold is not None and self._is_held.is_set(), "the request was not held"
            self._hold.release()
            await pass_time(ARRIVAL_S)
            await producer.send(Q)
            await (producer.commit() if commit else producer.abort())
        except AbortableError:
            self.world.count("errors of the next transaction")
            await producer.recover(by_request=True)

    async def _third(self) -> None:
        try:
            self.producer.begin()
            await self.producer.send(P)
            await self.producer.commit()
        except AbortableError:
            self.world.count("errors of the third transaction")

    def hold(self, sender: str, receiver: str, contents: bytes) -> None:
        """Hold back the next request with these contents."""
        self._hold = self.world.network.hold_next(sender, receiver, contents, self._is_held.set)

    async def hold_request(self, address: Address) -> None:
        """Hold back the next request of the client that names its transactional id."""
        self.hold(CLIENT, address[0], self.producer.transactional_id.encode())

    async def coordinator(self) -> Address:
        """The coordinator of the producer."""
        return await self.wire.coordinator(TRANSACTION, self.producer.transactional_id)


Kind = Callable[[LateRequests], Awaitable[None]]


async def end_txn(late: LateRequests) -> None:
    """The client repeats its EndTxn."""
    late.producer.begin()
    await late.producer.send(P)
    await late.producer.send(Q)
    await late.hold_request(await late.coordinator())
    await (late.producer.commit() if late.random.random() < 0.7 else late.producer.abort())


async def produce(late: LateRequests) -> None:
    """The client repeats its Produce, or aborts without a repetition."""
    late.producer.begin()
    await late.producer.send(P)
    await late.hold_request(await late.wire.leader(Q))
    if late.random.random() < 0.5:
        await late.producer.send(Q)
        await late.producer.commit()
        return
    patient, late.producer.settings = late.producer.settings, late.producer.settings._replace(delivery_s=0.0)
    with pytest.raises(AbortableError):
        await late.producer.send(Q)
    late.producer.settings = patient
    await late.producer.abort()


async def add_partitions(late: LateRequests) -> None:
    """The client repeats its AddPartitionsToTxn (TV1)."""
    late.producer.begin()
    await late.producer.send(P)
    await late.hold_request(await late.coordinator())
    await late.producer.send(Q)
    await (late.producer.commit() if late.random.random() < 0.5 else late.producer.abort())


async def write_markers(late: LateRequests) -> None:
    """The coordinator repeats its WriteTxnMarkers."""
    producer = late.producer
    producer.begin()
    for partition in (P, Q):
        await producer.send(partition)
    coordinator = (await late.coordinator())[0]
    leaders = [(await late.wire.leader(partition))[0] for partition in (P, Q)]
    receiver = next(each for each in leaders if each != coordinator)
    epoch = producer.epoch + (producer.versions.end >= 5)
    late.hold(coordinator, receiver, struct.pack(">qh?", producer.producer_id, epoch, True))
    await producer.commit()
    until = late.world.loop.time() + MARKERS_S
    while not late._is_held.is_set() and late.world.loop.time() < until:
        await pass_time(0.01)


KINDS_TV2 = (end_txn, produce, write_markers)


def anomalies_of(
    directory: Path, version: int, kind: Callable[[LateRequests], Awaitable[None]], times: int
) -> list[Anomaly]:
    """The anomalies of many late requests of a kind, each of a producer of its own."""
    found: list[Anomaly] = []
    for begin in range(0, times, OF_A_CLUSTER):
        seed, count = SEED + begin // OF_A_CLUSTER, min(OF_A_CLUSTER, times - begin)
        found += _anomalies_of_a_cluster(directory, version, kind, count, seed)
    return found


def _anomalies_of_a_cluster(directory: Path, version: int, kind: Kind, times: int, seed: int) -> list[Anomaly]:
    async def main(world: TransactionWorld) -> list[Anomaly]:
        administrator = Administrator(world)
        assert await administrator.create(P[0], 2, 3)
        await until_in_sync(world)
        assert len({state.leader for state in world.observed_states().values()}) > 1
        reader = world.connect()
        follower = CommittedReader(reader, world.history, "follower", (P, Q))
        running = True
        following = asyncio.ensure_future(follower.run(lambda: running, lambda: 0.01))
        for number in range(times):
            late = LateRequests(world, version, number)
            try:
                await late.run(kind)
            except FencedError:
                world.count("fenced")
            finally:
                late.wire.abort()
        for partition in (P, Q):
            await wait_stable(reader, partition, Retries(world.loop.time, STABLE_S, 0.05))
        running = False
        await following
        await CommittedReader(reader, world.history, FULL, (P, Q)).read_to_end(Retries(world.loop.time, STABLE_S, 0.05))
        anomalies = check(world.history, FULL)
        anomalies += check_markers(world.history, await read_entries(reader, (P, Q)), markers_of_tv2=version == 2)
        await reader.close()
        print(world.counts)
        return anomalies

    return run(directory, seed, main, partial(TransactionWorld, settings=SETTINGS))


@pytest.fixture
def times(simulations: int) -> int:
    """The number of late requests of each kind."""
    return TIMES if simulations == SHORT["simulations"] else LONG


@pytest.mark.torture
@pytest.mark.parametrize("kind", KINDS_TV2, ids=lambda kind: kind.__name__)
def test_late_request_has_no_effect_in_version_2(tmp_path: Path, kind: Kind, times: int) -> None:
    assert anomalies_of(tmp_path, 2, kind, times) == []


@pytest.mark.torture
def test_late_addition_of_version_1_adds_the_partition_to_the_next_transaction(tmp_path: Path, times: int) -> None:
    """It gets an empty marker there, which no reader notices."""
    assert anomalies_of(tmp_path, 1, add_partitions, times) == []


@pytest.mark.torture
def test_late_end_of_version_1_ends_the_next_transaction(tmp_path: Path) -> None:
    """As in Apache Kafka: the checker finds it."""
    found = {each.name for each in anomalies_of(tmp_path, 1, end_txn, TIMES)}
    assert found & {"early-read", "wrong-outcome"}, found
