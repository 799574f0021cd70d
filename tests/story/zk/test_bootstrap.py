"""Clients whose `bootstrap_servers` name a tree follow its brokers: in virtual time, on whole brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
from kafkalite_sdk import Admin, Consumer, Producer
from kafkalite_sdk.admin import NewTopic
from kafkalite_sdk.client.environment import Environment

from kafkalite.coordination.tree import Create
from kafkalite.errors import ClientUseError, KafkaConnectionError
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.simulated_broker import SimulatedBroker
from kafkalite.testing.simulated_cluster import MEMBER_SETTINGS, PORT, SimulatedCluster
from kafkalite.testing.virtual_loop import pass_time, run_virtually, virtual_wall_ms
from tests.story.sdk.virtual import check_nothing_left

BROKERS = 3
SEED = 7
TREE = "zookeeper://zookeeper:2181"
TOPIC, PARTITIONS = "orders", 6
SETTINGS = {
    "offsets.topic.num.partitions": 3,
    "offsets.topic.replication.factor": 1,
    "group.initial.rebalance.delay.ms": 0,
    "log.flush.interval.messages": 1,
}
PAUSE_S = 0.02
DEADLINE_S = 300.0
LOGGER = "kafkalite_sdk.zk.bootstrap"


class World:
    """Brokers that may be replaced by brokers at other addresses."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.random = Random(SEED)
        self.network = MemoryNetwork(Random(SEED), delay_s=(0.0001, 0.003))
        self.cluster = SimulatedCluster(str(directory), self.network, BROKERS, seed=SEED, settings=SETTINGS)
        self.moves = 0

    def environment(self) -> Environment:
        return Environment(dial=self.network.dial, random=Random(self.random.random()), wall_ms=virtual_wall_ms)

    def remove(self, broker_id: int) -> None:
        """Kill a broker; it never runs again at its address."""
        self.cluster.kill(broker_id)

    async def replace(self, broker_id: int) -> None:
        """Start a broker with the id and the data of one that was removed, at another address."""
        self.moves += 1
        broker = self.cluster.brokers[broker_id] = SimulatedBroker(
            str(self.directory / str(broker_id)),
            self.network,
            seed=SEED * 1_000 + 100 * self.moves + broker_id,
            settings={**MEMBER_SETTINGS, **SETTINGS, "broker.id": broker_id},
            host=f"replacement{self.moves}",
            port=PORT,
        )
        await broker.start()

    @asynccontextmanager
    async def sessions(self) -> AsyncIterator[None]:
        """Check that no session of a client is left."""
        before = len(self.cluster.zookeeper.sessions)
        yield
        assert len(self.cluster.zookeeper.sessions) == before


def virtually(directory: Path, scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World(directory)
        async with world.cluster:
            await scenario(world)
        await pass_time(1.0)
        check_nothing_left()

    run_virtually(main)


class Load:
    """A producer and a consumer of a group that find their brokers in the tree; both run until `finish`."""

    def __init__(self, world: World) -> None:
        self.sent = 0
        self.received: list[int] = []
        self._world = world
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        async with Admin(TREE, environment=self._world.environment()) as admin:
            (await admin.topics.create(NewTopic(TOPIC, partitions=PARTITIONS))).check()
        self._tasks = [asyncio.create_task(self._produce()), asyncio.create_task(self._consume())]
        await self.progress(50)

    async def progress(self, records: int) -> None:
        """Wait until so many more records are consumed."""
        wanted = len(self.received) + records
        async with asyncio.timeout(DEADLINE_S):
            while len(self.received) < wanted:
                failed = [each for each in self._tasks if each.done()]
                assert not failed, failed
                await pass_time(PAUSE_S)

    async def finish(self) -> None:
        self._stopping.set()
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*self._tasks)
        assert sorted(set(self.received)) == list(range(self.sent))

    async def _produce(self) -> None:
        async with Producer(TREE, environment=self._world.environment()) as producer:
            while not self._stopping.is_set():
                producer.send(TOPIC, b"%d" % self.sent, partition=self.sent % PARTITIONS)
                self.sent += 1
                await producer.drain()
                await pass_time(PAUSE_S)
            await producer.flush()

    async def _consume(self) -> None:
        consumer = Consumer(TREE, environment=self._world.environment(), group="billing", auto_offset_reset="earliest")
        async with consumer:
            consumer.subscribe(TOPIC)
            while not self._stopping.is_set() or len(set(self.received)) < self.sent:
                self.received += [int(record.value) for record in await consumer.poll(0.5)]


