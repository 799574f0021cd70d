"""The surroundings of a simulated client: a broker, a network, and faults by a seed, in virtual time.

A run prints its seed; `KAFKALITE_SEED=n` repeats the run alone.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import TypeVar

from kafkalite_sdk.client.environment import Environment

from kafkalite._speedups.records.batches import batches
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.simulated_broker import HOST, PORT, SimulatedBroker
from kafkalite.testing.virtual_loop import pass_time, run_virtually, virtual_wall_ms
from tests.fix_torture import SHORT
from tests.kit.seeds import seeds_of
from tests.kit.server import Client, fetch_request, fetched
from tests.story.sdk.virtual import check_nothing_left

T = TypeVar("T")

BOOTSTRAP = f"{HOST}:{PORT}"
SECONDS = 60.0
FAULTLESS_EVERY = 10
DELAYS_S = ((0.0001, 0.0001), (0.0001, 0.003), (0.001, 0.05), (0.0, 0.4))
FRAGMENTS = (0, 0, 2000, 150)


class World:
    """A broker that fails, and its network.

    Attributes:
        bootstrap: the bootstrap servers of clients.
        random: source of all decisions of the simulation, apart from those of network and broker.
        flushed: batches are flushed before they are acknowledged, so a power failure is one of the faults.
        counts: number of each fault.
    """

    def __init__(self, directory: Path, seed: int) -> None:
        self.seed = seed
        self.bootstrap = BOOTSTRAP
        self.random = Random(seed)
        self.loop = asyncio.get_running_loop()
        self.network = MemoryNetwork(
            Random(seed + 1),
            delay_s=self.random.choice(DELAYS_S),
            fragment_bytes=self.random.choice(FRAGMENTS),
        )
        self.flushed = self.random.random() < 0.3
        settings = {
            "group.initial.rebalance.delay.ms": 0,
            "group.consumer.heartbeat.interval.ms": 1000,
            "group.consumer.min.heartbeat.interval.ms": 500,
            "group.consumer.min.session.timeout.ms": 3000,
            "group.consumer.session.timeout.ms": 6000,
            "group.min.session.timeout.ms": 1000,
        }
        if self.flushed:
            settings["log.flush.interval.messages"] = 1
        self.broker = SimulatedBroker(str(directory), self.network, seed=seed, settings=settings)
        self.counts: dict[str, int] = {}

    def environment(self) -> Environment:
        """The environment of a client."""
        return Environment(dial=self.network.dial, random=Random(self.random.random()), wall_ms=virtual_wall_ms)

    def connection(self) -> ClientConnection:
        """A connection of the simulation itself."""
        return ClientConnection(HOST, PORT, timeout_s=30.0, dial=self.network.dial)

    def count(self, event: str) -> None:
        """Count an event of the simulation."""
        self.counts[event] = self.counts.get(event, 0) + 1

    def name_of(self, topic_id: bytes) -> str:
        """The name of a topic id."""
        topics = self.broker.running.image.topics.values()
        return next(each.name for each in topics if each.topic_id == topic_id)

    async def create_topics(self, **partitions: int) -> None:
        """Create topics with these numbers of partitions."""
        async with self.connection() as connection:
            client = Client(self.broker.running, connection)
            for name, count in partitions.items():
                (created,) = await client.create(name, partitions=count)
                assert created.error_code == 0, created

    async def grow(self, topic: str, count: int) -> None:
        """Give a topic more partitions."""
        entry = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=count, assignments=None)
        async with self.connection() as connection:
            await connection.call(CreatePartitionsRequest(topics=[entry], timeout_ms=1000))

    async def logs(self, topics: Iterable[str]) -> dict[tuple[str, int], list[tuple[int, bytes | None]]]:
        """Offset and value of every record of the topics, by partition; the broker runs and the network works."""
        found: dict[tuple[str, int], list[tuple[int, bytes | None]]] = {}
        async with self.connection() as connection:
            for topic in topics:
                for partition in range(len(self.broker.running.image.topics[topic].partitions)):
                    log = found[topic, partition] = []
                    while new := await self._read(connection, topic, partition, log[-1][0] + 1 if log else 0):
                        log += new
        return found

    @staticmethod
    async def _read(
        connection: ClientConnection, topic: str, partition: int, offset: int
    ) -> list[tuple[int, bytes | None]]:
        response = await connection.call(fetch_request(topic, (partition, offset), max_bytes=1 << 26), version_max=12)
        part = fetched(response)[topic, partition]
        assert part.error_code == 0, part
        records = [record for found in batches(part.records) for record in found]
        return [(record.offset, record.value) for record in records if record.offset >= offset]

    async def inject_faults(self, until: float) -> None:
        """Let faults happen until a time of the loop; at its end broker and network work."""
        mean_s = self.random.choice((1.0, 4.0, 4.0, 15.0))
        if self.seed % FAULTLESS_EVERY == 0:
            await pass_time(until - self.loop.time())
            return
        kinds = [self._reset, self._reset_some, self._stall, self._stall, self._refuse, self._kill]
        if self.flushed:
            kinds.append(self._cut_power)
        while (pause_s := self.random.expovariate(1 / mean_s)) < until - self.loop.time():
            await pass_time(pause_s)
            fault = self.random.choice(kinds)
            self.count(fault.__name__.strip("_"))
            await fault()
        await pass_time(max(0.0, until - self.loop.time()))
        await self.broker.start()

    async def _reset(self) -> None:
        self.network.reset(HOST, PORT)

    async def _reset_some(self) -> None:
        self.network.reset(HOST, PORT, share=0.4)

    async def _stall(self) -> None:
        self.network.stall(HOST, PORT, self.random.choice((0.1, 0.5, 2.0, 6.0)))

    async def _refuse(self) -> None:
        self.network.refuse(HOST, PORT)
        await pass_time(self.random.uniform(0.0, 3.0))
        self.network.accept(HOST, PORT)

    async def _kill(self) -> None:
        self.broker.kill()
        await self._start_again()

    async def _cut_power(self) -> None:
        self.broker.cut_power()
        await self._start_again()

    async def _start_again(self) -> None:
        await pass_time(self.random.choice((0.0, 0.3, 3.0)))
        await self.broker.start()


@asynccontextmanager
async def world(directory: Path, seed: int) -> AsyncIterator[World]:
    """A world whose broker runs; after it no task, no timer and no listening address may be left."""
    found = World(directory, seed)
    await found.broker.start()
    yield found
    await found.broker.stop()
    await pass_time(1.0)  # the ends of the last connections arrive
    check_nothing_left()
    assert not found.network.servers


def seeds(simulations: int, in_test_run: int) -> range:
    """The seeds of a simulation, see `tests.kit.seeds`.

    Arguments:
        simulations: the option `--simulations`.
        in_test_run: number of runs where the option is not given.
    """
    return seeds_of(in_test_run if simulations == SHORT["simulations"] else simulations)


def total(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """The sums of the counts of several runs."""
    sums: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            sums[name] = sums.get(name, 0) + count
    return sums


def run(directory: Path, seed: int, scenario: Callable[[World], Awaitable[T]]) -> T:
    """Run a scenario in a world of its own."""

    async def main() -> T:
        async with world(directory / str(seed), seed) as found:
            return await scenario(found)

    print(f"KAFKALITE_SEED={seed}")
    return run_virtually(main)[0]