def test_every_broker_is_replaced_by_one_at_another_address(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        async with world.sessions():
            load = Load(world)
            await load.begin()
            for broker_id in range(1, BROKERS + 1):
                world.remove(broker_id)
                await world.replace(broker_id)
                await load.progress(100)
            await load.finish()

    virtually(tmp_path, scenario)


def test_all_brokers_are_replaced_at_the_same_time(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        async with world.sessions():
            load = Load(world)
            await load.begin()
            for broker_id in range(1, BROKERS + 1):
                world.remove(broker_id)
            await pass_time(5.0)
            for broker_id in range(1, BROKERS + 1):
                await world.replace(broker_id)
            await load.progress(100)
            await load.finish()

    virtually(tmp_path, scenario)


def test_a_lost_session_is_followed_by_another_one(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        zookeeper = world.cluster.zookeeper
        of_brokers = set(zookeeper.sessions)
        async with Admin(TREE, environment=world.environment()) as admin:
            (own,) = set(zookeeper.sessions) - of_brokers
            zookeeper.expire(own)
            await pass_time(3.0)
            for broker_id in range(1, BROKERS + 1):
                world.remove(broker_id)
            await pass_time(5.0)
            for broker_id in range(1, BROKERS + 1):
                await world.replace(broker_id)
            assert len((await admin.cluster.describe()).brokers) == BROKERS

    virtually(tmp_path, scenario)


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        (f"{TREE}/missing", "the chroot in zookeeper.connect"),
        (f"{TREE}/brokers", "/brokers/ids does not exist, so no cluster has used this path; check the chroot"),
        (f"{TREE}?listener=EXTERNAL", "has a listener named EXTERNAL; they have PLAINTEXT (PLAINTEXT)"),
        ("zookeeper://nowhere:2181", "no session within 10 s, the last attempt: nowhere:2181: Connection refused"),
    ],
)
def test_wrong_trees_are_connection_errors(tmp_path: Path, servers: str, words: str) -> None:
    async def scenario(world: World) -> None:
        async with world.sessions():
            with pytest.raises(KafkaConnectionError) as caught:
                await Producer(servers, environment=world.environment()).start()
            assert words in str(caught.value)

    virtually(tmp_path, scenario)


def test_invalid_registrations_are_named_and_the_others_are_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        tree = world.cluster.zookeeper.tree
        nodes = {"0": b"\xff{", "7": b'{"version":5,"endpoints":[]}', "name": b""}
        tree.multi([Create(f"/brokers/ids/{name}", data) for name, data in nodes.items()], tree.open_session(), 0)
        async with Admin(TREE, environment=world.environment()) as admin:
            assert len((await admin.cluster.describe()).brokers) == BROKERS
        for path in ("/brokers/ids/0", "/brokers/ids/7"):
            assert any(each.name == LOGGER and path in each.message for each in caplog.records), path

    with caplog.at_level(logging.WARNING, LOGGER):
        virtually(tmp_path, scenario)


def test_clients_continue_while_zookeeper_is_out_of_reach(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        load = Load(world)
        await load.begin()
        world.network.refuse("zookeeper", 2181)
        world.network.reset("zookeeper", 2181)
        await load.progress(20)
        world.network.accept("zookeeper", 2181)
        await pass_time(5.0)
        for broker_id in range(1, BROKERS + 1):
            world.remove(broker_id)
            await world.replace(broker_id)
        await load.progress(100)
        await load.finish()

    virtually(tmp_path, scenario)


def test_a_listener_is_chosen_by_its_name(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        async with Admin(f"{TREE}?listener=PLAINTEXT", environment=world.environment()) as admin:
            assert len((await admin.cluster.describe()).brokers) == BROKERS

    virtually(tmp_path, scenario)


def test_a_close_ends_a_start_that_waits_for_the_tree(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        producer = Producer("zookeeper://nowhere:2181", environment=world.environment())
        starting = asyncio.create_task(producer.start())
        await pass_time(1.0)
        await producer.close()
        with pytest.raises(ClientUseError):
            await starting

    virtually(tmp_path, scenario)


def test_without_brokers_the_start_fails_and_a_later_one_succeeds(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        for broker_id in range(1, BROKERS + 1):
            world.remove(broker_id)
        await pass_time(10.0)
        producer = Producer(TREE, environment=world.environment())
        with pytest.raises(KafkaConnectionError, match="no broker is registered below /brokers/ids"):
            await producer.start()
        for broker_id in range(1, BROKERS + 1):
            await world.replace(broker_id)
        await producer.start()
        await producer.close()

    virtually(tmp_path, scenario)
